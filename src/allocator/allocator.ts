// Who places memory: the one interface every allocator implements, and what each can tell about itself.
// Blocks are small integers, valid from malloc until complete; replay keeps them in a typed array.
import type { Backend, StreamEvents } from '../backend/backend.ts';
import type { EventKind, Segment } from '../trace/trace.ts';

/** What malloc gives back when the request cannot be served. */
export const OUT_OF_MEMORY = -1;

export interface Allocator {
  /** Serves a request on a stream from a pool (0 is the default one); a block, or OUT_OF_MEMORY. */
  malloc(requested: number, stream: number, pool: number): number;
  /** The program lets go of the block; other streams may still be using it. */
  free(block: number): void;
  /** The block, freed before, may be given out again. The number is void from here on. */
  complete(block: number): void;
  /**
   * Work of another stream uses the live block: once freed and completed, its memory is free only after that work. Only
   * allocators that find out by themselves when it is have this; others are told by `complete`.
   */
  recordStream?(block: number, stream: number): void;
  /** Gives back to the backend all that can be. */
  emptyCache(): void;

  addressOf(block: number): number;
  /** Bytes given out for the block, rounding included. */
  sizeOf(block: number): number;

  /** Memory held from the backend. */
  readonly reservedBytes: number;
  /** Memory given out and not freed, rounding included. */
  readonly allocatedBytes: number;
  /** Times a request got through only after cached memory had been given back, or failed after it. */
  readonly retries: number;
  readonly ooms: number;

  /** Where memory is now, by stream, pool and size class. Walks all blocks. */
  census(): CensusGroup[];
  /** Throws InvariantError if the allocator's structures contradict each other. Walks all blocks. */
  check(): void;

  /**
   * Takes over memory as it lay before the first event: segments with what is live in them. Gives back one block
   * per live range. Only allocators that can reproduce such a layout have this; others are given requests instead.
   */
  restore?(segments: readonly Segment[], live: readonly LiveRange[]): number[];
}

/** An allocation that was there before the recording began. */
export interface LiveRange {
  readonly address: number;
  readonly requested: number;
}

/** Memory of one stream in one pool and size class, at one moment. */
export interface CensusGroup {
  readonly stream: number;
  readonly pool: number;
  readonly small: boolean;
  readonly reserved: number;
  /** Requested bytes that are live. */
  readonly requested: number;
  /** Given out beyond what was requested. */
  readonly rounding: number;
  /** Freed by the program, but other streams may still be using it. */
  readonly pending: number;
  readonly free: number;
  readonly freePieces: number;
  readonly largestFree: number;
}

/** The world an allocator is put into. */
export interface AllocatorContext {
  readonly backend: Backend;
  /** Stream handles: PyTorch orders streams by their value. */
  readonly streams: readonly number[];
  /** How far streams have come; without it no stream lends memory to another. */
  readonly events?: StreamEvents | undefined;
  /** Total memory of the GPU, as far as it is known. */
  readonly deviceBytes?: number | undefined;
  /** Reserved bytes this process may take (PyTorch's memory fraction), where that is less than the GPU has. */
  readonly allowedBytes?: number | undefined;
  /**
   * Waits for all streams: gives the blocks that were freed and are complete by then, which the allocator completes.
   * Without it no pending block ever completes but by `complete`.
   */
  readonly synchronize?: (() => readonly number[]) | undefined;
  /** Called for each piece of memory taken from or given back to the backend, in order. */
  readonly onSegment?: ((kind: SegmentEventKind, address: number, size: number) => void) | undefined;
}

export type SegmentEventKind =
  | typeof EventKind.SegmentAlloc
  | typeof EventKind.SegmentFree
  | typeof EventKind.SegmentMap
  | typeof EventKind.SegmentUnmap;
