// Draws the tracks: minimap, timeline, maps, and over them the cursor, marks and selections. The cost depends on pixels, not
// on events, since all data is reduced to columns and cells.
import type { AxisKind } from '../../src/view/clock.ts';
import type { BlockInfo, Moment } from '../../src/view/protocol.ts';
import { axisTicks, byteTicks } from '../../src/view/ticks.ts';
import type { Series, TimelineColumns } from '../../src/view/timeline.ts';
import type { Viewport } from '../../src/view/viewport.ts';
import type { LaneData, Wanted } from './lane-data.ts';
import { type Box, MAP_TITLE, type TrackLayout } from './track-layout.ts';

export interface TrackColours {
  readonly text: string;
  readonly faint: string;
  readonly line: string;
  readonly surface: string;
  readonly allocated: string;
  readonly reserved: string;
  readonly live: string;
  readonly cursor: string;
  readonly bad: string;
  readonly other: string;
  readonly accent: string;
  readonly font: string;
}

export interface Picture {
  readonly wanted: Wanted;
  readonly isDark: boolean;
  readonly colours: TrackColours;
  readonly lanes: readonly { readonly data: LaneData; readonly span: number; readonly label: string; readonly note: string }[];
  /** Top of the timeline's scale. */
  readonly mostBytes: number;
  readonly capacity: number | undefined;
  readonly cursor: number | undefined;
  readonly hover: number | undefined;
  readonly mark: number | undefined;
  readonly range: Viewport | undefined;
  /** The selected block in each lane. */
  readonly blocks: readonly ({ readonly info: BlockInfo; readonly from: number; readonly to: number } | undefined)[];
  readonly ooms: readonly number[];
  readonly marks: readonly { readonly at: number; readonly name: string }[];
}

type Context = CanvasRenderingContext2D;

export function drawTracks(context: Context, layout: TrackLayout, picture: Picture): void {
  const { colours, wanted } = picture;
  context.clearRect(0, 0, layout.width, layout.height);
  context.font = colours.font;
  context.lineWidth = 1;
  drawMinimap(context, layout.minimap, picture);
  drawTimeline(context, layout.timeline, picture);
  drawTicks(context, layout.ticks, wanted.axis, wanted.view, colours);
  picture.lanes.forEach((_, index) => {
    const box = layout.maps[index];
    if (box) drawMap(context, box, picture, index, layout.maps.length > 1);
  });
  drawOver(context, layout, picture);
}

function scaleX(box: Box, view: Viewport): (position: number) => number {
  const perUnit = box.width / (view.to - view.from);
  return (position) => box.left + (position - view.from) * perUnit;
}

function drawMinimap(context: Context, box: Box, picture: Picture): void {
  const { colours, wanted } = picture;
  const whole = { from: 0, to: wanted.wholeX };
  const overview = picture.lanes[0]?.data.overview(wanted);
  clipped(context, box, () => {
    context.fillStyle = colours.surface;
    context.fillRect(box.left, box.top, box.width, box.height);
    if (overview) {
      area(context, box, whole, [overview], 'reserved', picture.mostBytes, colours.reserved, 0.35);
      area(context, box, whole, [overview], 'allocated', picture.mostBytes, colours.allocated, 0.5);
    }
    const x = scaleX(box, whole);
    const from = x(wanted.view.from);
    const to = Math.max(from + 2, x(wanted.view.to));
    context.globalAlpha = 0.55;
    context.fillStyle = colours.surface;
    context.fillRect(box.left, box.top, from - box.left, box.height);
    context.fillRect(to, box.top, box.left + box.width - to, box.height);
    context.globalAlpha = 1;
    context.strokeStyle = colours.accent;
    context.lineWidth = 1.5;
    context.strokeRect(from + 0.75, box.top + 0.75, Math.max(1, to - from - 1.5), box.height - 1.5);
    context.fillStyle = colours.accent;
    for (const edge of [from, to]) context.fillRect(edge - 2, box.top + box.height / 2 - 6, 4, 12);
    context.lineWidth = 1;
  });
}

function drawTimeline(context: Context, box: Box, picture: Picture): void {
  const { colours, wanted, mostBytes } = picture;
  for (const tick of byteTicks(0, mostBytes, 4)) {
    const y = Math.round(box.top + box.height * (1 - tick.at / mostBytes)) + 0.5;
    line(context, colours.line, box.left, y, box.left + box.width, y);
    label(context, tick.label, box.left - 8, y, colours.faint, 'right', 'middle');
  }
  clipped(context, box, () => {
    picture.lanes.forEach(({ data }, index) => {
      const columns = data.timeline(wanted);
      if (index === 0) {
        area(context, box, wanted.view, columns, 'reserved', mostBytes, colours.reserved, 0.3);
        area(context, box, wanted.view, columns, 'allocated', mostBytes, colours.allocated, 0.45);
        stroke(context, box, wanted.view, columns, 'reserved', mostBytes, colours.reserved, undefined);
        stroke(context, box, wanted.view, columns, 'live', mostBytes, colours.live, undefined);
      } else stroke(context, box, wanted.view, columns, 'reserved', mostBytes, colours.other, [5, 3]);
    });
    const { capacity } = picture;
    if (capacity !== undefined && capacity <= mostBytes) {
      const y = Math.round(box.top + box.height * (1 - capacity / mostBytes)) + 0.5;
      context.setLineDash([2, 3]);
      line(context, colours.text, box.left, y, box.left + box.width, y);
      context.setLineDash([]);
      label(context, 'limit', box.left + 4, y - 3, colours.text, 'left', 'bottom');
    }
  });
}

/** Fills each pixel column below its highest value. Bars are much faster than a path of thousands of corners. */
function area(
  context: Context,
  box: Box,
  view: Viewport,
  layers: readonly TimelineColumns[],
  series: Series,
  most: number,
  colour: string,
  alpha: number,
): void {
  inPixels(context, colour, alpha, (ratio) => {
    const bottom = Math.round((box.top + box.height) * ratio);
    let from = 0;
    let top = bottom;
    let to = 0;
    eachPixel(box, view, layers, series, ratio, (x, _, high) => {
      const y = Math.round((box.top + box.height * (1 - high / most)) * ratio);
      if (y !== top || x !== to) {
        context.fillRect(from, top, to - from, bottom - top);
        from = x;
        top = y;
      }
      to = x + 1;
    });
    context.fillRect(from, top, to - from, bottom - top);
  });
}

/** Opacity of the range that values cover within a pixel column. */
const VEIL = 0.4;

/** A line through the highest values, and a translucent bar over the range of each pixel column. */
function stroke(
  context: Context,
  box: Box,
  view: Viewport,
  layers: readonly TimelineColumns[],
  series: Series,
  most: number,
  colour: string,
  dash: readonly [on: number, off: number] | undefined,
): void {
  inPixels(context, colour, 1, (ratio) => {
    const thick = Math.max(1, Math.round(1.25 * ratio));
    const y = (bytes: number) => Math.round((box.top + box.height * (1 - bytes / most)) * ratio);
    let before = Number.NaN;
    eachPixel(box, view, layers, series, ratio, (x, low, high) => {
      const top = Math.min(y(high), Number.isNaN(before) ? y(high) : before);
      const bottom = Math.max(y(low), Number.isNaN(before) ? y(low) : before);
      before = y(high);
      if (bottom - top > thick) {
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

/** Minimum and maximum of each visible pixel column, from the finest layer that covers it. */
function eachPixel(
  box: Box,
  view: Viewport,
  layers: readonly TimelineColumns[],
  series: Series,
  ratio: number,
  visit: (x: number, low: number, high: number) => void,
): void {
  const first = Math.round(box.left * ratio);
  const count = Math.round(box.width * ratio);
  const perPixel = (view.to - view.from) / count;
  for (let pixel = 0; pixel < count; pixel++) {
    const from = view.from + pixel * perPixel;
    const columns = layers.find((layer) => from >= layer.from && from < layer.to);
    if (!columns) continue;
    const width = (columns.to - columns.from) / columns.columns;
    const begin = Math.min(columns.columns - 1, Math.floor((from - columns.from) / width));
    const end = Math.min(columns.columns, Math.max(begin + 1, Math.ceil((from + perPixel - columns.from) / width)));
    let low = Number.POSITIVE_INFINITY;
    let high = Number.NEGATIVE_INFINITY;
    for (let column = begin; column < end; column++) {
      low = Math.min(low, columns.low[series][column]!);
      high = Math.max(high, columns.high[series][column]!);
    }
    visit(first + pixel, low, high);
  }
}

function drawTicks(context: Context, box: Box, axis: AxisKind, view: Viewport, colours: TrackColours): void {
  const x = scaleX(box, view);
  for (const tick of axisTicks(axis, view.from, view.to, Math.max(2, Math.floor(box.width / 110)))) {
    const at = Math.round(x(tick.at)) + 0.5;
    line(context, colours.line, at, box.top, at, box.top + 4);
    const text = context.measureText(tick.label).width / 2;
    const middle = Math.min(Math.max(at, box.left + text), box.left + box.width - text);
    label(context, tick.label, middle, box.top + 6, colours.faint, 'center', 'top');
  }
}

function drawMap(context: Context, box: Box, picture: Picture, index: number, isTitled: boolean): void {
  const { colours, wanted } = picture;
  const lane = picture.lanes[index]!;
  const { vertical } = wanted;
  if (isTitled) {
    const title = `${index === 0 ? 'A' : 'B'}  ${lane.label}`;
    label(context, title, box.left, box.top - MAP_TITLE / 2, colours.text, 'left', 'middle');
    label(context, lane.note, box.left + box.width, box.top - MAP_TITLE / 2, colours.faint, 'right', 'middle');
  }
  context.fillStyle = colours.surface;
  context.fillRect(box.left, box.top, box.width, box.height);
  const y = (bytes: number) => box.top + box.height * (1 - (bytes - vertical.from) / (vertical.to - vertical.from));
  const x = scaleX(box, wanted.view);
  clipped(context, box, () => {
    for (const { cells, canvas } of lane.data.map(wanted, picture.isDark)) {
      const left = x(cells.from);
      const top = y(cells.high);
      const width = x(cells.to) - left;
      const height = y(cells.low) - top;
      context.imageSmoothingEnabled = width < cells.columns;
      context.drawImage(canvas, left, top, width, height);
    }
  });
  for (const tick of byteTicks(vertical.from, vertical.to, isTitled ? 3 : 5)) {
    const at = Math.round(y(tick.at)) + 0.5;
    line(context, colours.line, box.left - 4, at, box.left, at);
    label(context, tick.label, box.left - 8, Math.min(at, box.top + box.height - 5), colours.faint, 'right', 'middle');
  }
  context.strokeStyle = colours.line;
  context.strokeRect(box.left + 0.5, box.top + 0.5, box.width - 1, box.height - 1);
}

function drawOver(context: Context, layout: TrackLayout, picture: Picture): void {
  const { colours, wanted } = picture;
  const { timeline, maps } = layout;
  const bottom = maps.at(-1) ? maps.at(-1)!.top + maps.at(-1)!.height : timeline.top + timeline.height;
  const whole: Box = { left: timeline.left, top: timeline.top, width: timeline.width, height: bottom - timeline.top };
  const x = scaleX(timeline, wanted.view);
  clipped(context, whole, () => {
    const upright = (at: number, colour: string, dash: number[], width = 1) => {
      context.setLineDash(dash);
      context.lineWidth = width;
      line(context, colour, Math.round(x(at)) + 0.5, whole.top, Math.round(x(at)) + 0.5, bottom);
      context.setLineDash([]);
      context.lineWidth = 1;
    };
    if (picture.range) {
      context.globalAlpha = 0.14;
      context.fillStyle = colours.accent;
      context.fillRect(x(picture.range.from), whole.top, Math.max(1, x(picture.range.to) - x(picture.range.from)), whole.height);
      context.globalAlpha = 1;
    }
    let lastLabel = Number.NEGATIVE_INFINITY;
    for (const { at, name } of picture.marks) {
      if (at < wanted.view.from || at > wanted.view.to) continue;
      context.globalAlpha = 0.5;
      upright(at, colours.faint, [1, 3]);
      context.globalAlpha = 1;
      const left = x(at) + 4;
      if (left < lastLabel) continue;
      const short = name.length > 24 ? `${name.slice(0, 23)}…` : name;
      label(context, short, left, timeline.top + 3, colours.faint, 'left', 'top');
      lastLabel = left + context.measureText(short).width + 8;
    }
    for (const at of picture.ooms) upright(at, colours.bad, [4, 2], 1.5);
    if (picture.mark !== undefined) upright(picture.mark, colours.accent, [6, 3], 1.5);
    if (picture.hover !== undefined) {
      context.globalAlpha = 0.5;
      upright(picture.hover, colours.cursor, []);
      context.globalAlpha = 1;
    }
    if (picture.cursor !== undefined) upright(picture.cursor, colours.cursor, [], 1.5);
  });
  maps.forEach((box, index) => {
    drawBlock(context, box, picture, index);
  });
}

function drawBlock(context: Context, box: Box, picture: Picture, index: number): void {
  const { wanted, colours } = picture;
  const block = picture.blocks[index];
  if (!block) return;
  const { vertical } = wanted;
  const perByte = box.height / (vertical.to - vertical.from);
  const x = scaleX(box, wanted.view);
  clipped(context, box, () => {
    const left = x(block.from);
    const width = Math.max(3, x(block.to) - left);
    const { parts } = block.info;
    for (const [colour, thick] of [
      [colours.surface, 4],
      [colours.bad, 2],
    ] as const) {
      context.strokeStyle = colour;
      context.lineWidth = thick;
      for (let part = 0; part < parts.length; part += 2) {
        const top = box.top + box.height - (parts[part]! + parts[part + 1]! - vertical.from) * perByte;
        context.strokeRect(left, top, width, Math.max(3, parts[part + 1]! * perByte));
      }
    }
    context.lineWidth = 1;
  });
}

function clipped(context: Context, box: Box, draw: () => void): void {
  context.save();
  context.beginPath();
  context.rect(box.left, box.top, box.width, box.height);
  context.clip();
  draw();
  context.restore();
}

function line(context: Context, colour: string, x0: number, y0: number, x1: number, y1: number): void {
  context.strokeStyle = colour;
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
}

function label(
  context: Context,
  text: string,
  x: number,
  y: number,
  colour: string,
  align: CanvasTextAlign,
  baseline: CanvasTextBaseline,
): void {
  context.fillStyle = colour;
  context.textAlign = align;
  context.textBaseline = baseline;
  context.fillText(text, x, y);
}

export function momentPosition(moment: Moment, axis: AxisKind): number {
  return axis === 'event' ? Math.max(0, moment.event) : moment.timeUs;
}
