// The end of every allocation's life: the one table that all reports about live memory use.
// Memory ends where the program frees it, even if other streams still use it. If its free is missing, it ends where its address is reused.
import { EventKind, type Trace } from './trace.ts';

export class Ends {
  /** The event at which each allocation ends; -1: never. */
  readonly of: Int32Array;
  private readonly trace: Trace;

  constructor(trace: Trace) {
    const { allocations, impliedFrees } = trace;
    this.trace = trace;
    this.of = allocations.freeRequestedEvent.slice(0, allocations.count);
    for (let allocation = 0; allocation < this.of.length; allocation++)
      if (this.of[allocation] === -1) this.of[allocation] = allocations.freeCompletedEvent[allocation]!;
    for (const [event, allocation] of impliedFrees) if (this.of[allocation] === -1) this.of[allocation] = event;
  }

  /** The allocation that ends at an event; -1: none. There is never more than one. */
  at(event: number): number {
    const { events, allocationOf, impliedFrees } = this.trace;
    const isAlloc = events.kind[event] === EventKind.Alloc;
    if (isAlloc && impliedFrees.size === 0) return -1;
    const allocation = isAlloc ? (impliedFrees.get(event) ?? -1) : allocationOf[event]!;
    return allocation >= 0 && this.of[allocation] === event ? allocation : -1;
  }

  /** Whether an allocation is live after an event. */
  isLiveAt(allocation: number, event: number): boolean {
    if (this.trace.allocations.allocEvent[allocation]! > event) return false;
    const end = this.of[allocation]!;
    return end < 0 || end > event;
  }
}

const made = new WeakMap<Trace, Ends>();

export function endsOf(trace: Trace): Ends {
  let ends = made.get(trace);
  if (!ends) {
    ends = new Ends(trace);
    made.set(trace, ends);
  }
  return ends;
}
