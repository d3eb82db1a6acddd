// A recording continued: its last whole step happens again and again. Recordings hold 4 to 10 steps; a job settles after more.
import type { MemoryOps } from '../src/plan/steps/memory-ops.ts';
import { EventKind, type Trace } from '../src/trace/trace.ts';

/** The recording up to its last whole step, then that step `repeats` more times. `start` and `period` are operations of `ops`. */
export function longerTrace(trace: Trace, ops: MemoryOps, start: number, period: number, repeats: number): Trace {
  const { events, allocations, allocationOf } = trace;
  const eventOfOp = ops.event!;
  // The frees of the last allocations may be missing: the step that ends before the last one is sure to be whole.
  const steps = Math.floor((ops.count - start) / period) - 1;
  const firstOp = start + (steps - 1) * period;
  const from = eventOfOp[firstOp]!;
  const to = eventOfOp[firstOp + period]!;
  const opOfEvent = new Int32Array(events.count).fill(-1);
  for (let op = 0; op < ops.count; op++) opOfEvent[eventOfOp[op]!] = op;

  const count = to + repeats * (to - from);
  const column = <T extends Int32Array | Float64Array | Uint8Array>(old: T, made: T): T => {
    made.set(old.subarray(0, to));
    for (let repeat = 0; repeat < repeats; repeat++) made.set(old.subarray(from, to), to + repeat * (to - from));
    return made;
  };
  const timeUs = column(events.timeUs, new Float64Array(count));
  const stepUs = events.timeUs[to]! - events.timeUs[from]!;
  const links = new Int32Array(count).fill(-1);
  links.set(allocationOf.subarray(0, to));
  const requested: number[] = [...allocations.requested];
  const address: number[] = [...allocations.address];
  const stream: number[] = [...allocations.stream];
  const pool: number[] = [...allocations.pool];
  const ends = [allocations.allocEvent, allocations.freeRequestedEvent, allocations.freeCompletedEvent].map((old) => [...old]);
  const [allocEvent, freeRequested, freeCompleted] = ends as [number[], number[], number[]];
  // What happens after the cut has not happened.
  for (const list of ends) for (let index = 0; index < list.length; index++) if (list[index]! >= to) list[index] = -1;
  const { kind } = events;
  /** By repeat: the allocation that each operation of the step makes. */
  const made: Int32Array[] = [];
  /** The allocation of an operation that a free in the recorded step names, for the same free in a repeat. */
  const allocationAt = (op: number, repeat: number): number => {
    const moved = op + (repeat + 1) * period;
    const within = Math.floor((moved - firstOp) / period) - 1;
    return within < 0 ? allocationOf[eventOfOp[moved]!]! : made[within]![(moved - firstOp) % period]!;
  };
  for (let repeat = 0; repeat < repeats; repeat++) {
    made.push(new Int32Array(period).fill(-1));
    for (let event = from; event < to; event++) {
      const at = to + repeat * (to - from) + event - from;
      timeUs[at] = events.timeUs[event]! + (repeat + 1) * stepUs;
      const old = allocationOf[event]!;
      if (old < 0) continue;
      if (kind[event] === EventKind.Alloc) {
        made[repeat]![opOfEvent[event]! - firstOp] = requested.length;
        links[at] = requested.length;
        requested.push(allocations.requested[old]!);
        address.push(allocations.address[old]!);
        stream.push(allocations.stream[old]!);
        pool.push(allocations.pool[old]!);
        allocEvent.push(at);
        freeRequested.push(-1);
        freeCompleted.push(-1);
        continue;
      }
      const op = opOfEvent[allocations.allocEvent[old]!] ?? -1;
      // A block from before the steps ends once.
      if (op < firstOp - 4 * period) continue;
      const freed = allocationAt(op, repeat);
      if (freed < 0) continue;
      links[at] = freed;
      if (kind[event] === EventKind.FreeRequested) freeRequested[freed] = at;
      else if (kind[event] === EventKind.FreeCompleted) freeCompleted[freed] = at;
    }
  }
  return {
    ...trace,
    events: {
      count,
      kind: column(kind, new Uint8Array(count)),
      address: column(events.address, new Float64Array(count)),
      size: column(events.size, new Float64Array(count)),
      timeUs,
      stream: column(events.stream, new Int32Array(count)),
      pool: column(events.pool, new Int32Array(count)),
      stack: column(events.stack, new Int32Array(count)),
      metadata: column(events.metadata, new Int32Array(count)),
      detail: events.detail && column(events.detail, new Int32Array(count)),
    },
    allocationOf: links,
    allocations: {
      count: requested.length,
      liveAtStart: allocations.liveAtStart,
      address: Float64Array.from(address),
      requested: Float64Array.from(requested),
      stream: Int32Array.from(stream),
      pool: Int32Array.from(pool),
      startStack: allocations.startStack,
      allocEvent: Int32Array.from(allocEvent),
      freeRequestedEvent: Int32Array.from(freeRequested),
      freeCompletedEvent: Int32Array.from(freeCompleted),
    },
    impliedFrees: new Map([...trace.impliedFrees].filter(([event]) => event < to)),
  };
}
