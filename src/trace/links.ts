// Links each alloc event to the events that free it. Addresses are reused, so a free belongs to the latest alloc there.
// Memory that is freed without an alloc was live before recording began.
import { AddressMap } from '../base/address-map.ts';
import { type AllocationColumns, type EventColumns, EventKind, type Segment } from './trace.ts';

export interface Links {
  readonly allocationOf: Int32Array;
  readonly allocations: AllocationColumns;
  readonly impliedFrees: ReadonlyMap<number, number>;
  readonly contradictions: number;
}

interface StartAllocation {
  address: number;
  requested: number;
  stream: number;
  pool: number;
  freeRequestedEvent: number;
  freeCompletedEvent: number;
}

export function linkAllocations(input: {
  readonly events: EventColumns;
  readonly allocCount: number;
  /** False if the recording has no free_completed events. Then a free completes when it is requested. */
  readonly completionsRecorded: boolean;
  /** Segments whose live blocks count as live before the first event, unless an event allocates them. */
  readonly startBlocksFrom: readonly Segment[];
}): Links {
  const { events, allocCount, completionsRecorded } = input;
  // During the walk, ids below allocCount are alloc events in order; higher ids are start allocations.
  // Afterwards start allocations move to the front, in address order.
  const freeRequestedEvent = new Int32Array(allocCount).fill(-1);
  const freeCompletedEvent = new Int32Array(allocCount).fill(-1);
  const allocEvent = new Int32Array(allocCount);
  const allocationOf = new Int32Array(events.count).fill(-1);
  const starts: StartAllocation[] = [];
  const impliedFrees = new Map<number, number>();
  const open = new AddressMap(4096);
  const everAllocated = new AddressMap(4096);
  let contradictions = 0;
  let nextAlloc = 0;

  const requestEvent = (id: number) => (id < allocCount ? freeRequestedEvent[id]! : starts[id - allocCount]!.freeRequestedEvent);
  const setRequested = (id: number, event: number) => {
    if (id < allocCount) freeRequestedEvent[id] = event;
    else starts[id - allocCount]!.freeRequestedEvent = event;
  };
  const setCompleted = (id: number, event: number) => {
    if (id < allocCount) freeCompletedEvent[id] = event;
    else starts[id - allocCount]!.freeCompletedEvent = event;
  };
  const addStart = (address: number, requested: number, stream: number, pool: number) =>
    allocCount + starts.push({ address, requested, stream, pool, freeRequestedEvent: -1, freeCompletedEvent: -1 }) - 1;
  /** The allocation that the event frees: an open one, or one older than the trace; -1 if it can be neither. */
  const openOrOlder = (event: number): number => {
    const address = events.address[event]!;
    const known = open.get(address);
    // If the address was allocated within the trace and is not open, this free is a repeat.
    if (known >= 0 || everAllocated.get(address) >= 0) return known;
    const id = addStart(address, events.size[event]!, events.stream[event]!, Math.max(0, events.pool[event]!));
    open.set(address, id);
    everAllocated.set(address, id);
    return id;
  };

  for (let event = 0; event < events.count; event++) {
    const address = events.address[event]!;
    switch (events.kind[event]) {
      case EventKind.Alloc: {
        const id = nextAlloc++;
        const displaced = open.get(address);
        if (displaced >= 0) impliedFrees.set(event, displaced);
        allocEvent[id] = event;
        allocationOf[event] = id;
        open.set(address, id);
        everAllocated.set(address, id);
        break;
      }
      case EventKind.FreeRequested: {
        const id = openOrOlder(event);
        if (id < 0 || requestEvent(id) >= 0) {
          contradictions++;
          break;
        }
        setRequested(id, event);
        allocationOf[event] = id;
        if (!completionsRecorded) {
          setCompleted(id, event);
          open.delete(address);
        }
        break;
      }
      case EventKind.FreeCompleted: {
        const id = openOrOlder(event);
        if (id < 0) {
          contradictions++;
          break;
        }
        setCompleted(id, event);
        allocationOf[event] = id;
        open.delete(address);
        break;
      }
      case EventKind.RecordStream:
        allocationOf[event] = open.get(address);
        break;
    }
  }

  for (const segment of input.startBlocksFrom) {
    for (const block of segment.blocks) {
      if (block.state === 'free' || everAllocated.get(block.address) >= 0) continue;
      addStart(block.address, block.requested || block.size, segment.stream, segment.pool);
    }
  }
  return finish(events, allocationOf, starts, { allocEvent, freeRequestedEvent, freeCompletedEvent }, impliedFrees, contradictions);
}

function finish(
  events: EventColumns,
  allocationOf: Int32Array,
  starts: readonly StartAllocation[],
  walked: { allocEvent: Int32Array; freeRequestedEvent: Int32Array; freeCompletedEvent: Int32Array },
  impliedFrees: Map<number, number>,
  contradictions: number,
): Links {
  const allocCount = walked.allocEvent.length;
  const liveAtStart = starts.length;
  const count = liveAtStart + allocCount;
  const order = starts.map((_, index) => index).sort((a, b) => starts[a]!.address - starts[b]!.address);
  const rank = new Int32Array(liveAtStart);
  order.forEach((from, to) => {
    rank[from] = to;
  });
  const final = (id: number) => (id < 0 ? -1 : id < allocCount ? id + liveAtStart : rank[id - allocCount]!);

  const allocations = {
    count,
    liveAtStart,
    address: new Float64Array(count),
    requested: new Float64Array(count),
    stream: new Int32Array(count),
    pool: new Int32Array(count),
    allocEvent: new Int32Array(count).fill(-1),
    freeRequestedEvent: new Int32Array(count),
    freeCompletedEvent: new Int32Array(count),
  };
  order.forEach((from, to) => {
    const start = starts[from]!;
    allocations.address[to] = start.address;
    allocations.requested[to] = start.requested;
    allocations.stream[to] = start.stream;
    allocations.pool[to] = start.pool;
    allocations.freeRequestedEvent[to] = start.freeRequestedEvent;
    allocations.freeCompletedEvent[to] = start.freeCompletedEvent;
  });
  for (let id = 0; id < allocCount; id++) {
    const to = id + liveAtStart;
    const event = walked.allocEvent[id]!;
    allocations.address[to] = events.address[event]!;
    allocations.requested[to] = events.size[event]!;
    allocations.stream[to] = events.stream[event]!;
    allocations.pool[to] = Math.max(0, events.pool[event]!);
    allocations.allocEvent[to] = event;
  }
  allocations.freeRequestedEvent.set(walked.freeRequestedEvent, liveAtStart);
  allocations.freeCompletedEvent.set(walked.freeCompletedEvent, liveAtStart);
  for (let event = 0; event < allocationOf.length; event++) allocationOf[event] = final(allocationOf[event]!);
  const implied = new Map([...impliedFrees].map(([event, id]) => [event, final(id)]));
  return { allocationOf, allocations, impliedFrees: implied, contradictions };
}
