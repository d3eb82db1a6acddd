// The orders in which heuristics place buffers.
// No order is best everywhere, and a bad one can cost a third, so the planner tries several.
import type { Instance } from './instance.ts';

/** What buffers are ordered by: one number per buffer each. */
export interface Measures {
  readonly size: Float64Array;
  /** Number of sections the buffer lives in. */
  readonly width: Float64Array;
  /** Size times width. */
  readonly area: Float64Array;
  /** The largest load of the sections the buffer lives in. */
  readonly tension: Float64Array;
  readonly birth: Float64Array;
  /** Lifetime of the buffer. */
  readonly duration: Float64Array;
  /** Size times duration. */
  readonly volume: Float64Array;
}

export function measure(instance: Instance): Measures {
  const { count, size, load, spanStart, spanLow, spanHigh } = instance;
  const width = new Float64Array(count);
  const area = new Float64Array(count);
  const tension = new Float64Array(count);
  const birth = new Float64Array(count);
  const loadMaximum = rangeMaximum(load);
  for (let buffer = 0; buffer < count; buffer++) {
    birth[buffer] = spanLow[spanStart[buffer]!]!;
    for (let span = spanStart[buffer]!; span < spanStart[buffer + 1]!; span++) {
      width[buffer] = width[buffer]! + spanHigh[span]! - spanLow[span]!;
      tension[buffer] = Math.max(tension[buffer]!, loadMaximum(spanLow[span]!, spanHigh[span]!));
    }
    area[buffer] = width[buffer]! * size[buffer]!;
  }
  const { duration } = instance;
  const volume = duration.map((time, buffer) => time * size[buffer]!);
  return { size, width, area, tension, birth, duration, volume };
}

export type MeasureName = keyof Measures;

/** A measure to sort by, in descending order; a leading `-` makes it ascending. */
export type OrderName = `${'' | '-'}${MeasureName}`;

/** Buffers sorted by several measures, the first one first. Equal buffers keep their order. */
export function orderBy(measures: Measures, names: readonly OrderName[]): Int32Array {
  const keys = names.map((name) => ({
    values: measures[(name.startsWith('-') ? name.slice(1) : name) as MeasureName],
    sign: name.startsWith('-') ? 1 : -1,
  }));
  const order = new Int32Array(measures.size.length).map((_, index) => index);
  return order.sort((a, b) => {
    for (const { values, sign } of keys) {
      const difference = values[a]! - values[b]!;
      if (difference !== 0) return sign * difference;
    }
    return a - b;
  });
}

/** Returns a function that finds the largest value in [low, high), from a sparse table. */
function rangeMaximum(values: Float64Array): (low: number, high: number) => number {
  const levels: Float64Array[] = [values];
  for (let reach = 1; reach * 2 <= values.length; reach *= 2) {
    const below = levels.at(-1)!;
    const level = new Float64Array(values.length - reach * 2 + 1);
    for (let at = 0; at < level.length; at++) level[at] = Math.max(below[at]!, below[at + reach]!);
    levels.push(level);
  }
  return (low, high) => {
    const depth = 31 - Math.clz32(high - low);
    const level = levels[depth]!;
    return Math.max(level[low]!, level[high - (1 << depth)]!);
  };
}
