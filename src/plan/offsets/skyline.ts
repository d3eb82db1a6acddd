// Repeatedly places the buffer that can lie lowest on the placed ones; an order decides between equals.
// It leaves no hole that is visible at the time, which helps where first fit by size is far off.
import type { Layout } from './buffers.ts';
import { alignUp, type Instance } from './instance.ts';

/** Heights of sections: raises a range and finds the highest of a range. Heights only grow, so nothing is pushed down. */
class Heights {
  private readonly leaves: number;
  private readonly whole: Float64Array;
  private readonly highest: Float64Array;

  constructor(sections: number) {
    this.leaves = 1;
    while (this.leaves < sections) this.leaves *= 2;
    this.whole = new Float64Array(this.leaves * 2);
    this.highest = new Float64Array(this.leaves * 2);
  }

  raise(low: number, high: number, height: number): void {
    const { whole, highest, leaves } = this;
    let left = low + leaves;
    let right = high + leaves;
    for (; left < right; left >>= 1, right >>= 1) {
      if (left & 1) {
        whole[left] = height;
        highest[left++] = height;
      }
      if (right & 1) {
        whole[--right] = height;
        highest[right] = height;
      }
    }
    for (let node = (low + leaves) >> 1; node >= 1 && highest[node]! <= height; node >>= 1) highest[node] = height;
    for (let node = (high - 1 + leaves) >> 1; node >= 1 && highest[node]! <= height; node >>= 1) highest[node] = height;
  }

  over(low: number, high: number): number {
    const { whole, highest, leaves } = this;
    let result = 0;
    let left = low + leaves;
    let right = high + leaves;
    for (; left < right; left >>= 1, right >>= 1) {
      if (left & 1 && highest[left++]! > result) result = highest[left - 1]!;
      if (right & 1 && highest[--right]! > result) result = highest[right]!;
    }
    for (let node = (low + leaves) >> 1; node >= 1; node >>= 1) if (whole[node]! > result) result = whole[node]!;
    for (let node = (high - 1 + leaves) >> 1; node >= 1; node >>= 1) if (whole[node]! > result) result = whole[node]!;
    return result;
  }
}

/** Does not support fixed offsets. If the footprint reaches `enough`, or on `shouldStop`, gives up with an infinite footprint. */
export function fitSkyline(
  instance: Instance,
  order: Int32Array,
  enough: number = Number.POSITIVE_INFINITY,
  shouldStop: () => boolean = () => false,
): Layout {
  const { count, size, alignment, spanStart, spanLow, spanHigh } = instance;
  const offsets = new Float64Array(count).fill(-1);
  const heights = new Heights(instance.sections);
  const rank = new Int32Array(count);
  order.forEach((buffer, at) => {
    rank[buffer] = at;
  });
  // A heap of ranks by a lower bound of the offset. An entry that has risen meanwhile is put back when it comes up.
  const heap = new Int32Array(count);
  const key = new Float64Array(count);
  for (let at = 0; at < count; at++) heap[at] = at;
  let waiting = count;
  const sinkTop = () => {
    const top = heap[0]!;
    const topKey = key[top]!;
    let hole = 0;
    for (;;) {
      let child = 2 * hole + 1;
      if (child >= waiting) break;
      const right = child + 1;
      if (right < waiting && isBefore(heap[right]!, heap[child]!, key)) child = right;
      const lower = heap[child]!;
      if (key[lower]! > topKey || (key[lower] === topKey && lower > top)) break;
      heap[hole] = lower;
      hole = child;
    }
    heap[hole] = top;
  };
  let footprint = 0;
  for (let steps = 0; waiting > 0; steps++) {
    if ((steps & 0xffff) === 0 && shouldStop()) return { offsets, footprint: Number.POSITIVE_INFINITY };
    const top = heap[0]!;
    const buffer = order[top]!;
    let offset = 0;
    for (let span = spanStart[buffer]!; span < spanStart[buffer + 1]!; span++) {
      const height = heights.over(spanLow[span]!, spanHigh[span]!);
      if (height > offset) offset = height;
    }
    offset = alignUp(offset, alignment[buffer]!);
    if (offset > key[top]!) {
      key[top] = offset;
      sinkTop();
      continue;
    }
    offsets[buffer] = offset;
    const end = offset + size[buffer]!;
    if (end >= enough) return { offsets, footprint: Number.POSITIVE_INFINITY };
    if (end > footprint) footprint = end;
    for (let span = spanStart[buffer]!; span < spanStart[buffer + 1]!; span++) heights.raise(spanLow[span]!, spanHigh[span]!, end);
    heap[0] = heap[--waiting]!;
    if (waiting > 0) sinkTop();
  }
  return { offsets, footprint };
}

function isBefore(a: number, b: number, key: Float64Array): boolean {
  return key[a]! < key[b]! || (key[a] === key[b] && a < b);
}
