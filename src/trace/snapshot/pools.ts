// Pairs of integers, each stored once, and the memory pools some of them name.
import type { PoolId } from '../trace.ts';

/** Pairs whose halves are below this make a key without building a string. */
const COMPACT = 2 ** 26;

/** No program has this many pools; further pairs are no pool ids and stay plain lists. */
const MAX_PAIRS = 2 ** 16;

export class PoolTable {
  /** Pools in the order they were met; the default pool is always the first. */
  readonly pools: PoolId[] = [[0, 0]];
  private readonly pairs: PoolId[] = [];
  private readonly indices = new Map<number | string, number>();
  /** The pool of each pair, plus one; 0 while it is none. */
  private readonly poolOf: number[] = [];

  /** The index of a pair, or -1 when there are too many to be pool ids. */
  internPair(first: number, second: number): number {
    const key = isCompact(first) && isCompact(second) ? first * COMPACT + second : `${first},${second}`;
    let pair = this.indices.get(key);
    if (pair === undefined) {
      if (this.pairs.length >= MAX_PAIRS) return -1;
      pair = this.pairs.push([first, second]) - 1;
      this.poolOf.push(0);
      this.indices.set(key, pair);
    }
    return pair;
  }

  pair(index: number): PoolId {
    return this.pairs[index]!;
  }

  /** The pool a pair names, or -1 if it cannot be a pool's id. */
  poolOfPair(index: number): number {
    if (this.poolOf[index] === 0) {
      const id = this.pairs[index]!;
      if (!Number.isSafeInteger(id[0]) || !Number.isSafeInteger(id[1])) return -1;
      this.poolOf[index] = id[0] === 0 && id[1] === 0 ? 1 : this.pools.push(id);
    }
    return this.poolOf[index]! - 1;
  }
}

function isCompact(value: number): boolean {
  return value >= 0 && value < COMPACT && Number.isInteger(value);
}
