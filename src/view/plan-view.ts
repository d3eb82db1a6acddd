// A plan as the page draws it: the layout of a step as offset by time, the copies of a swap plan in both directions, and
// what lower limits would cost. Undefined where there is nothing to plan.
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
import { stepPlanText, swapPlanText } from '../report/plan-text.ts';
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
  /** What the plan needs, in the words of `weir plan`: a name and what is said of it. */
  readonly facts: readonly (readonly [string, string])[];
  readonly layout: PlanLayout;
  readonly swaps: SwapView | undefined;
}

export interface SwapView {
  /** Copies out of and into the GPU, each from when to when. */
  readonly out: readonly (readonly [from: number, to: number])[];
  readonly back: readonly (readonly [from: number, to: number])[];
  readonly curve: SwapPlan['curve'];
}

/** As long as `weir analyze` plans for its table. */
const BUDGET_MS = 1500;

export function planView(trace: Trace): PlanView | undefined {
  const step = hasAccesses(trace) ? stepWithAccesses(trace) : undefined;
  if (step) return swapPlanView(step);
  const found = findStep(opsOfTrace(trace));
  if (!found.periodic) return undefined;
  const buffers = buffersOfStep(found.step, LIVE_UNIT);
  const plan = planOffsets(buffers, { budgetMs: BUDGET_MS });
  return {
    facts: factsOf(stepPlanText(found, plan)),
    layout: layoutOf(buffers, plan, found.step.period * found.step.turns, 'operations'),
    swaps: undefined,
  };
}

/** Undefined where no step can be made out; then the lifetimes alone may still repeat. */
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
  // Copies may run into the next step, which begins at the left again.
  const lane = (start: (swap: SwapPlan['swaps'][number]) => number, end: (swap: SwapPlan['swaps'][number]) => number) =>
    plan.swaps.flatMap((swap) => spansOnCircle(start(swap), end(swap), step.periodUs).map(({ from, to }) => [from, to] as const));
  return {
    facts: factsOf(swapPlanText(step, plan)),
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
      curve: plan.curve,
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

/** Where the words begin in the lines of a plan's text. */
const NAME_WIDTH = 11;

/** The lines of a plan's text up to its picture: a name, and what is said of it. */
function factsOf(text: string): (readonly [string, string])[] {
  const [said = ''] = text.split('\n\n');
  return said
    .split('\n')
    .map((line) => [line.slice(0, NAME_WIDTH).trim(), line.slice(NAME_WIDTH).trim()] as const)
    .filter(([, what]) => what !== '');
}
