// The memory of PyTorch's allocator: segments, blocks, free sets and the reserved bytes, which change together here.
// allocator.ts decides which block to use and when to release memory.

import { type Backend, NO_MEMORY } from '../../backend/backend.ts';
import { roundDown, roundUp, TIB } from '../../base/bytes.ts';
import { EventKind } from '../../trace/trace.ts';
import type { AllocatorContext, SegmentEventKind } from '../allocator.ts';
import { BlockState, BlockTable, NO_BLOCK } from '../block-table.ts';
import { type BlockPool, BlockPools } from './pools.ts';
import type { PyTorchRules } from './versions.ts';

/** Tag of blocks outside expandable segments. */
export const PLAIN = -1;

/** No GPU has this much. A recording that claims more must not cost us its pages. */
const MOST_MAPPED_BYTES: number = 2 * TIB;
/** Pages of the small pool have 2 MiB, so these are 512 GiB of requests up to 1 MiB. */
const MOST_PAGES: number = 2 ** 18;

/** A reserved address range whose pages are mapped one by one. */
interface ExpandableSegment {
  readonly base: number;
  readonly bytes: number;
  readonly page: number;
  /** Handle by page number, for mapped pages. */
  readonly handles: Map<number, number>;
}

export class Heap {
  readonly table: BlockTable = new BlockTable();
  readonly pools: BlockPools = new BlockPools(this.table);
  reservedBytes = 0;
  /** Mapped pages of all expandable segments. */
  private pages = 0;
  private readonly backend: Backend;
  private readonly onSegment: (kind: SegmentEventKind, address: number, size: number) => void;
  private readonly expandables: ExpandableSegment[] = [];
  private readonly takesFirst: PyTorchRules['takesFirst'];
  /** Blocks or segments made so far, whichever have an age. */
  private made = 0;

  constructor(context: AllocatorContext, takesFirst: PyTorchRules['takesFirst']) {
    this.backend = context.backend;
    this.takesFirst = takesFirst;
    this.onSegment = context.onSegment ?? (() => {});
  }

  poolOf(block: number): BlockPool {
    return this.pools.all[this.table.group[block]!]!;
  }

  isWholeSegment(block: number): boolean {
    return this.table.prev[block] === NO_BLOCK && this.table.next[block] === NO_BLOCK;
  }

  isExpandable(block: number): boolean {
    return this.table.tag[block] !== PLAIN;
  }

  /** Puts a free block into its set. Its age for garbage collection starts at 0. */
  addFree(block: number): void {
    const pool = this.poolOf(block);
    this.table.birth[block] = pool.searches;
    pool.freeOf(this.table.stream[block]!).insert(block);
  }

  takeFree(block: number): void {
    this.poolOf(block).freeOf(this.table.stream[block]!).remove(block);
  }

  /** Cuts the first `size` bytes off a block that is in no set. The rest keeps the row and becomes free. */
  splitFront(block: number, size: number): number {
    const front = this.cutFront(block, size);
    this.addFree(block);
    return front;
  }

  /** Cuts the first `size` bytes off a block that is in no set. They become a new block in the same state. */
  cutFront(block: number, size: number): number {
    const { table } = this;
    const front = this.addPart(block, table.address[block]!, size, table.state[block] as BlockState);
    table.linkBefore(front, block);
    table.address[block]! += size;
    table.size[block]! -= size;
    return front;
  }

  /** Frees a block that is in no set: joins it with its free neighbours and puts the result into its set. */
  makeFree(block: number): void {
    this.table.state[block] = BlockState.Free;
    this.absorb(block, this.table.prev[block]!);
    this.absorb(block, this.table.next[block]!);
    this.addFree(block);
  }

  /** Joins a neighbour to `block` if both are in the same state (free or unmapped). */
  private absorb(block: number, neighbour: number): void {
    const { table } = this;
    if (neighbour === NO_BLOCK || table.state[neighbour] !== table.state[block]) return;
    if (table.state[block] === BlockState.Free) this.takeFree(neighbour);
    else this.poolOf(neighbour).unmappedOf(table.stream[neighbour]!).remove(neighbour);
    if (table.address[neighbour]! < table.address[block]!) table.address[block] = table.address[neighbour]!;
    table.size[block]! += table.size[neighbour]!;
    table.unlink(neighbour);
    table.remove(neighbour);
  }

  /** A new segment as one block, in no set; NO_BLOCK if the backend is out of memory. */
  addSegment(pool: BlockPool, stream: number, bytes: number): number {
    const address = this.backend.malloc(bytes);
    if (address === NO_MEMORY) return NO_BLOCK;
    this.reservedBytes += bytes;
    this.onSegment(EventKind.SegmentAlloc, address, bytes);
    return this.addWhole(address, bytes, BlockState.Free, stream, pool, PLAIN);
  }

  /** Returns a whole free segment to the backend. */
  releaseSegment(block: number): void {
    const address = this.table.address[block]!;
    const bytes = this.table.size[block]!;
    this.takeFree(block);
    this.table.remove(block);
    this.backend.free(address, bytes);
    this.reservedBytes -= bytes;
    this.onSegment(EventKind.SegmentFree, address, bytes);
  }

  /** Reserves the addresses of an expandable segment as one unmapped block, in its set; NO_BLOCK if that fails. */
  addExpandable(pool: BlockPool, stream: number, page: number, bytes: number, wanted?: number): number {
    const base = this.backend.reserve(bytes, wanted);
    if (base === NO_MEMORY) return NO_BLOCK;
    const tag = this.expandables.push({ base, bytes, page, handles: new Map() }) - 1;
    const block = this.addWhole(base, bytes, BlockState.Unmapped, stream, pool, tag);
    pool.unmappedOf(stream).insert(block);
    return block;
  }

  /**
   * Maps at least the first `bytes` of an unmapped block, in whole pages, and makes them free. If it fails, nothing has
   * changed.
   */
  mapBlock(block: number, bytes: number): boolean {
    const { table } = this;
    const address = table.address[block]!;
    const { page } = this.expandables[table.tag[block]!]!;
    const size = roundUp(bytes, page);
    if (this.reservedBytes + size > MOST_MAPPED_BYTES || this.pages + size / page > MOST_PAGES) return false;
    if (!this.mapPages(table.tag[block]!, address, size)) return false;

    const unmapped = this.poolOf(block).unmappedOf(table.stream[block]!);
    unmapped.remove(block);
    const rest = table.size[block]! - size;
    if (rest > 0) {
      const tail = this.addPart(block, address + size, rest, BlockState.Unmapped);
      table.size[block] = size;
      table.linkAfter(tail, block);
      unmapped.insert(tail);
    }
    this.reservedBytes += size;
    this.pages += size / page;
    this.onSegment(EventKind.SegmentMap, address, size);
    this.makeFree(block);
    return true;
  }

  /** Unmaps the whole pages inside a free block of an expandable segment. */
  unmapBlock(block: number): void {
    const { table } = this;
    const segment = this.expandables[table.tag[block]!]!;
    const start = table.address[block]!;
    const end = start + table.size[block]!;
    const first = segment.base + roundUp(start - segment.base, segment.page);
    const last = segment.base + roundDown(end - segment.base, segment.page);
    if (last <= first) return;

    this.takeFree(block);
    this.unmapPages(segment, first, last - first);
    const stream = table.stream[block]!;
    const group = table.group[block]!;
    if (first > start) this.addFree(this.cutFront(block, first - start));
    if (end > last) {
      const after = this.addPart(block, last, end - last, BlockState.Free);
      table.linkAfter(after, block);
      table.size[block]! -= end - last;
      this.addFree(after);
    }
    table.state[block] = BlockState.Unmapped;
    this.absorb(block, table.prev[block]!);
    this.absorb(block, table.next[block]!);
    this.reservedBytes -= last - first;
    this.pages -= (last - first) / segment.page;
    this.onSegment(EventKind.SegmentUnmap, first, last - first);
    if (this.isWholeSegment(block)) {
      // No page of the segment is mapped any more, so its addresses are released too.
      table.remove(block);
      this.backend.unreserve(segment.base, segment.bytes);
    } else {
      this.pools.all[group]!.unmappedOf(stream).insert(block);
    }
  }

  /** A block for a new segment. */
  private addWhole(address: number, size: number, state: BlockState, stream: number, pool: BlockPool, tag: number): number {
    const block = this.table.add(address, size, state, stream, pool.index, tag);
    if (this.takesFirst !== 'lowest address') this.table.age[block] = ++this.made;
    return block;
  }

  /** A block for a part of the memory of `whole`. It has no neighbours yet. */
  addPart(whole: number, address: number, size: number, state: BlockState): number {
    const { table } = this;
    const part = table.add(address, size, state, table.stream[whole]!, table.group[whole]!, table.tag[whole]!);
    table.age[part] = this.takesFirst === 'oldest block' ? ++this.made : table.age[whole]!;
    return part;
  }

  private mapPages(tag: number, address: number, bytes: number): boolean {
    const segment = this.expandables[tag]!;
    const first = (address - segment.base) / segment.page;
    const count = bytes / segment.page;
    for (let index = 0; index < count; index++) {
      const handle = this.backend.create(segment.page);
      if (handle === NO_MEMORY) {
        for (let made = 0; made < index; made++) this.releasePage(segment, first + made);
        return false;
      }
      segment.handles.set(first + index, handle);
    }
    let mapped = 0;
    while (mapped < count && this.backend.map(address + mapped * segment.page, segment.handles.get(first + mapped)!)) mapped++;
    if (mapped === count && this.backend.setAccess(address, bytes)) return true;
    if (mapped > 0) this.backend.unmap(address, mapped * segment.page);
    for (let index = 0; index < count; index++) this.releasePage(segment, first + index);
    return false;
  }

  private unmapPages(segment: ExpandableSegment, address: number, bytes: number): void {
    for (let offset = 0; offset < bytes; offset += segment.page) {
      this.backend.unmap(address + offset, segment.page);
      this.releasePage(segment, (address + offset - segment.base) / segment.page);
    }
  }

  private releasePage(segment: ExpandableSegment, page: number): void {
    this.backend.release(segment.handles.get(page)!);
    segment.handles.delete(page);
  }
}
