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
