// Moments at which the report looks at the recorded allocator: the last failure and the peak of reserved memory.
// Guessing them saves a second reconstruction. A wrong guess costs only that.
import type { Allocator, CensusGroup } from '../allocator/allocator.ts';
import { liveSize } from '../trace/summary.ts';
import { EventKind, type Segment, type Trace } from '../trace/trace.ts';
import { reservedAtStart } from './limits.ts';

/** The allocator after one event. */
export interface AllocatorState {
  readonly groups: readonly CensusGroup[];
  /** Segments with their blocks, for allocators that have them. Only after a failed request. */
  readonly segments: readonly Segment[];
}

/** Peaks differ by what blocks have beyond their requests, so several moments may be the peak. */
const MOST_PEAKS = 16;

export function stateOf(allocator: Allocator & { layout?(): Segment[] }, hasFailed: boolean): AllocatorState {
  return { groups: allocator.census(), segments: hasFailed ? (allocator.layout?.() ?? []) : [] };
}

/** Requests at which the report will probably look, ascending. */
export function likelyMoments(trace: Trace): number[] {
  const oom = lastOomOf(trace);
  return [...new Set([...likelyPeaks(trace), ...(oom < 0 ? [] : [oom])])].sort((a, b) => a - b);
}

/** The last out-of-memory event, or -1. An earlier one did not end the job. */
export function lastOomOf({ events }: Trace): number {
  return events.kind.subarray(0, events.count).lastIndexOf(EventKind.Oom);
}

/** The served requests with the most live memory among those with the most reserved memory. Of equals, the first. */
function likelyPeaks(trace: Trace): number[] {
  if (trace.segmentsUnknown) return [];
  let mostReserved = 0;
  eachRequest(trace, (_event, reserved) => {
    mostReserved = Math.max(mostReserved, reserved);
  });
  const best: { readonly event: number; readonly live: number }[] = [];
  eachRequest(trace, (event, reserved, live) => {
    if (reserved < mostReserved || (best.length === MOST_PEAKS && live <= best.at(-1)!.live)) return;
    let place = best.length;
    while (place > 0 && best[place - 1]!.live < live) place--;
    best.splice(place, 0, { event, live });
    best.length = Math.min(best.length, MOST_PEAKS);
  });
  return best.map(({ event }) => event);
}

/** Reserved and live bytes after each served request, as recorded. */
function eachRequest(trace: Trace, visit: (event: number, reserved: number, live: number) => void): void {
  const { events, allocations, allocationOf } = trace;
  let reserved = reservedAtStart(trace);
  let live = 0;
  for (let index = 0; index < allocations.liveAtStart; index++) live += liveSize(allocations.requested[index]!);
  for (let event = 0; event < events.count; event++) {
    switch (events.kind[event]) {
      case EventKind.SegmentAlloc:
      case EventKind.SegmentMap:
        reserved += events.size[event]!;
        break;
      case EventKind.SegmentFree:
      case EventKind.SegmentUnmap:
        reserved -= events.size[event]!;
        break;
      case EventKind.FreeRequested:
        if (allocationOf[event]! >= 0) live -= liveSize(allocations.requested[allocationOf[event]!]!);
        break;
      case EventKind.Alloc:
        live += liveSize(events.size[event]!);
        visit(event, reserved, live);
        break;
    }
  }
}
