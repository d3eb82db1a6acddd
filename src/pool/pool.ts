// A memory pool for programs: any allocator on any backend behind malloc and free, with errors that explain themselves.
import { type Allocator, OUT_OF_MEMORY } from '../allocator/allocator.ts';
import { chooseAllocators } from '../allocator/registry.ts';
import type { Backend, DriverCall } from '../backend/backend.ts';
import { isTouchable, type TouchableMemory } from '../backend/memory.ts';
import { formatBytes } from '../base/bytes.ts';
import { UsageError } from '../base/errors.ts';
import { type BackendName, openBackend } from './open-backend.ts';

export interface PoolOptions {
  /** Where memory comes from: `sim` (bookkeeping only), `host` (this machine, Linux) or `cuda`. */
  readonly backend: BackendName;
  /** Who places it, as on the command line: `weir`, `gmlake`, `pytorch[max_split_size_mb:128]`. Default `weir`. */
  readonly allocator?: string | undefined;
  /** Most memory to hold; by default what the backend has. */
  readonly capacity?: number | undefined;
}

/** Memory that a pool gave out. */
export interface Allocation {
  readonly address: number;
  /** Bytes given out, at least those asked for. */
  readonly size: number;
}

export interface PoolStats {
  /** Held from the backend. */
  readonly reserved: number;
  /** Given out. */
  readonly allocated: number;
  readonly ooms: number;
  readonly driver: { readonly timeUs: number; readonly calls: Readonly<Record<DriverCall, number>> };
}

/** A request could not be served; the message says what was asked, what is free and why that did not do. */
export class OutOfMemoryError extends Error {
  override name = 'OutOfMemoryError';
  readonly asked: number;

  constructor(message: string, asked: number) {
    super(message);
    this.asked = asked;
  }
}

/** Streams are numbers from 0; memory freed on one is used again by that stream first. */
const MAX_STREAMS = 64;

export class Pool {
  private readonly allocator: Allocator;
  private readonly backend: Backend;
  private readonly closeBackend: () => void;
  private readonly blocks = new Map<Allocation, number>();
  private closed = false;

  constructor(options: PoolOptions) {
    const [choice, ...others] = chooseAllocators(options.allocator ?? 'weir');
    if (!choice || others.length > 0) throw new UsageError('a pool has one allocator');
    const opened = openBackend(options.backend, options.capacity);
    this.backend = opened.backend;
    this.closeBackend = opened.close;
    this.allocator = choice.create({
      backend: opened.backend,
      streams: Array.from({ length: MAX_STREAMS }, (_, stream) => stream),
      deviceBytes: opened.capacity,
    });
  }

  /** Memory for `bytes` bytes, for use on `stream`. Throws OutOfMemoryError. */
  malloc(bytes: number, stream = 0): Allocation {
    this.expectOpen();
    if (!Number.isSafeInteger(bytes) || bytes <= 0) throw new UsageError(`${bytes} is not a number of bytes`);
    if (!Number.isInteger(stream) || stream < 0 || stream >= MAX_STREAMS)
      throw new UsageError(`streams are numbers from 0 to ${MAX_STREAMS - 1}`);
    const block = this.allocator.malloc(bytes, stream, 0);
    if (block === OUT_OF_MEMORY) throw this.explain(bytes);
    const allocation = { address: this.allocator.addressOf(block), size: this.allocator.sizeOf(block) };
    this.blocks.set(allocation, block);
    return allocation;
  }

  /** Gives an allocation back. The caller vouches that nothing uses it any more. */
  free(allocation: Allocation): void {
    this.expectOpen();
    const block = this.blocks.get(allocation);
    if (block === undefined) throw new UsageError('this allocation is not of this pool, or was freed before');
    this.blocks.delete(allocation);
    this.allocator.free(block);
    this.allocator.complete(block);
  }

  /** Gives memory that nobody uses back to the backend. */
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

  /** The memory itself, for looking at it; undefined on the simulated backend. */
  get memory(): TouchableMemory | undefined {
    return isTouchable(this.backend) ? this.backend : undefined;
  }

  /** Throws if the pool's structures contradict each other: always a defect. */
  check(): void {
    this.allocator.check();
  }

  /** Gives everything back; allocations are void from here on. */
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
        ? 'enough is free, but for other streams or in pieces that cannot be joined: free more on this stream'
        : 'free something first, or give the pool more capacity';
    return new OutOfMemoryError(
      `out of memory: ${formatBytes(asked)} was asked for; ${formatBytes(this.allocator.allocatedBytes)} is in use and ${formatBytes(free)} free of ${formatBytes(this.allocator.reservedBytes)} reserved, the largest piece ${formatBytes(largest)}; ${help}`,
      asked,
    );
  }

  private expectOpen(): void {
    if (this.closed) throw new UsageError('the pool is closed');
  }
}

/** A pool on a backend; close it when done. */
export function createPool(options: PoolOptions): Pool {
  return new Pool(options);
}
