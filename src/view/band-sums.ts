// Live bytes of each band after any event, exactly. A column per band would take 24 MB for three million events, so sums are
// kept at every 256th event, and the events since then are walked.
import { endsOf } from '../trace/ends.ts';
import { liveSize } from '../trace/summary.ts';
import { EventKind, type Trace } from '../trace/trace.ts';

const EVERY = 256;

export class BandSums {
  readonly bands: number;
  private readonly trace: Trace;
  private readonly bandOf: Uint8Array;
  /** Sums before event `EVERY * row`, one row after the other. */
  private readonly kept: Float64Array;

  /** `bandOf` says the band of each allocation, from 0 to `bands - 1`. */
  constructor(trace: Trace, bandOf: Uint8Array, bands: number) {
    this.trace = trace;
    this.bandOf = bandOf;
    this.bands = bands;
    const { allocations, events } = trace;
    const now = new Float64Array(bands);
    for (let index = 0; index < allocations.liveAtStart; index++) now[bandOf[index]!]! += liveSize(allocations.requested[index]!);
    this.kept = new Float64Array((Math.floor(events.count / EVERY) + 1) * bands);
    for (let row = 0, from = 0; from <= events.count; row++, from += EVERY) {
      this.kept.set(now, row * bands);
      this.walk(from, Math.min(events.count, from + EVERY), now);
    }
  }

  /** Writes the bytes of each band after `event` to `into`, from `at` on; -1: before the first event. */
  after(event: number, into: Float64Array, at = 0): void {
    const next = Math.min(event + 1, this.trace.events.count);
    const row = Math.floor(next / EVERY);
    const sums = into.subarray(at, at + this.bands);
    sums.set(this.kept.subarray(row * this.bands, (row + 1) * this.bands));
    this.walk(row * EVERY, next, sums);
  }

  private walk(from: number, to: number, sums: Float64Array): void {
    const { trace, bandOf } = this;
    const { events, allocations, allocationOf } = trace;
    const ends = endsOf(trace);
    for (let event = from; event < to; event++) {
      const ending = ends.at(event);
      if (ending >= 0) sums[bandOf[ending]!]! -= liveSize(allocations.requested[ending]!);
      if (events.kind[event] !== EventKind.Alloc) continue;
      const allocation = allocationOf[event]!;
      sums[bandOf[allocation]!]! += liveSize(allocations.requested[allocation]!);
    }
  }
}
