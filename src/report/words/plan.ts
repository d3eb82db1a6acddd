// A plan in words: rows of a name and a sentence, the answer first. The terminal and the page show the same ones.
import { formatBytes } from '../../base/bytes.ts';
import type { FollowedPlan } from '../../plan/steps/verifier.ts';
import type { OffsetsFacts, PlanFacts, StepFacts, SwapFacts } from '../plan.ts';
import { formatMs, formatTimes } from './numbers.ts';
import { boundReason } from './swap-bound.ts';

export interface PlanRow {
  readonly name: string;
  readonly words: string;
}

export function planRows(facts: PlanFacts | OffsetsFacts): PlanRow[] {
  switch (facts.kind) {
    case 'offsets':
      return offsetsRows(facts);
    case 'step':
      return stepRows(facts);
    case 'swaps':
      return swapRows(facts);
  }
}

function stepRows(facts: StepFacts): PlanRow[] {
  const { total, peak, smartPoolTotal, turns } = facts;
  const alternate = turns > 1 ? `; offsets alternate over ${turns} steps` : '';
  return [
    {
      name: 'total',
      words: `${formatBytes(total)}, ${percentOver(total, peak)} the peak of ${formatBytes(peak)} live (SmartPool: ${formatBytes(smartPoolTotal)}, ${percentOver(smartPoolTotal, peak)})`,
    },
    ...offsetsRows(facts.offsets),
    { name: 'kept', words: `${formatBytes(facts.keptBytes)} stay allocated from step to step` },
    {
      name: 'step',
      words: `${facts.operations} allocations and frees of ${formatTimes(facts.blocks, 'block', 'blocks')}, seen ${formatTimes(facts.repeats, 'time', 'times')} (by ${facts.seenBy})${alternate}`,
    },
  ];
}

function offsetsRows({ buffers, plan }: OffsetsFacts): PlanRow[] {
  const { footprint, lowerBound, optimal, by, wallMs } = plan;
  const best = optimal ? '; no smaller layout exists' : '';
  const duration = wallMs < 1000 ? `${Math.round(wallMs)} ms` : `${(wallMs / 1000).toFixed(1)} s`;
  return [
    {
      name: 'layout',
      words: `${formatBytes(footprint)} for ${formatTimes(buffers, 'buffer', 'buffers')}, ${percentOver(footprint, lowerBound)} the lower bound of ${formatBytes(lowerBound)}${best}`,
    },
    { name: 'found by', words: `${by} in ${duration}; verified` },
  ];
}

function swapRows({ plan, periodUs, blocks, swaps }: SwapFacts): PlanRow[] {
  const { zeroStallLimit, bounds, limit } = plan;
  const rows = [
    {
      name: 'zero stall',
      words: `${formatBytes(zeroStallLimit)} (-${(plan.reduction * 100).toFixed(1)} %) is the lowest limit without waiting`,
    },
    {
      name: 'bound',
      words: `no plan needs less than ${formatBytes(bounds.bandwidth)} with this link: ${boundReason(bounds.decisive)}; with any link ${formatBytes(bounds.instant)}`,
    },
  ];
  const stepRow = {
    name: 'step',
    words: `${formatMs(periodUs)}, ${formatTimes(blocks, 'block', 'blocks')}, peak ${formatBytes(plan.peak)}`,
  };
  // Below the lowest limit the job would have to wait, and there is no plan to describe.
  if (!plan.verified) return [...rows, stepRow];
  if (limit !== zeroStallLimit) rows.push({ name: 'limit', words: formatBytes(limit) });
  const moved = swaps === 0 ? 'nothing' : `${formatTimes(swaps, 'block', 'blocks')}, ${formatBytes(plan.bytesMoved)} out and back per step`;
  return [
    ...rows,
    { name: 'moves', words: moved },
    { name: 'footprint', words: `${formatBytes(plan.footprint)} as one arena with fixed offsets; verified` },
    stepRow,
  ];
}

/** Why there is no swap plan for the limit that was asked for. */
export function noSwapPlanWords({ plan, keptByWaiting }: SwapFacts): string {
  const waiting = keptByWaiting ? ' unless the job waits' : ', even if the job waits';
  return `no swap plan keeps ${formatBytes(plan.limit)}${waiting}; without waiting, the lowest limit is ${formatBytes(plan.zeroStallLimit)}`;
}

/** How far a recording follows a plan. */
export function followedWords({ repetitions, noisy, followed, planned }: FollowedPlan): string {
  const differing = noisy > 0 ? `, and ${formatTimes(noisy, 'time', 'times')} with differences` : '';
  return `The step repeats ${formatTimes(repetitions, 'time', 'times')}${differing}. Requests as planned: ${followed} of ${planned}.`;
}

/** The time that waiting adds to a step, as a share of the step. */
export function overheadWords(overhead: number): string {
  return `${(overhead * 100).toFixed(2)} %`;
}

/** The columns of the table that says what lower limits cost. */
export const CURVE_COLUMNS = { limit: 'limit', overhead: 'slower by' } as const;

function percentOver(value: number, base: number): string {
  const percent = (value / base - 1) * 100;
  if (value === base) return 'exactly';
  return percent < 0 ? `${(-percent).toFixed(2)} % below` : `${percent.toFixed(2)} % above`;
}
