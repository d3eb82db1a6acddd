// Builds a Trace from what a reader found: links allocations to their frees, rebuilds the state before the first event
// and fills in pools. Warnings say what the recording lacks.
import { formatBytes } from '../base/bytes.ts';
import type { ColumnMemory } from '../base/columns.ts';
import { formatCount, formatTimes } from '../base/counts.ts';
import { InputError } from '../base/errors.ts';
import { type Links, linkAllocations } from './links.ts';
import { fillPools, rebuildStartSegments, type StartSegments, segmentHolding } from './start-state.ts';
import { recordedEngine } from './summary.ts';
import type { Symbols } from './symbols.ts';
import {
  type Annotation,
  type EventColumns,
  EventKind,
  type HostMemory,
  type OtherMemory,
  type PoolId,
  type RecordedLimits,
  type Segment,
  type SettingValue,
  type Trace,
  type Warning,
} from './trace.ts';

/** The warning about a recording in which nobody asks for memory. */
export const NO_DEMAND = 'no-demand';

/** Warnings about kinds of events that the recording leaves out, such as by `skip_actions`. */
const LEFT_OUT: ReadonlySet<string> = new Set([
  'allocs-skipped',
  'frees-skipped',
  'free-requests-skipped',
  'completions-skipped',
  'segments-skipped',
]);

/** Whether whole kinds of events are missing. Then no model can repeat the recording. */
export function leavesOutEvents(warnings: readonly Warning[]): boolean {
  return warnings.some(({ code }) => LEFT_OUT.has(code));
}

/** PyTorch has about 100 streams on a GPU. Allocators keep lists for each stream and pool, so a damaged file must not have many. */
const MAX_STREAMS = 2048;
const MAX_POOLS = 4096;

/** What a reader found for one GPU. */
export interface TraceParts {
  readonly device: number;
  readonly events: EventColumns;
  /** Segments before the first event, with blocks; undefined if the format does not record them. Then they are rebuilt. */
  readonly startSegments: readonly Segment[] | undefined;
  /** Those are all blocks that were live, with their stacks. */
  readonly startIsWhole?: boolean | undefined;
  /** Segments at the end; undefined if the format does not record them. */
  readonly endSegments: readonly Segment[] | undefined;
  readonly streams: readonly number[];
  readonly pools: readonly PoolId[];
  readonly symbols: Symbols;
  readonly settings: ReadonlyMap<string, SettingValue>;
  readonly limits: RecordedLimits;
  readonly annotations: readonly Annotation[];
  readonly hostMemory?: HostMemory | undefined;
  readonly otherMemory?: OtherMemory | undefined;
  /** Warnings of the reader (a truncated file, unknown actions). */
  readonly warnings: readonly Warning[];
  /** Where the columns of the allocations go; by default into memory of this thread. */
  readonly memory?: ColumnMemory | undefined;
}

export function assembleTrace(found: TraceParts): Trace {
  const parts: TraceParts = { ...found, startSegments: withBytes(found.startSegments), endSegments: withBytes(found.endSegments) };
  requireFew(parts.streams.length, MAX_STREAMS, 'streams');
  requireFew(parts.pools.length, MAX_POOLS, 'memory pools');
  const counts = countKinds(parts.events);
  fillPools(parts.events, parts.endSegments ?? []);
  const rebuilt = parts.startSegments ? undefined : rebuildStartSegments(parts.events, parts.endSegments ?? []);
  const link = (ignoresFrees: boolean) =>
    linkAllocations({
      events: parts.events,
      allocCount: counts[EventKind.Alloc]!,
      completionsRecorded: counts[EventKind.FreeCompleted]! > 0,
      ignoresFrees,
      startBlocksFrom: parts.startSegments ?? parts.endSegments ?? [],
      startIsWhole: parts.startIsWhole,
      memory: parts.memory,
    });
  let links = link(false);
  const allocsSkipped = skipsAllocs(counts, links);
  if (allocsSkipped) links = link(true);
  const segmentsSkipped = skipsSegments(parts, counts, rebuilt);
  // Memory that seems to be given back twice would be held twice before the first event.
  const startSegments = parts.startSegments ?? (rebuilt!.missingGrowths > 0 ? [] : withBytes(rebuilt!.segments));
  return {
    device: parts.device,
    events: parts.events,
    allocationOf: links.allocationOf,
    allocations: links.allocations,
    impliedFrees: links.impliedFrees,
    startSegments: startSegments.map((segment) => ({ ...segment, blocks: [] })),
    ...(parts.startIsWhole && { startIsWhole: true }),
    ...(segmentsSkipped && { segmentsUnknown: true }),
    endSegments: parts.endSegments,
    streams: parts.streams,
    pools: parts.pools,
    symbols: parts.symbols,
    settings: parts.settings,
    limits: parts.limits,
    annotations: parts.annotations,
    ...(parts.hostMemory && { hostMemory: parts.hostMemory }),
    ...(parts.otherMemory && { otherMemory: parts.otherMemory }),
    warnings: [...parts.warnings, ...findGaps(parts, counts, links, { startSegments, allocsSkipped, segmentsSkipped })],
  };
}

/** A damaged recording may have segments without bytes. No allocator has them. */
function withBytes<Segments extends readonly Segment[] | undefined>(segments: Segments): Segments | Segment[] {
  return segments?.some(({ size }) => size === 0) ? segments.filter(({ size }) => size > 0) : segments;
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
  links: Links,
  {
    startSegments,
    allocsSkipped,
    segmentsSkipped,
  }: { startSegments: readonly Segment[]; allocsSkipped: boolean; segmentsSkipped: boolean },
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
  if (allocsSkipped) {
    warn(
      'allocs-skipped',
      'the recording has no alloc events (skip_actions?), so answers cover only the moment at which it ended; record without skip_actions',
    );
  } else if (parts.events.count > 0 && allocations.liveAtStart > 0 && !parts.startIsWhole) {
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
  if (counts[EventKind.FreeCompleted]! > 0 && counts[EventKind.FreeRequested] === 0 && allocs > 0 && !onEngine) {
    warn(
      'free-requests-skipped',
      'the recording has no free_requested events (skip_actions?): memory counts as live until its free completed, which may be too long',
    );
  }
  if (segmentsSkipped) {
    warn(
      'segments-skipped',
      'the recording has no segment events, or not all (skip_actions, or made from a profile), so its reserved memory is unknown; what each allocator needs is still exact',
    );
  }
  if (allocations.count === 0 && counts[EventKind.Oom] === 0) warn(NO_DEMAND, noDemand(parts, startSegments));
  if (links.contradictions > 0) {
    const words =
      links.contradictions === 1
        ? 'event contradicts another (it frees memory that was freed before) and was'
        : 'events contradict others (they free memory that was freed before) and were';
    warn('contradictions', `${formatCount(links.contradictions)} ${words} ignored: alloc events are missing, or the file is damaged`);
  }
  return warnings;
}

const GROWTHS = [EventKind.SegmentAlloc, EventKind.SegmentMap] as const;
const RELEASES = [EventKind.SegmentFree, EventKind.SegmentUnmap] as const;

/** New segments serve requests, and memory is not freed twice: without alloc events, somebody left them out. */
function skipsAllocs(counts: Int32Array, { contradictions }: Links): boolean {
  return counts[EventKind.Alloc] === 0 && (contradictions > 0 || GROWTHS.some((kind) => counts[kind]! > 0));
}

function skipsSegments(parts: TraceParts, counts: Int32Array, rebuilt: StartSegments | undefined): boolean {
  if (recordedEngine(parts) !== undefined) return false;
  const has = (kinds: readonly EventKind[]) => kinds.some((kind) => counts[kind]! > 0);
  if (!has(GROWTHS) && !has(RELEASES)) {
    return counts[EventKind.Alloc]! > 0 && hasStrayAlloc(parts.events, parts.startSegments ?? rebuilt!.segments);
  }
  if (!rebuilt || !parts.endSegments) return false;
  return (!has(GROWTHS) && rebuilt.missingGrowths > 0) || (!has(RELEASES) && rebuilt.missingReleases > 0 && parts.endSegments.length > 0);
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
