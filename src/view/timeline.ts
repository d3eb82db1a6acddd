// The timeline at the resolution of the screen: per column, minimum and maximum of allocated, reserved and live bytes.
import { liveSize } from '../trace/summary.ts';
import { EventKind, type Trace } from '../trace/trace.ts';
import type { AxisKind, Clock } from './clock.ts';
import type { MinMax } from './min-max.ts';

const SERIES = ['allocated', 'reserved', 'live'] as const;
export type Series = (typeof SERIES)[number];

export interface TimelineColumns {
  readonly from: number;
  readonly to: number;
  readonly columns: number;
  /** Per series and column. A column without events repeats the value before it. */
  readonly low: Readonly<Record<Series, Float64Array>>;
  readonly high: Readonly<Record<Series, Float64Array>>;
}

export function timelineColumns(
  clock: Clock,
  axis: AxisKind,
  from: number,
  to: number,
  columns: number,
  ranges: Readonly<Record<Series, MinMax>>,
): TimelineColumns {
  const low = { allocated: new Float64Array(columns), reserved: new Float64Array(columns), live: new Float64Array(columns) };
  const high = { allocated: new Float64Array(columns), reserved: new Float64Array(columns), live: new Float64Array(columns) };
  const found = { min: 0, max: 0 };
  const width = (to - from) / columns;
  let first = clock.firstFrom(axis, from);
  for (let column = 0; column < columns; column++) {
    const end = clock.firstFrom(axis, from + (column + 1) * width);
    // The value at the start of the column counts too; it comes from the event before.
    const begin = Math.max(0, Math.min(first - 1, clock.count - 1));
    const until = Math.max(begin + 1, end);
    if (clock.count > 0) {
      for (const series of SERIES) {
        ranges[series].range(begin, until, found);
        low[series][column] = found.min;
        high[series][column] = found.max;
      }
    }
    first = end;
  }
  return { from, to, columns, low, high };
}

/** Live bytes after each event, the floor for any allocator. */
export function liveBytes(trace: Trace): Float64Array {
  const { events, allocations, allocationOf } = trace;
  const live = new Float64Array(events.count);
  let bytes = 0;
  const release = (allocation: number) => {
    bytes -= liveSize(allocations.requested[allocation]!);
  };
  for (let index = 0; index < allocations.liveAtStart; index++) bytes += liveSize(allocations.requested[index]!);
  for (let event = 0; event < events.count; event++) {
    const allocation = allocationOf[event]!;
    switch (events.kind[event]) {
      case EventKind.Alloc: {
        const displaced = trace.impliedFrees.size > 0 ? trace.impliedFrees.get(event) : undefined;
        if (displaced !== undefined && allocations.freeRequestedEvent[displaced] === -1) release(displaced);
        bytes += liveSize(events.size[event]!);
        break;
      }
      case EventKind.FreeRequested:
        if (allocation >= 0) release(allocation);
        break;
      case EventKind.FreeCompleted:
        if (allocation >= 0 && allocations.freeRequestedEvent[allocation] === -1) release(allocation);
        break;
    }
    live[event] = bytes;
  }
  return live;
}
