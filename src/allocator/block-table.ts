// Blocks as rows of typed arrays, linked to their neighbours in address order. Rows are reused.
// The allocators that split and join blocks (PyTorch, CnMem) share it.
import { InvariantError } from '../base/errors.ts';

export const NO_BLOCK = -1;

export const BlockState = {
  /** The row is not in use. */
  None: 0,
  /** Cached: backed by memory and ready to be allocated. */
  Free: 1,
  Live: 2,
  /** Freed by the program, but other streams still use it. */
  Pending: 3,
  /** An address range without memory (expandable segments). */
  Unmapped: 4,
  /** The range was handed over to another manager, which has a block of its own for it (CnMem). */
  HandedOver: 5,
} as const;
export type BlockState = (typeof BlockState)[keyof typeof BlockState];

export class BlockTable {
  address: Float64Array;
  size: Float64Array;
  requested: Float64Array;
  state: Uint8Array;
  stream: Int32Array;
  /** Number of the allocator's free set that the block belongs to. */
  group: Int32Array;
  prev: Int32Array;
  next: Int32Array;
  /** For PyTorch the expandable segment, for CnMem HEAD or INNER. */
  tag: Int32Array;
  /** Of free blocks of one size the one with the least is taken first. 0 where only the address counts. */
  age: Int32Array;
  /** The pool's search count when the block was freed, which gives its age to PyTorch's garbage collection. */
  birth: Int32Array;
  /** Rows in use or used before. Higher rows were never used. */
  rows = 0;
  private readonly recycled: number[] = [];

  constructor(capacity = 1024) {
    this.address = new Float64Array(capacity);
    this.size = new Float64Array(capacity);
    this.requested = new Float64Array(capacity);
    this.state = new Uint8Array(capacity);
    this.stream = new Int32Array(capacity);
    this.group = new Int32Array(capacity);
    this.prev = new Int32Array(capacity);
    this.next = new Int32Array(capacity);
    this.tag = new Int32Array(capacity);
    this.age = new Int32Array(capacity);
    this.birth = new Int32Array(capacity);
  }

  /** Adds a block without neighbours. */
  add(address: number, size: number, state: BlockState, stream: number, group: number, tag: number): number {
    let row = this.recycled.pop();
    if (row === undefined) {
      row = this.rows++;
      if (row === this.state.length) this.grow();
    }
    this.address[row] = address;
    this.size[row] = size;
    this.requested[row] = 0;
    this.state[row] = state;
    this.stream[row] = stream;
    this.group[row] = group;
    this.prev[row] = NO_BLOCK;
    this.next[row] = NO_BLOCK;
    this.tag[row] = tag;
    this.age[row] = 0;
    this.birth[row] = 0;
    return row;
  }

  remove(row: number): void {
    this.state[row] = BlockState.None;
    this.recycled.push(row);
  }

  /** Links `row` behind `after`. */
  linkAfter(row: number, after: number): void {
    const next = this.next[after]!;
    this.prev[row] = after;
    this.next[row] = next;
    this.next[after] = row;
    if (next !== NO_BLOCK) this.prev[next] = row;
  }

  /** Links `row` in front of `before`. */
  linkBefore(row: number, before: number): void {
    const prev = this.prev[before]!;
    this.prev[row] = prev;
    this.next[row] = before;
    this.prev[before] = row;
    if (prev !== NO_BLOCK) this.next[prev] = row;
  }

  unlink(row: number): void {
    const prev = this.prev[row]!;
    const next = this.next[row]!;
    if (prev !== NO_BLOCK) this.next[prev] = next;
    if (next !== NO_BLOCK) this.prev[next] = prev;
  }

  /** Changes the state of a block. Throws if the block is not in state `from`, which is a mistake of the caller. */
  advance(row: number, from: BlockState, to: BlockState): void {
    if (this.state[row] !== from) throw new InvariantError(`block ${row} is in state ${this.state[row]}, not ${from}`);
    this.state[row] = to;
  }

  private grow(): void {
    const capacity = this.state.length * 2;
    for (const column of ['address', 'size', 'requested'] as const) {
      const grown = new Float64Array(capacity);
      grown.set(this[column]);
      this[column] = grown;
    }
    for (const column of ['stream', 'group', 'prev', 'next', 'tag', 'age', 'birth'] as const) {
      const grown = new Int32Array(capacity);
      grown.set(this[column]);
      this[column] = grown;
    }
    const state = new Uint8Array(capacity);
    state.set(this.state);
    this.state = state;
  }
}
