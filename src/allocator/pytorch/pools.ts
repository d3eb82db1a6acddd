// PyTorch's block pools: a small and a large one for each memory pool, with the free blocks of every stream by size.
// For expandable segments, also the unmapped ranges by address.
import type { BlockTable } from '../block-table.ts';
import { OrderedBlocks } from '../ordered-blocks.ts';

export class BlockPool {
  /** Index in the list of all pools, and the `group` of its blocks. */
  readonly index: number;
  /** The memory pool it belongs to (0: the default pool). */
  readonly pool: number;
  readonly small: boolean;
  /** Number of searches so far. Garbage collection measures the age of a block with it. */
  searches = 0;
  private readonly table: BlockTable;
  private readonly free: OrderedBlocks[] = [];
  private readonly unmapped: OrderedBlocks[] = [];

  constructor(index: number, pool: number, small: boolean, table: BlockTable) {
    this.index = index;
    this.pool = pool;
    this.small = small;
    this.table = table;
  }

  /** Free blocks of a stream, by size, age and address. */
  freeOf(stream: number): OrderedBlocks {
    let blocks = this.free[stream];
    if (!blocks) {
      blocks = new OrderedBlocks(this.table, 'size');
      this.free[stream] = blocks;
    }
    return blocks;
  }

  /** Unmapped ranges of a stream's expandable segments, by address. */
  unmappedOf(stream: number): OrderedBlocks {
    let blocks = this.unmapped[stream];
    if (!blocks) {
      blocks = new OrderedBlocks(this.table, 'address');
      this.unmapped[stream] = blocks;
    }
    return blocks;
  }

  /** All free blocks in PyTorch's order: by stream handle, then size, age and address. */
  freeInOrder(streams: readonly number[]): number[] {
    const present = [...this.free.keys()].filter((stream) => this.free[stream] !== undefined);
    present.sort((a, b) => (streams[a] ?? 0) - (streams[b] ?? 0));
    return present.flatMap((stream) => this.free[stream]!.toArray());
  }

  get freeCount(): number {
    return this.free.reduce((sum, blocks) => sum + (blocks?.size ?? 0), 0);
  }
}

/** The block pools by memory pool and size class, made on first use. */
export class BlockPools {
  readonly all: BlockPool[] = [];
  private readonly table: BlockTable;
  private readonly byKey: number[] = [];

  constructor(table: BlockTable) {
    this.table = table;
  }

  of(pool: number, small: boolean): BlockPool {
    const key = pool * 2 + (small ? 1 : 0);
    const known = this.byKey[key];
    if (known !== undefined) return this.all[known]!;
    const made = new BlockPool(this.all.length, pool, small, this.table);
    this.byKey[key] = made.index;
    this.all.push(made);
    return made;
  }
}
