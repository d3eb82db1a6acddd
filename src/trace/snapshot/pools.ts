// Pairs of integers, each stored once, and the memory pools that some of them name.
import type { PoolId } from '../trace.ts';

/** If both numbers are below this, the key of a pair is a number instead of a string. */
const COMPACT = 2 ** 26;

/** No program has this many pools. Further pairs cannot be pool ids and stay plain lists. */
const MAX_PAIRS = 2 ** 16;

export class PoolTable {
  /** Pools in the order of first use. The default pool is always the first. */
  readonly pools: PoolId[] = [[0, 0]];
  private readonly pairs: PoolId[] = [];
  private readonly indices = new Map<number | string, number>();
  /** Pool index by pair, plus one; 0 for a pair that is not used as a pool. */
  private readonly poolOf: number[] = [];

  /** The index of a pair; -1 if there are too many to be pool ids. */
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

  /** The pool that a pair names; -1 if it cannot be a pool id. */
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
