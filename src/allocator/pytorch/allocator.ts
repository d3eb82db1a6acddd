// PyTorch's caching allocator, decision by decision (native backend of 2.11, with or without expandable segments).
// It reproduces recorded runs to the address, so it follows PyTorch even where PyTorch's choice looks odd.
import { SMALL_SEGMENT } from '../../trace/start-state.ts';
import type { PoolId, Segment } from '../../trace/trace.ts';
import { type Allocator, type AllocatorContext, type CensusGroup, type LiveRange, OUT_OF_MEMORY } from '../allocator.ts';
import { BlockState, NO_BLOCK } from '../block-table.ts';
import { takeCensus } from '../census.ts';
import { checkHeap } from './check.ts';
import { Heap } from './heap.ts';
import { layoutOf } from './layout.ts';
import type { BlockPool } from './pools.ts';
import { restoreHeap } from './restore.ts';
import type { PyTorchSettings } from './settings.ts';
import { ABSURD_REQUEST, MIN_BLOCK, MIN_LARGE_REMAINDER, roundRequest, SMALL_REQUEST, segmentSizeFor } from './sizes.ts';
import { DEFAULT_RULES } from './versions.ts';

/** Address space per expandable segment if the GPU's size is unknown: more than any GPU has. */
const UNKNOWN_DEVICE_BYTES = 2 ** 40;

export class PyTorchAllocator implements Allocator {
  allocatedBytes = 0;
  retries = 0;
  ooms = 0;
  private readonly settings: PyTorchSettings;
  private readonly heap: Heap;
  private readonly streams: readonly number[];
  private readonly retriesInMemPools: boolean;
  private readonly poolIds: readonly PoolId[];
  private readonly synchronize: () => readonly number[];
  private readonly deviceBytes: number;
  /** Most bytes to reserve under the memory fraction; Infinity without one. */
  private allowedBytes: number;
  private readonly collects: boolean;

  constructor(context: AllocatorContext, settings: PyTorchSettings) {
    this.settings = settings;
    const rules = context.rules ?? DEFAULT_RULES;
    this.heap = new Heap(context, rules.takesFirst);
    this.streams = context.streams;
    this.retriesInMemPools = rules.retriesInMemPools;
    this.poolIds = context.pools ?? [];
    this.synchronize = context.synchronize ?? (() => []);
    this.deviceBytes = context.deviceBytes ?? UNKNOWN_DEVICE_BYTES;
    const byFraction = settings.memoryFraction < 1 ? rules.allows(settings.memoryFraction, this.deviceBytes) : Number.POSITIVE_INFINITY;
    this.allowedBytes = context.allowedBytes ?? byFraction;
    this.collects = this.allowedBytes !== Number.POSITIVE_INFINITY && settings.garbageCollectionThreshold > 0;
  }

  get reservedBytes(): number {
    return this.heap.reservedBytes;
  }

  addressOf(block: number): number {
    return this.heap.table.address[block]!;
  }

  sizeOf(block: number): number {
    return this.heap.table.size[block]!;
  }

  malloc(requested: number, stream: number, poolId: number): number {
    const size = roundRequest(requested, this.settings);
    const pool = this.heap.pools.of(poolId, size <= SMALL_REQUEST);
    const found = requested < ABSURD_REQUEST ? this.find(pool, stream, size) : NO_BLOCK;
    if (found === NO_BLOCK) {
      this.ooms++;
      return OUT_OF_MEMORY;
    }
    const block = this.shouldSplit(pool, found, size) ? this.heap.splitFront(found, size) : found;
    const { table } = this.heap;
    table.state[block] = BlockState.Live;
    table.requested[block] = requested;
    this.allocatedBytes += table.size[block]!;
    return block;
  }

  free(block: number): void {
    const { table } = this.heap;
    table.advance(block, BlockState.Live, BlockState.Pending);
    this.allocatedBytes -= table.size[block]!;
  }

  complete(block: number): void {
    this.heap.table.advance(block, BlockState.Pending, BlockState.Free);
    this.heap.makeFree(block);
  }

  emptyCache(): void {
    this.releaseCached();
  }

  /** Private pools that nothing uses any more, in the order in which PyTorch gives them back with the next release. */
  releasable: readonly number[] = [];

  /** Gives the cached memory of the `releasable` pools back, and no other: what the end of a MemPool does. */
  releasePools(): void {
    for (const block of this.synchronize()) this.complete(block);
    for (const pool of this.releasable) this.releasePool(pool);
  }

  releasePool(pool: number): void {
    for (const small of [true, false]) this.releaseBlocks(this.heap.pools.of(pool, small));
  }

  /**
   * Whether a request that finds no memory gives the cache back and tries again. Never during a capture, and before 2.13 in no
   * private pool. The pool that a CUDA graph makes for itself has an id of its own kind; one that the program made for graphs
   * has the id of a MemPool, and is taken for one.
   */
  retriesIn(pool: number): boolean {
    return pool === 0 || (this.retriesInMemPools && this.poolIds[pool]?.[0] === 0);
  }

  /** Whether cached memory would serve the request. Changes nothing. */
  wouldReuse(requested: number, stream: number, poolId: number): boolean {
    const size = roundRequest(requested, this.settings);
    return this.search(this.heap.pools.of(poolId, size <= SMALL_REQUEST), stream, size) !== NO_BLOCK;
  }

  /** Reserved bytes after a new segment for the request. Changes nothing. */
  reservedBytesWith(requested: number): number {
    return this.reservedBytes + segmentSizeFor(roundRequest(requested, this.settings), this.settings);
  }

  /** Lowers the limit on reserved bytes. */
  lowerAllowance(bytes: number): void {
    this.allowedBytes = Math.min(this.allowedBytes, bytes);
  }

  get collectsGarbage(): boolean {
    return this.collects;
  }

  census(): CensusGroup[] {
    return takeCensus(this.heap.table, (group) => this.heap.pools.all[group]!);
  }

  /** Segments and blocks as a snapshot would show them now. */
  layout(): Segment[] {
    return layoutOf(this.heap);
  }

  check(): void {
    checkHeap(this.heap, this.allocatedBytes, this.streams);
  }

  restore(segments: readonly Segment[], live: readonly LiveRange[]): number[] {
    const blocks = restoreHeap(this.heap, this.settings, segments, live, (page) => this.expandableBytes(page));
    for (const block of blocks) if (block !== NO_BLOCK) this.allocatedBytes += this.heap.table.size[block]!;
    return blocks;
  }

  /** A block of at least `size`, in no set. Tries the cache, then a new segment, then releases memory and tries again. */
  private find(pool: BlockPool, stream: number, size: number): number {
    const reused = this.takeBest(pool, stream, size);
    if (reused !== NO_BLOCK) return reused;
    if (this.collects) this.collectGarbage();
    let block = this.grow(pool, stream, size);
    if (block === NO_BLOCK && this.releaseOversize(pool, stream, size)) block = this.grow(pool, stream, size);
    if (block === NO_BLOCK && this.retriesIn(pool.pool)) {
      this.releaseCached();
      this.retries++;
      // PyTorch does not search the pool again, even if waiting has just freed a block that fits (pytorch#189504).
      block = this.grow(pool, stream, size);
    }
    return block;
  }

  private takeBest(pool: BlockPool, stream: number, size: number): number {
    if (this.collects) pool.searches++;
    const block = this.search(pool, stream, size);
    if (block !== NO_BLOCK) this.heap.takeFree(block);
    return block;
  }

  private search(pool: BlockPool, stream: number, size: number): number {
    const { heap, settings } = this;
    const free = pool.freeOf(stream);
    let block = free.seek(size, 0);
    if (block === NO_BLOCK) return NO_BLOCK;
    if (heap.isExpandable(block)) {
      if (settings.expandableSegments) {
        let next = free.forward();
        while (heap.isExpandable(block) && next !== NO_BLOCK && this.reachOf(next) < this.reachOf(block)) {
          block = next;
          next = free.forward();
        }
      } else {
        while (block !== NO_BLOCK && heap.isExpandable(block)) block = free.forward();
        if (block === NO_BLOCK) return NO_BLOCK;
      }
    }
    const blockSize = heap.table.size[block]!;
    if (size < settings.maxSplitSize && blockSize >= settings.maxSplitSize) return NO_BLOCK;
    if (size >= settings.maxSplitSize && blockSize >= size + settings.maxNonSplitRounding) return NO_BLOCK;
    return block;
  }

  /** Size of a block plus the unmapped range behind it. PyTorch prefers a small reach, so blocks that can grow are used last. */
  private reachOf(block: number): number {
    const { table } = this.heap;
    const next = table.next[block]!;
    return table.size[block]! + (next !== NO_BLOCK && table.state[next] === BlockState.Unmapped ? table.size[next]! : 0);
  }

  private shouldSplit(pool: BlockPool, block: number, size: number): boolean {
    const rest = this.heap.table.size[block]! - size;
    if (pool.small || this.settings.expandableSegments) return rest >= MIN_BLOCK;
    return size < this.settings.maxSplitSize && rest > MIN_LARGE_REMAINDER;
  }

  private grow(pool: BlockPool, stream: number, size: number): number {
    const segmentBytes = segmentSizeFor(size, this.settings);
    if (this.reservedBytes + segmentBytes > this.allowedBytes) return NO_BLOCK;
    if (this.settings.expandableSegments) return this.growExpandable(pool, stream, size);
    return this.heap.addSegment(pool, stream, segmentBytes);
  }

  private growExpandable(pool: BlockPool, stream: number, size: number): number {
    const { heap } = this;
    const { table } = heap;
    let block = this.findRoom(pool, stream, size);
    if (block === NO_BLOCK) return NO_BLOCK;
    if (table.state[block] === BlockState.Unmapped && !heap.mapBlock(block, Math.min(table.size[block]!, size))) return NO_BLOCK;
    while (table.size[block]! < size) {
      // mapBlock joins the new pages with the mapped block before them, so `next` becomes the joined block.
      const next = table.next[block]!;
      if (!heap.mapBlock(next, Math.min(size - table.size[block]!, table.size[next]!))) return NO_BLOCK;
      block = next;
    }
    heap.takeFree(block);
    return block;
  }

  /** The first of neighbouring free and unmapped blocks that together hold `size`, at the lowest address. */
  private findRoom(pool: BlockPool, stream: number, size: number): number {
    const { table } = this.heap;
    const isOpen = (block: number) =>
      block !== NO_BLOCK && (table.state[block] === BlockState.Free || table.state[block] === BlockState.Unmapped);
    const unmapped = pool.unmappedOf(stream);
    for (let range = unmapped.seek(0, 0); range !== NO_BLOCK; range = unmapped.forward()) {
      const start = isOpen(table.prev[range]!) ? table.prev[range]! : range;
      let bytes = 0;
      for (let block = start; bytes < size && isOpen(block); block = table.next[block]!) bytes += table.size[block]!;
      if (bytes >= size) return start;
    }
    const page = pool.small ? SMALL_SEGMENT : this.settings.largeSegmentSize;
    const bytes = this.expandableBytes(page);
    return bytes < size ? NO_BLOCK : this.heap.addExpandable(pool, stream, page, bytes);
  }

  /** Address space of one expandable segment: 9/8 of the GPU's memory, in whole pages. */
  private expandableBytes(page: number): number {
    return Math.ceil((this.deviceBytes + this.deviceBytes / 8) / page) * page;
  }

  /** Releases whole segments older than the average, until reserved memory is under the threshold. */
  private collectGarbage(): void {
    const { heap } = this;
    const threshold = Math.floor(this.settings.garbageCollectionThreshold * this.allowedBytes);
    if (heap.reservedBytes <= threshold) return;
    const target = heap.reservedBytes - threshold;
    const pool = heap.pools.of(0, false);
    const age = (block: number) => pool.searches - heap.table.birth[block]!;
    let totalAge = 0;
    let count = 0;
    for (const block of pool.freeInOrder(this.streams)) {
      if (!heap.isWholeSegment(block)) continue;
      totalAge += age(block);
      count++;
    }
    let reclaimed = 0;
    let freedAny = true;
    while (reclaimed < target && freedAny && count > 0) {
      freedAny = false;
      const average = totalAge / count;
      for (const block of pool.freeInOrder(this.streams)) {
        if (!heap.isWholeSegment(block) || heap.isExpandable(block) || age(block) < average) continue;
        freedAny = true;
        reclaimed += heap.table.size[block]!;
        totalAge -= age(block);
        count--;
        heap.releaseSegment(block);
      }
    }
  }

  /** If max_split_size is set: releases enough unsplittable blocks of the stream to make room for the request. */
  private releaseOversize(pool: BlockPool, stream: number, size: number): boolean {
    const { heap, settings } = this;
    if (settings.maxSplitSize === Number.POSITIVE_INFINITY) return false;
    const free = pool.freeOf(stream);
    const key = Math.max(size, settings.maxSplitSize);
    const fitting = free.seek(key, 0);
    if (fitting !== NO_BLOCK && !heap.isExpandable(fitting) && heap.isWholeSegment(fitting)) {
      heap.releaseSegment(fitting);
      return true;
    }
    const candidates: number[] = [];
    let bytes = 0;
    for (
      let block = free.back();
      block !== NO_BLOCK && bytes < key && heap.table.size[block]! >= settings.maxSplitSize;
      block = free.back()
    ) {
      if (heap.isExpandable(block) || !heap.isWholeSegment(block)) continue;
      bytes += heap.table.size[block]!;
      candidates.push(block);
    }
    for (const block of candidates) heap.releaseSegment(block);
    return bytes >= key;
  }

  /** Waits for all streams and releases every whole free segment and every whole free page. */
  private releaseCached(): void {
    for (const block of this.synchronize()) this.complete(block);
    for (const small of [false, true]) this.releaseBlocks(this.heap.pools.of(0, small));
    this.releasePools();
  }

  private releaseBlocks(pool: BlockPool): void {
    const { heap } = this;
    const expandable: number[] = [];
    for (const block of pool.freeInOrder(this.streams)) {
      if (heap.isExpandable(block)) expandable.push(block);
      else if (heap.isWholeSegment(block)) heap.releaseSegment(block);
    }
    for (const block of expandable) heap.unmapBlock(block);
  }
}
