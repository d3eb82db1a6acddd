// An ordered set of blocks, by (size, address) or by address alone, as a list of short sorted runs.
// Finding a place is two binary searches; inserting moves at most one run, so a set of a million stays fast.
import { InvariantError } from '../base/errors.ts';
import type { BlockTable } from './block-table.ts';

const RUN_CAPACITY = 256;

export class OrderedBlocks {
  size = 0;
  private readonly runs: Int32Array[] = [];
  private readonly lengths: number[] = [];
  // Where the last search ended: the cursor that current, forward and back speak of.
  private run = 0;
  private place = 0;
  private readonly table: BlockTable;
  private readonly bySize: boolean;

  constructor(table: BlockTable, order: 'size' | 'address') {
    this.table = table;
    this.bySize = order === 'size';
  }

  insert(block: number): void {
    this.seekBlock(block);
    if (this.runs.length === 0) {
      this.runs.push(new Int32Array(RUN_CAPACITY));
      this.lengths.push(0);
    }
    if (this.run === this.runs.length) {
      this.run--;
      this.place = this.lengths[this.run]!;
    }
    if (this.lengths[this.run] === RUN_CAPACITY) this.splitRun();
    const run = this.runs[this.run]!;
    run.copyWithin(this.place + 1, this.place, this.lengths[this.run]!);
    run[this.place] = block;
    this.lengths[this.run]!++;
    this.size++;
  }

  remove(block: number): void {
    this.seekBlock(block);
    const run = this.runs[this.run];
    if (run?.[this.place] !== block || this.place >= this.lengths[this.run]!) throw new InvariantError(`block ${block} is not in its set`);
    run.copyWithin(this.place, this.place + 1, this.lengths[this.run]!);
    this.size--;
    if (--this.lengths[this.run]! === 0) {
      this.runs.splice(this.run, 1);
      this.lengths.splice(this.run, 1);
    }
  }

  /** Moves the cursor to the first block not before (size, address); gives that block or -1. */
  seek(size: number, address: number): number {
    let low = 0;
    let high = this.runs.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      const last = this.runs[middle]![this.lengths[middle]! - 1]!;
      if (this.isBefore(last, size, address)) low = middle + 1;
      else high = middle;
    }
    this.run = low;
    this.place = 0;
    if (low === this.runs.length) return -1;
    const run = this.runs[low]!;
    let from = 0;
    let to = this.lengths[low]!;
    while (from < to) {
      const middle = (from + to) >> 1;
      if (this.isBefore(run[middle]!, size, address)) from = middle + 1;
      else to = middle;
    }
    this.place = from;
    return run[from]!;
  }

  /** The next block after the cursor, which moves there; -1 at the end. */
  forward(): number {
    if (this.run === this.runs.length) return -1;
    if (++this.place === this.lengths[this.run]) {
      this.run++;
      this.place = 0;
    }
    return this.run === this.runs.length ? -1 : this.runs[this.run]![this.place]!;
  }

  /** The block before the cursor, which moves there; -1 at the beginning (the cursor stays). */
  back(): number {
    if (this.place === 0) {
      if (this.run === 0) return -1;
      this.run--;
      this.place = this.lengths[this.run]!;
    }
    return this.runs[this.run]![--this.place]!;
  }

  /** All blocks in order, as they are now: the set may change while the copy is walked. */
  toArray(): number[] {
    const blocks: number[] = [];
    this.runs.forEach((run, index) => {
      for (let place = 0; place < this.lengths[index]!; place++) blocks.push(run[place]!);
    });
    return blocks;
  }

  last(): number {
    return this.runs.length === 0 ? -1 : this.runs.at(-1)![this.lengths.at(-1)! - 1]!;
  }

  private seekBlock(block: number): void {
    this.seek(this.table.size[block]!, this.table.address[block]!);
  }

  private isBefore(block: number, size: number, address: number): boolean {
    if (this.bySize) {
      const blockSize = this.table.size[block]!;
      if (blockSize !== size) return blockSize < size;
    }
    return this.table.address[block]! < address;
  }

  private splitRun(): void {
    const half = RUN_CAPACITY >> 1;
    const upper = new Int32Array(RUN_CAPACITY);
    upper.set(this.runs[this.run]!.subarray(half));
    this.lengths[this.run] = half;
    this.runs.splice(this.run + 1, 0, upper);
    this.lengths.splice(this.run + 1, 0, RUN_CAPACITY - half);
    if (this.place > half) {
      this.run++;
      this.place -= half;
    }
  }
}
