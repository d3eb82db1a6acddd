// The moments at which two runs are compared: the peak of a step that both have, else the peaks of both runs.
import type { LiveCurve, LivePoint } from './live-curve.ts';
import { hasSteps, type NoSteps, type RunStep, type RunSteps } from './run-steps.ts';

export const ALIGNMENTS = ['step', 'peak', 'end'] as const;
export type AlignmentKind = (typeof ALIGNMENTS)[number];

/** A run with its steps and live memory. */
export interface AlignedRun {
  readonly curve: LiveCurve;
  readonly steps: RunSteps | NoSteps;
}

export interface Alignment {
  readonly by: AlignmentKind;
  readonly before: LivePoint;
  readonly after: LivePoint;
  /** The step compared; undefined if not by step. */
  readonly step: AlignedStep | undefined;
  /** Why steps were not used, although nothing else was asked for; undefined: they were, or it was. */
  readonly reason: string | undefined;
}

export interface AlignedStep {
  /** Its number, as the program counts if `isCounted`, else from 1 in the order found. */
  readonly number: number;
  readonly isCounted: boolean;
  /** Steps that both runs have. */
  readonly common: number;
}

/** Peaks this close are the same, as a share: then the latest step is compared. */
const SAME_PEAK = 0.001;

export function align(before: AlignedRun, after: AlignedRun, by: AlignmentKind | undefined): Alignment {
  if (by === 'end') return { by, before: before.curve.end(), after: after.curve.end(), step: undefined, reason: undefined };
  const found = by === 'peak' ? undefined : alignSteps(before, after);
  if (found && 'by' in found) return found;
  return { by: 'peak', before: before.curve.peak(), after: after.curve.peak(), step: undefined, reason: found?.reason };
}

function alignSteps(before: AlignedRun, after: AlignedRun): Alignment | { reason: string } {
  if (!hasSteps(before.steps)) return { reason: `the first run has no steps that can be told apart: ${before.steps.reason}` };
  if (!hasSteps(after.steps)) return { reason: `the second run has no steps that can be told apart: ${after.steps.reason}` };
  const isCounted = before.steps.steps[0]?.number !== undefined && after.steps.steps[0]?.number !== undefined;
  const numberOf = (step: RunStep, index: number) => (isCounted ? step.number! : index + 1);
  const others = new Map(after.steps.steps.map((step, index) => [numberOf(step, index), step]));
  const pairs = before.steps.steps.flatMap((step, index) => {
    const number = numberOf(step, index);
    const other = others.get(number);
    // A first run that ends within the step would look smaller than it is.
    return other && step.isComplete
      ? [{ number, before: before.curve.peakIn(step.from, step.to), after: after.curve.peakIn(other.from, other.to) }]
      : [];
  });
  if (pairs.length === 0) return { reason: 'the two runs have no step in common' };
  const highest = pairs.reduce((most, pair) => Math.max(most, pair.after.bytes), 0);
  const chosen = pairs.findLast((pair) => pair.after.bytes >= highest * (1 - SAME_PEAK))!;
  return {
    by: 'step',
    before: chosen.before,
    after: chosen.after,
    step: { number: chosen.number, isCounted, common: pairs.length },
    reason: undefined,
  };
}
