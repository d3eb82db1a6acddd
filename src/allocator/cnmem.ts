// CnMem, the pool that SmartPool is compared with: best fit per stream, exact growth, no memory ever released.
// The root manager serves the default stream. Every other stream has a child manager that takes memory from the root.

import { type Backend, NO_MEMORY } from '../backend/backend.ts';
import { roundUp } from '../base/bytes.ts';
import { InvariantError } from '../base/errors.ts';
import { EventKind } from '../trace/trace.ts';
import { type Allocator, type AllocatorContext, type CensusGroup, OUT_OF_MEMORY } from './allocator.ts';
import { BlockState, BlockTable, NO_BLOCK } from './block-table.ts';
import { takeCensus } from './census.ts';
import { OrderedBlocks } from './ordered-blocks.ts';

const GRANULE = 512;
const ROOT = 0;
/** A head block starts memory taken from the backend or from another manager. It is never joined with the block before it. */
const HEAD = 1;
const INNER = 0;

export interface CnMemSettings {
  /** Bytes the root takes from the backend before the first request. */
  readonly initialBytes: number;
}

export class CnMemAllocator implements Allocator {
  reservedBytes = 0;
  allocatedBytes = 0;
  readonly retries = 0;
  ooms = 0;
  private readonly backend: Backend;
  private readonly onSegment: NonNullable<AllocatorContext['onSegment']>;
  private readonly streams: readonly number[];
  private readonly table = new BlockTable();
  /** Free blocks by manager. The root is manager 0, the child of stream s is manager s + 1. */
  private readonly freeBlocks: OrderedBlocks[] = [];

  constructor(context: AllocatorContext, settings: CnMemSettings) {
    this.backend = context.backend;
    this.onSegment = context.onSegment ?? (() => {});
    this.streams = context.streams;
    if (settings.initialBytes > 0) {
      const block = this.growRoot(roundUp(settings.initialBytes, GRANULE), 0);
      if (block !== NO_BLOCK) this.freeOf(ROOT).insert(block);
    }
  }

  malloc(requested: number, stream: number, _pool: number): number {
    const size = roundUp(Math.max(1, requested), GRANULE);
    const manager = this.streams[stream] === 0 ? ROOT : stream + 1;
    let block = this.take(manager, size, stream);
    if (block === NO_BLOCK) block = this.steal(manager, size, stream);
    if (block === NO_BLOCK) {
      this.ooms++;
      return OUT_OF_MEMORY;
    }
    this.table.state[block] = BlockState.Live;
    this.table.requested[block] = requested;
    this.allocatedBytes += size;
    return block;
  }

  free(block: number): void {
    this.table.advance(block, BlockState.Live, BlockState.Pending);
    this.allocatedBytes -= this.table.size[block]!;
  }

  complete(block: number): void {
    const { table } = this;
    const free = this.freeOf(table.group[block]!);
    const isFree = (neighbour: number) => neighbour !== NO_BLOCK && table.state[neighbour] === BlockState.Free;
    const prev = table.prev[block]!;
    const next = table.next[block]!;
    let whole = block;
    table.advance(block, BlockState.Pending, BlockState.Free);
    if (isFree(prev) && table.tag[block] !== HEAD) {
      free.remove(prev);
      this.append(prev, block);
      whole = prev;
    }
    if (isFree(next) && table.tag[next] !== HEAD) {
      free.remove(next);
      this.append(whole, next);
    }
    free.insert(whole);
  }

  /** CnMem releases nothing until it is shut down. */
  emptyCache(): void {}

  addressOf(block: number): number {
    return this.table.address[block]!;
  }

  sizeOf(block: number): number {
    return this.table.size[block]!;
  }

  census(): CensusGroup[] {
    return takeCensus(this.table, () => ({ pool: 0, small: false }));
  }

  check(): void {
    const { table } = this;
    let reserved = 0;
    let allocated = 0;
    let free = 0;
    for (let block = 0; block < table.rows; block++) {
      const state = table.state[block]!;
      if (state === BlockState.None) continue;
      if (state !== BlockState.HandedOver) reserved += table.size[block]!;
      if (state === BlockState.Live) allocated += table.size[block]!;
      if (state === BlockState.Free) free++;
      const next = table.next[block]!;
      if (next === NO_BLOCK) continue;
      if (table.prev[next] !== block || table.address[next] !== table.address[block]! + table.size[block]!) {
        throw new InvariantError(`blocks ${block} and ${next} do not touch`);
      }
      if (state === BlockState.Free && table.state[next] === BlockState.Free && table.tag[next] !== HEAD) {
        throw new InvariantError(`blocks ${block} and ${next} should have been joined`);
      }
    }
    if (reserved !== this.reservedBytes)
      throw new InvariantError(`blocks add up to ${reserved} bytes, but ${this.reservedBytes} are reserved`);
    if (allocated !== this.allocatedBytes)
      throw new InvariantError(`live blocks add up to ${allocated} bytes, but ${this.allocatedBytes} are allocated`);
    const listed = this.freeBlocks.reduce((sum, blocks) => sum + (blocks?.size ?? 0), 0);
    if (listed !== free) throw new InvariantError(`${free} blocks are free, but ${listed} are listed`);
  }

  /** A block of exactly `size`, in no list. It comes from the manager's free blocks, else the root's, else the backend. */
  private take(manager: number, size: number, stream: number): number {
    const fitting = this.freeOf(manager).seek(size, 0);
    if (fitting !== NO_BLOCK) return this.cut(fitting, size);
    if (manager === ROOT) return this.growRoot(size, stream);
    const granted = this.take(ROOT, size, stream);
    return granted === NO_BLOCK ? NO_BLOCK : this.handOver(granted, manager, stream);
  }

  private growRoot(bytes: number, stream: number): number {
    const address = this.backend.malloc(bytes);
    if (address === NO_MEMORY) return NO_BLOCK;
    this.reservedBytes += bytes;
    this.onSegment(EventKind.SegmentAlloc, address, bytes);
    return this.table.add(address, bytes, BlockState.Free, stream, ROOT, HEAD);
  }

  /** If memory runs out, CnMem waits for the other streams and takes one of their free blocks. */
  private steal(manager: number, size: number, stream: number): number {
    for (const [other, blocks] of this.freeBlocks.entries()) {
      if (other === manager || other === ROOT || !blocks) continue;
      const fitting = blocks.seek(size, 0);
      if (fitting !== NO_BLOCK) return this.handOver(this.cut(fitting, size), manager, stream);
    }
    return NO_BLOCK;
  }

  /** Hands a range over to another manager for good. The old row stays, because it links its neighbours. */
  private handOver(block: number, manager: number, stream: number): number {
    this.table.state[block] = BlockState.HandedOver;
    return this.table.add(this.table.address[block]!, this.table.size[block]!, BlockState.Free, stream, manager, HEAD);
  }

  /** Takes a free block out of its list and puts the rest beyond `size` back. */
  private cut(block: number, size: number): number {
    const { table } = this;
    const free = this.freeOf(table.group[block]!);
    free.remove(block);
    const rest = table.size[block]! - size;
    if (rest > 0) {
      const tail = table.add(table.address[block]! + size, rest, BlockState.Free, table.stream[block]!, table.group[block]!, INNER);
      table.size[block] = size;
      table.linkAfter(tail, block);
      free.insert(tail);
    }
    return block;
  }

  /** Joins `second` to the adjacent block `first`. */
  private append(first: number, second: number): void {
    this.table.size[first]! += this.table.size[second]!;
    this.table.unlink(second);
    this.table.remove(second);
  }

  private freeOf(manager: number): OrderedBlocks {
    let blocks = this.freeBlocks[manager];
    if (!blocks) {
      blocks = new OrderedBlocks(this.table, 'size');
      this.freeBlocks[manager] = blocks;
    }
    return blocks;
  }
}
