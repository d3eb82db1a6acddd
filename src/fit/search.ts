// The largest value that fits: a search with a replay for each value that is tried.
import type { AllocatorChoice } from '../allocator/registry.ts';
import type { SwappableState } from '../replay/emergency-swaps.ts';
import type { ReplayResult } from '../replay/replay.ts';
import { UNLIMITED_GPU, type WhatIfGpu, type WhatIfOptions, whatIf } from '../replay/what-if.ts';
import { summarizeTrace } from '../trace/summary.ts';
import type { Trace } from '../trace/trace.ts';
import type { Point } from './monomials.ts';
import type { Bound, Synthesis } from './synthesis.ts';

/** Nobody asks for more. A program whose memory does not grow would have no largest value. */
export const MOST_VALUE: number = 2 ** 24;

/** One of the parameters, with the values of the others. */
export interface Line {
  /** The values of all parameters; the one that is searched for is ignored. */
  readonly point: Point;
  readonly parameter: number;
  /** Only multiples of this are tried. */
  readonly multiple: number;
}

export interface Largest {
  /** The largest value that fits; 0: none does. */
  readonly value: number;
  /** Whether a larger value was tried and does not fit. Else the search ended at `MOST_VALUE`. */
  readonly isBounded: boolean;
}

/** Replays synthesised runs, each once. */
export class FitReplays {
  private readonly synthesis: Synthesis;
  readonly rules: WhatIfOptions['rules'];
  private readonly swappable: SwappableState | undefined;
  private readonly live = new Map<string, number>();
  private readonly unbounded = new Map<string, ReplayResult>();
  private readonly fitting = new Map<string, boolean>();
  /** Replays so far. */
  count = 0;

  constructor(synthesis: Synthesis, rules: WhatIfOptions['rules'], swappable?: SwappableState) {
    this.synthesis = synthesis;
    this.rules = rules;
    this.swappable = swappable;
  }

  trace(point: Point, bound: Bound): Trace {
    return this.synthesis.at(point, bound);
  }

  /** Without a limit. */
  unlimited(choice: AllocatorChoice, point: Point, bound: Bound): ReplayResult {
    const key = `${choice.name} ${bound} ${point.join()}`;
    let result = this.unbounded.get(key);
    if (!result) {
      result = this.on(choice, point, bound, UNLIMITED_GPU);
      this.unbounded.set(key, result);
    }
    return result;
  }

  on(choice: AllocatorChoice, point: Point, bound: Bound, gpu: WhatIfGpu, stopAtOom = false): ReplayResult {
    this.count++;
    return whatIf(this.trace(point, bound), choice, gpu, { rules: this.rules, stopAtOom, swappable: this.swappable });
  }

  /** If state can be swapped out, without it. */
  peakLive(point: Point, bound: Bound): number {
    const key = `${bound} ${point.join()}`;
    let peak = this.live.get(key);
    if (peak === undefined) {
      const trace = this.trace(point, bound);
      peak = summarizeTrace(trace).peakLive;
      for (const allocation of this.swappable?.allocations ?? []) peak -= trace.allocations.requested[allocation]!;
      this.live.set(key, peak);
    }
    return peak;
  }

  /** No allocator needs less than what is live, and this is known without a replay. */
  mayFit(point: Point, bound: Bound, gpuBytes: number): boolean {
    return this.peakLive(point, bound) <= gpuBytes;
  }

  fits(choice: AllocatorChoice, point: Point, bound: Bound, gpuBytes: number): boolean {
    const key = `${choice.name} ${bound} ${gpuBytes} ${point.join()}`;
    let fits = this.fitting.get(key);
    if (fits === undefined) {
      fits = this.on(choice, point, bound, { capacity: gpuBytes }, true).ooms === 0;
      this.fitting.set(key, fits);
    }
    return fits;
  }
}

/** Whether a value fits. `mayFit` is quick and never wrong if it says no. */
export interface Trial {
  mayFit(value: number): boolean;
  fits(value: number): boolean;
}

/**
 * The largest multiple that fits, where its neighbour was tried and does not. `start` is a value to begin at, such as the
 * largest that was recorded. The quick answer comes first, since allocators need little more than what is live.
 */
export function largestValue(start: number, multiple: number, trial: Trial): Largest {
  const most = Math.floor(MOST_VALUE / multiple);
  const mayFit = (count: number) => trial.mayFit(count * multiple);
  const fits = (count: number) => mayFit(count) && trial.fits(count * multiple);
  let low = 0;
  let high = Math.max(1, Math.min(most, Math.round(start / multiple)));
  while (high < most && mayFit(high)) {
    low = high;
    high = Math.min(most, high * 2);
  }
  if (mayFit(high)) {
    if (fits(high)) return { value: high * multiple, isBounded: false };
    low = high;
  }
  low = lastOf(low, high, mayFit);
  return { value: fittingFrom(low, 1, fits) * multiple, isBounded: true };
}

/** The largest multiple from `value` on downwards that fits, in growing steps; 0: none does. */
export function fittingFrom(value: number, multiple: number, fits: (value: number) => boolean): number {
  let low = value / multiple;
  let above = low + 1;
  for (let step = 1; low > 0 && !fits(low * multiple); step *= 2) {
    above = low;
    low = Math.max(0, low - step);
  }
  return lastOf(low, above, (count) => fits(count * multiple)) * multiple;
}

/** The largest multiple above `value` that fits, in growing steps; `value` itself if the next does not. */
export function fittingUpTo(value: number, multiple: number, fits: (value: number) => boolean): number {
  const most = Math.floor(MOST_VALUE / multiple);
  let low = value / multiple;
  let high = low + 1;
  for (let step = 2; high < most && fits(high * multiple); step *= 2) {
    low = high;
    high = Math.min(most, high + step);
  }
  return lastOf(low, high, (count) => fits(count * multiple)) * multiple;
}

/** The last number before `high` for which it is true, where it is true for `low` and not for `high`. */
function lastOf(low: number, high: number, isTrue: (value: number) => boolean): number {
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (isTrue(middle)) low = middle;
    else high = middle;
  }
  return low;
}

export function onLine({ point, parameter }: Line, value: number): Point {
  return point.map((given, index) => (index === parameter ? value : given));
}
