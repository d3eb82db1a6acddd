// The lifetime of each allocation, with an index that finds those of a range of events without scanning all.
import type { Trace } from '../trace/trace.ts';

const CHUNK = 1024;

export class Lifetimes {
  readonly count: number;
  /** Event of the allocation, ascending; -1: before the first event. */
  readonly start: Int32Array;
  /** Event of the free; the number of events if there is none. */
  readonly released: Int32Array;
  /** Event after which the memory can be reused; never before `released`. */
  readonly end: Int32Array;
  private readonly latestEnd: Int32Array;

  constructor(trace: Trace) {
    const { allocations, events, impliedFrees } = trace;
    this.count = allocations.count;
    this.start = allocations.allocEvent;
    this.released = new Int32Array(this.count);
    this.end = new Int32Array(this.count);
    for (let index = 0; index < this.count; index++) {
      const requested = allocations.freeRequestedEvent[index]!;
      const completed = allocations.freeCompletedEvent[index]!;
      this.released[index] = requested >= 0 ? requested : completed >= 0 ? completed : events.count;
      // A free that never completed: other streams use the memory to the end.
      this.end[index] = completed >= 0 ? completed : events.count;
    }
    for (const [event, displaced] of impliedFrees) {
      this.released[displaced] = Math.min(this.released[displaced]!, event);
      this.end[displaced] = Math.min(this.end[displaced]!, event);
    }
    this.latestEnd = new Int32Array(Math.ceil(this.count / CHUNK)).fill(-1);
    for (let index = 0; index < this.count; index++) {
      const chunk = Math.floor(index / CHUNK);
      if (this.end[index]! > this.latestEnd[chunk]!) this.latestEnd[chunk] = this.end[index]!;
    }
  }

  /** Calls `visit` for each allocation that begins before `to` and ends after `from`. */
  each(from: number, to: number, visit: (allocation: number) => void): void {
    const last = this.firstFrom(to);
    for (let chunk = 0; chunk * CHUNK < last; chunk++) {
      if (this.latestEnd[chunk]! <= from) continue;
      const until = Math.min(last, (chunk + 1) * CHUNK);
      for (let index = chunk * CHUNK; index < until; index++) if (this.end[index]! > from) visit(index);
    }
  }

  /** Allocations that are live after `event`; with `since`, only those allocated from that event on. */
  liveAfter(event: number, since = -1): number[] {
    const live: number[] = [];
    this.each(event, event + 1, (index) => {
      if (this.released[index]! > event && this.start[index]! >= since) live.push(index);
    });
    return live;
  }

  /** The first allocation that begins at `event` or later. */
  firstFrom(event: number): number {
    let low = 0;
    let high = this.count;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.start[middle]! < event) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
