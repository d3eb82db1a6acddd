// Live memory stacked by meaning, at the resolution of the screen. Each column shows one instant, the one at which most memory
// is live in it, so that its bands add up to what is live then. Large tensors are listed one by one.
import { type Ends, endsOf } from '../trace/ends.ts';
import { liveSize } from '../trace/summary.ts';
import type { Trace } from '../trace/trace.ts';
import type { BandSums } from './band-sums.ts';
import type { AxisKind, Clock } from './clock.ts';
import type { Lifetimes } from './lifetimes.ts';
import type { MinMax } from './min-max.ts';

/** How live memory is divided into bands. */
export const STACK_MODES = ['category', 'site', 'none'] as const;
export type StackMode = (typeof STACK_MODES)[number];

export interface StackWindow {
  readonly axis: AxisKind;
  readonly from: number;
  readonly to: number;
  readonly columns: number;
  /** Tensors of at least so many bytes are listed. */
  readonly least: number;
}

export interface StackColumns extends StackWindow {
  readonly bands: number;
  /** The event after which each column is shown; ascending. */
  readonly instant: Int32Array;
  /** Bytes by column and band: those of column 0, then those of column 1. */
  readonly bytes: Float64Array;
  /** Listed tensors in order of band and age, the oldest first: allocation, band, bytes, and the columns that show it. */
  readonly tensor: Int32Array;
  readonly tensorBand: Uint8Array;
  readonly tensorBytes: Float64Array;
  readonly tensorFrom: Int32Array;
  readonly tensorTo: Int32Array;
}

/** More have no room on a screen. Those that cover the most of it are kept. */
const MOST_TENSORS = 12_000;

export interface StackInput {
  readonly trace: Trace;
  readonly clock: Clock;
  readonly lifetimes: Lifetimes;
  readonly live: MinMax;
  readonly bandOf: Uint8Array;
  readonly sums: BandSums;
}

export function stackColumns(input: StackInput, window: StackWindow): StackColumns {
  const { clock, sums } = input;
  const { axis, from, to, columns } = window;
  const instant = new Int32Array(columns);
  const bytes = new Float64Array(columns * sums.bands);
  const width = (to - from) / columns;
  let first = clock.firstFrom(axis, from);
  for (let column = 0; column < columns; column++) {
    const end = clock.firstFrom(axis, from + (column + 1) * width);
    // As in the plain timeline, the value at the start of the column counts too.
    const begin = Math.max(0, Math.min(first - 1, clock.count - 1));
    instant[column] = clock.count > 0 ? input.live.highestAt(begin, Math.max(begin + 1, end)) : -1;
    sums.after(instant[column]!, bytes, column * sums.bands);
    first = end;
  }
  return { ...window, bands: sums.bands, instant, bytes, ...listTensors(input, instant, window.least) };
}

type Listed = Pick<StackColumns, 'tensor' | 'tensorBand' | 'tensorBytes' | 'tensorFrom' | 'tensorTo'>;

function listTensors({ trace, lifetimes, bandOf }: StackInput, instant: Int32Array, least: number): Listed {
  const ends = endsOf(trace);
  const { requested } = trace.allocations;
  let found: { allocation: number; from: number; to: number }[] = [];
  lifetimes.each(instant[0]! - 1, instant.at(-1)! + 1, (allocation) => {
    if (liveSize(requested[allocation]!) < least) return;
    const from = firstColumn(instant, lifetimes.start[allocation]!);
    const to = lastColumn(instant, ends, allocation);
    if (to > from) found.push({ allocation, from, to });
  });
  if (found.length > MOST_TENSORS) {
    const area = ({ allocation, from, to }: (typeof found)[number]) => requested[allocation]! * (to - from);
    found = found.sort((a, b) => area(b) - area(a)).slice(0, MOST_TENSORS);
  }
  found.sort((a, b) => bandOf[a.allocation]! - bandOf[b.allocation]! || a.allocation - b.allocation);
  return {
    tensor: Int32Array.from(found, ({ allocation }) => allocation),
    tensorBand: Uint8Array.from(found, ({ allocation }) => bandOf[allocation]!),
    tensorBytes: Float64Array.from(found, ({ allocation }) => liveSize(requested[allocation]!)),
    tensorFrom: Int32Array.from(found, ({ from }) => from),
    tensorTo: Int32Array.from(found, ({ to }) => to),
  };
}

function lastColumn(instant: Int32Array, ends: Ends, allocation: number): number {
  const end = ends.of[allocation]!;
  return end < 0 ? instant.length : firstColumn(instant, end);
}

/** The first column that shows `event` or a later one. */
function firstColumn(instant: Int32Array, event: number): number {
  let low = 0;
  let high = instant.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (instant[middle]! < event) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** What lies at a height of a column. */
export interface StackHit {
  readonly event: number;
  /** -1: above all bands. */
  readonly band: number;
  /** -1: tensors that are too small to be listed. */
  readonly allocation: number;
}

export function stackHit(stack: StackColumns, column: number, bytes: number): StackHit {
  const event = stack.instant[column]!;
  let level = 0;
  let tensor = 0;
  for (let band = 0; band < stack.bands; band++) {
    const top = level + stack.bytes[column * stack.bands + band]!;
    if (bytes >= 0 && bytes < top) {
      while (tensor < stack.tensor.length && stack.tensorBand[tensor]! < band) tensor++;
      for (; tensor < stack.tensor.length && stack.tensorBand[tensor] === band; tensor++) {
        if (stack.tensorFrom[tensor]! > column || stack.tensorTo[tensor]! <= column) continue;
        level += stack.tensorBytes[tensor]!;
        if (bytes < level) return { event, band, allocation: stack.tensor[tensor]! };
      }
      return { event, band, allocation: -1 };
    }
    level = top;
  }
  return { event, band: -1, allocation: -1 };
}
