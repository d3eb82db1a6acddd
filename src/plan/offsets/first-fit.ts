// Places buffers one by one, each into the lowest or the tightest hole between the buffers that live with it.
// Placed spans are kept by offset, for all time and for short windows, so that a short lifetime meets few others.
import type { Layout } from './buffers.ts';
import { alignUp, type Instance } from './instance.ts';

export type Fit = 'first' | 'best';

/** Number of windows. More windows make lookups shorter and insertions longer. */
const WINDOWS = 128;
/** Lifetimes longer than this many half windows go to a list of their own. */
const LONG_WINDOWS = 12;

/** Spans of placed buffers, by ascending offset. */
class PlacedSpans {
  count = 0;
  low: Int32Array;
  high: Int32Array;
  bottom: Float64Array;
  top: Float64Array;

  constructor(capacity = 32) {
    this.low = new Int32Array(capacity);
    this.high = new Int32Array(capacity);
    this.bottom = new Float64Array(capacity);
    this.top = new Float64Array(capacity);
  }

  insert(low: number, high: number, bottom: number, top: number): void {
    if (this.count === this.low.length) this.grow();
    let from = 0;
    let to = this.count;
    while (from < to) {
      const middle = (from + to) >> 1;
      if (this.bottom[middle]! < bottom) from = middle + 1;
      else to = middle;
    }
    for (const column of [this.low, this.high, this.bottom, this.top]) column.copyWithin(from + 1, from, this.count);
    this.low[from] = low;
    this.high[from] = high;
    this.bottom[from] = bottom;
    this.top[from] = top;
    this.count++;
  }

  private grow(): void {
    const capacity = this.low.length * 2;
    const wider = <Column extends Int32Array | Float64Array>(into: Column, from: Column) => {
      into.set(from);
      return into;
    };
    this.low = wider(new Int32Array(capacity), this.low);
    this.high = wider(new Int32Array(capacity), this.high);
    this.bottom = wider(new Float64Array(capacity), this.bottom);
    this.top = wider(new Float64Array(capacity), this.top);
  }
}

class Placed {
  private readonly all = new PlacedSpans(1024);
  private readonly long = new PlacedSpans();
  private readonly windows: PlacedSpans[];
  private readonly half: number;

  constructor(sections: number) {
    // Windows overlap by half, so a span of up to half a window always lies inside one of them.
    this.half = Math.max(1, Math.ceil(sections / WINDOWS / 2));
    this.windows = Array.from({ length: Math.ceil(sections / this.half) + 1 }, () => new PlacedSpans(4));
  }

  insert(low: number, high: number, bottom: number, top: number): void {
    this.all.insert(low, high, bottom, top);
    if (high - low > LONG_WINDOWS * this.half) {
      this.long.insert(low, high, bottom, top);
      return;
    }
    const last = Math.floor((high - 1) / this.half);
    for (let window = Math.max(0, Math.floor(low / this.half) - 1); window <= last; window++)
      this.windows[window]!.insert(low, high, bottom, top);
  }

  /** The lists that together hold all placed spans that can meet [low, high). */
  meeting(low: number, high: number): readonly [PlacedSpans, PlacedSpans | undefined] {
    if (high - low > this.half) return [this.all, undefined];
    return [this.windows[Math.floor(low / this.half)]!, this.long];
  }
}

/** Places all buffers in the given order. If the footprint reaches `enough`, gives up and returns an infinite one. */
export function fitInOrder(instance: Instance, order: Int32Array, fit: Fit, enough: number = Number.POSITIVE_INFINITY): Layout {
  const { count, size, fixed, spanStart, spanLow, spanHigh } = instance;
  const offsets = new Float64Array(count).fill(-1);
  const placed = new Placed(instance.sections);
  let footprint = 0;
  const put = (buffer: number, offset: number) => {
    const top = offset + size[buffer]!;
    offsets[buffer] = offset;
    if (top > footprint) footprint = top;
    for (let span = spanStart[buffer]!; span < spanStart[buffer + 1]!; span++) placed.insert(spanLow[span]!, spanHigh[span]!, offset, top);
  };
  if (instance.hasFixed) for (let buffer = 0; buffer < count; buffer++) if (fixed[buffer]! >= 0) put(buffer, fixed[buffer]!);
  for (const buffer of order) {
    if (fixed[buffer]! >= 0) continue;
    const at = holeFor(instance, placed, buffer, fit);
    if (at + size[buffer]! >= enough) return { offsets, footprint: Number.POSITIVE_INFINITY };
    put(buffer, at);
  }
  return { offsets, footprint };
}

/** The offset of the lowest (first fit) or tightest (best fit) hole for a buffer, or the lowest offset above all it meets. */
function holeFor(instance: Instance, placed: Placed, buffer: number, fit: Fit): number {
  const size = instance.size[buffer]!;
  const alignment = instance.alignment[buffer]!;
  const firstSpan = instance.spanStart[buffer]!;
  const lastSpan = instance.spanStart[buffer + 1]! - 1;
  const low = instance.spanLow[firstSpan]!;
  const high = instance.spanHigh[lastSpan]!;
  const hasGaps = firstSpan < lastSpan;
  const [near, long] = placed.meeting(low, high);
  const nearCount = near.count;
  const longCount = long?.count ?? 0;
  let top = 0;
  let best = -1;
  let bestRoom = Number.POSITIVE_INFINITY;
  for (let a = 0, b = 0; a < nearCount || b < longCount; ) {
    let from: PlacedSpans;
    let at: number;
    if (b >= longCount || (a < nearCount && near.bottom[a]! <= long!.bottom[b]!)) {
      from = near;
      at = a++;
    } else {
      from = long!;
      at = b++;
    }
    if (from.low[at]! >= high || from.high[at]! <= low) continue;
    if (hasGaps && !meetsAnySpan(instance, firstSpan, lastSpan, from.low[at]!, from.high[at]!)) continue;
    const bottom = from.bottom[at]!;
    if (bottom - top >= size) {
      const offset = alignUp(top, alignment);
      const room = bottom - offset - size;
      if (room >= 0) {
        if (fit === 'first') return offset;
        if (room < bestRoom) {
          bestRoom = room;
          best = offset;
        }
      }
    }
    if (from.top[at]! > top) top = from.top[at]!;
  }
  return best >= 0 ? best : alignUp(top, alignment);
}

function meetsAnySpan({ spanLow, spanHigh }: Instance, firstSpan: number, lastSpan: number, low: number, high: number): boolean {
  for (let span = firstSpan; span <= lastSpan; span++) if (low < spanHigh[span]! && high > spanLow[span]!) return true;
  return false;
}
