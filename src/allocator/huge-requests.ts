// Requests larger than any GPU, such as an accidental broadcast of terabytes, on simulated memory without such a limit.
// Allocators that build blocks from small handles would create millions of them; here each such request is one driver call.
import { BLOCK_UNIT } from '../abi/settings.ts';
import { type Backend, NO_MEMORY } from '../backend/backend.ts';
import { SimulatedBackend } from '../backend/simulated.ts';
import { GIB, MIB, roundUp } from '../base/bytes.ts';
import { EventKind } from '../trace/trace.ts';
import { type Allocator, type AllocatorContext, type CensusGroup, type LiveRange, OUT_OF_MEMORY } from './allocator.ts';

/** More memory than any GPU has: the largest announced ones have 432 GB. */
export const MOST_GPU_BYTES: number = 448 * GIB;
/** What an allocator may hold itself. Beyond it, requests from this size on count as huge too. */
const MOST_HELD_BYTES = 2 * MOST_GPU_BYTES;
const LEAST_HUGE_BYTES = 64 * MIB;

/** Numbers of huge blocks begin here, far above those of any allocator. */
const FIRST_BLOCK = 2 ** 30;

interface HugeBlock {
  readonly address: number;
  readonly size: number;
  readonly requested: number;
  readonly stream: number;
  readonly pool: number;
  isLive: boolean;
}

/** The allocator that `create` makes. If simulated memory could hold more than any GPU, huge requests go past it. */
export function withHugeRequests(context: AllocatorContext, create: (context: AllocatorContext) => Allocator): Allocator {
  const { backend } = context;
  const isEndless = backend instanceof SimulatedBackend && backend.capacity > MOST_GPU_BYTES;
  return isEndless ? new HugeRequests(context, create) : create(context);
}

class HugeRequests implements Allocator {
  readonly restore?: (segments: Parameters<NonNullable<Allocator['restore']>>[0], live: readonly LiveRange[]) => number[];
  readonly recordStream?: (block: number, stream: number) => void;
  private readonly inner: Allocator;
  private readonly backend: Backend;
  private readonly onSegment: NonNullable<AllocatorContext['onSegment']>;
  private readonly blocks = new Map<number, HugeBlock>();
  private next = FIRST_BLOCK;
  private held = 0;
  private live = 0;
  private failed = 0;

  constructor(context: AllocatorContext, create: (context: AllocatorContext) => Allocator) {
    const { synchronize } = context;
    this.backend = context.backend;
    this.onSegment = context.onSegment ?? (() => {});
    this.inner = create(synchronize ? { ...context, synchronize: () => synchronize().filter((block) => !this.completed(block)) } : context);
    const { restore, recordStream } = this.inner;
    if (restore) this.restore = restore.bind(this.inner);
    if (recordStream) {
      this.recordStream = (block, stream) => {
        if (!this.blocks.has(block)) recordStream.call(this.inner, block, stream);
      };
    }
  }

  malloc(requested: number, stream: number, pool: number): number {
    if (!this.isHuge(requested)) return this.inner.malloc(requested, stream, pool);
    const size = roundUp(requested, BLOCK_UNIT);
    let address = this.backend.malloc(size);
    if (address === NO_MEMORY) {
      this.inner.emptyCache();
      address = this.backend.malloc(size);
    }
    if (address === NO_MEMORY) {
      this.failed++;
      return OUT_OF_MEMORY;
    }
    this.onSegment(EventKind.SegmentAlloc, address, size);
    this.held += size;
    this.live += size;
    this.blocks.set(this.next, { address, size, requested, stream, pool, isLive: true });
    return this.next++;
  }

  free(block: number): void {
    const huge = this.blocks.get(block);
    if (!huge) {
      this.inner.free(block);
      return;
    }
    huge.isLive = false;
    this.live -= huge.size;
  }

  complete(block: number): void {
    if (!this.completed(block)) this.inner.complete(block);
  }

  emptyCache(): void {
    this.inner.emptyCache();
  }

  releasePool(pool: number): void {
    this.inner.releasePool?.(pool);
  }

  addressOf(block: number): number {
    return this.blocks.get(block)?.address ?? this.inner.addressOf(block);
  }

  sizeOf(block: number): number {
    return this.blocks.get(block)?.size ?? this.inner.sizeOf(block);
  }

  get reservedBytes(): number {
    return this.inner.reservedBytes + this.held;
  }

  get allocatedBytes(): number {
    return this.inner.allocatedBytes + this.live;
  }

  get retries(): number {
    return this.inner.retries;
  }

  get ooms(): number {
    return this.inner.ooms + this.failed;
  }

  census(): CensusGroup[] {
    const own = Array.from(this.blocks.values(), ({ stream, pool, size, requested, isLive }) => ({
      stream,
      pool,
      small: false,
      reserved: size,
      requested: isLive ? requested : 0,
      rounding: isLive ? size - requested : 0,
      pending: isLive ? 0 : size,
      free: 0,
      freePieces: 0,
      largestFree: 0,
    }));
    return [...this.inner.census(), ...own];
  }

  check(): void {
    this.inner.check();
  }

  private isHuge(requested: number): boolean {
    if (requested > MOST_GPU_BYTES) return true;
    return requested >= LEAST_HUGE_BYTES && this.inner.reservedBytes + requested > MOST_HELD_BYTES;
  }

  /** Returns a huge block to the backend at once. False if the block is not a huge one. */
  private completed(block: number): boolean {
    const huge = this.blocks.get(block);
    if (!huge) return false;
    this.blocks.delete(block);
    this.held -= huge.size;
    this.backend.free(huge.address, huge.size);
    this.onSegment(EventKind.SegmentFree, huge.address, huge.size);
    return true;
  }
}
