// The input and output of an offsets planner: buffers with a size and a lifetime, and their layout in an arena.
// A lifetime is a set of spans. That covers both gaps (swapped out) and a wrap around the end of a step.
//
// Words:
//   buffer     bytes that need one contiguous range of offsets while they live
//   span       half-open time [from, to) in which a buffer holds its range
//   offset     start of the range, from the bottom of the arena
//   footprint  highest end of any range: the size of the arena
import { InputError } from '../../base/errors.ts';

export interface Span {
  readonly from: number;
  readonly to: number;
}

export interface Buffer {
  readonly id: string;
  readonly size: number;
  /** Ascending, not empty and not touching. */
  readonly spans: readonly Span[];
  /** The offset must be a multiple of this. 1: no alignment. */
  readonly alignment: number;
  /** If set, the planner must use this offset. */
  readonly fixedOffset?: number | undefined;
}

/** One offset per buffer, in the order of the buffers. */
export interface Layout {
  readonly offsets: Float64Array;
  readonly footprint: number;
}

/** Spans of `[from, to)` on a circle of length `period`. `to` may pass the end by less than one turn. */
export function spansOnCircle(from: number, to: number, period: number): Span[] {
  if (to - from >= period) return [{ from: 0, to: period }];
  const start = ((from % period) + period) % period;
  const end = start + (to - from);
  if (end <= period) return [{ from: start, to: end }];
  return [
    { from: 0, to: end - period },
    { from: start, to: period },
  ];
}

/** Sorts and joins spans that overlap or touch, and drops empty ones. */
export function normalizeSpans(spans: readonly Span[]): Span[] {
  const sorted = spans.filter((span) => span.to > span.from).sort((a, b) => a.from - b.from);
  const joined: { from: number; to: number }[] = [];
  for (const span of sorted) {
    const last = joined.at(-1);
    if (last && span.from <= last.to) last.to = Math.max(last.to, span.to);
    else joined.push({ from: span.from, to: span.to });
  }
  return joined;
}

/** Removes the times in `gaps` from `spans`, in one pass over both: a file may list any number of gaps. */
export function withoutGaps(spans: readonly Span[], gaps: readonly Span[]): Span[] {
  const left: Span[] = [];
  const cuts = normalizeSpans(gaps);
  let next = 0;
  for (const { from, to } of normalizeSpans(spans)) {
    let since = from;
    while (next < cuts.length && cuts[next]!.to <= from) next++;
    for (let at = next; at < cuts.length && cuts[at]!.from < to; at++) {
      if (cuts[at]!.from > since) left.push({ from: since, to: cuts[at]!.from });
      since = cuts[at]!.to;
    }
    if (since < to) left.push({ from: since, to });
  }
  return left;
}

/** Throws if no planner can handle the buffers. Sizes and offsets must be exact in a double. */
export function checkBuffers(buffers: readonly Buffer[]): void {
  let total = 0;
  for (const buffer of buffers) {
    const { id, size, spans, alignment, fixedOffset } = buffer;
    if (!Number.isSafeInteger(size) || size <= 0)
      throw new InputError(`buffer ${id} has size ${size}; it must be a whole number of bytes above 0`);
    if (!Number.isSafeInteger(alignment) || alignment <= 0)
      throw new InputError(`buffer ${id} has alignment ${alignment}; it must be a whole number above 0`);
    if (spans.length === 0) throw new InputError(`buffer ${id} has no lifetime; give it a span of at least one moment`);
    let last = Number.NEGATIVE_INFINITY;
    for (const span of spans) {
      if (!Number.isFinite(span.from) || !Number.isFinite(span.to) || span.to <= span.from || span.from < last) {
        throw new InputError(`buffer ${id} lives from ${span.from} to ${span.to}; the end must be after the start`);
      }
      last = span.to;
    }
    if (fixedOffset !== undefined && (!Number.isSafeInteger(fixedOffset) || fixedOffset < 0)) {
      throw new InputError(`buffer ${id} has the fixed offset ${fixedOffset}; it must be a whole number of bytes, 0 or more`);
    }
    total += size + alignment;
  }
  if (total > Number.MAX_SAFE_INTEGER) throw new InputError('the sizes of the buffers add up to more than any memory holds');
}
