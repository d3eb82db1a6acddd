// What happened on one GPU, in columns. This is the model every reader fills and everything else reads.
//
// Words, each with one meaning throughout the code:
//   request     bytes asked for, unrounded
//   allocation  a request that was served, from its alloc event to its free
//   live        allocated and not yet freed, each request rounded up to 512 B
//   block       a contiguous range of addresses that is given out, cached or split as one
//   segment     memory taken from the driver in one piece (cudaMalloc), or one mapped run (expandable)
//   reserved    all memory held from the driver
//   stream      a CUDA stream; here always an index into `Trace.streams`
//   pool        a memory pool of PyTorch's, an index into `Trace.pools`; 0 is the default pool
import type { Symbols } from './symbols.ts';

/** What one event says. The numbers are written to `.weir` files: never renumber, only add. */
export { EventKind } from '../abi/events.ts';

/** Events in time order, one column per field; every column has at least `count` entries. */
export interface EventColumns {
  readonly count: number;
  readonly kind: Uint8Array;
  /** See `Addresses` for values beyond 2^48; an oom keeps the driver's free bytes here. */
  readonly address: Float64Array;
  readonly size: Float64Array;
  /** Microseconds since 1970, as recorded. */
  readonly timeUs: Float64Array;
  readonly stream: Int32Array;
  /** Index into `Trace.pools`; -1 where the recording does not say (resolved when a trace is assembled). */
  readonly pool: Int32Array;
  /** Index into `symbols.stacks`, -1 for none. */
  readonly stack: Int32Array;
  /** Index into `symbols.strings` of the user metadata; 0 is the empty string. */
  readonly metadata: Int32Array;
  /** Meaning depends on the kind; absent when no event has one. */
  readonly detail?: Int32Array | undefined;
  /** Operating-system thread, as an arbitrary small number; absent when the recording does not say. */
  readonly thread?: Int32Array | undefined;
  /** Index into `symbols.strings` of torch.compile's context, 0 for none; absent when no event has one. */
  readonly compileContext?: Int32Array | undefined;
}

/** Every allocation the trace knows: those live before the first event come first, then one per alloc event. */
export interface AllocationColumns {
  readonly count: number;
  /** How many were live before the first event: allocations 0 to `liveAtStart - 1`. */
  readonly liveAtStart: number;
  readonly address: Float64Array;
  readonly requested: Float64Array;
  readonly stream: Int32Array;
  readonly pool: Int32Array;
  /** Events at which the allocation began, was let go and became free for reuse; -1 for never. */
  readonly allocEvent: Int32Array;
  readonly freeRequestedEvent: Int32Array;
  readonly freeCompletedEvent: Int32Array;
}

export type BlockState = 'live' | 'pending' | 'free';

/** A part of a segment as a snapshot shows it. */
export interface Block {
  readonly address: number;
  readonly size: number;
  /** The request this block last served, 0 if unknown. */
  readonly requested: number;
  readonly state: BlockState;
  readonly stack: number;
}

export interface Segment {
  readonly address: number;
  readonly size: number;
  readonly stream: number;
  readonly pool: number;
  /** PyTorch keeps requests up to 1 MiB apart from larger ones. */
  readonly small: boolean;
  readonly expandable: boolean;
  readonly stack: number;
  /** In address order, tiling the segment; empty where the recording does not say. */
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

/** Something about the recording that limits what can be said from it. */
export interface Warning {
  /** Stable, for programs: `late-start`, `missing-frees`, ... */
  readonly code: string;
  /** One sentence, for people. */
  readonly message: string;
}

/** What the recording says about the machine it was made on. */
export interface RecordedLimits {
  /** Total memory of the GPU. */
  readonly deviceBytes?: number | undefined;
  /** torch.cuda.set_per_process_memory_fraction. */
  readonly memoryFraction?: number | undefined;
}

/** The recording of one GPU. */
export interface Trace {
  /** Index of the GPU in the file it came from. */
  readonly device: number;
  readonly events: EventColumns;
  /** For each event, the allocation that begins or ends there; -1 for none or unknown. */
  readonly allocationOf: Int32Array;
  readonly allocations: AllocationColumns;
  /**
   * Allocations that must have ended although no free was recorded, since their address was given out again:
   * alloc event -> the older allocation. Non-empty only when frees are missing.
   */
  readonly impliedFrees: ReadonlyMap<number, number>;
  /** Segments held before the first event, in address order, with no blocks: the live ones are allocations. */
  readonly startSegments: readonly Segment[];
  /** Segments at the moment of the snapshot, with blocks; undefined when the format keeps none. */
  readonly endSegments: readonly Segment[] | undefined;
  /** Stream handles as recorded (cudaStream_t as a number; 0 is the legacy default stream). */
  readonly streams: readonly number[];
  readonly pools: readonly PoolId[];
  readonly symbols: Symbols;
  /** Allocator settings as recorded, by their PyTorch names. */
  readonly settings: ReadonlyMap<string, SettingValue>;
  readonly limits: RecordedLimits;
  readonly annotations: readonly Annotation[];
  readonly warnings: readonly Warning[];
}

/** One file: all the GPUs it speaks of. */
export interface Recording {
  readonly format: 'pickle' | 'json' | 'weir';
  readonly traces: readonly Trace[];
}
