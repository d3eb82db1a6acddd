// Live memory after each event of a recording, and its highest point in a stretch of them.
import { liveSize } from '../trace/summary.ts';
import { EventKind, type Trace } from '../trace/trace.ts';
import { isLiveAt } from './moment.ts';

export interface LivePoint {
  /** -1: before the first event. */
  readonly event: number;
  readonly bytes: number;
}

export class LiveCurve {
  readonly start: number;
  private readonly after: Float64Array;

  constructor(trace: Trace) {
    const { events, allocations, allocationOf } = trace;
    const sizeOf = (allocation: number) => liveSize(allocations.requested[allocation]!);
    let live = 0;
    for (let allocation = 0; allocation < allocations.liveAtStart; allocation++) live += sizeOf(allocation);
    this.start = live;
    this.after = new Float64Array(events.count);
    for (let event = 0; event < events.count; event++) {
      const allocation = allocationOf[event]!;
      const kind = events.kind[event];
      if (kind === EventKind.Alloc) {
        const displaced = trace.impliedFrees.get(event);
        if (displaced !== undefined && allocations.freeRequestedEvent[displaced] === -1) live -= sizeOf(displaced);
        live += liveSize(events.size[event]!);
      } else if (allocation >= 0) {
        const isFree = kind === EventKind.FreeRequested;
        if (isFree || (kind === EventKind.FreeCompleted && allocations.freeRequestedEvent[allocation] === -1)) live -= sizeOf(allocation);
      }
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
  let live = 0;
  for (let allocation = 0; allocation < trace.allocations.count; allocation++)
    if (isLiveAt(trace, allocation, event)) live += liveSize(trace.allocations.requested[allocation]!);
  return live;
}
