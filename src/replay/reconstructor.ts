// Replays a recording through the model of the allocator that made it, and compares each address, segment and failure.
// This finds what the recording leaves out: calls of empty_cache(), retries and the memory limit.
import { OUT_OF_MEMORY } from '../allocator/allocator.ts';
import { PyTorchAllocator } from '../allocator/pytorch/allocator.ts';
import { type PyTorchSettings, settingsFromRecording } from '../allocator/pytorch/settings.ts';
import type { PyTorchRules } from '../allocator/pytorch/versions.ts';
import { SimulatedBackend } from '../backend/simulated.ts';
import { EventKind, type Trace } from '../trace/trace.ts';
import { findLimits, grantedBytes, type MemoryLimits } from './limits.ts';
import { type AllocatorState, stateOf } from './moments.ts';
import type { Differences, Reconstruction, ReconstructOptions } from './reconstruction.ts';
import { RecordedPlacement } from './recorded-placement.ts';
import { OngoingAllocations } from './replay.ts';
import { ReservedPeak } from './reserved-peak.ts';
import { isGrowth, isRelease, isSegmentEvent, SegmentEvents } from './segment-events.ts';
import { liveAtStart } from './start-ranges.ts';

const PROGRESS_EVERY = 1 << 16;
const NONE: readonly number[] = [];

export class Reconstructor {
  private readonly trace: Trace;
  private readonly options: ReconstructOptions;
  private readonly settings: PyTorchSettings;
  private readonly rules: PyTorchRules;
  private limits: MemoryLimits;
  /** Reserved bytes that the job was certainly allowed. */
  private readonly granted: number;
  private readonly segments: SegmentEvents;
  private readonly placement = new RecordedPlacement();
  private readonly backend: SimulatedBackend;
  private readonly ongoing: OngoingAllocations;
  private readonly allocator: PyTorchAllocator;
  private readonly emptyCacheBefore: number[] = [];
  private readonly differences: Differences = { addresses: 0, segments: 0, outcomes: 0, compared: 0, firstEvent: -1 };
  /** Segment events of the model that are not compared yet, flat: kind, address, size. */
  private journal: number[] = [];
  /** Allocations that complete when the model waits for all streams. */
  private completing: readonly number[] = NONE;
  private readonly peak = new ReservedPeak();
  private peakAllocated = 0;
  private readonly states = new Map<number, AllocatorState>();

  constructor(trace: Trace, options: ReconstructOptions, rules: PyTorchRules) {
    this.trace = trace;
    this.segments = new SegmentEvents(trace.events);
    this.rules = rules;
    this.options = options;
    this.settings = options.settings ?? settingsFromRecording(trace.settings, trace.limits.memoryFraction);
    this.limits = options.limits ?? findLimits(trace, this.settings, rules);
    this.granted = grantedBytes(trace, this.settings);
    this.backend = new SimulatedBackend({ capacity: this.limits.capacity, placement: this.placement });
    this.ongoing = new OngoingAllocations(trace.allocations.count);
    this.allocator = new PyTorchAllocator(
      {
        backend: this.backend,
        streams: trace.streams,
        pools: trace.pools,
        deviceBytes: this.limits.capacity,
        allowedBytes: this.limits.allowedBytes,
        rules,
        synchronize: () => this.completing.map((allocation) => this.detach(allocation)).filter((block) => block >= 0),
        onSegment: (kind, address, size) => {
          this.journal.push(kind, address, size);
          options.observer?.segment(kind, address, size);
        },
      },
      this.settings,
    );
  }

  run(): Reconstruction {
    const { events } = this.trace;
    const { lookAt = NONE } = this.options;
    const { limits } = this;
    this.restoreStart();
    const stop = Math.min(events.count, this.options.stopBefore ?? events.count);
    let nextProgress = 0;
    let looks = 0;
    for (let event = 0; event < stop; ) {
      if (event >= nextProgress) {
        this.options.onProgress?.(event / stop);
        nextProgress += PROGRESS_EVERY;
      }
      event = this.step(event, stop);
      this.options.observer?.after(event - 1, this.allocator);
      for (; looks < lookAt.length && lookAt[looks]! < event; looks++)
        if (lookAt[looks] === event - 1) this.states.set(event - 1, stateOf(this.allocator, events.kind[event - 1] === EventKind.Oom));
    }
    // Had the limit been known from the start, the allocator might have been in another state.
    if (this.limits !== limits) this.states.clear();
    this.options.onProgress?.(1);
    return {
      allocator: this.allocator,
      settings: this.settings,
      rules: this.rules,
      rulesOrigin: 'assumed',
      limits: this.limits,
      peakReserved: this.peak.bytes,
      peakReservedEvent: this.peak.event,
      finalReserved: this.allocator.reservedBytes,
      peakAllocated: this.peakAllocated,
      retries: this.allocator.retries,
      ooms: this.allocator.ooms,
      emptyCacheBefore: this.emptyCacheBefore,
      states: this.states,
      differences: this.differences,
      driver: this.backend.ledger,
    };
  }

  /** Restores the memory before the first event. Allocations outside any known segment are requested again. */
  private restoreStart(): void {
    const { allocations, startSegments } = this.trace;
    const live = liveAtStart(this.trace);
    // Of equal sizes the last one is used first, but segments are restored in order.
    for (const segment of [...startSegments].reverse())
      if (!segment.expandable) this.placement.expect(segment.address, segment.size, false);
    const blocks = this.allocator.restore(startSegments, live);
    blocks.forEach((block, index) => {
      this.ongoing.blocks[index] =
        block >= 0 ? block : this.allocator.malloc(live[index]!.requested, allocations.stream[index]!, allocations.pool[index]!);
      this.options.observer?.placed(index, this.ongoing.blocks[index]!, this.allocator);
    });
    this.placement.clear();
    this.journal = [];
    this.notePeaks(-1);
    this.options.observer?.after(-1, this.allocator);
  }

  /** Handles an event, or the group of events of one allocator call. Returns the next event to handle. */
  private step(event: number, stop: number): number {
    const { events, allocations, allocationOf } = this.trace;
    const allocation = allocationOf[event]!;
    switch (events.kind[event]) {
      case EventKind.FreeRequested: {
        if (allocation < 0) return event + 1;
        const completedAt = allocations.freeCompletedEvent[allocation]!;
        if (completedAt === event || (completedAt === event + 1 && completedAt < stop)) {
          this.complete(allocation);
          return completedAt + 1;
        }
        this.free(allocation);
        return event + 1;
      }
      case EventKind.EmptyCache:
        this.emptyCache(event, []);
        return event + 1;
      case EventKind.Alloc:
      case EventKind.Oom:
        // Most requests come without segment events.
        this.allocator.releasable = NONE;
        this.request(event, NONE, NONE, NONE, -1);
        return event + 1;
      case EventKind.FreeCompleted:
      case EventKind.SegmentAlloc:
      case EventKind.SegmentFree:
      case EventKind.SegmentMap:
      case EventKind.SegmentUnmap:
        return this.group(event, stop);
      default:
        return event + 1;
    }
  }

  /** Handles completions and segment events up to their request. Without a request they come from empty_cache(). */
  private group(start: number, stop: number): number {
    const { events, allocationOf } = this.trace;
    let early: number[] = [];
    const late: number[] = [];
    let segments: number[] = [];
    let firstRelease = -1;
    let end = start;
    for (; end < stop; end++) {
      const kind = events.kind[end]!;
      if (kind === EventKind.FreeCompleted) {
        if (allocationOf[end]! >= 0) (firstRelease < 0 ? early : late).push(allocationOf[end]!);
      } else if (isSegmentEvent(kind)) {
        segments.push(end);
        if (firstRelease < 0 && isRelease(kind)) firstRelease = end;
      } else break;
    }
    const kind = end < stop ? events.kind[end] : 0;
    const isRequest = kind === EventKind.Alloc || kind === EventKind.Oom;
    const ended = this.segments.endedFirst(segments);
    if (ended > 0 && !(isRequest && this.segments.releasesOwn(segments, events.pool[end]!))) {
      this.completing = early;
      this.allocator.releasable = this.segments.releasablePools(segments.slice(0, ended));
      this.allocator.releasePools();
      this.completeRemaining();
      this.compareSegments(segments.slice(0, ended), start);
      early = [];
      segments = segments.slice(ended);
      firstRelease = segments.find((segment) => isRelease(events.kind[segment]!))!;
    }
    this.allocator.releasable = this.segments.releasablePools(segments);
    if (isRequest) {
      this.request(end, early, late, segments, firstRelease);
      return end + 1;
    }
    this.completing = [...early, ...late];
    // If the call itself is recorded, it stands before or after the segments that it freed.
    if (firstRelease >= 0) this.emptyCache(firstRelease, segments, kind === EventKind.EmptyCache);
    else this.compareSegments(segments, start);
    this.completeRemaining();
    return end;
  }

  private request(
    event: number,
    early: readonly number[],
    late: readonly number[],
    segments: readonly number[],
    firstRelease: number,
  ): void {
    const { events } = this.trace;
    const size = events.size[event]!;
    const stream = events.stream[event]!;
    const pool = events.pool[event]!;
    let recorded = segments;
    if (firstRelease < 0) {
      for (const allocation of early) this.complete(allocation);
      this.completing = late;
    } else if (
      !this.segments.releasesOwn(segments, pool) &&
      (this.segments.endsPools(segments) || this.releasesWereEmptyCache(event, size, stream, pool))
    ) {
      const releases = segments.filter((segment) => isRelease(events.kind[segment]!));
      recorded = segments.filter((segment) => !isRelease(events.kind[segment]!));
      this.completing = [...early, ...late];
      this.emptyCache(firstRelease, releases);
      this.completeRemaining();
    } else if (this.allocator.collectsGarbage) {
      for (const allocation of early) this.complete(allocation);
      this.completing = late;
    } else {
      // Completions before the first release may come from the wait of the retry itself. Had they come earlier, the cache
      // might have served the request.
      this.completing = [...early, ...late];
    }
    for (let index = recorded.length - 1; index >= 0; index--) {
      const segment = recorded[index]!;
      if (isGrowth(events.kind[segment]!)) {
        this.placement.expect(events.address[segment]!, events.size[segment]!, events.kind[segment] === EventKind.SegmentMap);
      }
    }
    const { impliedFrees } = this.trace;
    const displaced = impliedFrees.size > 0 ? impliedFrees.get(event) : undefined;
    if (displaced !== undefined) {
      this.free(displaced);
      this.complete(displaced);
    }
    const block = this.allocator.malloc(size, stream, pool);
    this.completeRemaining();
    if (recorded.length > 0) this.placement.clear();
    if (recorded.length > 0 || this.journal.length > 0) this.compareSegments(recorded, event);
    this.notePeaks(event);
    this.settle(event, block);
  }

  /** Compares the outcome of a request and remembers its block. */
  private settle(event: number, block: number): void {
    const { events, allocationOf } = this.trace;
    const failed = events.kind[event] === EventKind.Oom;
    this.differences.compared++;
    if (failed !== (block === OUT_OF_MEMORY)) {
      this.differences.outcomes++;
      this.noteDifference(event);
    } else if (!failed && this.allocator.addressOf(block) !== events.address[event]) {
      this.differences.addresses++;
      this.noteDifference(event);
    }
    if (!failed) {
      this.ongoing.blocks[allocationOf[event]!] = block;
      this.options.observer?.placed(allocationOf[event]!, block, this.allocator);
    } else if (block >= 0) {
      this.allocator.free(block);
      this.allocator.complete(block);
    }
    const { checkEvery } = this.options;
    if (checkEvery && event % checkEvery === 0) this.allocator.check();
  }

  /**
   * Memory was given back right before a request: by the program (empty_cache) or by the request itself? By the program if
   * the request needed no such thing, since it would have been served from the cache or been allowed a new segment.
   */
  private releasesWereEmptyCache(event: number, size: number, stream: number, pool: number): boolean {
    if (this.allocator.wouldReuse(size, stream, pool)) return true;
    if (!this.allocator.retriesIn(pool) && !this.allocator.collectsGarbage) return true;
    if (this.trace.events.kind[event] === EventKind.Oom || this.allocator.collectsGarbage) return false;
    const grown = this.allocator.reservedBytesWith(size);
    if (grown > (this.limits.allowedBytes ?? Number.POSITIVE_INFINITY) || grown > (this.limits.capacity ?? Number.POSITIVE_INFINITY))
      return false;
    if (this.limits.origin === 'recorded' || grown <= this.granted) return true;
    // The job never held that much, so this request was refused and the limit is lower than assumed. (A call of
    // empty_cache() right before a request for a new peak looks the same.)
    this.limits = { ...this.limits, allowedBytes: grown - 1, grantedBytes: this.granted, origin: 'inferred' };
    this.allocator.lowerAllowance(grown - 1);
    return false;
  }

  private emptyCache(event: number, recorded: readonly number[], isRecorded = false): void {
    const wasRecorded = isRecorded || this.trace.events.kind[event] === EventKind.EmptyCache || this.journal.length > 0;
    if (!wasRecorded && this.segments.endsPools(recorded)) this.allocator.releasePools();
    else {
      if (!wasRecorded) this.emptyCacheBefore.push(event);
      this.allocator.emptyCache();
    }
    if (recorded.length > 0) this.compareSegments(recorded, event);
  }

  private compareSegments(recorded: readonly number[], event: number): void {
    const { events } = this.trace;
    const { journal } = this;
    const made = journal.length / 3;
    // Those that only one of the two has differ, too.
    this.differences.compared += Math.max(made, recorded.length);
    let wrong = Math.abs(made - recorded.length);
    for (let index = 0; index < Math.min(made, recorded.length); index++) {
      const at = recorded[index]!;
      const same =
        journal[index * 3] === events.kind[at] &&
        journal[index * 3 + 1] === events.address[at] &&
        journal[index * 3 + 2] === events.size[at];
      if (!same) wrong++;
    }
    if (wrong > 0) {
      this.differences.segments += wrong;
      this.noteDifference(recorded[0] ?? event);
    }
    this.journal = [];
  }

  private noteDifference(event: number): void {
    if (this.differences.firstEvent < 0) this.differences.firstEvent = event;
  }

  private notePeaks(event: number): void {
    const { reservedBytes, allocatedBytes } = this.allocator;
    this.peak.note(event, reservedBytes, allocatedBytes);
    if (allocatedBytes > this.peakAllocated) this.peakAllocated = allocatedBytes;
  }

  private free(allocation: number): void {
    const block = this.ongoing.blocks[allocation]!;
    if (block < 0 || this.ongoing.pending.has(allocation)) return;
    this.allocator.free(block);
    this.ongoing.pending.add(allocation);
  }

  private complete(allocation: number): void {
    const block = this.detach(allocation);
    if (block >= 0) this.allocator.complete(block);
  }

  private completeRemaining(): void {
    if (this.completing.length === 0) return;
    for (const allocation of this.completing) this.complete(allocation);
    this.completing = NONE;
  }

  /** Ends an allocation in the books. Returns its block, freed but not complete; negative: it has none. */
  private detach(allocation: number): number {
    const { blocks, pending } = this.ongoing;
    const block = blocks[allocation]!;
    if (block < 0) return block;
    if (pending.size === 0 || !pending.delete(allocation)) this.allocator.free(block);
    blocks[allocation] = OUT_OF_MEMORY;
    return block;
  }
}
