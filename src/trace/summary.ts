// What a recording says before any allocator is modelled: memory requested, live and reserved.
import { ENGINE_ALLOCATORS, type EngineAllocatorName } from '../abi/allocators.ts';
import { BLOCK_UNIT } from '../abi/settings.ts';
import { roundUp } from '../base/bytes.ts';
import { EventKind, type Trace } from './trace.ts';

/** Live memory is counted in multiples of this: no allocator uses smaller blocks. */
export const LIVE_UNIT: number = BLOCK_UNIT;

export interface TraceSummary {
  readonly events: number;
  readonly allocs: number;
  readonly ooms: number;
  readonly durationUs: number;
  /** Peak of bytes requested and not freed. */
  readonly peakRequested: number;
  /** Peak live: as peakRequested, with each request rounded up to 512 B. No allocator needs less without swapping. */
  readonly peakLive: number;
  readonly peakLiveEvent: number;
  /** Peak live if failed requests had been served too. */
  readonly peakDemand: number;
  /** Live bytes of allocations older than the first event. */
  readonly liveAtStart: number;
  /** Peak of memory held from the driver, as recorded; undefined if the recording has no segments. */
  readonly recordedPeakReserved: number | undefined;
  /** Weir's engine if the settings name it. Else `expandable` or `pytorch`, from the segments or the settings. */
  readonly recordedAllocator: 'pytorch' | 'expandable' | EngineAllocatorName;
}

/** The preset of Weir's engine that the run used; undefined if it ran on PyTorch's allocator. */
export function recordedEngine({ settings }: Pick<Trace, 'settings'>): EngineAllocatorName | undefined {
  const name = settings.get('allocator');
  return ENGINE_ALLOCATORS.find((engine) => engine === name);
}

export function summarizeTrace(trace: Trace): TraceSummary {
  const { events, allocations, allocationOf } = trace;
  let requested = 0;
  let live = 0;
  for (let index = 0; index < allocations.liveAtStart; index++) {
    requested += allocations.requested[index]!;
    live += liveSize(allocations.requested[index]!);
  }
  const liveAtStart = live;
  let peakRequested = requested;
  let peakLive = live;
  let peakLiveEvent = -1;
  let peakDemand = live;
  let allocs = 0;
  let ooms = 0;

  const release = (allocation: number) => {
    requested -= allocations.requested[allocation]!;
    live -= liveSize(allocations.requested[allocation]!);
  };
  for (let event = 0; event < events.count; event++) {
    const allocation = allocationOf[event]!;
    const size = events.size[event]!;
    switch (events.kind[event]) {
      case EventKind.Alloc: {
        allocs++;
        const displaced = trace.impliedFrees.get(event);
        if (displaced !== undefined && allocations.freeRequestedEvent[displaced] === -1) release(displaced);
        requested += size;
        live += liveSize(size);
        if (requested > peakRequested) peakRequested = requested;
        if (live > peakLive) {
          peakLive = live;
          peakLiveEvent = event;
        }
        break;
      }
      case EventKind.FreeRequested:
        if (allocation >= 0) release(allocation);
        break;
      case EventKind.FreeCompleted:
        if (allocation >= 0 && allocations.freeRequestedEvent[allocation] === -1) release(allocation);
        break;
      case EventKind.Oom:
        ooms++;
        peakDemand = Math.max(peakDemand, live + liveSize(size));
        break;
    }
  }
  const { peakReserved, isExpandable } = summarizeSegments(trace);
  return {
    events: events.count,
    allocs,
    ooms,
    durationUs: events.count > 0 ? Math.max(0, events.timeUs[events.count - 1]! - events.timeUs[0]!) : 0,
    peakRequested,
    peakLive,
    peakLiveEvent,
    peakDemand: Math.max(peakDemand, peakLive),
    liveAtStart,
    recordedPeakReserved: peakReserved,
    recordedAllocator: recordedEngine(trace) ?? (isExpandable ? 'expandable' : 'pytorch'),
  };
}

function summarizeSegments({ events, startSegments, settings, segmentsUnknown }: Trace): {
  peakReserved: number | undefined;
  isExpandable: boolean;
} {
  let reserved = startSegments.reduce((sum, segment) => sum + segment.size, 0);
  let peakReserved = reserved;
  let segmentEvents = 0;
  let maps = 0;
  for (let event = 0; event < events.count; event++) {
    const size = events.size[event]!;
    switch (events.kind[event]) {
      case EventKind.SegmentMap:
        maps++;
        segmentEvents++;
        reserved += size;
        break;
      case EventKind.SegmentAlloc:
        segmentEvents++;
        reserved += size;
        break;
      case EventKind.SegmentFree:
      case EventKind.SegmentUnmap:
        segmentEvents++;
        reserved -= size;
        break;
      case EventKind.Reserved:
        segmentEvents++;
        reserved = size;
        break;
    }
    if (reserved > peakReserved) peakReserved = reserved;
  }
  const isKnown = !segmentsUnknown && (segmentEvents > 0 || startSegments.length > 0);
  const startedExpandable = startSegments.some((segment) => segment.expandable) || settings.get('expandable_segments') === true;
  return { peakReserved: isKnown ? peakReserved : undefined, isExpandable: maps > 0 || (segmentEvents === 0 && startedExpandable) };
}

export function liveSize(requested: number): number {
  return roundUp(Math.max(1, requested), LIVE_UNIT);
}
