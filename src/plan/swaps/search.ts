// Weir's search for swaps: chooses the gaps to use, by annealing on the load above a limit that is lowered whenever it is met.
// Gaps across the end of the step count too. The schedule never stalls.

import { randomFrom } from '../offsets/random.ts';
import type { SwapStep } from './accesses.ts';
import type { CopyCosts } from './copy-costs.ts';
import { findGaps, type Gap, loadCurve, MIN_SWAP_BYTES, type SwapBounds, swapBounds, wrap } from './gaps.ts';
import { type Swap, SwapScheduler } from './schedule.ts';

export interface SwapSearchOptions {
  readonly costs: CopyCosts;
  /** Stop at this limit. Without one, the search is for the lowest. */
  readonly limit?: number | undefined;
  readonly minBytes?: number | undefined;
  readonly budgetMs?: number | undefined;
  readonly seed?: number | undefined;
  /** Memory can be freed and taken only at these moments of the step. Without them, at any. */
  readonly ticksUs?: Float64Array | undefined;
}

export interface SwapChoice {
  /** Peak without swapping. */
  readonly peak: number;
  /** Peak with the swaps, without stalls. */
  readonly limit: number;
  readonly swaps: readonly Swap[];
  /** Bytes copied out per step, and as many copied in. */
  readonly bytesMoved: number;
  readonly bounds: SwapBounds;
}

export const DEFAULT_SWAP_BUDGET_MS = 3000;
/** How far below the best peak the search aims, as a share of the peak. */
const AIM_BELOW = 0.003;
const START_TEMPERATURE = 0.02;
const RESTART_AFTER = 6000;

export function planSwaps(step: SwapStep, options: SwapSearchOptions): SwapChoice {
  const gaps = usableGaps(step, options);
  const curve = loadCurve(step);
  const scheduler = new SwapScheduler(step, gaps, curve, options.costs, options.ticksUs);
  const bounds = swapBounds(step, gaps, options.costs);
  const best = gaps.length === 0 ? new Uint8Array(0) : search(step, gaps, scheduler, bounds, curve.peak, options);
  const swaps = dropNeedless(scheduler, best);
  return {
    peak: curve.peak,
    limit: scheduler.evaluate(best, Number.POSITIVE_INFINITY).peak,
    swaps,
    bytesMoved: swaps.reduce((sum, swap) => sum + swap.size, 0),
    bounds,
  };
}

/** Gaps long enough for both copies. A copy that takes a whole step would meet itself in the next one. */
export function usableGaps(step: SwapStep, options: { readonly costs: CopyCosts; readonly minBytes?: number | undefined }): Gap[] {
  const { out, in: back } = options.costs;
  return findGaps(step, options.minBytes ?? MIN_SWAP_BYTES).filter((gap) => {
    const outUs = out.fixedUs + gap.size / out.both;
    const backUs = back.fixedUs + gap.size / back.both;
    return gap.toUs - gap.fromUs > outUs + backUs && Math.max(outUs, backUs) < step.periodUs;
  });
}

function search(
  step: SwapStep,
  gaps: readonly Gap[],
  scheduler: SwapScheduler,
  bounds: SwapBounds,
  peak: number,
  options: SwapSearchOptions,
): Uint8Array {
  const started = performance.now();
  const budget = options.budgetMs ?? DEFAULT_SWAP_BUDGET_MS;
  const goal = options.limit ?? bounds.bandwidth;
  const random = randomFrom(options.seed ?? 1);
  const { periodUs } = step;
  let best = greedy(scheduler, gaps, periodUs, goal);
  let bestPeak = scheduler.evaluate(best, 0).peak;
  let current = best.slice();
  let aim = Math.max(goal, bestPeak - peak * AIM_BELOW);
  let value = scheduler.evaluate(current, aim);
  let failures = 0;
  while (bestPeak > goal) {
    const elapsed = (performance.now() - started) / budget;
    if (elapsed >= 1) break;
    const temperature = START_TEMPERATURE * (1 - elapsed) * (value.excess + 1);
    const flips = random() < 0.5 ? 1 : 2;
    const flipped: number[] = [];
    for (let flip = 0; flip < flips; flip++) {
      const gap = pick(gaps, current, value.peakUs, periodUs, random);
      current[gap] = 1 - current[gap]!;
      flipped.push(gap);
    }
    const next = scheduler.evaluate(current, aim);
    if (next.excess <= value.excess || random() < Math.exp((value.excess - next.excess) / temperature)) value = next;
    else for (const gap of flipped) current[gap] = 1 - current[gap]!;
    if (value.peak < bestPeak) {
      bestPeak = value.peak;
      best = current.slice();
      failures = 0;
      if (value.excess === 0) {
        aim = Math.max(goal, bestPeak - peak * AIM_BELOW);
        value = scheduler.evaluate(current, aim);
      }
    } else if (++failures % RESTART_AFTER === 0) {
      current = best.slice();
      aim = Math.max(goal, bestPeak - peak * AIM_BELOW * random());
      value = scheduler.evaluate(current, aim);
    }
  }
  return best;
}

/** A random gap, mostly one that covers the highest load. */
function pick(gaps: readonly Gap[], chosen: Uint8Array, peakUs: number, periodUs: number, random: () => number): number {
  const wanted = random() < 0.6 ? 0 : 1;
  for (let attempt = 0; attempt < 12; attempt++) {
    const gap = Math.floor(random() * gaps.length);
    const { fromUs, toUs } = gaps[gap]!;
    const covers = wrap(peakUs - fromUs, periodUs) < toUs - fromUs;
    if (chosen[gap] === wanted && (wanted === 1 || covers)) return gap;
  }
  return Math.floor(random() * gaps.length);
}

/** Adds the gap that lowers the highest load most, again and again, as long as that helps. */
function greedy(scheduler: SwapScheduler, gaps: readonly Gap[], periodUs: number, goal: number): Uint8Array {
  const chosen = new Uint8Array(gaps.length);
  const tried = new Uint8Array(gaps.length);
  let value = scheduler.evaluate(chosen, goal);
  while (value.peak > goal) {
    let best = -1;
    let bestScore = 0;
    for (let gap = 0; gap < gaps.length; gap++) {
      if (chosen[gap] === 1 || tried[gap] === 1) continue;
      const { fromUs, toUs, size } = gaps[gap]!;
      if (wrap(value.peakUs - fromUs, periodUs) >= toUs - fromUs) continue;
      const score = size * (toUs - fromUs);
      if (score > bestScore) {
        best = gap;
        bestScore = score;
      }
    }
    if (best < 0) break;
    chosen[best] = 1;
    const next = scheduler.evaluate(chosen, goal);
    if (next.excess < value.excess) value = next;
    else {
      chosen[best] = 0;
      tried[best] = 1;
    }
  }
  return chosen;
}

/** Drops swaps that do not lower the peak. */
function dropNeedless(scheduler: SwapScheduler, chosen: Uint8Array): Swap[] {
  const { peak } = scheduler.evaluate(chosen, 0);
  for (let gap = 0; gap < chosen.length; gap++) {
    if (chosen[gap] === 0) continue;
    chosen[gap] = 0;
    if (scheduler.evaluate(chosen, 0).peak > peak) chosen[gap] = 1;
  }
  return scheduler.swaps(chosen);
}
