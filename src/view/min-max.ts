// Minimum and maximum of any range of a column, from a pyramid of buckets. A million events drawn as a thousand columns keep
// every spike.

/** Buckets of one level that make one of the next. */
const FACTOR = 16;

export class MinMax {
  private readonly lows: Float64Array[] = [];
  private readonly highs: Float64Array[] = [];

  constructor(values: Float64Array) {
    this.lows.push(values);
    this.highs.push(values);
    for (let length = values.length; length > FACTOR; ) {
      const next = Math.ceil(length / FACTOR);
      this.addLevel(next, length);
      length = next;
    }
  }

  /** Over values `from` to `to - 1`, at least one. Writes the answer to `into`. */
  range(from: number, to: number, into: { min: number; max: number }): void {
    into.min = Number.POSITIVE_INFINITY;
    into.max = Number.NEGATIVE_INFINITY;
    let low = from;
    let high = to;
    // At each level, take the values that do not fill a whole bucket of the next level.
    for (let level = 0; low < high; level++) {
      const isTop = level === this.lows.length - 1;
      const inner = isTop ? high : Math.min(high, Math.ceil(low / FACTOR) * FACTOR);
      this.take(level, low, inner, into);
      const outer = isTop ? high : Math.max(inner, Math.floor(high / FACTOR) * FACTOR);
      this.take(level, outer, high, into);
      low = inner / FACTOR;
      high = outer / FACTOR;
      if (isTop) break;
    }
  }

  /** Where the highest of the values `from` to `to - 1` lies, the first one if there are several. */
  highestAt(from: number, to: number): number {
    const found = { min: 0, max: 0 };
    this.range(from, to, found);
    return this.firstAtLeast(from, to, found.max);
  }

  /** The first value from `from` on that is at least `bound`; buckets that lie below it are skipped. */
  private firstAtLeast(from: number, to: number, bound: number): number {
    let level = 0;
    let index = from;
    for (;;) {
      const highs = this.highs[level]!;
      if (highs[index]! >= bound) {
        if (level === 0) return index;
        level--;
        index *= FACTOR;
      } else {
        index++;
        if (index * FACTOR ** level >= to) return to - 1;
        while (level + 1 < this.highs.length && index % FACTOR === 0) {
          level++;
          index /= FACTOR;
        }
      }
    }
  }

  private take(level: number, from: number, to: number, into: { min: number; max: number }): void {
    const lows = this.lows[level]!;
    const highs = this.highs[level]!;
    for (let index = from; index < to; index++) {
      if (lows[index]! < into.min) into.min = lows[index]!;
      if (highs[index]! > into.max) into.max = highs[index]!;
    }
  }

  private addLevel(length: number, below: number): void {
    const lowsBelow = this.lows.at(-1)!;
    const highsBelow = this.highs.at(-1)!;
    const lows = new Float64Array(length);
    const highs = new Float64Array(length);
    for (let bucket = 0; bucket < length; bucket++) {
      let min = Number.POSITIVE_INFINITY;
      let max = Number.NEGATIVE_INFINITY;
      const end = Math.min(below, (bucket + 1) * FACTOR);
      for (let index = bucket * FACTOR; index < end; index++) {
        if (lowsBelow[index]! < min) min = lowsBelow[index]!;
        if (highsBelow[index]! > max) max = highsBelow[index]!;
      }
      lows[bucket] = min;
      highs[bucket] = max;
    }
    this.lows.push(lows);
    this.highs.push(highs);
  }
}
