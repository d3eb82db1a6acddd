// Runs every recorded request and free through an allocator, in order, and measures what it takes.
import { type Allocator, type AllocatorContext, OUT_OF_MEMORY } from '../allocator/allocator.ts';
import type { Backend, DriverCall } from '../backend/backend.ts';
import { Timeline, type TimelineTotals } from '../backend/timeline.ts';
import { EventKind, type Trace } from '../trace/trace.ts';
import { EmergencySwaps, type SwappableState } from './emergency-swaps.ts';
import { ReservedPeak } from './reserved-peak.ts';
import { liveAtStart } from './start-ranges.ts';

export interface ReplayOptions {
  readonly backend: Backend;
  /** Memory that the GPU reports; undefined: unknown. */
  readonly deviceBytes?: number | undefined;
  readonly allowedBytes?: number | undefined;
  /** What depends on the version of PyTorch. */
  readonly rules?: AllocatorContext['rules'];
  /** Events before which the program called empty_cache(), ascending. Few recordings hold these calls. */
  readonly emptyCacheBefore?: readonly number[] | undefined;
  /** Start with the recorded layout, if the allocator can. Otherwise live memory is requested again. */
  readonly restoreStart?: boolean | undefined;
  /** Stop before this event, to look at the allocator at that moment. */
  readonly stopBefore?: number | undefined;
  /** Stop at the first request that fails, which is enough to know that the run does not fit. */
  readonly stopAtOom?: boolean | undefined;
  /** Check the allocator's invariants every so many events; 0: never. */
  readonly checkEvery?: number | undefined;
  readonly onProgress?: ((fraction: number) => void) | undefined;
  /** Optimizer state that is swapped out if a request finds no memory. */
  readonly swappable?: SwappableState | undefined;
  readonly observer?: ReplayObserver | undefined;
  /** How far streams lag behind the program; a timeline with the default lag if absent. */
  readonly timeline?: Timeline | undefined;
}

/** Sees each step of a replay, to draw it. */
export interface ReplayObserver {
  /** The allocation was given this block. */
  placed(allocation: number, block: number, allocator: Allocator): void;
  /** The request of this event failed in the recording, and is served here. Its block is freed right after. */
  served?(event: number, block: number, allocator: Allocator): void;
  /** This event and all before it are done; -1: before the first. */
  after(event: number, allocator: Allocator): void;
}

export interface ReplayResult {
  readonly peakReserved: number;
  /** The event of the peak of reserved memory; of several, the one with most memory in use; -1: before the first. */
  readonly peakReservedEvent: number;
  readonly finalReserved: number;
  readonly peakAllocated: number;
  readonly ooms: number;
  readonly firstOomEvent: number;
  readonly retries: number;
  readonly driver: {
    readonly timeUs: number;
    /** Time in the last third of the events, after the job has settled. */
    readonly steadyTimeUs: number;
    readonly calls: Readonly<Record<DriverCall, number>>;
    /** Microseconds by call. */
    readonly times: Readonly<Record<DriverCall, number>>;
  };
  /** What ordering between streams cost; all 0 if the allocator lends nothing. */
  readonly streams: TimelineTotals;
}

export interface Replayed extends ReplayResult {
  /** The allocator at the end. */
  readonly allocator: Allocator;
}

const PROGRESS_EVERY = 1 << 16;

export function replay(trace: Trace, createAllocator: (context: AllocatorContext) => Allocator, options: ReplayOptions): Replayed {
  const { events, allocations, allocationOf } = trace;
  const { backend, observer } = options;
  const ongoing = new OngoingAllocations(allocations.count);
  const timeline = options.timeline ?? new Timeline();
  const allocator = createAllocator({
    backend,
    streams: trace.streams,
    pools: trace.pools,
    deviceBytes: options.deviceBytes,
    allowedBytes: options.allowedBytes,
    rules: options.rules,
    events: timeline,
    synchronize: () => ongoing.takePending(),
  });
  const peak = new ReservedPeak();
  let peakAllocated = 0;
  let firstOomEvent = -1;
  const notePeaks = (event: number): void => {
    const { reservedBytes, allocatedBytes } = allocator;
    peak.note(event, reservedBytes, allocatedBytes);
    if (allocatedBytes > peakAllocated) peakAllocated = allocatedBytes;
  };
  const swaps = options.swappable && new EmergencySwaps(options.swappable, trace, ongoing, allocator);
  const request = (size: number, stream: number, pool: number, event: number): number => {
    let block = allocator.malloc(size, stream, pool);
    while (block === OUT_OF_MEMORY && swaps?.relieve(size)) block = allocator.malloc(size, stream, pool);
    notePeaks(event);
    if (block === OUT_OF_MEMORY && firstOomEvent < 0) firstOomEvent = event;
    return block;
  };
  const end = (allocation: number) => {
    const block = ongoing.blocks[allocation]!;
    if (block < 0) return;
    if (!ongoing.pending.delete(allocation)) allocator.free(block);
    allocator.complete(block);
    ongoing.blocks[allocation] = OUT_OF_MEMORY;
  };

  const restored = options.restoreStart ? allocator.restore?.(trace.startSegments, liveAtStart(trace)) : undefined;
  for (let index = 0; index < allocations.liveAtStart; index++) {
    const block = restored?.[index] ?? OUT_OF_MEMORY;
    ongoing.blocks[index] =
      block >= 0 ? block : request(allocations.requested[index]!, allocations.stream[index]!, allocations.pool[index]!, -1);
    observer?.placed(index, ongoing.blocks[index]!, allocator);
  }
  notePeaks(-1);
  observer?.after(-1, allocator);

  const stop = Math.min(events.count, options.stopBefore ?? events.count);
  const steadyFrom = Math.floor((events.count * 2) / 3);
  const emptyCaches = options.emptyCacheBefore ?? [];
  let nextEmptyCache = 0;
  let steadyStartUs = 0;
  for (let event = 0; event < stop; event++) {
    if (event === steadyFrom) steadyStartUs = backend.ledger.timeUs;
    if (event % PROGRESS_EVERY === 0) options.onProgress?.(event / stop);
    if (event === emptyCaches[nextEmptyCache]) {
      nextEmptyCache++;
      allocator.emptyCache();
    }
    const allocation = allocationOf[event]!;
    timeline.advanceTo(events.timeUs[event]!);
    swaps?.reach(event, request);
    switch (events.kind[event]) {
      case EventKind.Alloc: {
        const displaced = trace.impliedFrees.size > 0 ? trace.impliedFrees.get(event) : undefined;
        if (displaced !== undefined) end(displaced);
        const block = request(events.size[event]!, events.stream[event]!, events.pool[event]!, event);
        ongoing.blocks[allocation] = block;
        observer?.placed(allocation, block, allocator);
        break;
      }
      case EventKind.FreeRequested: {
        const block = allocation < 0 ? OUT_OF_MEMORY : ongoing.blocks[allocation]!;
        if (block < 0) break;
        const completedAt = allocations.freeCompletedEvent[allocation]!;
        // An allocator that was told of the other streams' uses finds out by itself when they end.
        if (ongoing.recorded.delete(allocation) || completedAt === event || completedAt === event + 1) {
          end(allocation);
        } else {
          allocator.free(block);
          ongoing.pending.add(allocation);
        }
        break;
      }
      case EventKind.FreeCompleted:
        if (allocation >= 0) end(allocation);
        break;
      case EventKind.Oom: {
        // Its lifetime is unknown, so it is freed at once.
        const block = request(events.size[event]!, events.stream[event]!, events.pool[event]!, event);
        if (block >= 0) {
          observer?.served?.(event, block, allocator);
          allocator.free(block);
          allocator.complete(block);
        }
        break;
      }
      case EventKind.RecordStream: {
        const block = allocation < 0 ? OUT_OF_MEMORY : ongoing.blocks[allocation]!;
        const stream = events.detail?.[event] ?? -1;
        if (block < 0 || stream < 0 || !allocator.recordStream || ongoing.pending.has(allocation)) break;
        allocator.recordStream(block, stream);
        ongoing.recorded.add(allocation);
        break;
      }
      case EventKind.EmptyCache:
        allocator.emptyCache();
        break;
      case EventKind.SegmentFree:
      case EventKind.SegmentUnmap:
        // The recorded allocator gives a private pool back only when nothing uses it any more, whoever serves it.
        if (events.pool[event]! > 0) allocator.releasePool?.(events.pool[event]!);
        break;
    }
    observer?.after(event, allocator);
    if (options.checkEvery && event % options.checkEvery === 0) allocator.check();
    if (options.stopAtOom && firstOomEvent >= 0) break;
  }
  options.onProgress?.(1);
  // Requests that were served after a swap-out: each counts as one that failed, after giving back what was cached.
  const relieved = swaps?.relieved ?? 0;
  return {
    allocator,
    peakReserved: peak.bytes,
    peakReservedEvent: peak.event,
    finalReserved: allocator.reservedBytes,
    peakAllocated,
    ooms: allocator.ooms - relieved,
    firstOomEvent,
    retries: allocator.retries - relieved,
    driver: {
      timeUs: backend.ledger.timeUs,
      steadyTimeUs: backend.ledger.timeUs - steadyStartUs,
      calls: { ...backend.ledger.calls },
      times: { ...backend.ledger.times },
    },
    streams: timeline.totals(),
  };
}

/** The block of each allocation that has one, and which of them are freed but not complete. */
export class OngoingAllocations {
  /** Block by allocation; negative: none (failed, ended, or not begun). */
  readonly blocks: Int32Array;
  readonly pending: Set<number> = new Set();
  /** Allocations whose use by other streams the allocator was told of. */
  readonly recorded: Set<number> = new Set();

  constructor(count: number) {
    this.blocks = new Int32Array(count).fill(OUT_OF_MEMORY);
  }

  /** Ends all pending allocations and returns their blocks, which the caller completes. */
  takePending(): number[] {
    const taken: number[] = [];
    for (const allocation of this.pending) {
      taken.push(this.blocks[allocation]!);
      this.blocks[allocation] = OUT_OF_MEMORY;
    }
    this.pending.clear();
    return taken;
  }
}
