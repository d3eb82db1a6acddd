// Builds a Trace from what a reader found: links allocations to their frees, rebuilds the state before the first event
// and fills in pools. Warnings say what the recording lacks.
import { formatBytes } from '../base/bytes.ts';
import { formatCount, formatTimes } from '../base/counts.ts';
import { InputError } from '../base/errors.ts';
import { linkAllocations } from './links.ts';
import { fillPools, rebuildStartSegments, segmentHolding } from './start-state.ts';
import { recordedEngine } from './summary.ts';
import type { Symbols } from './symbols.ts';
import {
  type Annotation,
  type EventColumns,
  EventKind,
  type HostMemory,
  type PoolId,
  type RecordedLimits,
  type Segment,
  type SettingValue,
  type Trace,
  type Warning,
} from './trace.ts';

/** The warning about a recording in which nobody asks for memory. */
export const NO_DEMAND = 'no-demand';

/** PyTorch has about 100 streams on a GPU. Allocators keep lists for each stream and pool, so a damaged file must not have many. */
const MAX_STREAMS = 2048;
const MAX_POOLS = 4096;

/** What a reader found for one GPU. */
export interface TraceParts {
  readonly device: number;
  readonly events: EventColumns;
  /** Segments before the first event, with blocks; undefined if the format does not record them. Then they are rebuilt. */
  readonly startSegments: readonly Segment[] | undefined;
  /** Segments at the end; undefined if the format does not record them. */
  readonly endSegments: readonly Segment[] | undefined;
  readonly streams: readonly number[];
  readonly pools: readonly PoolId[];
  readonly symbols: Symbols;
  readonly settings: ReadonlyMap<string, SettingValue>;
  readonly limits: RecordedLimits;
  readonly annotations: readonly Annotation[];
  readonly hostMemory?: HostMemory | undefined;
  /** Warnings of the reader (a truncated file, unknown actions). */
  readonly warnings: readonly Warning[];
}

export function assembleTrace(parts: TraceParts): Trace {
  requireFew(parts.streams.length, MAX_STREAMS, 'streams');
  requireFew(parts.pools.length, MAX_POOLS, 'memory pools');
  const counts = countKinds(parts.events);
  fillPools(parts.events, parts.endSegments ?? []);
  const startSegments = parts.startSegments ?? rebuildStartSegments(parts.events, parts.endSegments ?? []);
  const links = linkAllocations({
    events: parts.events,
    allocCount: counts[EventKind.Alloc]!,
    completionsRecorded: counts[EventKind.FreeCompleted]! > 0,
    startBlocksFrom: parts.startSegments ?? parts.endSegments ?? [],
  });
  return {
    device: parts.device,
    events: parts.events,
    allocationOf: links.allocationOf,
    allocations: links.allocations,
    impliedFrees: links.impliedFrees,
    startSegments: startSegments.map((segment) => ({ ...segment, blocks: [] })),
    endSegments: parts.endSegments,
    streams: parts.streams,
    pools: parts.pools,
    symbols: parts.symbols,
    settings: parts.settings,
    limits: parts.limits,
    annotations: parts.annotations,
    ...(parts.hostMemory && { hostMemory: parts.hostMemory }),
    warnings: [...parts.warnings, ...findGaps(parts, counts, links, startSegments)],
  };
}

function requireFew(count: number, most: number, what: string): void {
  if (count > most) throw new InputError(`the recording has ${count} ${what}, and no job has more than ${most}: the file is damaged`);
}

function countKinds(events: EventColumns): Int32Array {
  const counts = new Int32Array(256);
  for (let event = 0; event < events.count; event++) counts[events.kind[event]!]!++;
  return counts;
}

function findGaps(
  parts: TraceParts,
  counts: Int32Array,
  links: ReturnType<typeof linkAllocations>,
  startSegments: readonly Segment[],
): Warning[] {
  const warnings: Warning[] = [];
  const warn = (code: string, message: string) => warnings.push({ code, message });
  const { allocations } = links;
  const allocs = counts[EventKind.Alloc]!;
  const frees = counts[EventKind.FreeRequested]! + counts[EventKind.FreeCompleted]!;

  if (parts.settings.get('trace_alloc_overflowed') === true) {
    const entries = parts.settings.get('trace_alloc_max_entries');
    warn(
      'overflow',
      `the recording's ring buffer overflowed${typeof entries === 'number' ? ` at ${entries} entries` : ''}: its beginning is lost; record again with a larger max_entries`,
    );
  }
  if (parts.events.count > 0 && allocations.liveAtStart > 0) {
    const isOne = allocations.liveAtStart === 1;
    let bytes = 0;
    for (let index = 0; index < allocations.liveAtStart; index++) bytes += allocations.requested[index]!;
    warn(
      'late-start',
      `${formatTimes(allocations.liveAtStart, 'allocation', 'allocations')} (${formatBytes(bytes)}) ${isOne ? 'is' : 'are'} older than the first event, because recording began late or its ring buffer overflowed (max_entries); ${isOne ? 'its place is' : 'their places are'} rebuilt from the segments`,
    );
  }
  if (allocs > 0 && frees === 0 && links.impliedFrees.size > 0) {
    warn(
      'frees-skipped',
      `the recording has no frees (skip_actions?), so live memory is overstated: each free is assumed to happen when its address is reused; record without skip_actions`,
    );
  } else if (links.impliedFrees.size > 0) {
    warn(
      'missing-frees',
      `${formatTimes(links.impliedFrees.size, 'free is', 'frees are')} missing from the recording; each is assumed to happen when its address is reused`,
    );
  }
  // Weir's engine records neither: it queries events itself, and it has no segments.
  const onEngine = recordedEngine(parts) !== undefined;
  if (counts[EventKind.FreeRequested]! > 0 && counts[EventKind.FreeCompleted] === 0 && !onEngine) {
    warn('completions-skipped', 'the recording has no free_completed events (skip_actions?): every free is assumed to complete at once');
  }
  const segmentEvents = [EventKind.SegmentAlloc, EventKind.SegmentFree, EventKind.SegmentMap, EventKind.SegmentUnmap];
  if (allocs > 0 && !onEngine && segmentEvents.every((kind) => counts[kind] === 0) && hasStrayAlloc(parts.events, startSegments)) {
    warn(
      'segments-skipped',
      'the recording has no segment events (skip_actions, or made from a profile), so its reserved memory is unknown; what each allocator needs is still exact',
    );
  }
  if (allocations.count === 0 && counts[EventKind.Oom] === 0) warn(NO_DEMAND, noDemand(parts, startSegments));
  if (links.contradictions > 0) {
    const words =
      links.contradictions === 1
        ? 'event contradicts another (it frees memory that was freed before) and was'
        : 'events contradict others (they free memory that was freed before) and were';
    warn('contradictions', `${formatCount(links.contradictions)} ${words} ignored`);
  }
  return warnings;
}

/** What a recording without any request does hold. */
function noDemand({ events, endSegments }: TraceParts, startSegments: readonly Segment[]): string {
  const segments = endSegments && endSegments.length > 0 ? endSegments : startSegments;
  const bytes = segments.reduce((sum, segment) => sum + segment.size, 0);
  const held = [
    ...(events.count === 0 ? [] : [formatTimes(events.count, 'event', 'events')]),
    ...(segments.length === 0
      ? []
      : [`${formatTimes(segments.length, 'segment', 'segments')} (${formatBytes(bytes)}) without a live block`]),
  ];
  const holds = held.length === 0 ? 'neither events nor segments' : `${held.join(' and ')}, but no request for memory`;
  return `the recording holds ${holds}: there is nothing to replay, compare or plan`;
}

/** Whether an allocation lies outside all segments that existed from the start. */
function hasStrayAlloc(events: EventColumns, sortedSegments: readonly Segment[]): boolean {
  for (let event = 0; event < events.count; event++) {
    if (events.kind[event] === EventKind.Alloc && segmentHolding(sortedSegments, events.address[event]!) < 0) return true;
  }
  return false;
}
