// Watches the requests of one GPU of one process until a step repeats, and plans it. Pure: requests go in, a plan or a reason comes out.
// Looks come at growing intervals, so all of them together cost a few times the last one. The past that is kept is bounded.
import { PLAN_MOST_REQUESTS } from '../../abi/ring.ts';
import { ENGINE_DEFAULTS } from '../../abi/settings.ts';
import { formatBytes } from '../../base/bytes.ts';
import { LIVE_UNIT } from '../../trace/summary.ts';
import type { MemoryOps } from './memory-ops.ts';
import { findPeriod, isPeriodic, type Period } from './period.ts';
import { extractStep, mainStreamOf, type Step } from './step.ts';
import { planStep, type StepPlan } from './step-plan.ts';
import { verifyStepPlan, verifyStepPlanOn } from './verifier.ts';
import { besidePlan, cutWhereLeastIsLive, levelsIn, MAIN_SHARE, mainShareOf } from './watched-step.ts';

export interface StepWatchOptions {
  /** Most operations kept. */
  readonly window?: number | undefined;
  /** Time for the search for offsets. */
  readonly budgetMs?: number | undefined;
  readonly seed?: number | undefined;
  /** The process counts its steps (`stepsEnded`): nothing is planned before it has counted enough, or for quite a while. */
  readonly countsSteps?: boolean | undefined;
}

/** Memory that the process holds now, in bytes. */
export interface HeldLevels {
  readonly reserved: number;
  /** Part of `reserved` that belongs to PyTorch's own allocator: plans do not change it. */
  readonly outside: number;
}

export interface WatchedPlan {
  readonly kind: 'planned';
  readonly plan: StepPlan;
  /** Allocations and frees per step, and steps seen until it was found. */
  readonly period: number;
  readonly steps: number;
  /** Index of the stream whose requests are planned. */
  readonly stream: number;
  /** Reserved bytes when the plan was made, and expected when it is followed. */
  readonly from: number;
  readonly expected: number;
  readonly detectMs: number;
  readonly planMs: number;
}

export interface NotPlanned {
  /** Declined: a step was found, but a plan is not worth it. */
  readonly kind: 'watching' | 'declined';
  readonly reason: string;
}

const DEFAULT_WINDOW = 2_000_000;
const DEFAULT_BUDGET_MS = 2000;
const FIRST_LOOK = 256;
const GROWTH = 1.25;
/** Growth of the interval after a reason that does not go away soon. */
const LATER = 2;
/** Equal steps needed: a block that outlives its step is seen whole only in the third. */
const SEEN_STEPS = 3;
/** A plan may need this much more memory than the job holds without one, as a share. */
const MOST_COST = 0.001;
/** The engine takes memory from the driver in pieces of this size. */
const HANDLE_BYTES: number = ENGINE_DEFAULTS.handleUnit;
/**
 * Layers repeat inside a step as steps do in a run, but they end soon. A step is accepted once it has kept repeating for 50 % more
 * operations, and if its peak is at least this share of the peak so far.
 */
const CONFIRMED = 1.5;
const PEAK_SHARE = 0.6;
/** Step counts kept. */
const MOST_COUNTS = 8;
/**
 * Counts are taken anywhere in a step, so K ended steps mean the operations of K - 1 to K + 1 steps. With four of them, dividing by
 * K + 1 gives more than half a step: no part that repeats inside the step is as long.
 */
const COUNTED_STEPS = 4;
/** The process has stopped counting after so many steps, or does not count at all after so many operations. */
const MISSED_STEPS = 4;
const UNCOUNTED = 200_000;
/** The least range between lowest and highest memory in a step, as a share of the peak. */
const RANGE_SHARE = 0.02;

export class StepWatch {
  private readonly window: number;
  private readonly options: StepWatchOptions;
  private count = 0;
  private isAlloc = new Uint8Array(1 << 12);
  private size = new Float64Array(1 << 12);
  private stream = new Int32Array(1 << 12);
  private partner = new Int32Array(1 << 12);
  /** By address: the operation that allocated the live block there, or the freed block that other streams still use. */
  private live = new Map<number, number>();
  private parked = new Map<number, number>();
  private marks = new Map<string, number[]>();
  /** Steps that had ended by an operation; the counts differ. */
  private counts: { readonly at: number; readonly steps: number }[] = [];
  /** The operation by which steps were last counted. */
  private countedAt = 0;
  /** No step is shorter than this: an earlier one had as many operations. */
  private least = 0;
  private liveBefore = 0;
  private seen = 0;
  private nextLook = FIRST_LOOK;
  /** A possible step, and the operation at which it is accepted. */
  private candidate: { readonly length: number; readonly due: number } | undefined;

  constructor(options: StepWatchOptions = {}) {
    this.options = options;
    this.window = Math.max(64, options.window ?? DEFAULT_WINDOW);
  }

  /**
   * Forgets everything, since the job has changed or rows were lost. `live`: bytes live now. The next rows may be equal layers in the
   * middle of a step, so a repetition must go on for `least` operations, the length of the last step.
   */
  restart(live: number, least = 0): void {
    this.least = least;
    this.counts = [];
    this.countedAt = 0;
    this.count = 0;
    this.seen = 0;
    this.nextLook = FIRST_LOOK;
    this.candidate = undefined;
    this.liveBefore = live;
    this.live.clear();
    this.parked.clear();
    this.marks.clear();
  }

  get operations(): number {
    return this.seen;
  }

  /** Whether it is time to look. */
  get isDue(): boolean {
    return this.seen >= this.nextLook;
  }

  alloc(address: number, bytes: number, stream: number): void {
    // The row of its free was lost.
    this.release(this.live.get(address));
    const op = this.add(1, Math.max(LIVE_UNIT, Math.ceil(bytes / LIVE_UNIT) * LIVE_UNIT), stream, -1);
    this.live.set(address, op);
  }

  freeRequested(address: number, bytes: number, stream: number): void {
    const alloc = this.live.get(address);
    this.live.delete(address);
    if (alloc === undefined || alloc < 0) {
      this.add(0, Math.max(LIVE_UNIT, Math.ceil(bytes / LIVE_UNIT) * LIVE_UNIT), stream, -1);
      return;
    }
    const op = this.add(0, this.size[alloc]!, this.stream[alloc]!, alloc);
    // `add` may have shifted all operations.
    const partner = this.partner[op]!;
    if (partner < 0) return;
    this.partner[partner] = op;
    this.parked.set(address, partner);
  }

  freeCompleted(address: number): void {
    this.release(this.parked.get(address));
    this.parked.delete(address);
  }

  /** A mark of the program. */
  mark(name: string): void {
    const marks = this.marks.get(name);
    if (!marks) this.marks.set(name, [this.count]);
    else if (marks.at(-1) !== this.count) marks.push(this.count);
  }

  /** The process has ended so many steps by now, since it began. */
  stepsEnded(steps: number): void {
    this.countedAt = this.count;
    if (this.counts.at(-1)?.steps === steps) return;
    this.counts.push({ at: this.count, steps });
    if (this.counts.length > MOST_COUNTS) this.counts.shift();
  }

  /** Looks for a step and plans it. Call when `isDue`, or any time. */
  look(levels: HeldLevels): WatchedPlan | NotPlanned {
    const started = performance.now();
    const found = this.findCurrent();
    if ('reason' in found) {
      this.candidate = undefined;
      this.wait(GROWTH);
      return { kind: 'watching', reason: found.reason };
    }
    const { ops, period } = found;
    const last = period.stretches.at(-1)!;
    // A step that the program itself marks needs no confirmation.
    if (this.candidate?.length !== period.length) {
      const due = Math.max(
        this.seen + last.from + SEEN_STEPS * period.length - ops.count,
        period.by === 'marks' ? 0 : Math.max(CONFIRMED * this.seen, this.least),
      );
      this.candidate = { length: period.length, due };
    }
    if (this.seen < this.candidate.due) {
      this.nextLook = Math.ceil(this.candidate.due);
      return { kind: 'watching', reason: `${period.length} operations repeat; waiting whether they go on` };
    }
    const { peak, least } = levelsIn(ops, ops.count - period.length);
    if (peak < PEAK_SHARE * ops.peak || peak - least < RANGE_SHARE * ops.peak) {
      this.wait(GROWTH);
      return { kind: 'watching', reason: 'the part that repeats uses little of the memory' };
    }
    // If shapes have changed, the last ones count.
    const step = cutWhereLeastIsLive(extractStep(ops, { ...period, stretches: [last] }), ops);
    const detectMs = performance.now() - started;
    return this.plan(ops, step, levels, detectMs);
  }

  private plan(ops: MemoryOps, step: Step, levels: HeldLevels, detectMs: number): WatchedPlan | NotPlanned {
    const main = mainStreamOf(step);
    const share = mainShareOf(step);
    if (main.blocks.length === 0) return this.decline('its steps allocate nothing that they free again');
    if (main.blocks.length > PLAN_MOST_REQUESTS) return this.decline(`its steps make ${main.blocks.length} requests, too many to plan`);
    if (share < MAIN_SHARE) {
      const percent = Math.floor(share * 100);
      return this.decline(
        `several streams share the work of a step (the busiest asks for ${percent} % of the bytes): lending between them needs less than a plan for one`,
      );
    }
    const started = performance.now();
    const plan = planStep(main, { budgetMs: this.options.budgetMs ?? DEFAULT_BUDGET_MS, seed: this.options.seed });
    const fault = verifyStepPlan(plan)[0] ?? verifyStepPlanOn(ops, plan, main.blocks[0]!.stream).faults[0];
    if (fault) return this.decline(`the plan did not pass its check: ${fault.message}`);
    const expected = Math.ceil(plan.layout.footprint / HANDLE_BYTES) * HANDLE_BYTES + besidePlan(ops, main) + levels.outside;
    if (levels.reserved > 0 && expected > (1 + MOST_COST) * levels.reserved)
      return this.decline(`a plan would need ${formatBytes(expected)}, and the job holds ${formatBytes(levels.reserved)} without one`);
    this.wait(LATER);
    return {
      kind: 'planned',
      plan,
      period: step.period,
      steps: Math.max(SEEN_STEPS, Math.round(this.seen / step.period)),
      stream: main.blocks[0]!.stream,
      from: levels.reserved,
      expected,
      detectMs,
      planMs: performance.now() - started,
    };
  }

  private decline(reason: string): NotPlanned {
    this.wait(LATER);
    return { kind: 'declined', reason };
  }

  private wait(growth: number): void {
    this.nextLook = Math.ceil(Math.max(this.seen * growth, this.seen + FIRST_LOOK));
  }

  /** The period of what the program does now. Operations before its first repetition do not matter. */
  private findCurrent(): { ops: MemoryOps; period: Period } | { reason: string } {
    const least = this.leastStep();
    if (least === undefined) return { reason: 'too few steps have ended' };
    const ops = this.ops();
    const period = findPeriod(ops, least);
    if (!isPeriodic(period)) return { reason: period.reason };
    if (!isCurrent(ops, period)) return { reason: 'the steps that repeated have ended' };
    return { ops, period };
  }

  /** The fewest operations that a step can have. 0 if the process does not count; undefined if it has not counted enough yet. */
  private leastStep(): number | undefined {
    const { counts } = this;
    const [first, last] = [counts[0], counts.at(-1)];
    const counted = first && last ? last.steps - first.steps : 0;
    const hasStopped = counted > 1 && this.countedAt - last!.at > (MISSED_STEPS * (last!.at - first!.at)) / (counted - 1);
    if (counted >= COUNTED_STEPS && !hasStopped) {
      let least = Number.POSITIVE_INFINITY;
      for (const from of counts) {
        for (const to of counts) {
          const steps = to.steps - from.steps;
          if (steps >= COUNTED_STEPS) least = Math.min(least, Math.floor((to.at - from.at) / (steps + 1)));
        }
      }
      return least;
    }
    return this.options.countsSteps && !hasStopped && this.seen < UNCOUNTED ? undefined : 0;
  }

  private ops(): MemoryOps {
    const { count, liveBefore } = this;
    let live = liveBefore;
    let peak = live;
    for (let op = 0; op < count; op++) {
      live += this.isAlloc[op] ? this.size[op]! : -this.size[op]!;
      if (live > peak) peak = live;
    }
    return {
      count,
      isAlloc: this.isAlloc.subarray(0, count),
      size: this.size.subarray(0, count),
      stream: this.stream.subarray(0, count),
      partner: this.partner.subarray(0, count),
      liveBefore,
      peak,
      marks: this.commonestMarks(),
    };
  }

  private commonestMarks(): readonly number[] {
    let most: readonly number[] = [];
    for (const marks of this.marks.values()) if (marks.length > Math.max(1, most.length)) most = marks;
    return most;
  }

  /** The memory of an alloc is free only now, after the operations so far. */
  private release(alloc: number | undefined): void {
    if (alloc === undefined || alloc < 0) return;
    if (this.partner[alloc]! < this.count - 1) this.partner[alloc] = this.count - 1;
  }

  private add(isAlloc: number, bytes: number, stream: number, partner: number): number {
    let other = partner;
    if (this.count === this.window) other -= this.forget();
    else if (this.count === this.size.length) this.enlarge();
    const op = this.count++;
    this.seen++;
    this.isAlloc[op] = isAlloc;
    this.size[op] = bytes;
    this.stream[op] = stream;
    this.partner[op] = other < 0 ? -1 : other;
    return op;
  }

  private enlarge(): void {
    const room = Math.min(this.window, 2 * this.size.length);
    const grown = <T extends Uint8Array | Int32Array | Float64Array>(old: T, made: T): T => {
      made.set(old.subarray(0, this.count));
      return made;
    };
    this.isAlloc = grown(this.isAlloc, new Uint8Array(room));
    this.size = grown(this.size, new Float64Array(room));
    this.stream = grown(this.stream, new Int32Array(room));
    this.partner = grown(this.partner, new Int32Array(room));
  }

  /** Drops the older half of the operations; returns how many. */
  private forget(): number {
    const gone = this.count >> 1;
    for (let op = 0; op < gone; op++) this.liveBefore += this.isAlloc[op] ? this.size[op]! : -this.size[op]!;
    for (const column of [this.isAlloc, this.size, this.stream, this.partner]) column.copyWithin(0, gone, this.count);
    this.count -= gone;
    for (let op = 0; op < this.count; op++) this.partner[op] = this.partner[op]! < gone ? -1 : this.partner[op]! - gone;
    const moved = (places: ReadonlyMap<number, number>) =>
      new Map([...places].filter(([, op]) => op >= gone).map(([at, op]) => [at, op - gone]));
    this.live = moved(this.live);
    this.parked = moved(this.parked);
    this.counts = this.counts.map(({ at, steps }) => ({ at: at - gone, steps })).filter(({ at }) => at >= 0);
    this.countedAt -= gone;
    for (const [name, marks] of this.marks)
      this.marks.set(
        name,
        marks.map((at) => at - gone).filter((at) => at >= 0),
      );
    return gone;
  }
}

/** Whether the repetition goes on to the last operation. */
function isCurrent(ops: MemoryOps, { length, stretches }: Period): boolean {
  return stretches.at(-1)!.to + 2 * length >= ops.count;
}
