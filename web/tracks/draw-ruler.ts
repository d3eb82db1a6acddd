// Draws steps with their numbers, and the phases in them. Where they are too narrow to read, numbers are left out, then phases.
import type { PhaseName } from '../../src/report/categories.ts';
import type { AxisKind } from '../../src/view/clock.ts';
import { PHASE_NAMES, type Ruler } from '../../src/view/ruler.ts';
import type { Viewport } from '../../src/view/viewport.ts';
import { type Context, clipped, label, line, scaleX, type TrackColours } from './brush.ts';
import type { Box } from './track-layout.ts';

/** Narrower stretches are not drawn: there are too many of them. */
const LEAST_DRAWN = 3;
const PADDING = 8;
const SHORT: Readonly<Record<PhaseName, string>> = { setup: 'setup', forward: 'fwd', backward: 'bwd', optimizer: 'opt' };

interface Stretches {
  readonly start: Int32Array | Float64Array;
  /** Where the last one ends. */
  readonly end: number;
}

export function drawRuler(
  context: Context,
  boxes: { readonly steps: Box; readonly phases: Box },
  ruler: Ruler,
  at: { readonly axis: AxisKind; readonly view: Viewport; readonly span: number },
  colours: TrackColours,
): void {
  const { axis, view, span } = at;
  if (boxes.steps.height > 0) {
    const steps = { start: axis === 'event' ? ruler.stepEvent : ruler.stepTime, end: span };
    const numbers = ruler.stepNumber;
    drawRow(context, boxes.steps, steps, view, colours, {
      tint: (place) => (numbers[place]! < 0 ? 0 : place % 2 === 0 ? 0.1 : 0.22),
      texts: (place) => (numbers[place]! < 0 ? ['before the first step', 'setup'] : [`step ${numbers[place]}`, String(numbers[place])]),
      mayOverflow: (place) => numbers[place]! >= 0,
    });
  }
  if (boxes.phases.height > 0) {
    const phases = { start: axis === 'event' ? ruler.phaseEvent : ruler.phaseTime, end: span };
    const tints = [0, 0.08, 0.2, 0.34];
    drawRow(context, boxes.phases, phases, view, colours, {
      tint: (place) => tints[ruler.phaseName[place]!]!,
      texts: (place) => {
        const name = PHASE_NAMES[ruler.phaseName[place]!]!;
        return [name, SHORT[name], name.slice(0, 1).toUpperCase()];
      },
      mayOverflow: () => false,
    });
  }
}

function drawRow(
  context: Context,
  box: Box,
  { start, end }: Stretches,
  view: Viewport,
  colours: TrackColours,
  look: {
    readonly tint: (place: number) => number;
    /** The first that has room is drawn. */
    readonly texts: (place: number) => readonly string[];
    /** The last text may reach into the stretches that follow; they then have none. */
    readonly mayOverflow: (place: number) => boolean;
  },
): void {
  const x = scaleX(box, view);
  const right = box.left + box.width;
  clipped(context, box, () => {
    let labelled = box.left;
    let drawn = Number.NEGATIVE_INFINITY;
    for (let place = firstVisible(start, view.from); place < start.length && start[place]! <= view.to; place++) {
      const from = Math.max(box.left, x(start[place]!));
      const to = Math.min(right, x(start[place + 1] ?? end));
      if (to - from < LEAST_DRAWN && from - drawn < LEAST_DRAWN) continue;
      drawn = from;
      context.globalAlpha = look.tint(place);
      context.fillStyle = colours.accent;
      context.fillRect(from, box.top, to - from, box.height - 1);
      context.globalAlpha = 1;
      if (x(start[place]!) >= box.left)
        line(context, colours.faint, Math.round(from) + 0.5, box.top, Math.round(from) + 0.5, box.top + box.height);
      const room = to - Math.max(from, labelled) - PADDING;
      const texts = look.texts(place);
      const fitting = texts.find((words) => context.measureText(words).width <= room);
      const text = fitting ?? (look.mayOverflow(place) && from >= labelled ? texts.at(-1) : undefined);
      if (text === undefined) continue;
      label(context, text, from + 4, box.top + box.height / 2 + 0.5, colours.text, 'left', 'middle');
      labelled = from + 4 + context.measureText(text).width + PADDING;
    }
  });
}

function firstVisible(start: Int32Array | Float64Array, from: number): number {
  let low = 0;
  let high = start.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (start[middle]! <= from) low = middle + 1;
    else high = middle;
  }
  return Math.max(0, low - 1);
}
