// PyTorch's block pools: for each memory pool a small and a large one, each with the free blocks of every stream
// by size and, for expandable segments, the unmapped ranges by address.
import type { BlockTable } from '../block-table.ts';
import { OrderedBlocks } from '../ordered-blocks.ts';

export class BlockPool {
  /** Position in the list of all pools; blocks carry it as their group. */
  readonly index: number;
  /** The memory pool (0 is the default) this belongs to. */
  readonly pool: number;
  readonly small: boolean;
  /** Searches so far, by which garbage collection tells the age of a block. */
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

  /** Free blocks of a stream, by size, then address. */
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

  /** All free blocks in PyTorch's order: by the stream's handle, then size, then address. */
  freeInOrder(streams: readonly number[]): number[] {
    const present = [...this.free.keys()].filter((stream) => this.free[stream] !== undefined);
    present.sort((a, b) => (streams[a] ?? 0) - (streams[b] ?? 0));
    return present.flatMap((stream) => this.free[stream]!.toArray());
  }

  get freeCount(): number {
    return this.free.reduce((sum, blocks) => sum + (blocks?.size ?? 0), 0);
  }
}

/** The pools by memory pool and size class, made when first asked for. */
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
