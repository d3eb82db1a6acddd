// What all parts of the tracks draw with: scales, clipping, lines and labels.
import type { AxisKind } from '../../src/view/clock.ts';
import type { Moment } from '../../src/view/protocol.ts';
import type { Viewport } from '../../src/view/viewport.ts';
import type { Box } from './track-layout.ts';

export type Context = CanvasRenderingContext2D;

export interface TrackColours {
  readonly text: string;
  readonly faint: string;
  readonly line: string;
  readonly surface: string;
  readonly allocated: string;
  /** Held from the driver and free. */
  readonly held: string;
  readonly reserved: string;
  readonly live: string;
  readonly cursor: string;
  readonly bad: string;
  readonly other: string;
  readonly accent: string;
  readonly selected: string;
  readonly font: string;
}

export function scaleX(box: Box, view: Viewport): (position: number) => number {
  const perUnit = box.width / (view.to - view.from);
  return (position) => box.left + (position - view.from) * perUnit;
}

/** The height of a value, from the bottom of the box at `range.from` to its top. */
export function scaleY(box: Box, range: Viewport): (bytes: number) => number {
  const perUnit = box.height / (range.to - range.from);
  return (bytes) => box.top + box.height - (bytes - range.from) * perUnit;
}

export function clipped(context: Context, box: Box, draw: () => void): void {
  context.save();
  context.beginPath();
  context.rect(box.left, box.top, box.width, box.height);
  context.clip();
  draw();
  context.restore();
}

export function line(context: Context, colour: string, x0: number, y0: number, x1: number, y1: number): void {
  context.strokeStyle = colour;
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
}

export function label(
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

/** A label on a plate of the ground's colour, so that it can be read over anything. Kept between `least` and `most`. */
export function plate(
  context: Context,
  text: string,
  x: number,
  y: number,
  { text: colour, surface }: { text: string; surface: string },
  [least, most]: readonly [number, number],
): void {
  const width = context.measureText(text).width + 8;
  const left = Math.max(least, Math.min(x, most - width));
  context.globalAlpha = 0.9;
  context.fillStyle = surface;
  context.fillRect(left, y, width, 16);
  context.globalAlpha = 1;
  label(context, text, left + 4, y + 8.5, colour, 'left', 'middle');
}

export function momentPosition(moment: Moment, axis: AxisKind): number {
  return axis === 'event' ? Math.max(0, moment.event) : moment.timeUs;
}
