// Links each alloc event to the events that free it. Addresses are reused, so a free belongs to the latest alloc there.
// Memory that is freed without an alloc was live before recording began.
import { AddressMap } from '../base/address-map.ts';
import { type ColumnMemory, doubles, integers, ownMemory } from '../base/columns.ts';
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
  stack: number;
  freeRequestedEvent: number;
  freeCompletedEvent: number;
}

export function linkAllocations(input: {
  readonly events: EventColumns;
  readonly allocCount: number;
  /** False if the recording has no free_completed events. Then a free completes when it is requested. */
  readonly completionsRecorded: boolean;
  /** True if the recording leaves out alloc events. Then a free says nothing about how long its memory was live. */
  readonly ignoresFrees?: boolean;
  /** Segments whose live blocks count as live before the first event, unless an event allocates them. */
  readonly startBlocksFrom: readonly Segment[];
  /** All of those blocks were live at the start, with the stacks that they have. */
  readonly startIsWhole?: boolean | undefined;
  readonly memory?: ColumnMemory | undefined;
}): Links {
  const linker = new Linker(input.events, input.allocCount, input.completionsRecorded, input.memory ?? ownMemory);
  if (input.startIsWhole) linker.openStartBlocks(input.startBlocksFrom);
  if (!input.ignoresFrees) linker.walk();
  if (!input.startIsWhole) linker.addStartBlocks(input.startBlocksFrom);
  return linker.finish(input.startIsWhole === true);
}

/**
 * During the walk, ids below allocCount are alloc events in order; higher ids are start allocations.
 * `finish` moves start allocations to the front, in address order.
 */
class Linker {
  private readonly events: EventColumns;
  private readonly allocCount: number;
  private readonly completionsRecorded: boolean;
  private readonly allocEvent: Int32Array;
  private readonly freeRequestedEvent: Int32Array;
  private readonly freeCompletedEvent: Int32Array;
  private readonly allocationOf: Int32Array;
  private readonly starts: StartAllocation[] = [];
  private readonly impliedFrees = new Map<number, number>();
  /** Ids of the allocations that are not freed yet, by address. */
  private readonly open = new AddressMap(4096);
  private readonly everAllocated = new AddressMap(4096);
  /** Category events about memory that is older than the trace, by address. */
  private readonly waiting = new Map<number, number[]>();
  private contradictions = 0;
  private readonly memory: ColumnMemory;

  constructor(events: EventColumns, allocCount: number, completionsRecorded: boolean, memory: ColumnMemory) {
    this.memory = memory;
    this.events = events;
    this.allocCount = allocCount;
    this.completionsRecorded = completionsRecorded;
    this.allocEvent = new Int32Array(allocCount);
    this.freeRequestedEvent = new Int32Array(allocCount).fill(-1);
    this.freeCompletedEvent = new Int32Array(allocCount).fill(-1);
    this.allocationOf = integers(memory, events.count).fill(-1);
  }

  walk(): void {
    const { events } = this;
    let nextAlloc = 0;
    for (let event = 0; event < events.count; event++) {
      switch (events.kind[event]) {
        case EventKind.Alloc:
          this.linkAlloc(event, nextAlloc++);
          break;
        case EventKind.FreeRequested:
          this.linkFreeRequested(event);
          break;
        case EventKind.FreeCompleted:
          this.linkFreeCompleted(event);
          break;
        case EventKind.RecordStream:
          this.allocationOf[event] = this.open.get(events.address[event]!);
          break;
        case EventKind.Annotate:
          this.linkAnnotation(event);
          break;
        case EventKind.Category:
          this.linkCategory(event);
          break;
      }
    }
  }

  openStartBlocks(segments: readonly Segment[]): void {
    for (const { blocks, stream, pool } of segments) {
      for (const { address, requested, size, state, stack } of blocks) {
        if (state === 'free' || this.open.get(address) >= 0) continue;
        const id = this.addStart(address, requested || size, stream, pool, stack);
        this.open.set(address, id);
        this.everAllocated.set(address, id);
      }
    }
  }

  addStartBlocks(segments: readonly Segment[]): void {
    for (const segment of segments) {
      for (const block of segment.blocks) {
        if (block.state === 'free' || this.everAllocated.get(block.address) >= 0) continue;
        this.addStart(block.address, block.requested || block.size, segment.stream, segment.pool);
      }
    }
  }

  private linkAlloc(event: number, id: number): void {
    const address = this.events.address[event]!;
    const displaced = this.open.get(address);
    if (displaced >= 0) this.impliedFrees.set(event, displaced);
    this.allocEvent[id] = event;
    this.allocationOf[event] = id;
    this.open.set(address, id);
    this.everAllocated.set(address, id);
    // What was told of this address before was about memory that is gone without a trace.
    this.waiting.delete(address);
  }

  private linkFreeRequested(event: number): void {
    const id = this.openOrOlder(event);
    const start = this.startOf(id);
    if (id < 0 || (start ? start.freeRequestedEvent : this.freeRequestedEvent[id]!) >= 0) {
      this.contradictions++;
      return;
    }
    if (start) start.freeRequestedEvent = event;
    else this.freeRequestedEvent[id] = event;
    this.allocationOf[event] = id;
    if (!this.completionsRecorded) this.complete(id, event);
  }

  private linkFreeCompleted(event: number): void {
    const id = this.openOrOlder(event);
    if (id < 0) {
      this.contradictions++;
      return;
    }
    this.allocationOf[event] = id;
    this.complete(id, event);
  }

  /** PyTorch annotates live memory only, so what is unknown here is older than the trace. */
  private linkAnnotation(event: number): void {
    const { events, open } = this;
    this.allocationOf[event] = events.size[event]! > 0 ? this.openOrOlder(event) : open.get(events.address[event]!);
  }

  /** It has no size. Memory older than the trace is known only once it is freed, or from the state at the start. */
  private linkCategory(event: number): void {
    const address = this.events.address[event]!;
    const known = this.open.get(address);
    if (known >= 0 || this.everAllocated.get(address) >= 0) {
      this.allocationOf[event] = known;
      return;
    }
    const waiting = this.waiting.get(address);
    if (waiting) waiting.push(event);
    else this.waiting.set(address, [event]);
  }

  private complete(id: number, event: number): void {
    const start = this.startOf(id);
    if (start) start.freeCompletedEvent = event;
    else this.freeCompletedEvent[id] = event;
    this.open.delete(this.events.address[event]!);
  }

  /** The allocation that the event frees: an open one, or one older than the trace; -1 if it can be neither. */
  private openOrOlder(event: number): number {
    const { events, open, everAllocated } = this;
    const address = events.address[event]!;
    const known = open.get(address);
    // If the address was allocated within the trace and is not open, this free is a repeat.
    if (known >= 0 || everAllocated.get(address) >= 0) return known;
    const id = this.addStart(address, events.size[event]!, events.stream[event]!, Math.max(0, events.pool[event]!));
    open.set(address, id);
    everAllocated.set(address, id);
    return id;
  }

  private startOf(id: number): StartAllocation | undefined {
    return id < this.allocCount ? undefined : this.starts[id - this.allocCount];
  }

  private addStart(address: number, requested: number, stream: number, pool: number, stack = -1): number {
    const start = { address, requested, stream, pool, stack, freeRequestedEvent: -1, freeCompletedEvent: -1 };
    const id = this.allocCount + this.starts.push(start) - 1;
    for (const event of this.waiting.get(address) ?? []) this.allocationOf[event] = id;
    this.waiting.delete(address);
    return id;
  }

  finish(hasStartStacks: boolean): Links {
    const { events, starts, allocCount, allocationOf, memory } = this;
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
      address: doubles(memory, count),
      requested: doubles(memory, count),
      stream: integers(memory, count),
      pool: integers(memory, count),
      ...(hasStartStacks && { startStack: Int32Array.from(order, (from) => starts[from]!.stack) }),
      allocEvent: integers(memory, count).fill(-1),
      freeRequestedEvent: integers(memory, count),
      freeCompletedEvent: integers(memory, count),
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
      const event = this.allocEvent[id]!;
      allocations.address[to] = events.address[event]!;
      allocations.requested[to] = events.size[event]!;
      allocations.stream[to] = events.stream[event]!;
      allocations.pool[to] = Math.max(0, events.pool[event]!);
      allocations.allocEvent[to] = event;
    }
    allocations.freeRequestedEvent.set(this.freeRequestedEvent, liveAtStart);
    allocations.freeCompletedEvent.set(this.freeCompletedEvent, liveAtStart);
    for (let event = 0; event < allocationOf.length; event++) allocationOf[event] = final(allocationOf[event]!);
    const impliedFrees = new Map([...this.impliedFrees].map(([event, id]) => [event, final(id)]));
    return { allocationOf, allocations, impliedFrees, contradictions: this.contradictions };
  }
}
