// Figures of a selected range of events: what was allocated in it, what is left of that, how memory grew, and its peaks.
import { liveSize } from '../trace/summary.ts';
import type { Trace } from '../trace/trace.ts';
import type { History } from './history.ts';
import type { Lifetimes } from './lifetimes.ts';
import type { MinMax } from './min-max.ts';

export interface RangeFigures {
  /** First and last event. */
  readonly first: number;
  readonly last: number;
  /** Everything allocated in the range. */
  readonly allocatedBytes: number;
  readonly allocations: number;
  /** Of that, what is still live at its end. */
  readonly leftBytes: number;
  readonly left: number;
  /** Changes from before the first event to after the last one. */
  readonly liveGrowth: number;
  readonly reservedGrowth: number;
  readonly peakLive: number;
  readonly peakReserved: number;
}

interface Levels {
  readonly live: Float64Array;
  readonly liveRange: MinMax;
  readonly history: Pick<History, 'reserved' | 'reservedRange' | 'startReserved'>;
}

/** `left`: allocations of the range that are live after its last event. */
export function rangeFigures(
  trace: Trace,
  lifetimes: Lifetimes,
  { live, liveRange, history: { reserved, reservedRange, startReserved } }: Levels,
  { first, last, left }: { readonly first: number; readonly last: number; readonly left: readonly number[] },
): RangeFigures {
  const { requested } = trace.allocations;
  let allocatedBytes = 0;
  const [from, to] = [lifetimes.firstFrom(Math.max(0, first)), lifetimes.firstFrom(last + 1)];
  for (let index = from; index < to; index++) allocatedBytes += liveSize(requested[index]!);
  const growth = (levels: Float64Array, start: number) => levels[last]! - (first > 0 ? levels[first - 1]! : start);
  const peak = (range: MinMax) => {
    const found = { min: 0, max: 0 };
    range.range(Math.max(0, first), last + 1, found);
    return found.max;
  };
  return {
    first,
    last,
    allocatedBytes,
    allocations: to - from,
    leftBytes: left.reduce((sum, index) => sum + liveSize(requested[index]!), 0),
    left: left.length,
    liveGrowth: growth(live, liveAtStart(trace)),
    reservedGrowth: growth(reserved, startReserved),
    peakLive: peak(liveRange),
    peakReserved: peak(reservedRange),
  };
}

function liveAtStart({ allocations }: Trace): number {
  let bytes = 0;
  for (let index = 0; index < allocations.liveAtStart; index++) bytes += liveSize(allocations.requested[index]!);
  return bytes;
}
