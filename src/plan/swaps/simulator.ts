// Runs a swap plan for several steps, with both copy queues and an enforced limit, and counts the waiting.
// A request waits until copies out have made room. An access waits until its block is back.
import type { SwapStep } from './accesses.ts';
import type { CopyCosts, CopyDirection } from './copy-costs.ts';
import type { Swap } from './schedule.ts';

export interface SwapSimulation {
  /** Time that the program waited in all measured steps. */
  readonly stallUs: number;
  /** Waiting per step, as a share of the step. */
  readonly overhead: number;
  /** Most bytes held at any moment of the measured steps. */
  readonly peak: number;
  /** Bytes copied out per step, and as many copied in. */
  readonly bytesMoved: number;
  /** Requests served above the limit because there was nothing left to wait for. */
  readonly overruns: number;
  /** Accesses to a block that was away with no copy under way. */
  readonly faults: number;
  /** The swaps as simulated: earliest starts and latest ends of the measured steps. */
  readonly observed: readonly Swap[];
}

export interface SimulationOptions {
  readonly costs: CopyCosts;
  /** Enforced in the measured steps. Without one, the peak is that of the plan itself. */
  readonly limit?: number | undefined;
}

/** Steps before the measured ones, for the queues to settle; and measured steps. */
const WARM_UP = 2;
const STEPS = 5;
/** Shorter waits are rounding errors. */
const NOTHING_US = 1e-3;

const Action = { Free: 0, CopyOut: 1, CopyIn: 2, Alloc: 3, Access: 4 } as const;
type Action = (typeof Action)[keyof typeof Action];

interface Moment {
  readonly us: number;
  readonly action: Action;
  readonly tensor: Tensor;
  /** For copies: the number of the swap, and the start of its step. */
  readonly swap?: number | undefined;
  readonly stepUs: number;
}

/** A block in one step. A whole-run block is one tensor for all steps. */
interface Tensor {
  readonly size: number;
  state: 'absent' | 'resident' | 'leaving' | 'away' | 'returning';
  /** When its latest copy out was asked for. */
  leftUs: number;
}

interface Job {
  readonly tensor: Tensor;
  readonly swap: number;
  readonly stepUs: number;
  fixedUs: number;
  bytes: number;
}

class CopyQueue {
  readonly waiting: Job[] = [];
  active: Job | undefined;
  readonly direction: CopyDirection;

  constructor(direction: CopyDirection) {
    this.direction = direction;
  }

  add({ tensor, swap, stepUs }: Moment): void {
    this.waiting.push({ tensor, swap: swap ?? 0, stepUs, fixedUs: this.direction.fixedUs, bytes: tensor.size });
  }

  get isIdle(): boolean {
    return this.active === undefined && this.waiting.length === 0;
  }
}

export function simulateSwaps(step: SwapStep, swaps: readonly Swap[], options: SimulationOptions): SwapSimulation {
  return new Simulator(step, swaps, options).run();
}

class Simulator {
  private readonly step: SwapStep;
  private readonly planned: readonly Swap[];
  private readonly finalLimit: number;
  private readonly out: CopyQueue;
  private readonly in: CopyQueue;
  private now = 0;
  private delayUs = 0;
  private used = 0;
  private limit = Number.POSITIVE_INFINITY;
  private peak = 0;
  private measuring = false;
  private stallUs = 0;
  private moved = 0;
  private overruns = 0;
  private faults = 0;
  private readonly observed: { -readonly [Field in keyof Swap]: Swap[Field] }[];

  constructor(step: SwapStep, swaps: readonly Swap[], options: SimulationOptions) {
    this.step = step;
    this.planned = swaps;
    const unseen = { outStartUs: Number.NaN, outEndUs: Number.NaN, inStartUs: Number.NaN, inEndUs: Number.NaN };
    this.observed = swaps.map(({ block, size }) => ({ block, size, ...unseen }));
    this.finalLimit = options.limit ?? Number.POSITIVE_INFINITY;
    this.out = new CopyQueue(options.costs.out);
    this.in = new CopyQueue(options.costs.in);
  }

  run(): SwapSimulation {
    const { periodUs } = this.step;
    const from = WARM_UP * periodUs;
    const until = (WARM_UP + STEPS) * periodUs;
    for (const moment of this.moments()) {
      if (moment.us >= until) break;
      if (!this.measuring && moment.us >= from) {
        this.advance(from + this.delayUs);
        this.measuring = true;
        this.limit = this.finalLimit;
        this.peak = this.used;
      }
      this.advance(moment.us + this.delayUs);
      this.perform(moment);
    }
    this.advance(until + this.delayUs);
    return {
      stallUs: this.stallUs,
      overhead: this.stallUs / STEPS / periodUs,
      peak: this.peak,
      bytesMoved: this.moved / STEPS,
      overruns: this.overruns,
      faults: this.faults,
      observed: this.observed,
    };
  }

  private moments(): Moment[] {
    const { step } = this;
    const moments: Moment[] = [];
    const rounds = WARM_UP + STEPS + 1;
    this.used = step.untouchedBytes;
    const swapsOf = new Map<number, number[]>();
    this.planned.forEach((swap, index) => {
      swapsOf.set(swap.block, [...(swapsOf.get(swap.block) ?? []), index]);
    });
    step.blocks.forEach((block, index) => {
      const permanent: Tensor = { size: block.size, state: 'resident', leftUs: 0 };
      if (block.wholeRun) this.used += block.size;
      for (let round = 0; round < rounds; round++) {
        const shift = round * step.periodUs;
        const tensor: Tensor = block.wholeRun ? permanent : { size: block.size, state: 'absent', leftUs: 0 };
        const add = (us: number, action: Action, swap?: number) => moments.push({ us: us + shift, action, tensor, swap, stepUs: shift });
        if (!block.wholeRun) {
          add(block.fromUs, Action.Alloc);
          add(block.toUs, Action.Free);
        }
        for (const access of block.accesses) add(access.fromUs, Action.Access);
        for (const swap of swapsOf.get(index) ?? []) {
          add(this.planned[swap]!.outStartUs, Action.CopyOut, swap);
          add(this.planned[swap]!.inStartUs, Action.CopyIn, swap);
        }
      }
    });
    return moments.sort((a, b) => a.us - b.us || a.action - b.action);
  }

  private perform(moment: Moment): void {
    const { action, tensor } = moment;
    switch (action) {
      case Action.Alloc:
        this.waitWhile(() => this.used + tensor.size > this.limit, 'room');
        tensor.state = 'resident';
        this.take(tensor.size);
        break;
      case Action.Free:
        if (tensor.state !== 'away') this.used -= tensor.size;
        tensor.state = 'absent';
        break;
      case Action.CopyOut:
        tensor.state = 'leaving';
        tensor.leftUs = moment.us;
        this.out.add(moment);
        break;
      case Action.CopyIn:
        this.in.add(moment);
        break;
      case Action.Access:
        if (tensor.state === 'resident') break;
        if (tensor.state === 'leaving') {
          // An access without length at the moment of the copy comes before it.
          if (moment.us <= tensor.leftUs + NOTHING_US) break;
          this.faults++;
        }
        this.waitWhile(() => tensor.state !== 'resident', 'data');
        break;
    }
    this.start();
  }

  /** Lets copies go on while the program waits. */
  private waitWhile(blocked: () => boolean, reason: 'room' | 'data'): void {
    const since = this.now;
    this.start();
    while (blocked()) {
      const next = this.nextCompletion();
      if (next === Number.POSITIVE_INFINITY || (reason === 'room' && this.out.isIdle)) {
        if (reason === 'data') this.faults++;
        else if (this.measuring) this.overruns++;
        break;
      }
      this.advance(next);
    }
    const waited = this.now - since;
    if (waited <= NOTHING_US) return;
    this.delayUs += waited;
    if (this.measuring) this.stallUs += waited;
  }

  private take(bytes: number): void {
    this.used += bytes;
    if (this.used > this.peak) this.peak = this.used;
  }

  /** Starts copies that can start. A copy in needs its copy out to be over, and room. */
  private start(): void {
    const { out } = this;
    if (!out.active) {
      out.active = out.waiting.shift();
      if (out.active) this.note(out.active, 'outStartUs', Math.min);
    }
    if (this.in.active) return;
    const next = this.in.waiting[0];
    if (!next) return;
    if (next.tensor.state !== 'away' || this.used + next.tensor.size > this.limit) return;
    this.in.waiting.shift();
    this.in.active = next;
    next.tensor.state = 'returning';
    this.note(next, 'inStartUs', Math.min);
    this.take(next.tensor.size);
  }

  private note(job: Job, what: 'outStartUs' | 'outEndUs' | 'inStartUs' | 'inEndUs', pick: (a: number, b: number) => number): void {
    if (job.stepUs < WARM_UP * this.step.periodUs) return;
    const seen = this.observed[job.swap]!;
    const us = this.now - this.delayUs - job.stepUs;
    seen[what] = Number.isNaN(seen[what]) ? us : pick(seen[what], us);
  }

  private rate(queue: CopyQueue): number {
    return this.out.active && this.in.active ? queue.direction.both : queue.direction.alone;
  }

  private nextCompletion(): number {
    let next = Number.POSITIVE_INFINITY;
    for (const queue of [this.out, this.in]) {
      if (queue.active) next = Math.min(next, this.now + queue.active.fixedUs + queue.active.bytes / this.rate(queue));
    }
    return next;
  }

  private advance(to: number): void {
    for (;;) {
      const next = Math.min(to, this.nextCompletion());
      const elapsed = Math.max(0, next - this.now);
      const rates = [this.rate(this.out), this.rate(this.in)];
      [this.out, this.in].forEach((queue, index) => {
        const job = queue.active;
        if (!job) return;
        const waited = Math.min(job.fixedUs, elapsed);
        job.fixedUs -= waited;
        job.bytes -= (elapsed - waited) * rates[index]!;
      });
      this.now = Math.max(this.now, next);
      const done = this.complete();
      this.start();
      if (!done && this.now >= to) return;
    }
  }

  private complete(): boolean {
    let any = false;
    // A remainder below a byte is rounding.
    const isDone = (job: Job | undefined): job is Job => job !== undefined && job.fixedUs <= 1e-9 && job.bytes < 1;
    if (isDone(this.out.active)) {
      const { tensor } = this.out.active;
      this.note(this.out.active, 'outEndUs', Math.max);
      this.out.active = undefined;
      any = true;
      this.used -= tensor.size;
      tensor.state = 'away';
      if (this.measuring) this.moved += tensor.size;
    }
    if (isDone(this.in.active)) {
      this.in.active.tensor.state = 'resident';
      this.note(this.in.active, 'inEndUs', Math.max);
      this.in.active = undefined;
      any = true;
    }
    return any;
  }
}
