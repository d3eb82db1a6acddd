// Answers about memory that did not fit: the strip of a run at a moment, and who pins a hole of it.
import { ENGINE_ALLOCATORS } from '../abi/allocators.ts';
import type { Category } from '../abi/events.ts';
import type { MemoryLimits } from '../replay/limits.ts';
import { categoriesOf } from '../report/categories.ts';
import type { Trace } from '../trace/trace.ts';
import type { Clock } from './clock.ts';
import { eachPart, type HeldBlock, type HeldMemory, type HeldSegment, heldMemory, placesOf } from './fit-layout.ts';
import { askerOf } from './fit-misfits.ts';
import { type HoleUse, placesOnStrip, type Strip, type StripOrder, stripOf, useOf } from './fit-strip.ts';
import type { History } from './history.ts';
import type { Lifetimes } from './lifetimes.ts';
import type { LiveRow, Moment } from './protocol.ts';

/** A run at a moment. */
export interface FitLane extends Moment {
  readonly strip: Strip;
  /** Most that the run may reserve; undefined: unknown. */
  readonly limit: number | undefined;
  /** Recorded as reserved, beyond what the strip shows: free memory whose place was not recorded. */
  readonly unplaced: number;
  /** Where blocks lie was not recorded: the strip is a replay's. */
  readonly isModelled: boolean;
  /** The allocator stitches holes together, so that a request may use several. */
  readonly isStitched: boolean;
  /** Requests that fail in this run. */
  readonly failures: number;
  /** Position and size on the strip of each part of the request; empty: it is not served here. */
  readonly served: Float64Array;
}

export interface HoleInfo {
  readonly address: string;
  readonly bytes: number;
  readonly use: HoleUse;
  readonly segment: {
    readonly bytes: number;
    readonly free: number;
    readonly stream: number;
    readonly pool: number;
    readonly isSmall: boolean;
    readonly isMapped: boolean;
  };
  /** Live blocks that keep the segment from being free as a whole: neighbours of the hole first, then the largest. */
  readonly pins: readonly Pin[];
  readonly pinCount: number;
  readonly pinBytes: number;
}

export interface Pin extends LiveRow {
  /** Where it touches the hole. */
  readonly side: 'before' | 'after' | undefined;
  readonly isPending: boolean;
  readonly category: Category;
  /** Microseconds until it is freed; undefined: never. */
  readonly freedAfterUs: number | undefined;
}

/** What one run of a GPU is asked about. */
export interface FitRun {
  readonly trace: Trace;
  readonly clock: Clock;
  readonly lifetimes: Lifetimes;
  readonly history: History;
  /** The allocator behind the run. */
  readonly kind: string;
  readonly isRecorded: boolean;
  readonly limit: number | undefined;
}

const MOST_PINS = 200;

export function laneOf(run: FitRun, event: number, request: number | undefined, order: StripOrder): FitLane {
  const { trace, clock, history, lifetimes } = run;
  const memory = heldMemory(trace, lifetimes, history, event);
  const strip = stripOf(memory, askerIn(run, request ?? event), order);
  const isModelled = run.isRecorded && isEngine(run.kind);
  const reserved = event < 0 ? strip.reserved : history.reserved[event]!;
  return {
    event,
    timeUs: clock.position('time', event),
    strip,
    limit: run.limit,
    unplaced: isModelled ? Math.max(0, reserved - strip.reserved) : 0,
    isModelled,
    isStitched: isEngine(run.kind),
    failures: history.ooms,
    served: event === request ? placesOnStrip(memory, strip, requestParts(run, event)) : new Float64Array(0),
  };
}

function askerIn({ trace, kind }: FitRun, event: number): ReturnType<typeof askerOf> {
  return askerOf(trace, event, isEngine(kind));
}

function isEngine(kind: string): boolean {
  return kind === 'planned' || ENGINE_ALLOCATORS.some((name) => name === kind);
}

function requestParts({ trace, history }: FitRun, event: number): ArrayLike<number> {
  const allocation = trace.allocationOf[event]!;
  return allocation >= 0 ? placesOf(history, allocation) : (history.served.get(event) ?? []);
}

/** The hole at an address; undefined: there is none at this moment. */
export function holeOf(
  run: FitRun,
  at: { readonly event: number; readonly request: number | undefined; readonly address: number },
  rowOf: (allocation: number) => LiveRow,
): HoleInfo | undefined {
  const { trace, lifetimes, history } = run;
  const found = findHole(heldMemory(trace, lifetimes, history, at.event), at.address);
  if (!found) return undefined;
  const { segment, bytes } = found;
  const blocks = pinsOf(segment, found);
  const free = segment.size - blocks.all.reduce((sum, { size }) => sum + size, 0);
  return {
    address: trace.symbols.addresses.format(at.address),
    bytes,
    use: useOf(segment, askerIn(run, at.request ?? at.event)),
    segment: {
      bytes: segment.size,
      free,
      stream: segment.stream,
      pool: segment.pool,
      isSmall: segment.isSmall,
      isMapped: segment.isMapped,
    },
    pins: blocks.shown.map((block) => pinOf(run, block, found, at.event, rowOf)),
    pinCount: blocks.all.length,
    pinBytes: blocks.all.reduce((sum, { size }) => sum + size, 0),
  };
}

interface Hole {
  readonly segment: HeldSegment;
  readonly offset: number;
  readonly bytes: number;
}

function findHole({ segments }: HeldMemory, address: number): Hole | undefined {
  const segment = segments.find((each) => each.address <= address && address < each.address + each.size);
  let found: Hole | undefined;
  if (segment)
    eachPart(segment, (offset, bytes, block) => {
      if (!block && segment.address + offset - segment.offset === address) found = { segment, offset, bytes };
    });
  return found;
}

function pinsOf(segment: HeldSegment, hole: Hole): { all: HeldBlock[]; shown: HeldBlock[] } {
  const all = [...segment.blocks];
  const shown = [...all].sort((a, b) => Number(sideOf(b, hole) !== undefined) - Number(sideOf(a, hole) !== undefined) || b.size - a.size);
  return { all, shown: shown.slice(0, MOST_PINS) };
}

function sideOf(block: HeldBlock, hole: Hole): Pin['side'] {
  if (block.offset + block.size === hole.offset) return 'before';
  return block.offset === hole.offset + hole.bytes ? 'after' : undefined;
}

function pinOf(
  { trace, clock, lifetimes }: FitRun,
  block: HeldBlock,
  hole: Hole,
  event: number,
  rowOf: (allocation: number) => LiveRow,
): Pin {
  const released = lifetimes.released[block.allocation]!;
  return {
    ...rowOf(block.allocation),
    size: block.size,
    side: sideOf(block, hole),
    isPending: block.isPending,
    category: categoriesOf(trace).of(block.allocation).category,
    freedAfterUs: released >= clock.count ? undefined : Math.max(0, clock.position('time', released) - clock.position('time', event)),
  };
}

/** The most that a job may reserve, as its recording shows; undefined: unknown. */
export function limitOf({ allowedBytes, capacity }: MemoryLimits): number | undefined {
  return allowedBytes ?? capacity;
}
