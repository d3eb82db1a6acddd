// The facts about a plan that the terminal and the page show. Plain data, so that they can cross from a worker.
import type { OffsetsPlan } from '../plan/offsets/planner.ts';
import type { FoundStep } from '../plan/steps/step-plan.ts';
import type { SwapStep } from '../plan/swaps/accesses.ts';
import type { SwapPlan } from '../plan/swaps/planner.ts';

export type PlanFacts = StepFacts | SwapFacts;

/** A layout for buffers. */
export interface OffsetsFacts {
  readonly kind: 'offsets';
  readonly buffers: number;
  readonly plan: Pick<OffsetsPlan, 'footprint' | 'lowerBound' | 'ratio' | 'optimal' | 'by' | 'wallMs'>;
}

/** A layout for the step that a recorded run repeats. */
export interface StepFacts {
  readonly kind: 'step';
  /** Allocations and frees of one step. */
  readonly operations: number;
  /** How often the step was seen, and what showed it. */
  readonly repeats: number;
  readonly seenBy: string;
  readonly blocks: number;
  /** Steps after which the offsets repeat. */
  readonly turns: number;
  /** Bytes that stay allocated from step to step. */
  readonly keptBytes: number;
  readonly offsets: OffsetsFacts;
  /** Layout and kept bytes together. */
  readonly total: number;
  /** Peak live of the recording. */
  readonly peak: number;
  readonly smartPoolTotal: number;
}

/** Swaps during a step. */
export interface SwapFacts {
  readonly kind: 'swaps';
  readonly periodUs: number;
  readonly blocks: number;
  readonly swaps: number;
  /** Whether the limit can be kept if the job waits. There is a plan only if it need not wait: `plan.verified`. */
  readonly keptByWaiting: boolean;
  readonly plan: Pick<
    SwapPlan,
    'peak' | 'zeroStallLimit' | 'reduction' | 'limit' | 'overhead' | 'bytesMoved' | 'bounds' | 'curve' | 'footprint' | 'verified' | 'wallMs'
  >;
}

export function offsetsFacts(buffers: number, plan: OffsetsPlan): OffsetsFacts {
  const { footprint, lowerBound, ratio, optimal, by, wallMs } = plan;
  return { kind: 'offsets', buffers, plan: { footprint, lowerBound, ratio, optimal, by, wallMs } };
}

export function stepFacts({ step, period, peak, smartPoolTotal }: FoundStep, plan: OffsetsPlan): StepFacts {
  return {
    kind: 'step',
    operations: step.period,
    repeats: period.stretches.reduce((sum, stretch) => sum + Math.floor((stretch.to - stretch.from) / period.length) + 1, 0),
    seenBy: period.by,
    blocks: step.blocks.length,
    turns: step.turns,
    keptBytes: step.wholeRunBytes,
    offsets: offsetsFacts(step.blocks.length * step.turns, plan),
    total: plan.footprint + step.wholeRunBytes,
    peak,
    smartPoolTotal,
  };
}

export function swapFacts(step: SwapStep, plan: SwapPlan): SwapFacts {
  const { peak, zeroStallLimit, reduction, limit, overhead, bytesMoved, bounds, curve, footprint, verified, wallMs } = plan;
  return {
    kind: 'swaps',
    periodUs: step.periodUs,
    blocks: step.blocks.length,
    swaps: plan.swaps.length,
    keptByWaiting: plan.simulation.overruns + plan.simulation.faults === 0,
    plan: { peak, zeroStallLimit, reduction, limit, overhead, bytesMoved, bounds, curve, footprint, verified, wallMs },
  };
}
