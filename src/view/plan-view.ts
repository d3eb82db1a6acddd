// A plan as the page shows it: its facts, the layout of a step as offset by time, and the copies of a swap plan in both
// directions.
import { InputError } from '../base/errors.ts';
import { accessesOfTrace, hasAccesses } from '../plan/files/access-inputs.ts';
import { swapStepFrom } from '../plan/files/plan-input.ts';
import { type Buffer, type Layout, spansOnCircle } from '../plan/offsets/buffers.ts';
import { planOffsets } from '../plan/offsets/planner.ts';
import { opsOfTrace } from '../plan/steps/memory-ops.ts';
import { buffersOfStep } from '../plan/steps/step.ts';
import { findStep } from '../plan/steps/step-plan.ts';
import type { SwapStep } from '../plan/swaps/accesses.ts';
import { H200_COPIES } from '../plan/swaps/copy-costs.ts';
import { gappedBuffers, planSwapStep, type SwapPlan } from '../plan/swaps/planner.ts';
import { type PlanFacts, stepFacts, swapFacts } from '../report/plan.ts';
import { LIVE_UNIT } from '../trace/summary.ts';
import type { Trace } from '../trace/trace.ts';

/** Rectangles of a layout: from when to when, at which offset. */
export interface PlanLayout {
  readonly from: Float64Array;
  readonly to: Float64Array;
  readonly offset: Float64Array;
  readonly size: Float64Array;
  /** Ends of the axes. */
  readonly length: number;
  readonly height: number;
  readonly unit: 'operations' | 'microseconds';
}

export interface PlanView {
  readonly facts: PlanFacts;
  readonly layout: PlanLayout;
  readonly swaps: SwapView | undefined;
}

export interface SwapView {
  /** When each copy out of and into the GPU runs. */
  readonly out: readonly (readonly [from: number, to: number])[];
  readonly back: readonly (readonly [from: number, to: number])[];
}

/** The budget of `weir analyze` too. */
const BUDGET_MS = 1500;

/** Undefined if the run has no step to plan. */
export function planView(trace: Trace): PlanView | undefined {
  const step = hasAccesses(trace) ? stepWithAccesses(trace) : undefined;
  if (step) return swapPlanView(step);
  const found = findStep(opsOfTrace(trace));
  if (!found.periodic) return undefined;
  const buffers = buffersOfStep(found.step, LIVE_UNIT);
  const plan = planOffsets(buffers, { budgetMs: BUDGET_MS });
  return {
    facts: stepFacts(found, plan),
    layout: layoutOf(buffers, plan, found.step.period * found.step.turns, 'operations'),
    swaps: undefined,
  };
}

/** Undefined if the accesses show no step; the lifetimes alone may still repeat. */
function stepWithAccesses(trace: Trace): SwapStep | undefined {
  try {
    return swapStepFrom(accessesOfTrace(trace));
  } catch (error) {
    if (error instanceof InputError) return undefined;
    throw error;
  }
}

export function swapPlanView(step: SwapStep): PlanView {
  const plan = planSwapStep(step, { costs: H200_COPIES, budgetMs: BUDGET_MS, offsetsBudgetMs: BUDGET_MS });
  const buffers = gappedBuffers(step, plan.swaps, plan.turns, LIVE_UNIT);
  // A copy that runs into the next step continues at the left edge.
  const lane = (start: (swap: SwapPlan['swaps'][number]) => number, end: (swap: SwapPlan['swaps'][number]) => number) =>
    plan.swaps.flatMap((swap) => spansOnCircle(start(swap), end(swap), step.periodUs).map(({ from, to }) => [from, to] as const));
  return {
    facts: swapFacts(step, plan),
    layout: layoutOf(buffers, plan.layout, step.periodUs * plan.turns, 'microseconds'),
    swaps: {
      out: lane(
        (swap) => swap.outStartUs,
        (swap) => swap.outEndUs,
      ),
      back: lane(
        (swap) => swap.inStartUs,
        (swap) => swap.inEndUs,
      ),
    },
  };
}

function layoutOf(buffers: readonly Buffer[], layout: Layout, length: number, unit: PlanLayout['unit']): PlanLayout {
  const rows = buffers.flatMap((buffer, index) =>
    buffer.spans.map((span) => ({ ...span, offset: layout.offsets[index]!, size: buffer.size })),
  );
  return {
    from: Float64Array.from(rows, (row) => row.from),
    to: Float64Array.from(rows, (row) => row.to),
    offset: Float64Array.from(rows, (row) => row.offset),
    size: Float64Array.from(rows, (row) => row.size),
    length,
    height: layout.footprint,
    unit,
  };
}
