// A whole swap plan for a recorded step: the swaps, the footprint once blocks are laid out around the gaps, and the cost of lower limits.
// Everything in it is simulated and verified.
import { BLOCK_UNIT } from '../../abi/settings.ts';
import { InvariantError } from '../../base/errors.ts';
import { type Buffer, type Layout, normalizeSpans, type Span, spansOnCircle } from '../offsets/buffers.ts';
import { type OffsetsPlan, planOffsets } from '../offsets/planner.ts';
import type { SwapStep } from './accesses.ts';
import type { CopyCosts, CopyDirection } from './copy-costs.ts';
import { type Gap, loadCurve, type SwapBounds, wrap } from './gaps.ts';
import type { Swap } from './schedule.ts';
import { DEFAULT_SWAP_BUDGET_MS, planSwaps, type SwapChoice, usableGaps } from './search.ts';
import { type SwapSimulation, simulateSwaps } from './simulator.ts';
import { verifySwaps } from './verifier.ts';

export interface SwapPlanOptions {
  readonly costs: CopyCosts;
  /** Plan for this limit instead of the lowest without stalls. */
  readonly limit?: number | undefined;
  readonly budgetMs?: number | undefined;
  readonly offsetsBudgetMs?: number | undefined;
  readonly alignment?: number | undefined;
  readonly seed?: number | undefined;
}

/** How far below the zero-stall limit the curve goes. */
const LOWEST_ON_CURVE = 0.5;
const CURVE_POINTS = 8;

export interface CurvePoint {
  readonly limit: number;
  /** Waiting per step, as a share of the step; 0 at and above the zero-stall limit. */
  readonly overhead: number;
}

export interface SwapPlan {
  readonly peak: number;
  /** The lowest limit found without waiting. */
  readonly zeroStallLimit: number;
  /** 1 - zeroStallLimit / peak. */
  readonly reduction: number;
  /** The limit planned for, and what it costs. */
  readonly limit: number;
  readonly overhead: number;
  readonly bytesMoved: number;
  readonly swaps: readonly Swap[];
  readonly bounds: SwapBounds;
  readonly curve: readonly CurvePoint[];
  /** Bytes of an arena for all blocks with their gaps, and the offsets in it, by block and turn. */
  readonly footprint: number;
  readonly layout: Layout;
  readonly turns: number;
  readonly simulation: SwapSimulation;
  /** False below the zero-stall limit: waiting is simulated there, but there is no plan to follow. */
  readonly verified: boolean;
  readonly wallMs: number;
}

export function planSwapStep(step: SwapStep, options: SwapPlanOptions): SwapPlan {
  const started = performance.now();
  const { costs } = options;
  const choice = chooseSwaps(step, options);
  const wanted = options.limit === undefined ? choice.limit : Math.min(options.limit, choice.peak);
  // Above the lowest limit, fewer copies are enough. Below it, the program has to wait.
  const relaxed =
    wanted > choice.limit ? planSwaps(step, { costs, limit: wanted, budgetMs: options.budgetMs, seed: options.seed }) : choice;
  const swaps = wanted >= choice.limit ? relaxed.swaps : forcedSwaps(step, choice, costs, wanted);
  const simulation = simulateSwaps(step, swaps, { costs, limit: wanted });
  if (wanted >= choice.limit) {
    const fault = verifySwaps(step, swaps, wanted, costs)[0];
    if (fault) throw new InvariantError(`the swap planner made a wrong plan: ${fault.message}`);
    if (simulation.stallUs > 0 || simulation.peak > wanted || simulation.faults > 0) {
      throw new InvariantError(`the swap plan stalls ${simulation.stallUs} us and peaks at ${simulation.peak} in the simulator`);
    }
  }
  const turns = turnsOf(step);
  const verified = wanted >= choice.limit;
  // Copies that make the program wait have no fixed times. The layout is that of the lowest limit without waiting.
  const offsets = layOut(step, verified ? swaps : choice.swaps, turns, options);
  return {
    peak: choice.peak,
    zeroStallLimit: choice.limit,
    reduction: 1 - choice.limit / choice.peak,
    limit: wanted,
    overhead: simulation.overhead,
    bytesMoved: simulation.bytesMoved,
    swaps,
    bounds: choice.bounds,
    curve: curveOf(step, choice, costs),
    footprint: offsets.footprint + step.untouchedBytes,
    layout: offsets,
    turns,
    simulation,
    verified,
    wallMs: performance.now() - started,
  };
}

/** For copies out and in: how busy the other direction is taken to be, from 0 (never) to 1 (always). */
const CAUTIONS: readonly (readonly [number, number])[] = [
  [0, 0],
  [0, 1],
  [0.5, 1],
];

/**
 * Plans as if each direction had its full rate, and keeps the result if the simulator finds no stall. Copies rarely run both ways at
 * once: they go out before the peak and in after it.
 */
function chooseSwaps(step: SwapStep, options: SwapPlanOptions, limit?: number): SwapChoice {
  const { costs, seed } = options;
  const budgetMs = (options.budgetMs ?? DEFAULT_SWAP_BUDGET_MS) / 2;
  let best = planSwaps(step, { costs, limit, budgetMs, seed });
  if (costs.out.both === costs.out.alone && costs.in.both === costs.in.alone) {
    return limit === undefined ? planSwaps(step, { costs, budgetMs: 2 * budgetMs, seed }) : best;
  }
  const rate = (direction: CopyDirection, caution: number) => ({
    ...direction,
    both: direction.alone + (direction.both - direction.alone) * caution,
  });
  for (const [out, back] of CAUTIONS) {
    if (best.limit <= (limit ?? best.bounds.bandwidth)) break;
    const bolder = { ...costs, out: rate(costs.out, out), in: rate(costs.in, back) };
    const choice = planSwaps(step, { costs: bolder, limit, budgetMs: budgetMs / CAUTIONS.length, seed });
    const { stallUs, peak, faults, observed } = simulateSwaps(step, choice.swaps, { costs });
    if (stallUs > 0 || faults > 0 || peak >= best.limit) continue;
    // The observed copies count: memory must not be reused before a copy out has really ended.
    if (verifySwaps(step, observed, peak, costs).length === 0) best = { ...choice, swaps: observed, limit: peak, bounds: best.bounds };
  }
  return best;
}

function turnsOf(step: SwapStep): number {
  const longest = step.blocks.reduce((most, block) => Math.max(most, block.wholeRun ? 0 : block.toUs - block.fromUs), 1);
  return Math.max(1, Math.ceil(longest / step.periodUs));
}

function layOut(step: SwapStep, swaps: readonly Swap[], turns: number, options: SwapPlanOptions): OffsetsPlan {
  return planOffsets(gappedBuffers(step, swaps, turns, options.alignment ?? BLOCK_UNIT), {
    budgetMs: options.offsetsBudgetMs ?? 2000,
    seed: options.seed,
  });
}

/** The blocks of a step on the circle of all turns, without the times in which they are away. */
export function gappedBuffers(step: SwapStep, swaps: readonly Swap[], turns: number, alignment: number): Buffer[] {
  const { periodUs } = step;
  const circle = periodUs * turns;
  const away: Swap[][] = step.blocks.map(() => []);
  for (const swap of swaps) away[swap.block]!.push(swap);
  return step.blocks.flatMap((block, index) => {
    if (block.wholeRun) return [{ id: `${index}`, size: block.size, spans: presentSpans(away[index]!, step, turns), alignment }];
    return Array.from({ length: turns }, (_, turn) => {
      const shift = turn * periodUs;
      const parts: Span[] = [];
      let from = block.fromUs;
      for (const swap of away[index]!.toSorted((a, b) => a.outEndUs - b.outEndUs)) {
        parts.push({ from, to: swap.outEndUs });
        from = swap.inStartUs;
      }
      parts.push({ from, to: block.toUs });
      const spans = parts.flatMap((part) => (part.to > part.from ? spansOnCircle(part.from + shift, part.to + shift, circle) : []));
      return { id: `${index}.${turn}`, size: block.size, spans: normalizeSpans(spans), alignment };
    });
  });
}

/** A whole-run block is present all around the circle, except during its swap in each step. */
function presentSpans(swaps: readonly Swap[], step: SwapStep, turns: number): Span[] {
  const circle = step.periodUs * turns;
  if (swaps.length === 0) return [{ from: 0, to: circle }];
  const ends = swaps
    .flatMap((swap) =>
      Array.from({ length: turns }, (_, turn) => ({
        leaves: wrap(swap.outEndUs + turn * step.periodUs, circle),
        length: swap.inStartUs - swap.outEndUs,
      })),
    )
    .sort((a, b) => a.leaves - b.leaves);
  const spans = ends.flatMap(({ leaves, length }, index) => {
    const back = leaves + length;
    const next = ends[index + 1]?.leaves ?? ends[0]!.leaves + circle;
    return spansOnCircle(back, next, circle);
  });
  return normalizeSpans(spans);
}

/** Below the zero-stall limit: the swaps without stalls, and more gaps until instant copies would keep the limit. */
function forcedSwaps(step: SwapStep, choice: SwapChoice, costs: CopyCosts, limit: number): Swap[] {
  const swaps = [...choice.swaps];
  const gaps = usableGaps(step, { costs });
  const taken = (gap: Gap) =>
    swaps.some((swap) => swap.block === gap.block && swap.outStartUs >= gap.fromUs - 1e-3 && swap.inEndUs <= gap.toUs + 1e-3);
  const left = gaps.filter((gap) => !taken(gap));
  const load = loadCurve(step);
  const bytes = load.bytes.slice();
  const cover = (from: number, to: number, size: number) => {
    for (let at = 0; at < bytes.length; at++) if (wrap(load.timeUs[at]! - from, step.periodUs) < to - from) bytes[at] = bytes[at]! - size;
  };
  for (const swap of swaps) cover(swap.outEndUs, swap.inStartUs, swap.size);
  for (;;) {
    let top = 0;
    for (let at = 1; at < bytes.length; at++) if (bytes[at]! > bytes[top]!) top = at;
    if (bytes[top]! <= limit) break;
    const at = load.timeUs[top]!;
    const candidates = left.filter((gap) => wrap(at - gap.fromUs, step.periodUs) < gap.toUs - gap.fromUs);
    if (candidates.length === 0) break;
    // The program may wait for every byte: the smallest block that is enough, else the largest.
    const needed = bytes[top]! - limit;
    const enough = candidates.filter((gap) => gap.size >= needed);
    const gap =
      enough.length > 0
        ? enough.reduce((best, other) => (other.size < best.size ? other : best))
        : candidates.reduce((best, other) => (other.size > best.size ? other : best));
    left.splice(left.indexOf(gap), 1);
    const outUs = costs.out.fixedUs + gap.size / costs.out.both;
    const inUs = costs.in.fixedUs + gap.size / costs.in.both;
    const middle = (gap.fromUs + outUs + gap.toUs - inUs) / 2;
    const inStartUs = Math.max(middle, gap.toUs - inUs);
    swaps.push({
      block: gap.block,
      size: gap.size,
      outStartUs: gap.fromUs,
      outEndUs: gap.fromUs + outUs,
      inStartUs,
      inEndUs: inStartUs + inUs,
    });
    cover(gap.fromUs, inStartUs, gap.size);
  }
  return swaps;
}

/** Simulated points from the zero-stall limit down, in growing steps. The curve ends where even waiting does not help. */
function curveOf(step: SwapStep, choice: SwapChoice, costs: CopyCosts): CurvePoint[] {
  const curve: CurvePoint[] = [];
  if (choice.peak > choice.limit) curve.push({ limit: choice.peak, overhead: 0 });
  curve.push({ limit: choice.limit, overhead: 0 });
  for (let point = 1; point <= CURVE_POINTS; point++) {
    const limit = Math.round(choice.limit * (1 - (LOWEST_ON_CURVE * point * (point + 1)) / (CURVE_POINTS * (CURVE_POINTS + 1))));
    if (limit < choice.bounds.instant) break;
    const simulation = simulateSwaps(step, forcedSwaps(step, choice, costs, limit), { costs, limit });
    if (simulation.overruns > 0 || simulation.faults > 0) break;
    curve.push({ limit, overhead: simulation.overhead });
  }
  return curve;
}
