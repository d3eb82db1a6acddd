// Time on a simulated GPU: streams that lag behind the program, events that complete later, waits that stall a stream.
// A replay uses it to count a policy's waits, how many of them stalled, and for how long.
import type { StreamEvents } from './backend.ts';

/** A busy GPU lags some milliseconds behind the program that feeds it. */
const DEFAULT_LAG_US = 5000;

export interface TimelineOptions {
  /** Lag of a stream behind the program in microseconds: a constant, or a function of stream and time. */
  readonly lagUs?: number | ((stream: number, nowUs: number) => number) | undefined;
}

export interface TimelineTotals {
  readonly events: number;
  readonly queries: number;
  readonly waits: number;
  /** Waits for work that was still running when the program called wait. Each of them prevented a race. */
  readonly neededWaits: number;
  /** Waits that held the stream up: the awaited work was still running when the stream reached the wait. */
  readonly stalls: number;
  readonly stallUs: number;
}

export class Timeline implements StreamEvents {
  readonly isSimulated = true;
  private nowUs = Number.NEGATIVE_INFINITY;
  private readonly lagOf: (stream: number, nowUs: number) => number;
  /** When the stream will be idle, as far as waits delay it. */
  private readonly busyUntilUs = new Map<number, number>();
  /** When the work marked by a slot is done. */
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

  /** Moves the clock forward. Recorded clocks sometimes step back; this one does not. */
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

  /** The program waits for all streams, so the clock moves to their end. */
  synchronize(): void {
    for (const overAt of this.overAtUs.values()) this.nowUs = Math.max(this.nowUs, overAt);
    for (const until of this.busyUntilUs.values()) this.nowUs = Math.max(this.nowUs, until);
  }

  totals(): TimelineTotals {
    const { events, queries, waits, neededWaits, stalls, stallUs } = this;
    return { events, queries, waits, neededWaits, stalls, stallUs };
  }

  /** When empty work queued on the stream now would be done. */
  private endOf(stream: number): number {
    return Math.max(this.nowUs + this.lagOf(stream, this.nowUs), this.busyUntilUs.get(stream) ?? 0);
  }
}
