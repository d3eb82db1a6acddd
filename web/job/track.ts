// Draws a small track: reserved and live memory of one rank over time, its limit and its failures. All tracks share their scales.
import { themeColour } from '../app/theme.ts';

export interface TrackShape {
  /** Where the levels begin and end on the common axis. */
  readonly from: number;
  readonly to: number;
  /** Ends of the parts that the levels belong to, on the axis; undefined: equal parts. */
  readonly ends?: readonly number[] | undefined;
  /** Highest bytes in each part. */
  readonly live: readonly number[];
  readonly reserved: readonly number[] | undefined;
  readonly limit: number | undefined;
  /** The limit is known from failures only, and is at most this. */
  readonly isLimitInferred?: boolean | undefined;
  readonly failures: readonly number[];
}

/** What all tracks of a list have in common. */
export interface TrackScale {
  /** Length of the axis. */
  readonly span: number;
  /** Bytes at the upper edge. */
  readonly top: number;
}

/** A limit far above the memory used would press all tracks flat: it is named, and not drawn. */
const FAR = 2.5;
const HEADROOM = 1.06;

export function scaleOf(shapes: readonly TrackShape[], span: number): TrackScale {
  let highest = 1;
  for (const { live, reserved } of shapes)
    for (const levels of [live, reserved ?? []]) for (const level of levels) if (level > highest) highest = level;
  const limits = shapes.flatMap(({ limit }) => (limit !== undefined && limit <= highest * FAR ? [limit] : []));
  return { span, top: Math.max(highest, ...limits) * HEADROOM };
}

export function drawTrack(canvas: HTMLCanvasElement, shape: TrackShape, scale: TrackScale): void {
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext('2d')!;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  const x = (at: number) => (at / scale.span) * width;
  const y = (bytes: number) => height * (1 - bytes / scale.top);
  context.fillStyle = themeColour('track-ground');
  context.fillRect(x(shape.from), 0, Math.max(1, x(shape.to) - x(shape.from)), height);
  if (shape.reserved) area(context, shape, shape.reserved, x, y, height, themeColour('track-reserved'));
  area(context, shape, shape.live, x, y, height, themeColour('live'), themeColour('surface'));
  if (shape.limit !== undefined && shape.limit <= scale.top) {
    context.strokeStyle = themeColour('bad');
    context.setLineDash([5, 3]);
    context.beginPath();
    context.moveTo(0, Math.round(y(shape.limit)) + 0.5);
    context.lineTo(width, Math.round(y(shape.limit)) + 0.5);
    context.stroke();
    context.setLineDash([]);
  }
  for (const failure of shape.failures) cross(context, Math.min(width - 5, Math.max(5, x(failure))), 6);
}

/** Steps, since memory changes in steps. The edge keeps two areas apart whose colours are alike. */
function area(
  context: CanvasRenderingContext2D,
  { from, to, ends }: TrackShape,
  levels: readonly number[],
  x: (at: number) => number,
  y: (bytes: number) => number,
  height: number,
  colour: string,
  edge?: string,
): void {
  const outline = new Path2D();
  let left = x(from);
  outline.moveTo(left, height);
  for (const [index, level] of levels.entries()) {
    const right = x(ends ? ends[index]! : from + ((to - from) * (index + 1)) / levels.length);
    outline.lineTo(left, y(level));
    outline.lineTo(right, y(level));
    left = right;
  }
  outline.lineTo(left, height);
  context.fillStyle = colour;
  context.fill(outline);
  if (edge === undefined) return;
  context.strokeStyle = edge;
  context.lineWidth = 1;
  context.stroke(outline);
}

function cross(context: CanvasRenderingContext2D, x: number, y: number): void {
  for (const [colour, width] of [
    [themeColour('surface'), 5],
    [themeColour('bad'), 2.2],
  ] as const) {
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.beginPath();
    context.moveTo(x - 4, y - 4);
    context.lineTo(x + 4, y + 4);
    context.moveTo(x + 4, y - 4);
    context.lineTo(x - 4, y + 4);
    context.stroke();
  }
  context.lineWidth = 1;
}
