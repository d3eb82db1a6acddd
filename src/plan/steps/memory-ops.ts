// A trace reduced to what a planner needs: allocations and frees in program order, each linked to its partner.
// Here and in plans, time is the number of operations so far.
import { liveSize } from '../../trace/summary.ts';
import { EventKind, type Trace } from '../../trace/trace.ts';

export interface MemoryOps {
  readonly count: number;
  readonly isAlloc: Uint8Array;
  /** Bytes to plan for. A free has the size of its allocation. */
  readonly size: Float64Array;
  readonly stream: Int32Array;
  /**
   * For an alloc: the operation after which its memory is free, -1 for never. For a free: its alloc, -1 if older than
   * the trace.
   */
  readonly partner: Int32Array;
  /** The trace event of each operation. Absent if the operations do not come from a trace. */
  readonly event?: Int32Array | undefined;
  /** Bytes live before the first operation. */
  readonly liveBefore: number;
  /** Peak of live bytes. */
  readonly peak: number;
  /** Operations at which the program marked a step, ascending. */
  readonly marks: readonly number[];
}

/** Requests of all pools, rounded up to 512 B as every GPU allocator does. */
export function opsOfTrace(trace: Trace): MemoryOps {
  const { events, allocations, allocationOf } = trace;
  const ops = new OpsBuilder(events.count);
  let liveBefore = 0;
  const allocOp = new Int32Array(allocations.count).fill(-1);
  for (let index = 0; index < allocations.liveAtStart; index++) liveBefore += liveSize(allocations.requested[index]!);
  const marks = commonestMarks(trace);
  for (let event = 0; event < events.count; event++) {
    const allocation = allocationOf[event]!;
    const kind = events.kind[event]!;
    if (kind === EventKind.Mark && events.detail && marks.has(events.detail[event]!)) ops.mark();
    if (allocation < 0) continue;
    if (kind === EventKind.Alloc) {
      const displaced = trace.impliedFrees.get(event);
      if (displaced !== undefined) ops.release(allocOp[displaced]!);
      allocOp[allocation] = ops.alloc(liveSize(events.size[event]!), events.stream[event]!, event);
    } else if (
      kind === EventKind.FreeRequested ||
      (kind === EventKind.FreeCompleted && allocations.freeRequestedEvent[allocation] === -1)
    ) {
      ops.free(allocOp[allocation]!, liveSize(allocations.requested[allocation]!), allocations.stream[allocation]!, event);
    } else if (kind === EventKind.FreeCompleted) {
      // Another stream used the memory until now, so it is free only after the latest operation.
      ops.release(allocOp[allocation]!);
    }
  }
  const result = ops.finish(liveBefore);
  return result.marks.length > 0 ? result : { ...result, marks: recordedMarks(trace, result.event!) };
}

/** The kind of a mark: `step 7` and `step 8` are of one kind. Undefined for Weir's own marks about plans, swaps and phases. */
export function markKind(name: string): string | undefined {
  return /^weir(?: plan | swap |:)/.test(name) ? undefined : name.replaceAll(/\d+/g, '#');
}

/** The marks, as string indices, of the kind that the program set most often. Empty if no kind was set twice. */
function commonestMarks(trace: Trace): ReadonlySet<number> {
  const { events, symbols } = trace;
  const kinds = new Map<string, { count: number; names: Set<number> }>();
  for (let event = 0; events.detail && event < events.count; event++) {
    if (events.kind[event] !== EventKind.Mark) continue;
    const name = events.detail[event]!;
    const kind = markKind(symbols.strings[name] ?? '');
    if (kind === undefined) continue;
    const entry = kinds.get(kind) ?? { count: 0, names: new Set() };
    kinds.set(kind, entry);
    entry.count++;
    entry.names.add(name);
  }
  let best: { count: number; names: ReadonlySet<number> } = { count: 1, names: new Set() };
  for (const entry of kinds.values()) if (entry.count > best.count) best = entry;
  return best.names;
}

/** Step starts in snapshots: the annotation that begins most often, or user metadata that counts steps. */
function recordedMarks(trace: Trace, event: Int32Array): number[] {
  const starts = new Map<string, number[]>();
  for (const { name, stage, timeUs } of trace.annotations) {
    if (stage !== 'END') starts.set(name, [...(starts.get(name) ?? []), timeUs]);
  }
  const times = [...starts.values()].reduce((most, some) => (some.length > most.length ? some : most), []);
  if (times.length > 1) {
    const marks: number[] = [];
    let op = 0;
    for (const time of times.sort((a, b) => a - b)) {
      while (op < event.length && trace.events.timeUs[event[op]!]! < time) op++;
      if (op < event.length) marks.push(op);
    }
    return marks;
  }
  const marks: number[] = [];
  let last = 0;
  event.forEach((at, op) => {
    const metadata = trace.events.metadata[at]!;
    if (metadata !== last && /\b(step|iter|iteration|batch)\b/i.test(trace.symbols.strings[metadata] ?? '')) marks.push(op);
    last = metadata;
  });
  return marks;
}

export class OpsBuilder {
  private count = 0;
  private readonly isAlloc: Uint8Array;
  private readonly size: Float64Array;
  private readonly stream: Int32Array;
  private readonly partner: Int32Array;
  private readonly event: Int32Array;
  private readonly marks: number[] = [];

  constructor(capacity: number) {
    this.isAlloc = new Uint8Array(capacity);
    this.size = new Float64Array(capacity);
    this.stream = new Int32Array(capacity);
    this.partner = new Int32Array(capacity).fill(-1);
    this.event = new Int32Array(capacity).fill(-1);
  }

  alloc(size: number, stream: number, event = -1): number {
    this.isAlloc[this.count] = 1;
    return this.add(size, stream, event, -1);
  }

  free(alloc: number, size: number, stream: number, event = -1): number {
    const op = this.add(size, stream, event, alloc);
    if (alloc >= 0) this.partner[alloc] = op;
    return op;
  }

  /** The memory of an alloc is not free before the latest operation. */
  release(alloc: number): void {
    if (alloc >= 0 && this.partner[alloc]! < this.count - 1) this.partner[alloc] = this.count - 1;
  }

  mark(): void {
    if (this.marks.at(-1) !== this.count) this.marks.push(this.count);
  }

  finish(liveBefore: number): MemoryOps {
    const { count } = this;
    const isAlloc = this.isAlloc.slice(0, count);
    const size = this.size.slice(0, count);
    let live = liveBefore;
    let peak = live;
    for (let op = 0; op < count; op++) {
      live += isAlloc[op] ? size[op]! : -size[op]!;
      if (live > peak) peak = live;
    }
    return {
      count,
      isAlloc,
      size,
      stream: this.stream.slice(0, count),
      partner: this.partner.slice(0, count),
      event: this.event.slice(0, count),
      liveBefore,
      peak,
      marks: this.marks,
    };
  }

  private add(size: number, stream: number, event: number, partner: number): number {
    const op = this.count++;
    this.size[op] = size;
    this.stream[op] = stream;
    this.event[op] = event;
    this.partner[op] = partner;
    return op;
  }
}
