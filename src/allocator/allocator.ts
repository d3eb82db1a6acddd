// The interface that every allocator implements. An allocator places memory; a backend provides it.
// Blocks are small integers, valid from malloc until complete, so that replay can keep them in a typed array.
import type { Backend, StreamEvents } from '../backend/backend.ts';
import type { EventKind, PoolId, Segment } from '../trace/trace.ts';
import type { PyTorchRules } from './pytorch/versions.ts';

/** Returned by malloc if the request cannot be served. */
export const OUT_OF_MEMORY = -1;

export interface Allocator {
  /** Serves a request on a stream from a pool (0: the default pool). Returns a block or OUT_OF_MEMORY. */
  malloc(requested: number, stream: number, pool: number): number;
  /** The program frees the block. Other streams may still use it. */
  free(block: number): void;
  /** The freed block may be reused: no stream uses it any more. Its number becomes invalid. */
  complete(block: number): void;
  /**
   * Another stream uses the live block, so its memory is free only after that stream's work.
   * Only allocators that query events themselves implement this; others learn it from `complete`.
   */
  recordStream?(block: number, stream: number): void;
  /** Returns all unused memory to the backend. */
  emptyCache(): void;
  /** A private pool is not used any more: its unused memory goes back to the backend. Allocators without pools have none. */
  releasePool?(pool: number): void;

  addressOf(block: number): number;
  /** Size of the block in bytes, rounding included. */
  sizeOf(block: number): number;

  /** Bytes held from the backend. */
  readonly reservedBytes: number;
  /** Bytes allocated and not freed, rounding included. */
  readonly allocatedBytes: number;
  /** Requests that found no memory until cached memory was released, whether they succeeded then or not. */
  readonly retries: number;
  readonly ooms: number;

  /** Memory now, by stream, pool and size class. Walks all blocks. */
  census(): CensusGroup[];
  /** Throws InvariantError if the allocator's structures contradict each other. Walks all blocks. */
  check(): void;

  /**
   * Takes over the memory of the time before the first event: segments, and the live ranges in them. Returns one block
   * per live range.
   * Only allocators that can reproduce a layout implement this. For others, replay allocates the live ranges.
   */
  restore?(segments: readonly Segment[], live: readonly LiveRange[]): number[];
}

/** An allocation made before the recording began. */
export interface LiveRange {
  readonly address: number;
  readonly requested: number;
  /** Where its block ends at the latest, as far as the recording shows that. */
  readonly end: number;
}

/** Memory of one stream in one pool and size class, at one moment. */
export interface CensusGroup {
  readonly stream: number;
  readonly pool: number;
  readonly small: boolean;
  readonly reserved: number;
  /** Requested bytes that are live. */
  readonly requested: number;
  /** Bytes of live blocks beyond what was requested. */
  readonly rounding: number;
  /** Bytes freed by the program that other streams may still use. */
  readonly pending: number;
  readonly free: number;
  readonly freePieces: number;
  readonly largestFree: number;
}

/** What an allocator is created with. */
export interface AllocatorContext {
  readonly backend: Backend;
  /** Stream handles. PyTorch orders streams by these values. */
  readonly streams: readonly number[];
  /** Ids of the memory pools. Without them, all but the first are taken for those of CUDA graphs. */
  readonly pools?: readonly PoolId[] | undefined;
  /** Events of the streams. Without them no stream lends memory to another. */
  readonly events?: StreamEvents | undefined;
  /** Total memory of the GPU, if known. */
  readonly deviceBytes?: number | undefined;
  /** Most bytes this process may reserve (PyTorch's memory fraction), if less than the GPU has. */
  readonly allowedBytes?: number | undefined;
  /** What depends on PyTorch's version, for its allocator; by default, what versions up to 2.11 do. */
  readonly rules?: PyTorchRules | undefined;
  /**
   * Waits for all streams and returns the freed blocks that are no longer in use. The allocator completes them.
   * If absent, blocks complete only through `complete`.
   */
  readonly synchronize?: (() => readonly number[]) | undefined;
  /** Called whenever memory is taken from the backend or returned to it, in order. */
  readonly onSegment?: ((kind: SegmentEventKind, address: number, size: number) => void) | undefined;
}

export type SegmentEventKind =
  | typeof EventKind.SegmentAlloc
  | typeof EventKind.SegmentFree
  | typeof EventKind.SegmentMap
  | typeof EventKind.SegmentUnmap;
