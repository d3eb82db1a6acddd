// A set of blocks ordered by (size, age, address) or by address alone, kept as a list of short sorted chunks.
// A search is two binary searches. An insertion moves at most one chunk, so a million blocks stay fast.
import { InvariantError } from '../base/errors.ts';
import type { BlockTable } from './block-table.ts';

const CHUNK_CAPACITY = 64;

export class OrderedBlocks {
  size = 0;
  private readonly chunks: Int32Array[] = [];
  private readonly lengths: number[] = [];
  // The cursor: where the last search ended. `forward` and `back` move it.
  private chunk = 0;
  private place = 0;
  private readonly table: BlockTable;
  private readonly bySize: boolean;

  constructor(table: BlockTable, order: 'size' | 'address') {
    this.table = table;
    this.bySize = order === 'size';
  }

  insert(block: number): void {
    this.seekBlock(block);
    if (this.chunks.length === 0) {
      this.chunks.push(new Int32Array(CHUNK_CAPACITY));
      this.lengths.push(0);
    }
    if (this.chunk === this.chunks.length) {
      this.chunk--;
      this.place = this.lengths[this.chunk]!;
    }
    if (this.lengths[this.chunk] === CHUNK_CAPACITY) this.splitChunk();
    const chunk = this.chunks[this.chunk]!;
    for (let to = this.lengths[this.chunk]!; to > this.place; to--) chunk[to] = chunk[to - 1]!;
    chunk[this.place] = block;
    this.lengths[this.chunk]!++;
    this.size++;
  }

  remove(block: number): void {
    // Usually the block was found by a search just before.
    let found = this.isAtCursor(block) ? block : this.seekBlock(block);
    // In a damaged recording, two blocks may lie at one address.
    while (found !== block && found >= 0 && this.isEqual(found, block)) found = this.forward();
    if (found !== block) throw new InvariantError(`block ${block} is not in its set`);
    const chunk = this.chunks[this.chunk]!;
    const length = this.lengths[this.chunk]!;
    for (let to = this.place + 1; to < length; to++) chunk[to - 1] = chunk[to]!;
    this.size--;
    if (--this.lengths[this.chunk]! === 0) {
      this.chunks.splice(this.chunk, 1);
      this.lengths.splice(this.chunk, 1);
    }
  }

  /** Moves the cursor to the first block at or after (size, age, address). Returns that block or -1. */
  seek(size: number, address: number, age = -1): number {
    let low = 0;
    let high = this.chunks.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      const last = this.chunks[middle]![this.lengths[middle]! - 1]!;
      if (this.isBefore(last, size, age, address)) low = middle + 1;
      else high = middle;
    }
    this.chunk = low;
    this.place = 0;
    if (low === this.chunks.length) return -1;
    const chunk = this.chunks[low]!;
    let from = 0;
    let to = this.lengths[low]!;
    while (from < to) {
      const middle = (from + to) >> 1;
      if (this.isBefore(chunk[middle]!, size, age, address)) from = middle + 1;
      else to = middle;
    }
    this.place = from;
    return chunk[from]!;
  }

  /** Moves the cursor to the next block. Returns that block, or -1 at the end. */
  forward(): number {
    if (this.chunk === this.chunks.length) return -1;
    if (++this.place === this.lengths[this.chunk]) {
      this.chunk++;
      this.place = 0;
    }
    return this.chunk === this.chunks.length ? -1 : this.chunks[this.chunk]![this.place]!;
  }

  /** Moves the cursor to the block before. Returns that block, or -1 at the beginning, where the cursor stays. */
  back(): number {
    if (this.place === 0) {
      if (this.chunk === 0) return -1;
      this.chunk--;
      this.place = this.lengths[this.chunk]!;
    }
    return this.chunks[this.chunk]![--this.place]!;
  }

  /** A copy of all blocks in order. The set may change while the copy is walked. */
  toArray(): number[] {
    const blocks: number[] = [];
    this.chunks.forEach((chunk, index) => {
      for (let place = 0; place < this.lengths[index]!; place++) blocks.push(chunk[place]!);
    });
    return blocks;
  }

  last(): number {
    return this.chunks.length === 0 ? -1 : this.chunks.at(-1)![this.lengths.at(-1)! - 1]!;
  }

  private isAtCursor(block: number): boolean {
    const { chunk, place } = this;
    return chunk < this.chunks.length && place < this.lengths[chunk]! && this.chunks[chunk]![place] === block;
  }

  private isEqual(one: number, other: number): boolean {
    const { size, age, address } = this.table;
    return address[one] === address[other] && (!this.bySize || (size[one] === size[other] && age[one] === age[other]));
  }

  private seekBlock(block: number): number {
    return this.seek(this.table.size[block]!, this.table.address[block]!, this.table.age[block]!);
  }

  private isBefore(block: number, size: number, age: number, address: number): boolean {
    if (this.bySize) {
      const blockSize = this.table.size[block]!;
      if (blockSize !== size) return blockSize < size;
      const blockAge = this.table.age[block]!;
      if (blockAge !== age) return blockAge < age;
    }
    return this.table.address[block]! < address;
  }

  private splitChunk(): void {
    const half = CHUNK_CAPACITY >> 1;
    const upper = new Int32Array(CHUNK_CAPACITY);
    upper.set(this.chunks[this.chunk]!.subarray(half));
    this.lengths[this.chunk] = half;
    this.chunks.splice(this.chunk + 1, 0, upper);
    this.lengths.splice(this.chunk + 1, 0, CHUNK_CAPACITY - half);
    if (this.place > half) {
      this.chunk++;
      this.place -= half;
    }
  }
}
