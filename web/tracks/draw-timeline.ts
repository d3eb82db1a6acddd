// Draws the timeline: reserved memory behind, live memory stacked by meaning or as plain areas before it, the limit, and where
// a shorter recording ends.
import { formatBytes } from '../../src/base/bytes.ts';
import { byteTicks } from '../../src/view/ticks.ts';
import type { Series, TimelineColumns } from '../../src/view/timeline.ts';
import type { Viewport } from '../../src/view/viewport.ts';
import { type Context, clipped, label, line, plate, scaleX, scaleY, type TrackColours } from './brush.ts';
import type { Picture } from './draw-tracks.ts';
import type { StackImage } from './lane-data.ts';
import type { Box } from './track-layout.ts';

export function drawTimeline(context: Context, box: Box, picture: Picture): void {
  const { colours, wanted } = picture;
  const { bytes } = wanted;
  const y = scaleY(box, bytes);
  for (const tick of byteTicks(bytes.from, bytes.to, box.height > 200 ? 6 : 4)) {
    const at = Math.round(y(tick.at)) + 0.5;
    line(context, colours.line, box.left, at, box.left + box.width, at);
    const middle = Math.min(Math.max(at, box.top + 5), box.top + box.height - 5);
    label(context, tick.label, box.left - 8, middle, colours.faint, 'right', 'middle');
  }
  clipped(context, box, () => {
    const [first] = picture.lanes;
    if (first) drawEnd(context, box, scaleX(box, wanted.view)(first.span), 'A', colours);
    picture.lanes.forEach(({ data, span }, index) => {
      const columns = data.timeline(wanted);
      const series = { box, view: wanted.view, layers: columns, bytes, end: span };
      if (index > 0) {
        stroke(context, series, 'reserved', colours.other, B_DASH);
        return;
      }
      const stack = data.stack(wanted, picture.stackLook);
      area(context, series, 'reserved', colours.held, 1);
      if (stack) {
        drawStack(context, box, stack, picture, span);
        stroke(context, series, 'allocated', colours.text, DOTS);
      } else {
        area(context, series, 'allocated', colours.allocated, 0.85);
        stroke(context, series, 'live', colours.live, undefined);
      }
      stroke(context, series, 'reserved', colours.reserved, undefined);
    });
    drawLimit(context, box, picture, y);
  });
}

function drawLimit(context: Context, box: Box, picture: Picture, y: (bytes: number) => number): void {
  const { capacity, colours } = picture;
  if (capacity === undefined) return;
  const at = Math.round(y(capacity)) + 0.5;
  if (at < box.top || at > box.top + box.height) return;
  const right = box.left + box.width;
  context.setLineDash([6, 3]);
  context.lineWidth = 1.5;
  line(context, colours.bad, box.left, at, right, at);
  context.lineWidth = 1;
  context.setLineDash([]);
  const above = at - 18 >= box.top ? at - 18 : at + 2;
  plate(context, `limit ${formatBytes(capacity)}`, box.left + 4, above, { text: colours.bad, surface: colours.surface }, [box.left, right]);
}

/** The finest image in its range, and the overview elsewhere. */
function drawStack(context: Context, box: Box, [detail, whole]: readonly StackImage[], picture: Picture, span: number): void {
  const { view } = picture.wanted;
  const x = scaleX(box, view);
  const end = Math.min(box.left + box.width, x(span));
  const draw = ({ stack, canvas }: StackImage, from: number, to: number) => {
    if (to <= from) return;
    clipped(context, { ...box, left: from, width: to - from }, () => {
      const left = x(stack.from);
      const width = x(stack.to) - left;
      context.imageSmoothingEnabled = width < stack.columns;
      context.drawImage(canvas, left, box.top, width, box.height);
    });
  };
  if (!detail) return;
  const from = Math.max(box.left, x(detail.stack.from));
  const to = Math.min(end, x(detail.stack.to));
  if (whole && whole !== detail) {
    draw(whole, box.left, Math.min(from, end));
    draw(whole, Math.max(box.left, to), end);
  }
  draw(detail, from, to);
  drawNames(context, box, detail, picture, end);
}

const NAME_HEIGHT = 15;
const NAME_STEP = 6;

/** The name of each band where it is highest, if it is high and wide enough there. */
function drawNames(context: Context, box: Box, { stack }: StackImage, picture: Picture, end: number): void {
  const { view, bytes } = picture.wanted;
  const perPixel = (view.to - view.from) / box.width;
  const perColumn = (stack.to - stack.from) / stack.columns;
  const least = (NAME_HEIGHT * (bytes.to - bytes.from)) / box.height;
  const y = scaleY(box, bytes);
  const level = (column: number, band: number) => {
    let sum = 0;
    for (let below = 0; below < band; below++) sum += stack.bytes[column * stack.bands + below]!;
    return Math.min(bytes.to, Math.max(bytes.from, sum));
  };
  const samples: number[] = [];
  for (let pixel = box.left; pixel < end; pixel += NAME_STEP) {
    const column = Math.floor((view.from + (pixel - box.left) * perPixel - stack.from) / perColumn);
    samples.push(column >= 0 && column < stack.columns ? column : -1);
  }
  picture.bandNames.forEach((name, band) => {
    const wide = Math.ceil((context.measureText(name).width + 12) / NAME_STEP);
    let best: { at: number; low: number; high: number } | undefined;
    for (let at = 0; at + wide < samples.length; at += 4) {
      let low = bytes.from;
      let high = bytes.to;
      for (let sample = at; sample < at + wide && high - low >= least; sample++) {
        const column = samples[sample]!;
        low = column < 0 ? high : Math.max(low, level(column, band));
        high = column < 0 ? low : Math.min(high, level(column, band + 1));
      }
      if (high - low >= least && (!best || high - low > (best.high - best.low) * 1.2)) best = { at, low, high };
    }
    if (!best) return;
    const left = box.left + best.at * NAME_STEP + 4;
    label(context, name, left, (y(best.low) + y(best.high)) / 2 + 0.5, picture.colours.surface, 'left', 'middle');
  });
}

/** Where the shorter of two recordings ends: nothing follows. */
export function drawEnd(context: Context, box: Box, at: number, name: string, colours: TrackColours): void {
  const right = box.left + box.width;
  if (at >= right - 1 || at < box.left) return;
  context.globalAlpha = 0.5;
  context.fillStyle = colours.line;
  context.fillRect(at, box.top, right - at, box.height);
  context.globalAlpha = 1;
  line(context, colours.text, Math.round(at) + 0.5, box.top, Math.round(at) + 0.5, box.top + box.height);
  plate(context, `${name} ends`, at + 3, box.top + 3, colours, [box.left, right]);
}

interface SeriesPlace {
  readonly box: Box;
  readonly view: Viewport;
  /** The finest first. */
  readonly layers: readonly TimelineColumns[];
  readonly bytes: Viewport;
  /** Where the recording ends. */
  readonly end: number;
}

/** Fills each pixel column below its highest value. Bars are much faster than a path of thousands of corners. */
export function area(context: Context, place: SeriesPlace, series: Series, colour: string, alpha: number): void {
  const { box } = place;
  const y = scaleY(box, place.bytes);
  inPixels(context, colour, alpha, (ratio) => {
    const bottom = Math.round((box.top + box.height) * ratio);
    let from = 0;
    let top = bottom;
    let to = 0;
    eachPixel(place, series, ratio, (x, _, high) => {
      const at = Math.round(y(high) * ratio);
      if (at !== top || x !== to) {
        context.fillRect(from, top, to - from, bottom - top);
        from = x;
        top = at;
      }
      to = x + 1;
    });
    context.fillRect(from, top, to - from, bottom - top);
  });
}

/** The line of allocated memory lies close to the bands, and must not cover them. */
const DOTS = [2, 2] as const;
/** The other lane's line. */
const B_DASH = [5, 3] as const;
/** Opacity of the range that values cover within a pixel column. */
const VEIL = 0.4;

/** A line through the highest values, and a translucent bar over the range of each pixel column. */
function stroke(
  context: Context,
  place: SeriesPlace,
  series: Series,
  colour: string,
  dash: readonly [on: number, off: number] | undefined,
): void {
  const scale = scaleY(place.box, place.bytes);
  inPixels(context, colour, 1, (ratio) => {
    const thick = Math.max(1, Math.round((dash === B_DASH ? 2 : 1.25) * ratio));
    const y = (bytes: number) => Math.round(scale(bytes) * ratio);
    let before = Number.NaN;
    eachPixel(place, series, ratio, (x, low, high) => {
      const top = Math.min(y(high), Number.isNaN(before) ? y(high) : before);
      const bottom = Math.max(y(low), Number.isNaN(before) ? y(low) : before);
      before = y(high);
      if (bottom - top > thick && dash !== DOTS) {
        // The range within the column is translucent, so that what is behind stays visible.
        context.globalAlpha = VEIL;
        context.fillRect(x, top, 1, bottom - top);
        context.globalAlpha = 1;
      }
      if (dash && Math.floor(x / ratio) % (dash[0] + dash[1]) >= dash[0]) return;
      context.fillRect(x, y(high), 1, thick);
    });
  });
}

/** Draws in whole device pixels at any scale of the page. */
function inPixels(context: Context, colour: string, alpha: number, draw: (ratio: number) => void): void {
  const ratio = context.getTransform().a;
  context.save();
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.fillStyle = colour;
  context.globalAlpha = alpha;
  draw(ratio);
  context.restore();
}

/** Minimum and maximum of each visible pixel column, from the finest layer that covers it, up to the end of the recording. */
function eachPixel(
  { box, view, layers, end }: SeriesPlace,
  series: Series,
  ratio: number,
  visit: (x: number, low: number, high: number) => void,
): void {
  const first = Math.round(box.left * ratio);
  const count = Math.round(box.width * ratio);
  const perPixel = (view.to - view.from) / count;
  for (let pixel = 0; pixel < count; pixel++) {
    const from = view.from + pixel * perPixel;
    if (from > end) break;
    const columns = layers.find((layer) => from >= layer.from && from < layer.to);
    if (!columns) continue;
    const width = (columns.to - columns.from) / columns.columns;
    const begin = Math.min(columns.columns - 1, Math.floor((from - columns.from) / width));
    const until = Math.min(columns.columns, Math.max(begin + 1, Math.ceil((from + perPixel - columns.from) / width)));
    let low = Number.POSITIVE_INFINITY;
    let high = Number.NEGATIVE_INFINITY;
    for (let column = begin; column < until; column++) {
      low = Math.min(low, columns.low[series][column]!);
      high = Math.max(high, columns.high[series][column]!);
    }
    visit(first + pixel, low, high);
  }
}
