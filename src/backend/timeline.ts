// Time on a GPU that is only bookkeeping: streams behind the program, events that are over later, waits that hold a
// stream up. So a replay can say how many waits a policy makes, how many of them mattered and for how long.
import type { StreamEvents } from './backend.ts';

/** A GPU that is kept busy is some milliseconds behind the program that feeds it. */
export const DEFAULT_LAG_US = 5000;

export interface TimelineOptions {
  /** How far a stream is behind the program, microseconds: one number, or one for each stream and time. */
  readonly lagUs?: number | ((stream: number, nowUs: number) => number) | undefined;
}

export interface TimelineTotals {
  readonly events: number;
  readonly queries: number;
  readonly waits: number;
  /** Waits for what was not over yet when the program made them: without them there would have been a race. */
  readonly neededWaits: number;
  /** Waits that the stream reached before what they wait for was over. */
  readonly stalls: number;
  readonly stallUs: number;
}

export class Timeline implements StreamEvents {
  private nowUs = Number.NEGATIVE_INFINITY;
  private readonly lagOf: (stream: number, nowUs: number) => number;
  /** When a stream will have done all that it was given, as far as waits have put it off. */
  private readonly busyUntilUs = new Map<number, number>();
  /** When what a slot marks is over. */
  private readonly overAtUs = new Map<number, number>();
  private events = 0;
  private queries = 0;
  private waits = 0;
  private neededWaits = 0;
  private stalls = 0;
  private stallUs = 0;

  constructor({ lagUs = DEFAULT_LAG_US }: TimelineOptions = {}) {
    this.lagOf = typeof lagUs === 'number' ? () => lagUs : lagUs;
  }

  /** The program has come to this time; recorded clocks now and then step back, this one does not. */
  advanceTo(timeUs: number): void {
    if (timeUs > this.nowUs) this.nowUs = timeUs;
  }

  record(stream: number, slot: number): boolean {
    this.events++;
    this.overAtUs.set(slot, this.endOf(stream));
    return true;
  }

  isDone(slot: number): boolean {
    this.queries++;
    return (this.overAtUs.get(slot) ?? Number.POSITIVE_INFINITY) <= this.nowUs;
  }

  wait(stream: number, slot: number): boolean {
    const overAt = this.overAtUs.get(slot);
    if (overAt === undefined) return false;
    this.waits++;
    if (overAt > this.nowUs) this.neededWaits++;
    const reached = this.endOf(stream);
    if (overAt > reached) {
      this.stalls++;
      this.stallUs += overAt - reached;
    }
    this.busyUntilUs.set(stream, Math.max(reached, overAt));
    return true;
  }

  /** The program waits for everything: what it does next happens after that. */
  synchronize(): void {
    for (const overAt of this.overAtUs.values()) this.nowUs = Math.max(this.nowUs, overAt);
    for (const until of this.busyUntilUs.values()) this.nowUs = Math.max(this.nowUs, until);
  }

  totals(): TimelineTotals {
    const { events, queries, waits, neededWaits, stalls, stallUs } = this;
    return { events, queries, waits, neededWaits, stalls, stallUs };
  }

  /** When work that the stream is given now would be over if it took no time. */
  private endOf(stream: number): number {
    return Math.max(this.nowUs + this.lagOf(stream, this.nowUs), this.busyUntilUs.get(stream) ?? 0);
  }
}
