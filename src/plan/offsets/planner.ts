// Weir's offsets planner: a portfolio of orders and placements, then improvement and an exact search,
// until time is up or the lower bound is reached. The best layout so far is always valid.

import { InputError, InvariantError } from '../../base/errors.ts';
import { type Buffer, checkBuffers, type Layout } from './buffers.ts';
import { type Fit, fitInOrder } from './first-fit.ts';
import { canSearchExactly, searchFootprint } from './footprint-search.ts';
import { improveOrder } from './improve.ts';
import { compile, type Instance } from './instance.ts';
import { type Measures, measure, type OrderName, orderBy } from './orders.ts';
import { fitSkyline } from './skyline.ts';
import { verifyOffsets } from './verifier.ts';

export interface OffsetsOptions {
  /** Stop once a layout of this size is found. If unset, search for the smallest. */
  readonly capacity?: number | undefined;
  /** Most milliseconds to spend after the first placement. */
  readonly budgetMs?: number | undefined;
  readonly seed?: number | undefined;
  readonly onProgress?: ((progress: OffsetsProgress) => void) | undefined;
}

export interface OffsetsProgress {
  readonly footprint: number;
  readonly lowerBound: number;
  readonly elapsedMs: number;
  /** The method that found the layout: `first fit by size`, `exact search`, ... */
  readonly by: string;
}

export interface OffsetsPlan extends Layout {
  readonly lowerBound: number;
  /** Footprint over lower bound. */
  readonly ratio: number;
  /** True if no smaller layout exists. */
  readonly optimal: boolean;
  readonly by: string;
  readonly wallMs: number;
}

export const DEFAULT_BUDGET_MS = 3000;
/** Inputs up to this size go through the whole portfolio regardless of time: it takes milliseconds. */
const SMALL = 2000;

/** The core is the set of buffers that live where the load is at least this share of the largest. */
const CORE_SHARES: readonly number[] = [0.95, 0.9, 0.98, 0.8];
const MAX_CORE = 3000;
const CORE_ORDERS: readonly (readonly OrderName[])[] = [
  ['size', '-birth'],
  ['tension', 'duration', 'volume'],
];

interface Heuristic {
  readonly order: readonly OrderName[];
  readonly place: Fit | 'skyline';
}

/** Each of the first three was best on some large input. The others follow while there is time. */
const PORTFOLIO: readonly Heuristic[] = [
  { order: ['tension', 'duration', 'volume'], place: 'first' },
  { order: ['size', '-birth'], place: 'first' },
  { order: ['volume', 'size'], place: 'skyline' },
  { order: ['area', 'size'], place: 'first' },
  { order: ['tension', 'width', 'area'], place: 'skyline' },
  { order: ['width', 'area'], place: 'best' },
  { order: ['tension', 'area', 'width'], place: 'first' },
  { order: ['volume', 'size'], place: 'first' },
  { order: ['size', 'width'], place: 'first' },
  { order: ['size', 'duration'], place: 'best' },
  { order: ['tension', 'size'], place: 'best' },
  { order: ['area', 'size'], place: 'skyline' },
  { order: ['width', 'area', 'tension'], place: 'skyline' },
  { order: ['duration', 'volume'], place: 'first' },
  { order: ['-birth'], place: 'first' },
  { order: ['size'], place: 'skyline' },
];

/** Plans in this thread. `src/cli/plan-workers.ts` runs the exact search in several. */
export function planOffsets(buffers: readonly Buffer[], options: OffsetsOptions = {}): OffsetsPlan {
  const planner = new OffsetsPlanner(buffers, options);
  planner.runPortfolio();
  if (!planner.isDone()) planner.search();
  return planner.finish();
}

export class OffsetsPlanner {
  readonly instance: Instance;
  private readonly buffers: readonly Buffer[];
  private readonly options: OffsetsOptions;
  private readonly measures: Measures;
  private readonly started = performance.now();
  private readonly deadline: number;
  private best: Layout = { offsets: new Float64Array(0), footprint: Number.POSITIVE_INFINITY };
  private bestOrder: Int32Array = new Int32Array(0);
  private by = 'nothing';
  private proven: number;

  constructor(buffers: readonly Buffer[], options: OffsetsOptions) {
    checkBuffers(buffers);
    checkFixed(buffers);
    this.buffers = buffers;
    this.options = options;
    this.instance = compile(buffers);
    this.measures = measure(this.instance);
    this.proven = this.instance.lowerBound;
    this.deadline = this.started + (options.budgetMs ?? DEFAULT_BUDGET_MS);
  }

  get footprint(): number {
    return this.best.footprint;
  }

  get seed(): number {
    return this.options.seed ?? 0;
  }

  /** Milliseconds left of the budget, never below 0. */
  get remainingMs(): number {
    return Math.max(0, this.deadline - performance.now());
  }

  isDone(): boolean {
    return this.best.footprint <= Math.max(this.proven, this.options.capacity ?? 0);
  }

  runPortfolio(): void {
    const late = () => this.remainingMs === 0;
    // For large inputs, half of the time is kept for building around a core.
    const halfway = this.remainingMs / 2;
    for (const { order: names, place } of PORTFOLIO) {
      const first = this.best.footprint === Number.POSITIVE_INFINITY;
      if (this.isDone() || (!first && this.instance.count > SMALL && this.remainingMs < halfway)) return;
      if (place === 'skyline' && this.instance.hasFixed) continue;
      const order = orderBy(this.measures, names);
      const layout =
        place === 'skyline'
          ? fitSkyline(this.instance, order, this.best.footprint, late)
          : fitInOrder(this.instance, order, place, this.best.footprint);
      if (layout.footprint < this.best.footprint && place !== 'skyline') this.bestOrder = order;
      this.offer(layout, `${place === 'skyline' ? 'skyline' : `${place} fit`} by ${names.map((name) => name.replace('-', '')).join(', ')}`);
    }
  }

  /** Spends the rest of the budget on improvement and exact search. */
  search(): void {
    const exact = canSearchExactly(this.instance);
    const late = () => this.remainingMs === 0 || this.isDone();
    if (!exact) this.buildOnCore();
    if (!exact || this.options.capacity === undefined) this.improve(exact ? 0.03 : 1);
    if (!exact || late()) return;
    searchFootprint(this.instance, {
      seed: this.seed,
      capacity: this.options.capacity,
      best: () => this.best.footprint,
      onFound: (layout) => this.offer(layout, 'exact search'),
      onProven: (capacity) => this.prove(capacity),
      shouldStop: late,
    });
  }

  /**
   * For inputs too large for the exact search: plans the core, which is small but tight, with all methods. Then fits
   * the many other buffers around it.
   */
  private buildOnCore(): void {
    if (this.instance.hasFixed) return;
    for (const share of CORE_SHARES) {
      if (this.isDone() || this.remainingMs === 0) return;
      const least = this.instance.lowerBound * share;
      const core: number[] = [];
      this.measures.tension.forEach((tension, buffer) => {
        if (tension >= least) core.push(buffer);
      });
      if (core.length > MAX_CORE) continue;
      const part = planOffsets(
        core.map((buffer) => this.buffers[buffer]!),
        { budgetMs: this.remainingMs / 4, seed: this.seed },
      );
      if (part.footprint >= this.best.footprint) continue;
      const fixed = this.instance.fixed.slice();
      core.forEach((buffer, at) => {
        fixed[buffer] = part.offsets[at]!;
      });
      const around = { ...this.instance, fixed, hasFixed: true };
      for (const names of CORE_ORDERS) {
        this.offer(
          fitInOrder(around, orderBy(this.measures, names), 'first', this.best.footprint),
          `first fit around a core by ${part.by}`,
        );
        if (this.isDone() || this.remainingMs === 0) return;
      }
    }
  }

  /** Runs squeaky-wheel improvement for a share of the remaining time. */
  improve(share: number): void {
    const until = performance.now() + this.remainingMs * share;
    const order = this.bestOrder.length > 0 ? this.bestOrder : orderBy(this.measures, ['size', '-birth']);
    improveOrder(this.instance, order, this.best, {
      seed: this.seed,
      shouldStop: () => performance.now() >= until || this.isDone(),
      onFound: (layout) => this.offer(layout, 'improvement'),
    });
  }

  offer(layout: Layout, by: string): void {
    if (layout.footprint >= this.best.footprint) return;
    this.best = layout;
    this.by = by;
    const elapsedMs = performance.now() - this.started;
    this.options.onProgress?.({ footprint: layout.footprint, lowerBound: this.instance.lowerBound, elapsedMs, by });
  }

  /** Records that no layout of `capacity` or less exists. */
  prove(capacity: number): void {
    this.proven = Math.max(this.proven, capacity + 1);
  }

  /** Returns the best layout after the verifier has checked it. */
  finish(): OffsetsPlan {
    const faults = verifyOffsets(this.buffers, this.best);
    if (faults.length > 0) throw new InvariantError(`the planner made an invalid layout: ${faults[0]!.message}`);
    const { lowerBound } = this.instance;
    return {
      ...this.best,
      lowerBound,
      ratio: this.best.footprint / lowerBound,
      optimal: this.best.footprint <= this.proven,
      by: this.by,
      wallMs: performance.now() - this.started,
    };
  }
}

/** If fixed offsets contradict each other, no planner can help: the input is wrong. */
function checkFixed(buffers: readonly Buffer[]): void {
  const fixed = buffers.filter((buffer) => buffer.fixedOffset !== undefined);
  if (fixed.length === 0) return;
  const offsets = Float64Array.from(fixed, (buffer) => buffer.fixedOffset!);
  const fault = verifyOffsets(fixed, { offsets, footprint: Number.MAX_SAFE_INTEGER }, 1)[0];
  if (fault) throw new InputError(`the fixed offsets contradict each other: ${fault.message}`);
}
