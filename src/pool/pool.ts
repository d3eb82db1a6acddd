// A memory pool for other programs: any allocator on any backend, behind malloc and free.
// Its errors say what was requested, what is free and what to do.
import { type Allocator, OUT_OF_MEMORY } from '../allocator/allocator.ts';
import { chooseAllocators } from '../allocator/registry.ts';
import type { Backend, DriverCall } from '../backend/backend.ts';
import { isTouchable, type TouchableMemory } from '../backend/memory.ts';
import { formatBytes } from '../base/bytes.ts';
import { UsageError } from '../base/errors.ts';
import { type BackendName, openBackend } from './open-backend.ts';

export interface PoolOptions {
  /** Where memory comes from: `sim` (simulated), `host` (this machine's memory, Linux) or `cuda`. */
  readonly backend: BackendName;
  /** The allocator, written as on the command line: `weir`, `gmlake`, `pytorch[max_split_size_mb:128]`. Default: `weir`. */
  readonly allocator?: string | undefined;
  /** Most memory to hold, in bytes. Default: the backend's capacity. */
  readonly capacity?: number | undefined;
}

/** Memory that a pool gave out. */
export interface Allocation {
  readonly address: number;
  /** Bytes of the block, at least those requested. */
  readonly size: number;
}

export interface PoolStats {
  /** Bytes held from the backend. */
  readonly reserved: number;
  /** Bytes in use. */
  readonly allocated: number;
  readonly ooms: number;
  readonly driver: { readonly timeUs: number; readonly calls: Readonly<Record<DriverCall, number>> };
}

/** A request failed. The message says what was requested, what is free and what to do. */
export class OutOfMemoryError extends Error {
  override name = 'OutOfMemoryError';
  readonly asked: number;

  constructor(message: string, asked: number) {
    super(message);
    this.asked = asked;
  }
}

/** Streams are numbered from 0. A stream reuses the memory freed on it first. */
const MAX_STREAMS = 64;

export class Pool {
  private readonly allocator: Allocator;
  private readonly backend: Backend;
  private readonly closeBackend: () => void;
  private readonly blocks = new Map<Allocation, number>();
  private closed = false;

  constructor(options: PoolOptions) {
    const [choice, ...others] = chooseAllocators(options.allocator ?? 'weir');
    if (!choice || others.length > 0) throw new UsageError('a pool takes one allocator; name one');
    const opened = openBackend(options.backend, options.capacity);
    this.backend = opened.backend;
    this.closeBackend = opened.close;
    this.allocator = choice.create({
      backend: opened.backend,
      streams: Array.from({ length: MAX_STREAMS }, (_, stream) => stream),
      deviceBytes: opened.capacity,
    });
  }

  /** Allocates `bytes` bytes for use on `stream`. Throws OutOfMemoryError. */
  malloc(bytes: number, stream = 0): Allocation {
    this.expectOpen();
    if (!Number.isSafeInteger(bytes) || bytes <= 0) throw new UsageError(`${bytes} is not a size; pass a whole number of bytes above 0`);
    if (!Number.isInteger(stream) || stream < 0 || stream >= MAX_STREAMS)
      throw new UsageError(`${stream} is not a stream; pass a whole number from 0 to ${MAX_STREAMS - 1}`);
    const block = this.allocator.malloc(bytes, stream, 0);
    if (block === OUT_OF_MEMORY) throw this.explain(bytes);
    const allocation = { address: this.allocator.addressOf(block), size: this.allocator.sizeOf(block) };
    this.blocks.set(allocation, block);
    return allocation;
  }

  /** Frees an allocation. The caller guarantees that no work uses it any more. */
  free(allocation: Allocation): void {
    this.expectOpen();
    const block = this.blocks.get(allocation);
    if (block === undefined)
      throw new UsageError('this allocation is not from this pool, or it was freed before; free each allocation once');
    this.blocks.delete(allocation);
    this.allocator.free(block);
    this.allocator.complete(block);
  }

  /** Returns unused memory to the backend. */
  emptyCache(): void {
    this.expectOpen();
    this.allocator.emptyCache();
  }

  stats(): PoolStats {
    const { timeUs, calls } = this.backend.ledger;
    return {
      reserved: this.allocator.reservedBytes,
      allocated: this.allocator.allocatedBytes,
      ooms: this.allocator.ooms,
      driver: { timeUs, calls: { ...calls } },
    };
  }

  /** Access to the memory's contents; undefined on the simulated backend. */
  get memory(): TouchableMemory | undefined {
    return isTouchable(this.backend) ? this.backend : undefined;
  }

  /** Throws if the pool's structures contradict each other, which is always a defect. */
  check(): void {
    this.allocator.check();
  }

  /** Frees everything. Its allocations must not be used afterwards. */
  close(): void {
    if (this.closed) return;
    for (const allocation of [...this.blocks.keys()]) this.free(allocation);
    this.allocator.emptyCache();
    this.closed = true;
    this.closeBackend();
  }

  private explain(asked: number): OutOfMemoryError {
    const groups = this.allocator.census();
    const free = groups.reduce((sum, group) => sum + group.free, 0);
    const largest = Math.max(0, ...groups.map((group) => group.largestFree));
    const help =
      free >= asked
        ? 'enough memory is free, but it belongs to other streams or cannot be joined: free more on this stream'
        : 'free some memory first, or give the pool more capacity';
    return new OutOfMemoryError(
      `out of memory: ${formatBytes(asked)} requested, ${formatBytes(this.allocator.allocatedBytes)} in use, ${formatBytes(this.allocator.reservedBytes)} reserved, ${formatBytes(free)} of it free, largest free block ${formatBytes(largest)}; ${help}`,
      asked,
    );
  }

  private expectOpen(): void {
    if (this.closed) throw new UsageError('the pool is closed; open a new one');
  }
}

/** Opens a pool on a backend. Close it when done. */
export function createPool(options: PoolOptions): Pool {
  return new Pool(options);
}
