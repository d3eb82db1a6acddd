// Where memory was at one moment of the recorded run, and why free memory could not be used.
import type { CensusGroup } from '../allocator/allocator.ts';
import { type AllocatorState, lastOomOf, stateOf } from '../replay/moments.ts';
import { reconstruct } from '../replay/reconstruct.ts';
import type { Reconstruction } from '../replay/reconstruction.ts';
import { endsOf } from '../trace/ends.ts';
import { type Frame, NO_STACK } from '../trace/symbols.ts';
import { EventKind, type Trace } from '../trace/trace.ts';
import { type Category, categoriesAt } from './categories.ts';
import { labelOf } from './sites.ts';

/** Frames of a stack that are kept. Recursion makes thousands. */
const MOST_FRAMES = 64;

/** All reserved memory at one moment, by its state. The parts add up to `reserved`. */
export interface Breakdown {
  readonly event: number;
  readonly reserved: number;
  /** Requested and in use. */
  readonly requested: number;
  /** Part of `requested`: allocated before the recording began. */
  readonly heldSinceStart: number;
  /** Allocated beyond the requested sizes. */
  readonly rounding: number;
  /** Freed by the program, still in use by other streams. */
  readonly pending: number;
  /** External fragmentation: free, for the requesting stream, in pieces between live blocks. */
  readonly fragmented: number;
  /** Free, in segments that serve only requests up to 1 MiB. */
  readonly smallSegments: number;
  /** Free, but cached for other streams. */
  readonly otherStreams: number;
  /** Free, but in other pools than the request's: in private ones (CUDA graphs, MemPool), or the default one for a request in those. */
  readonly otherPools: number;
  /** Part of `reserved`: held by private pools (CUDA graphs, MemPool), and how much of that is requested and in use. */
  readonly privateReserved: number;
  readonly privateRequested: number;
  readonly freePieces: number;
  /** Largest of the pieces counted in `fragmented`. */
  readonly largestFree: number;
}

/** What went wrong at an out-of-memory event. */
export interface OomFinding {
  readonly event: number;
  readonly timeUs: number;
  /** Rounded as the allocator rounds. */
  readonly asked: number;
  /** Where the request came from: `file.py:123 function`; undefined: no stack was recorded. */
  readonly site: string | undefined;
  /** Its call stack, innermost frame first; empty: none was recorded. */
  readonly stack: readonly Frame[];
  /** Live bytes by category; they add up to all that was live. */
  readonly categories: Readonly<Record<Category, number>>;
  /** Free memory that the driver reported. */
  readonly deviceFree: number;
  /** The job's memory limit; undefined: unknown. */
  readonly limit: number | undefined;
  readonly limitOrigin: 'recorded' | 'inferred' | 'unknown';
  readonly breakdown: Breakdown;
  readonly cause: 'fragmentation' | 'demand' | 'other-streams' | 'other-pools' | 'pending';
  /** Live allocations that keep partly free segments from being freed or used as a whole. */
  readonly pinning: Pinning;
}

export interface Pinning {
  readonly segments: number;
  readonly freeBytes: number;
  readonly liveBlocks: number;
  readonly liveBytes: number;
}

/** The state of the recorded allocator after `event`. */
export function breakdownAt(
  trace: Trace,
  whole: Reconstruction,
  event: number,
  onProgress?: (fraction: number) => void,
): { breakdown: Breakdown; state: AllocatorState } {
  const state = whole.states.get(event) ?? reconstructedState(trace, whole, event, onProgress);
  return { breakdown: breakDown(trace, state.groups, event), state };
}

function reconstructedState(trace: Trace, whole: Reconstruction, event: number, onProgress?: (fraction: number) => void): AllocatorState {
  const { settings, limits, rules } = whole;
  const { allocator } = reconstruct(trace, { settings, limits, rules, stopBefore: event + 1, onProgress });
  return stateOf(allocator, trace.events.kind[event] === EventKind.Oom);
}

/** All reserved memory of an allocator, by its state, as the request at `event` sees it. */
export function breakDown(trace: Trace, groups: readonly CensusGroup[], event: number): Breakdown {
  const asking = askerAt(trace, event) ?? groups[0];
  const sum = (pick: (group: CensusGroup) => number, where: (group: CensusGroup) => boolean = () => true) =>
    groups.filter(where).reduce((total, group) => total + pick(group), 0);
  const free = (group: CensusGroup) => group.free;
  const ownPool = (group: CensusGroup) => group.pool === asking?.pool;
  const ownStream = (group: CensusGroup) => group.stream === asking?.stream;
  const isPrivate = (group: CensusGroup) => group.pool !== 0;
  const own = (group: CensusGroup) => ownPool(group) && ownStream(group);
  return {
    event,
    reserved: sum((group) => group.reserved),
    requested: sum((group) => group.requested),
    heldSinceStart: heldSinceStart(trace, event),
    rounding: sum((group) => group.rounding),
    pending: sum((group) => group.pending),
    fragmented: sum(free, (group) => own(group) && !group.small),
    smallSegments: sum(free, (group) => own(group) && group.small),
    otherStreams: sum(free, (group) => ownPool(group) && !ownStream(group)),
    otherPools: sum(free, (group) => !ownPool(group)),
    privateReserved: sum((group) => group.reserved, isPrivate),
    privateRequested: sum((group) => group.requested, isPrivate),
    freePieces: sum((group) => group.freePieces),
    largestFree: Math.max(0, ...groups.filter((group) => own(group) && !group.small).map((group) => group.largestFree)),
  };
}

/** Stream and pool of the request at or before the event. */
export function askerAt(trace: Trace, event: number): { stream: number; pool: number } | undefined {
  const { events } = trace;
  for (let at = Math.min(event, events.count - 1); at >= 0; at--) {
    if (events.kind[at] !== EventKind.Alloc && events.kind[at] !== EventKind.Oom) continue;
    return { stream: events.stream[at]!, pool: Math.max(0, events.pool[at]!) };
  }
  return undefined;
}

function heldSinceStart(trace: Trace, event: number): number {
  const { allocations } = trace;
  let bytes = 0;
  for (let index = 0; index < allocations.liveAtStart; index++) {
    if (isLiveAt(trace, index, event)) bytes += allocations.requested[index]!;
  }
  return bytes;
}

export function isLiveAt(trace: Trace, allocation: number, event: number): boolean {
  return endsOf(trace).isLiveAt(allocation, event);
}

export function explainOom(trace: Trace, whole: Reconstruction, onProgress?: (fraction: number) => void): OomFinding | undefined {
  const { events } = trace;
  const event = lastOomOf(trace);
  if (event < 0) return undefined;
  const { breakdown, state } = breakdownAt(trace, whole, event, onProgress);
  const asked = events.size[event]!;
  const stack = events.stack[event]!;
  const limit = whole.limits.allowedBytes ?? whole.limits.capacity;
  return {
    event,
    timeUs: events.timeUs[event]!,
    asked,
    site: stack === NO_STACK ? undefined : labelOf(trace, stack, false),
    stack: [...trace.symbols.framesOf(stack)].slice(0, MOST_FRAMES),
    categories: categoriesAt(trace, event).bytes,
    deviceFree: events.address[event]!,
    limit,
    limitOrigin: whole.limits.origin,
    breakdown,
    cause: findCause(breakdown, asked, limit ?? breakdown.reserved + events.address[event]!),
    pinning: findPinning(state, askerAt(trace, event)!),
  };
}

/** The one thing whose removal would have let the request succeed; `demand` if there is none. */
function findCause(breakdown: Breakdown, asked: number, limit: number): OomFinding['cause'] {
  const inUse = breakdown.requested + breakdown.rounding;
  const unreserved = Math.max(0, limit - breakdown.reserved);
  if (inUse + asked > limit) return 'demand';
  const candidates: [OomFinding['cause'], number][] = [
    ['fragmentation', breakdown.fragmented + breakdown.smallSegments],
    ['other-streams', breakdown.otherStreams],
    ['other-pools', breakdown.otherPools],
    ['pending', breakdown.pending],
  ];
  const enough = candidates.find(([, bytes]) => unreserved + bytes >= asked);
  return enough ? enough[0] : candidates.reduce((largest, candidate) => (candidate[1] > largest[1] ? candidate : largest))[0];
}

function findPinning({ segments }: AllocatorState, asker: { stream: number; pool: number }): Pinning {
  const pinned = segments
    .filter((segment) => segment.stream === asker.stream && segment.pool === asker.pool)
    .map((segment) => ({
      free: segment.blocks.filter((block) => block.state === 'free'),
      taken: segment.blocks.filter((block) => block.state !== 'free'),
    }))
    .filter(({ free, taken }) => free.length > 0 && taken.length > 0);
  const total = (blocks: readonly { size: number }[]) => blocks.reduce((sum, block) => sum + block.size, 0);
  return {
    segments: pinned.length,
    freeBytes: pinned.reduce((sum, { free }) => sum + total(free), 0),
    liveBlocks: pinned.reduce((sum, { taken }) => sum + taken.length, 0),
    liveBytes: pinned.reduce((sum, { taken }) => sum + total(taken), 0),
  };
}
