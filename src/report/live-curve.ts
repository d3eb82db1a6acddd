// Live memory after each event of a recording, and its highest point in a stretch of them.
import { endsOf } from '../trace/ends.ts';
import { liveSize } from '../trace/summary.ts';
import { EventKind, type Trace } from '../trace/trace.ts';

export interface LivePoint {
  /** -1: before the first event. */
  readonly event: number;
  readonly bytes: number;
}

export class LiveCurve {
  readonly start: number;
  /** Live bytes after each event. */
  readonly after: Float64Array;

  constructor(trace: Trace) {
    const { events, allocations } = trace;
    const sizeOf = (allocation: number) => liveSize(allocations.requested[allocation]!);
    const ends = endsOf(trace);
    let live = 0;
    for (let allocation = 0; allocation < allocations.liveAtStart; allocation++) live += sizeOf(allocation);
    this.start = live;
    this.after = new Float64Array(events.count);
    for (let event = 0; event < events.count; event++) {
      const ending = ends.at(event);
      if (ending >= 0) live -= sizeOf(ending);
      if (events.kind[event] === EventKind.Alloc) live += liveSize(events.size[event]!);
      this.after[event] = live;
    }
  }

  /** The first highest point of the events `from` to `to`. */
  peakIn(from: number, to: number): LivePoint {
    let event = from;
    for (let at = from; at < to; at++) if (this.after[at]! > this.after[event]!) event = at;
    return { event, bytes: this.after[event] ?? this.start };
  }

  /** The highest point of the run, its start included. */
  peak(): LivePoint {
    const peak = this.peakIn(0, this.after.length);
    return this.after.length === 0 || peak.bytes <= this.start ? { event: -1, bytes: this.start } : peak;
  }

  end(): LivePoint {
    const event = this.after.length - 1;
    return { event, bytes: event < 0 ? this.start : this.after[event]! };
  }
}

/** Live bytes after one event. */
export function liveAt(trace: Trace, event: number): number {
  const ends = endsOf(trace);
  let live = 0;
  for (let allocation = 0; allocation < trace.allocations.count; allocation++)
    if (ends.isLiveAt(allocation, event)) live += liveSize(trace.allocations.requested[allocation]!);
  return live;
}
