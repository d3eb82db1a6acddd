// What happened on one GPU, in columns. Every reader produces this model, and everything else reads it.
//
// Each of these words has one meaning throughout the code:
//   request     an attempt to allocate; its size is not rounded
//   allocation  a served request, from its alloc event to its free
//   live        allocated and not yet freed, each request rounded up to 512 B
//   block       a contiguous address range that is allocated, cached or split as one
//   segment     memory taken from the driver in one piece (cudaMalloc), or one mapped extent (expandable)
//   reserved    all memory held from the driver
//   stream      a CUDA stream, as an index into `Trace.streams`
//   pool        a memory pool of PyTorch, as an index into `Trace.pools`; 0 is the default pool
import type { Symbols } from './symbols.ts';

/** What one event says. The numbers are written to `.weir` files: never renumber, only add. */
export { EventKind } from '../abi/events.ts';

/** Events in time order, one column per field. Columns have at least `count` entries. */
export interface EventColumns {
  readonly count: number;
  readonly kind: Uint8Array;
  /** For values beyond 2^48 see `Addresses`. For an oom: the free bytes that the driver reported. */
  readonly address: Float64Array;
  readonly size: Float64Array;
  /** Microseconds since 1970, as recorded. */
  readonly timeUs: Float64Array;
  readonly stream: Int32Array;
  /** Index into `Trace.pools`; -1 if not recorded, until the trace is assembled. */
  readonly pool: Int32Array;
  /** Index into `symbols.stacks`; -1 for none. */
  readonly stack: Int32Array;
  /** Index into `symbols.strings` of the user metadata; 0 for none. */
  readonly metadata: Int32Array;
  /** The meaning depends on the kind. Absent if no event has one. */
  readonly detail?: Int32Array | undefined;
  /** Operating-system thread as an arbitrary small number. Absent if not recorded. */
  readonly thread?: Int32Array | undefined;
  /** Index into `symbols.strings` of torch.compile's context; 0 for none. Absent if no event has one. */
  readonly compileContext?: Int32Array | undefined;
}

/** All allocations: first those live before the first event, then one per alloc event. */
export interface AllocationColumns {
  readonly count: number;
  /** Number of allocations live before the first event. They are allocations 0 to `liveAtStart - 1`. */
  readonly liveAtStart: number;
  readonly address: Float64Array;
  readonly requested: Float64Array;
  readonly stream: Int32Array;
  readonly pool: Int32Array;
  /** Stacks of the first `liveAtStart` allocations, which have no event; undefined: not recorded. See `stackOf`. */
  readonly startStack?: Int32Array | undefined;
  /** Events at which the allocation began, was freed, and became reusable; -1 for never. */
  readonly allocEvent: Int32Array;
  readonly freeRequestedEvent: Int32Array;
  readonly freeCompletedEvent: Int32Array;
}

export type BlockState = 'live' | 'pending' | 'free';

/** A part of a segment as a snapshot shows it. */
export interface Block {
  readonly address: number;
  readonly size: number;
  /** Size of the request that this block served last; 0 if unknown. */
  readonly requested: number;
  readonly state: BlockState;
  readonly stack: number;
}

export interface Segment {
  readonly address: number;
  readonly size: number;
  readonly stream: number;
  readonly pool: number;
  /** True in the pool of requests up to 1 MiB. */
  readonly small: boolean;
  readonly expandable: boolean;
  readonly stack: number;
  /** In address order, covering the segment; empty if not recorded. */
  readonly blocks: readonly Block[];
}

/** PyTorch's MempoolId: (0,0) is the default pool, (0,n) a MemPool, (n,0) a pool made by graph capture. */
export type PoolId = readonly [number, number];

export type SettingValue = string | number | boolean | null | ReadonlyMap<string, SettingValue>;

export interface Annotation {
  readonly name: string;
  readonly stage: 'START' | 'END' | 'MARK';
  readonly device: number;
  readonly timeUs: number;
}

/** A defect of the recording that limits the answers. */
export interface Warning {
  /** A stable name for programs: `late-start`, `missing-frees`, ... */
  readonly code: string;
  /** One sentence, for people. */
  readonly message: string;
}

/** Limits of the machine that the recording was made on. */
export interface RecordedLimits {
  /** Total memory of the GPU. */
  readonly deviceBytes?: number | undefined;
  /** torch.cuda.set_per_process_memory_fraction. */
  readonly memoryFraction?: number | undefined;
}

/** Pinned host memory of the process, in bytes. PyTorch 2.14 and later record it if asked to. */
export interface HostMemory {
  readonly events: number;
  /** The most that was held from the driver at a time, and how much of that was in use at that time; undefined: unknown. */
  readonly peakHeld: number;
  readonly usedAtPeak?: number | undefined;
  readonly heldAtEnd: number;
  readonly usedAtEnd?: number | undefined;
  /** Part of `usedAtEnd` beyond the requests; undefined if only rounded sizes were recorded, as by PyTorch 2.14. */
  readonly roundingAtEnd?: number | undefined;
}

/** Memory of the GPU that is not PyTorch's, in bytes. */
export interface OtherMemory {
  /** Memory of the GPU, and how much of it was in use by anyone. */
  readonly total: number;
  readonly used: number;
  /** Part of `used` that the allocator of this process reserved. */
  readonly reserved: number;
  /** What all of this process takes: `reserved`, CUDA context, NCCL, libraries; undefined: the driver does not tell. */
  readonly process?: number | undefined;
}

/** The recording of one GPU. */
export interface Trace {
  /** Index of the GPU in its file. */
  readonly device: number;
  readonly events: EventColumns;
  /** For each event, the allocation that begins or ends there; -1 for none or unknown. */
  readonly allocationOf: Int32Array;
  readonly allocations: AllocationColumns;
  /**
   * Allocations whose free is missing: their address was reused by a later alloc event. Maps that event to the older
   * allocation.
   */
  readonly impliedFrees: ReadonlyMap<number, number>;
  /** Segments held before the first event, in address order. Their blocks are empty: live memory is in `allocations`. */
  readonly startSegments: readonly Segment[];
  /** The recorder kept every block that is live at the start, so none is older than the recording. True of files about a failure. */
  readonly startIsWhole?: boolean | undefined;
  /** Segment events were left out, so reserved memory is unknown. */
  readonly segmentsUnknown?: boolean | undefined;
  /** Segments when the snapshot was taken, with blocks; undefined if the format has none. */
  readonly endSegments: readonly Segment[] | undefined;
  /** Recorded stream handles (cudaStream_t as a number; 0 is the legacy default stream). */
  readonly streams: readonly number[];
  readonly pools: readonly PoolId[];
  readonly symbols: Symbols;
  /** Recorded allocator settings, by their PyTorch names. */
  readonly settings: ReadonlyMap<string, SettingValue>;
  readonly limits: RecordedLimits;
  readonly annotations: readonly Annotation[];
  /** The same for all GPUs of a process; absent if it was not recorded. */
  readonly hostMemory?: HostMemory | undefined;
  /** At the end of the recording; absent if it was not recorded. */
  readonly otherMemory?: OtherMemory | undefined;
  readonly warnings: readonly Warning[];
}

/** The content of one file: a trace for each GPU. */
export interface Recording {
  readonly format: 'pickle' | 'json' | 'weir';
  readonly traces: readonly Trace[];
}
