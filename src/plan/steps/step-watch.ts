// Watches the requests of one GPU of one process until a step repeats, and plans it. Pure: rows go in, a plan or a reason comes out.
// It looks at ever longer intervals, so that all looks together cost a few times the last one, and remembers a bounded past.
import { formatBytes } from '../../base/bytes.ts';
import { LIVE_UNIT } from '../../trace/summary.ts';
import { MOST_REQUESTS } from '../files/process-plan.ts';
import type { MemoryOps } from './memory-ops.ts';
import { findPeriod, isPeriodic, type Period } from './period.ts';
import { extractStep, mainStreamOf, type Step } from './step.ts';
import { planStep, type StepPlan, verifyStepPlan, verifyStepPlanOn } from './step-plan.ts';
import { besidePlan, cutWhereLeastIsLive, levelsIn } from './watched-step.ts';

export interface StepWatchOptions {
  /** Operations remembered, at most. */
  readonly window?: number | undefined;
  /** Milliseconds for finding places. */
  readonly budgetMs?: number | undefined;
  readonly seed?: number | undefined;
  /** Ends of steps are told: without them nothing is taken for a step for quite a while. */
  readonly marksSteps?: boolean | undefined;
}

/** What the process holds now; bytes. */
export interface HeldLevels {
  readonly reserved: number;
  /** Of those, what plans have no part in. */
  readonly outside: number;
}

export interface WatchedPlan {
  readonly kind: 'planned';
  readonly plan: StepPlan;
  /** Allocations and frees per step, and steps seen until it was found, the first included. */
  readonly period: number;
  readonly steps: number;
  /** Index of the stream whose requests are planned. */
  readonly stream: number;
  /** Held when it was made, and expected to be held when it is followed. */
  readonly from: number;
  readonly expected: number;
  readonly detectMs: number;
  readonly planMs: number;
}

export interface NotPlanned {
  /** Declined: a step was found and there is a reason not to plan it. */
  readonly kind: 'watching' | 'declined';
  readonly reason: string;
}

const DEFAULT_WINDOW = 2_000_000;
const DEFAULT_BUDGET_MS = 2000;
const FIRST_LOOK = 256;
const GROWTH = 1.25;
/** After a reason that does not go away soon. */
const LATER = 2;
/** Steps that must be seen alike: the lives of what crosses the end of a step are seen in the third. */
const SEEN_STEPS = 3;
/** Two busy streams that take turns need less memory by lending than by a plan for one of them. */
const MAIN_SHARE = 0.8;
/** A plan that needs this much more than is held without it is not worth its steadiness. */
const MOST_COST = 0.005;
/** What the engine takes from the driver at once. */
const HANDLE_BYTES = 2 * 1024 * 1024;
/**
 * Layers repeat inside a step as steps do in a run, only that they end soon. So a step is believed when it is still repeated
 * after so many times the operations until it was first seen, and if as much is live in it as there ever was, or nearly.
 */
const CONFIRMED = 1.5;
const PEAK_SHARE = 0.6;
const MOST_ENDS = 8;
/** After so many steps without their ends, or so many operations without any, nobody is going to tell of them. */
const MISSED_ENDS = 4;
const UNMARKED = 200_000;
/** In a step more comes and goes than this share of the peak. */
const RANGE_SHARE = 0.02;

export class StepWatch {
  private readonly window: number;
  private readonly options: StepWatchOptions;
  private count = 0;
  private isAlloc = new Uint8Array(1 << 12);
  private size = new Float64Array(1 << 12);
  private stream = new Int32Array(1 << 12);
  private partner = new Int32Array(1 << 12);
  /** By address: the operation that allocated what is live there, or what waits there for other streams. */
  private live = new Map<number, number>();
  private parked = new Map<number, number>();
  private marks = new Map<string, number[]>();
  /** Operations after which a step was over, where that is known for sure. */
  private ends: number[] = [];
  /** Fewer operations than this are no step: once there was one of as many. */
  private least = 0;
  private liveBefore = 0;
  private seen = 0;
  private nextLook = FIRST_LOOK;
  /** A step that may be one, and the operation at which it is believed. */
  private candidate: { readonly length: number; readonly due: number } | undefined;

  constructor(options: StepWatchOptions = {}) {
    this.options = options;
    this.window = Math.max(64, options.window ?? DEFAULT_WINDOW);
  }

  /**
   * Begins anew: what came before is of no use, or part of it was lost. `live` is what is live now, in bytes. It may begin among
   * equal layers: whatever is repeated has to go on for `least` operations, those of the step there was before.
   */
  restart(live: number, least = 0): void {
    this.least = least;
    this.ends = [];
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

  /** Whether a look is worth its time. */
  get isDue(): boolean {
    return this.seen >= this.nextLook;
  }

  alloc(address: number, bytes: number, stream: number): void {
    // A free of it was not told of.
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
    // Adding may have moved everything.
    const partner = this.partner[op]!;
    if (partner < 0) return;
    this.partner[partner] = op;
    this.parked.set(address, partner);
  }

  freeCompleted(address: number): void {
    this.release(this.parked.get(address));
    this.parked.delete(address);
  }

  /** The program says where it is. */
  mark(name: string): void {
    const marks = this.marks.get(name);
    if (!marks) this.marks.set(name, [this.count]);
    else if (marks.at(-1) !== this.count) marks.push(this.count);
  }

  /** A step is over: the process knows. No step is shorter than what lies between two of these, be there several in one. */
  stepEnded(): void {
    if (this.ends.at(-1) !== this.count) this.ends.push(this.count);
    if (this.ends.length > MOST_ENDS) this.ends.shift();
  }

  /** Looks for the step and plans it. Call when `isDue`, or at will. */
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
    // Marks are the program's own word.
    if (this.candidate?.length !== period.length) {
      const due = Math.max(
        this.seen + last.from + SEEN_STEPS * period.length - ops.count,
        period.by === 'marks' ? 0 : Math.max(CONFIRMED * this.seen, this.least),
      );
      this.candidate = { length: period.length, due };
    }
    if (this.seen < this.candidate.due) {
      this.nextLook = Math.ceil(this.candidate.due);
      return { kind: 'watching', reason: `${period.length} operations were repeated, and it is waited whether they go on` };
    }
    const { peak, least } = levelsIn(ops, ops.count - period.length);
    if (peak < PEAK_SHARE * ops.peak || peak - least < RANGE_SHARE * ops.peak) {
      this.wait(GROWTH);
      return { kind: 'watching', reason: 'what is repeated is a small part of what the job does' };
    }
    // Where shapes have changed, the last ones are those to plan for.
    const step = cutWhereLeastIsLive(extractStep(ops, { ...period, stretches: [last] }), ops);
    const detectMs = performance.now() - started;
    return this.plan(ops, step, levels, detectMs);
  }

  private plan(ops: MemoryOps, step: Step, levels: HeldLevels, detectMs: number): WatchedPlan | NotPlanned {
    const main = mainStreamOf(step);
    const bytesOf = ({ blocks }: Step) => blocks.reduce((sum, { size }) => sum + size, 0);
    const all = bytesOf(step);
    const share = all === 0 ? 0 : bytesOf(main) / all;
    if (main.blocks.length === 0) return this.decline('its steps allocate nothing that they free again');
    if (main.blocks.length > MOST_REQUESTS) return this.decline(`its steps make ${main.blocks.length} requests, too many to plan`);
    if (share < MAIN_SHARE) {
      const percent = Math.floor(share * 100);
      return this.decline(
        `several streams share the work of a step (the busiest asks for ${percent} % of the bytes): lending between them needs less than a plan for one`,
      );
    }
    const started = performance.now();
    const plan = planStep(main, { budgetMs: this.options.budgetMs ?? DEFAULT_BUDGET_MS, seed: this.options.seed });
    const fault = verifyStepPlan(plan)[0] ?? verifyStepPlanOn(ops, plan).faults[0];
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

  /** The period of what the program does now. What came before its first repetition does not matter. */
  private findCurrent(): { ops: MemoryOps; period: Period } | { reason: string } {
    const least = this.leastStep();
    if (least === undefined) return { reason: 'too few steps have ended' };
    const ops = this.ops();
    const period = findPeriod(ops, least);
    if (!isPeriodic(period)) return { reason: period.reason };
    if (!isCurrent(ops, period)) return { reason: 'the step that was repeated is over' };
    return { ops, period };
  }

  /** Operations that a step has at least, 0 if nobody tells; undefined if it is to be told and was not yet. */
  private leastStep(): number | undefined {
    const distances = this.ends.slice(1).map((end, index) => end - this.ends[index]!);
    // Somebody who has stopped telling of ends does other steps than he did.
    const isOver = distances.length > 0 && this.count - this.ends.at(-1)! > MISSED_ENDS * Math.max(...distances);
    if (distances.length >= SEEN_STEPS - 1 && !isOver) return Math.min(...distances);
    return this.options.marksSteps && !isOver && this.seen < UNMARKED ? undefined : 0;
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

  /** The memory of an alloc is free after the operations so far, and not before. */
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

  /** Drops the older half of the window; gives how many operations that is. */
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
    this.ends = this.ends.map((at) => at - gone).filter((at) => at >= 0);
    for (const [name, marks] of this.marks)
      this.marks.set(
        name,
        marks.map((at) => at - gone).filter((at) => at >= 0),
      );
    return gone;
  }
}

/** Whether the repetition goes on to the end of what was seen. */
function isCurrent(ops: MemoryOps, { length, stretches }: Period): boolean {
  return stretches.at(-1)!.to + 2 * length >= ops.count;
}
