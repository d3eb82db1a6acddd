// One rank of a job in a few figures and a small track. One pass over the events, without a model of the allocator, so that
// a page can show 64 ranks at once.
import { settingsFromRecording } from '../allocator/pytorch/settings.ts';
import { findLimits } from '../replay/limits.ts';
import { ReservedPeak } from '../replay/reserved-peak.ts';
import { reservedAfter } from '../trace/reserved.ts';
import { liveSize } from '../trace/summary.ts';
import { EventKind, type Recording, type Trace } from '../trace/trace.ts';

/** Columns of a track. A track on the screen has about as many pixels. */
export const TRACK_COLUMNS = 480;

/** Plain data: it crosses workers and the network. */
export interface RankSummary {
  readonly gpu: number;
  readonly events: number;
  /** Microseconds since 1970 of the first event; 0: the recording has no times. */
  readonly startUs: number;
  readonly durationUs: number;
  readonly peakLive: number;
  /** Undefined if the recording does not show all segments. */
  readonly peakReserved: number | undefined;
  /** Reserved and not in use when reserved memory peaked. */
  readonly lost: number | undefined;
  readonly ooms: number;
  /** The first request that failed. */
  readonly failure: { readonly event: number; readonly timeUs: number; readonly asked: number } | undefined;
  /** Most bytes that the job could reserve, as recorded or as its failures show; undefined: unknown. */
  readonly limit: number | undefined;
  /** The limit follows from failures, and is at most this. */
  readonly isLimitInferred: boolean;
  /** Highest bytes in each of `TRACK_COLUMNS` equal parts of the run: of its time, or of its events if it has no times. */
  readonly live: readonly number[];
  readonly reserved: readonly number[] | undefined;
}

export function rankSummaries({ traces }: Recording): RankSummary[] {
  return traces.map(rankSummary);
}

export function rankSummary(trace: Trace): RankSummary {
  const { events, allocations, allocationOf, impliedFrees } = trace;
  const { count } = events;
  const startUs = count > 0 ? events.timeUs[0]! : 0;
  const durationUs = lastTime(trace) - startUs;
  const live = new Track();
  const reservedTrack = new Track();
  const peak = new ReservedPeak();
  let requestedAtPeak = 0;
  let requested = 0;
  let liveBytes = 0;
  let reserved = 0;
  let hasSegments = trace.startSegments.length > 0;
  let peakLive = 0;
  let ooms = 0;
  let failure: RankSummary['failure'];
  const release = (allocation: number) => {
    requested -= allocations.requested[allocation]!;
    liveBytes -= liveSize(allocations.requested[allocation]!);
  };
  const note = (event: number) => {
    if (liveBytes > peakLive) peakLive = liveBytes;
    const before = peak.event;
    const bytesBefore = peak.bytes;
    peak.note(event, reserved, liveBytes);
    if (peak.event !== before || peak.bytes !== bytesBefore) requestedAtPeak = requested;
  };
  for (let index = 0; index < allocations.liveAtStart; index++) {
    requested += allocations.requested[index]!;
    liveBytes += liveSize(allocations.requested[index]!);
  }
  for (const segment of trace.startSegments) reserved += segment.size;
  note(-1);
  live.start(liveBytes);
  reservedTrack.start(reserved);
  let latest = startUs;
  for (let event = 0; event < count; event++) {
    const allocation = allocationOf[event]!;
    const kind = events.kind[event]!;
    const size = events.size[event]!;
    latest = Math.max(latest, events.timeUs[event]!);
    switch (kind) {
      case EventKind.Alloc: {
        const displaced = impliedFrees.size > 0 ? impliedFrees.get(event) : undefined;
        if (displaced !== undefined && allocations.freeRequestedEvent[displaced] === -1) release(displaced);
        requested += size;
        liveBytes += liveSize(size);
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
        failure ??= { event, timeUs: latest - startUs, asked: size };
        break;
      case EventKind.SegmentAlloc:
      case EventKind.SegmentMap:
      case EventKind.SegmentFree:
      case EventKind.SegmentUnmap:
      case EventKind.Reserved:
        hasSegments = true;
        reserved = reservedAfter(reserved, kind, size);
        break;
    }
    note(event);
    const share = durationUs > 0 ? (latest - startUs) / durationUs : event / count;
    const column = Math.min(TRACK_COLUMNS - 1, Math.floor(share * TRACK_COLUMNS));
    live.note(column, liveBytes);
    reservedTrack.note(column, reserved);
  }
  const isReservedKnown = hasSegments && !trace.segmentsUnknown;
  const limits = findLimits(trace, settingsFromRecording(trace.settings, trace.limits.memoryFraction));
  return {
    gpu: trace.device,
    events: count,
    startUs,
    durationUs,
    peakLive,
    peakReserved: isReservedKnown ? peak.bytes : undefined,
    lost: isReservedKnown ? peak.bytes - requestedAtPeak : undefined,
    ooms,
    failure,
    limit: limits.allowedBytes ?? limits.capacity,
    isLimitInferred: limits.origin === 'inferred',
    live: live.columns(),
    reserved: isReservedKnown ? reservedTrack.columns() : undefined,
  };
}

/** Times of several threads may go back a little. */
function lastTime({ events }: Trace): number {
  let latest = 0;
  for (let event = 0; event < events.count; event++) if (events.timeUs[event]! > latest) latest = events.timeUs[event]!;
  return latest;
}

/** The highest level in each column. A column begins with the level before it. */
class Track {
  private readonly high = new Float64Array(TRACK_COLUMNS);
  private column = 0;
  private level = 0;

  start(level: number): void {
    this.level = level;
    this.high[0] = level;
  }

  note(column: number, level: number): void {
    this.reach(column);
    this.level = level;
    if (level > this.high[column]!) this.high[column] = level;
  }

  columns(): number[] {
    this.reach(TRACK_COLUMNS - 1);
    return [...this.high];
  }

  private reach(column: number): void {
    while (this.column < column) this.high[++this.column] = this.level;
  }
}
