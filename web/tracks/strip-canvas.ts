// Draws one strip: the request above the hole that comes nearest, segments with used memory and hatched holes, and below them
// all holes in order of size. The cost depends on pixels: what is narrower than one shares a column.
import { formatBytes } from '../../src/base/bytes.ts';
import { HoleUse, RunKind, useOfRun } from '../../src/view/fit-strip.ts';
import type { FitLane } from '../../src/view/fit-view.ts';
import { GHOST, placeAmongSorted, SORTED, STRIP, STRIP_HEIGHT, sortedHoles } from './strip-places.ts';

export interface StripColours {
  readonly text: string;
  readonly faint: string;
  readonly surface: string;
  readonly used: string;
  readonly pending: string;
  /** Holes that the request could use, and others. */
  readonly hole: string;
  readonly otherHole: string;
  readonly pin: string;
  readonly bad: string;
  readonly good: string;
  /** Family of the page's font. */
  readonly font: string;
}

export interface StripPicture {
  readonly lane: FitLane;
  /** Bytes from the left edge to the right one. */
  readonly bytes: number;
  readonly isLimitShown: boolean;
  /** The request; 0: none. */
  readonly request: number;
  /** It stands above this run; -1: above none. */
  readonly above: number;
  /** It stands behind so many bytes of the strip, and not above it. */
  readonly behind?: number;
  /** The run of the selected hole, or -1. */
  readonly selected: number;
  readonly hovered: number;
  readonly colours: StripColours;
}

/** Narrower boxes have no outline and no label. */
const LEAST_OUTLINED = 4;
const LEAST_LABELLED = 66;
const MOST_OF_COLUMN = 0.85;

export function drawStrip(canvas: HTMLCanvasElement, width: number, picture: StripPicture): void {
  const { lane, colours } = picture;
  const context = clearStrip(canvas, width);
  context.font = `11px ${colours.font}`;
  const scale = width / picture.bytes;
  const hatches = { usable: hatch(context, colours.hole, 1), other: hatch(context, colours.otherHole, -1) };
  drawRuns(context, picture, scale, hatches);
  drawSegments(context, picture, scale);
  drawUnplaced(context, picture, scale, hatches.other);
  drawLimit(context, picture, scale, width);
  if (picture.behind === undefined) drawSorted(context, picture, scale, hatches, width);
  drawLabels(context, picture, scale);
  drawMarks(context, picture, scale);
  if (lane.served.length > 0) drawServed(context, picture, scale, width);
  else if (picture.request > 0 && picture.behind !== undefined) drawBehind(context, picture, scale, width, picture.behind);
  else if (picture.request > 0) drawGhost(context, picture, scale, width);
}

/** An empty canvas of this width in CSS pixels. Its size is set only if it changes, which costs a layout. */
export function clearStrip(canvas: HTMLCanvasElement, width: number): CanvasRenderingContext2D {
  const ratio = window.devicePixelRatio || 1;
  const pixels = { width: Math.round(width * ratio), height: Math.round(STRIP_HEIGHT * ratio) };
  if (canvas.width !== pixels.width || canvas.height !== pixels.height) Object.assign(canvas, pixels);
  const context = canvas.getContext('2d')!;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, STRIP_HEIGHT);
  return context;
}

type Hatches = Record<'usable' | 'other', CanvasPattern>;

function drawRuns(context: CanvasRenderingContext2D, picture: StripPicture, scale: number, hatches: Hatches): void {
  const { strip } = picture.lane;
  const pinned = picture.selected < 0 ? -1 : strip.runSegment[picture.selected]!;
  const { colours } = picture;
  const fillOf = (run: number) => {
    if (strip.runKind[run] === RunKind.Hole) return useOfRun(strip, run) === HoleUse.Usable ? hatches.usable : hatches.other;
    if (strip.runSegment[run] === pinned) return colours.pin;
    return strip.runKind[run] === RunKind.Pending ? colours.pending : colours.used;
  };
  const columns = new Map<number, Map<string | CanvasPattern, number>>();
  const share = (column: number, fill: string | CanvasPattern, part: number) => {
    const shares = columns.get(column) ?? new Map<string | CanvasPattern, number>();
    shares.set(fill, (shares.get(fill) ?? 0) + part);
    columns.set(column, shares);
  };
  for (let run = 0; run < strip.runAt.length; run++) {
    const left = strip.runAt[run]! * scale;
    const right = (strip.runAt[run]! + strip.runSize[run]!) * scale;
    const first = Math.floor(left);
    const last = Math.floor(right);
    const fill = fillOf(run);
    if (first === last) {
      share(first, fill, right - left);
      continue;
    }
    share(first, fill, first + 1 - left);
    share(last, fill, right - last);
    context.fillStyle = fill;
    context.fillRect(first + 1, STRIP.top, last - first - 1, STRIP.height);
  }
  for (const [column, shares] of columns) drawColumn(context, column, shares);
}

/** Of a column of pixels that several runs share, each gets its part of the height; one that has nearly all gets all. */
function drawColumn(context: CanvasRenderingContext2D, column: number, shares: ReadonlyMap<string | CanvasPattern, number>): void {
  const whole = [...shares.values()].reduce((sum, part) => sum + part, 0);
  const most = [...shares].find(([, part]) => part > MOST_OF_COLUMN * whole);
  let top = STRIP.top;
  for (const [fill, part] of most ? [most] : shares) {
    const height = most ? STRIP.height : (STRIP.height * part) / whole;
    context.fillStyle = fill;
    context.fillRect(column, top, 1, height);
    top += height;
  }
}

function drawSegments(context: CanvasRenderingContext2D, { lane: { strip }, colours }: StripPicture, scale: number): void {
  context.strokeStyle = colours.text;
  context.lineWidth = 1;
  for (let segment = 0; segment < strip.segmentAt.length; segment++) {
    const left = strip.segmentAt[segment]! * scale;
    const wide = strip.segmentSize[segment]! * scale;
    if (wide >= LEAST_OUTLINED) context.strokeRect(Math.round(left) + 0.5, STRIP.top - 0.5, Math.round(wide) - 1, STRIP.height + 1);
  }
}

/** Free memory whose place is unknown, behind everything else. */
function drawUnplaced(context: CanvasRenderingContext2D, { lane, colours }: StripPicture, scale: number, pattern: CanvasPattern): void {
  const wide = lane.unplaced * scale;
  if (wide < 1) return;
  const left = lane.strip.reserved * scale;
  context.fillStyle = pattern;
  context.fillRect(left, STRIP.top, wide, STRIP.height);
  context.setLineDash([3, 3]);
  context.strokeStyle = colours.text;
  context.strokeRect(left + 0.5, STRIP.top - 0.5, wide - 1, STRIP.height + 1);
  context.setLineDash([]);
}

function drawLimit(context: CanvasRenderingContext2D, picture: StripPicture, scale: number, width: number): void {
  const { lane, colours } = picture;
  if (lane.limit === undefined || !picture.isLimitShown) return;
  const at = Math.round(lane.limit * scale) + 0.5;
  const end = (lane.strip.reserved + lane.unplaced) * scale;
  const room = lane.limit - lane.strip.reserved - lane.unplaced;
  context.strokeStyle = colours.bad;
  context.lineWidth = 2;
  line(context, at, STRIP.top - 8, at, STRIP.top + STRIP.height + 18);
  context.lineWidth = 1;
  const limit = limitWords(lane.limit);
  const isLeft = at + context.measureText(limit).width + 6 > width;
  context.fillStyle = colours.bad;
  context.textBaseline = 'middle';
  context.textAlign = isLeft ? 'right' : 'left';
  context.fillText(limit, at + (isLeft ? -4 : 4), SORTED.top + 2);
  context.textAlign = 'left';
  if (room <= 0 || at - end < 3 || picture.behind !== undefined) return;
  context.setLineDash([4, 3]);
  context.strokeStyle = colours.faint;
  context.strokeRect(end + 1.5, STRIP.top + 0.5, at - end - 3, STRIP.height - 1);
  context.setLineDash([]);
  const words = `${formatBytes(room)} not reserved`;
  context.fillStyle = colours.faint;
  context.textBaseline = 'middle';
  if (context.measureText(words).width < at - end - 10) context.fillText(words, end + 6, STRIP.top + STRIP.height / 2, width);
}

function limitWords(limit: number): string {
  return `limit ${formatBytes(limit)}`;
}

function drawSorted(context: CanvasRenderingContext2D, picture: StripPicture, scale: number, hatches: Hatches, width: number): void {
  const { strip } = picture.lane;
  const { colours } = picture;
  context.lineWidth = 1;
  for (const { run, at, size } of sortedHoles(strip)) {
    const left = at * scale;
    const wide = size * scale;
    context.fillStyle = useOfRun(strip, run) === HoleUse.Usable ? hatches.usable : hatches.other;
    context.fillRect(left, SORTED.top, wide, SORTED.height);
    if (wide < LEAST_OUTLINED) continue;
    context.strokeStyle = useOfRun(strip, run) === HoleUse.Usable ? colours.hole : colours.otherHole;
    context.strokeRect(left + 0.5, SORTED.top + 0.5, wide - 1, SORTED.height - 1);
  }
  const words = strip.holes.length > 0 ? 'free memory, the largest hole first' : 'no free memory';
  const end = strip.free * scale + 8;
  context.fillStyle = colours.faint;
  context.textBaseline = 'middle';
  const { limit } = picture.lane;
  const room = limit === undefined || !picture.isLimitShown ? width : limit * scale - context.measureText(limitWords(limit)).width - 16;
  if (end + context.measureText(words).width < room) context.fillText(words, end, SORTED.top + SORTED.height / 2);
}

function drawLabels(context: CanvasRenderingContext2D, { lane: { strip }, colours }: StripPicture, scale: number): void {
  context.textBaseline = 'middle';
  for (let run = 0; run < strip.runAt.length; run++) {
    const wide = strip.runSize[run]! * scale;
    if (wide < LEAST_LABELLED || strip.runKind[run] !== RunKind.Hole) continue;
    plate(context, formatBytes(strip.runSize[run]!), strip.runAt[run]! * scale + wide / 2, STRIP.top + STRIP.height / 2, colours);
  }
}

/** Text in a box of the ground's colour, so that it can be read over a hatch. */
function plate(context: CanvasRenderingContext2D, words: string, middle: number, at: number, colours: StripColours): void {
  const wide = context.measureText(words).width;
  context.fillStyle = colours.surface;
  context.fillRect(middle - wide / 2 - 4, at - 8, wide + 8, 16);
  context.fillStyle = colours.text;
  context.fillText(words, middle - wide / 2, at + 0.5);
}

/** Outlines the selected hole and the one under the pointer, in the strip and among the sorted ones. */
function drawMarks(context: CanvasRenderingContext2D, picture: StripPicture, scale: number): void {
  const { strip } = picture.lane;
  const mark = (run: number, isSelected: boolean) => {
    if (run < 0 || run >= strip.runAt.length || strip.runKind[run] !== RunKind.Hole) return;
    const sorted = placeAmongSorted(strip, run);
    context.strokeStyle = picture.colours.text;
    context.lineWidth = isSelected ? 3 : 1.5;
    for (const [at, box] of [
      [strip.runAt[run]!, STRIP],
      [sorted, SORTED],
    ] as const) {
      const wide = Math.max(5, strip.runSize[run]! * scale);
      context.strokeRect(at * scale, box.top - 1, wide, box.height + 2);
    }
    if (!isSelected) return;
    const middle = (strip.runAt[run]! + strip.runSize[run]! / 2) * scale;
    context.fillStyle = picture.colours.text;
    context.beginPath();
    context.moveTo(middle - 5, STRIP.top + STRIP.height + 9);
    context.lineTo(middle + 5, STRIP.top + STRIP.height + 9);
    context.lineTo(middle, STRIP.top + STRIP.height + 3);
    context.fill();
  };
  mark(picture.hovered, false);
  mark(picture.selected, true);
}

/** The request above the largest hole that it could use: a dashed box to scale. */
function drawGhost(context: CanvasRenderingContext2D, picture: StripPicture, scale: number, width: number): void {
  const { strip } = picture.lane;
  const { colours, above, request } = picture;
  const at = above < 0 ? 0 : strip.runAt[above]! * scale;
  const room = above < 0 ? 0 : strip.runSize[above]! * scale;
  const wide = Math.max(3, request * scale);
  const left = Math.max(0.5, Math.min(at, width - wide - 1));
  const doesFit = above >= 0 && (picture.lane.isStitched ? strip.usable : strip.runSize[above]!) >= request;
  const colour = doesFit ? colours.good : colours.bad;
  box(context, { left, top: GHOST.top, wide: Math.min(wide, width - left), height: GHOST.height }, colour);
  // How much of it the hole covers.
  if (above >= 0) {
    context.lineWidth = 1;
    line(context, at + 0.5, GHOST.top + GHOST.height, at + 0.5, STRIP.top);
    if (room > 2) line(context, at + room - 0.5, GHOST.top + GHOST.height, at + room - 0.5, STRIP.top);
  }
  sentence(context, `${formatBytes(request)} ${doesFit ? 'would fit' : 'does not fit'}`, { left, wide, width, colour, colours });
}

/** The request behind all memory in use. */
function drawBehind(context: CanvasRenderingContext2D, picture: StripPicture, scale: number, width: number, behind: number): void {
  const { colours, request, lane } = picture;
  const left = behind * scale;
  const wide = Math.min(request * scale, width - left);
  const over = lane.limit === undefined ? 0 : behind + request - lane.limit;
  box(context, { left, top: STRIP.top, wide, height: STRIP.height }, over > 0 ? colours.bad : colours.good);
  const words = `${formatBytes(request)}${over > 0 ? ` is ${formatBytes(over)} too much` : ' would fit without holes'}`;
  sentence(context, words, { left, wide: 0, width, colour: over > 0 ? colours.bad : colours.good, colours });
}

/** A dashed box with a tint. */
function box(
  context: CanvasRenderingContext2D,
  { left, top, wide, height }: { left: number; top: number; wide: number; height: number },
  colour: string,
): void {
  context.fillStyle = colour;
  context.globalAlpha = 0.14;
  context.fillRect(left, top, wide, height);
  context.globalAlpha = 1;
  context.strokeStyle = colour;
  context.lineWidth = 2;
  context.setLineDash([6, 3]);
  context.strokeRect(left + 1, top + 1, wide - 2, height - 2);
  context.setLineDash([]);
}

/** The request where the other allocator put it. */
function drawServed(context: CanvasRenderingContext2D, picture: StripPicture, scale: number, width: number): void {
  const { served } = picture.lane;
  const { colours } = picture;
  let first = Number.POSITIVE_INFINITY;
  let end = 0;
  for (let part = 0; part < served.length; part += 2) {
    const left = served[part]! * scale;
    const wide = Math.max(2, served[part + 1]! * scale);
    first = Math.min(first, left);
    end = Math.max(end, left + wide);
    context.fillStyle = colours.good;
    context.fillRect(left, STRIP.top, wide, STRIP.height);
    context.fillRect(left, GHOST.top + GHOST.height - 3, wide, STRIP.top - GHOST.top - GHOST.height + 3);
  }
  const parts = served.length / 2;
  const words = `${formatBytes(picture.request)} fits${parts > 1 ? `, in ${parts} pieces` : ''}`;
  sentence(context, words, { left: first, wide: 0, width, colour: colours.good, colours });
}

function sentence(
  context: CanvasRenderingContext2D,
  words: string,
  { left, wide, width, colour, colours }: { left: number; wide: number; width: number; colour: string; colours: StripColours },
): void {
  context.textBaseline = 'middle';
  const font = context.font;
  context.font = font.replace('11px', '600 12px');
  const length = context.measureText(words).width;
  const isInside = length + 12 < wide;
  const beside = left + wide + 6;
  const at = isInside ? left + 6 : beside + length < width ? beside : Math.max(0, left - length - 6);
  if (!isInside) {
    context.fillStyle = colours.surface;
    context.fillRect(at - 2, GHOST.top + 2, length + 4, GHOST.height - 5);
  }
  context.fillStyle = colour;
  context.fillText(words, at, GHOST.top + GHOST.height / 2);
  context.font = font;
}

function line(context: CanvasRenderingContext2D, x: number, y: number, toX: number, toY: number): void {
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(toX, toY);
  context.stroke();
}

const tiles = new Map<string, HTMLCanvasElement>();

function hatch(context: CanvasRenderingContext2D, colour: string, direction: 1 | -1): CanvasPattern {
  const ratio = window.devicePixelRatio || 1;
  const key = `${colour} ${direction} ${ratio}`;
  const tile = tiles.get(key) ?? hatchTile(colour, direction, ratio);
  tiles.set(key, tile);
  const pattern = context.createPattern(tile, 'repeat')!;
  pattern.setTransform(new DOMMatrix().scale(1 / ratio));
  return pattern;
}

function hatchTile(colour: string, direction: 1 | -1, ratio: number): HTMLCanvasElement {
  const side = Math.round(7 * ratio);
  const tile = document.createElement('canvas');
  tile.width = side;
  tile.height = side;
  const brush = tile.getContext('2d')!;
  brush.strokeStyle = colour;
  brush.lineWidth = 2 * ratio;
  for (const shift of [-side, 0, side]) {
    brush.beginPath();
    brush.moveTo(shift, direction > 0 ? side : 0);
    brush.lineTo(shift + side, direction > 0 ? 0 : side);
    brush.stroke();
  }
  return tile;
}
