// Memory at one moment as one strip: segments side by side, in each of them used memory and holes, and the request that did
// not fit, to scale. All figures that the page draws are here; the page only scales them.
import { eachPart, type HeldBlock, type HeldMemory, type HeldSegment } from './fit-layout.ts';

export const RunKind = { Used: 0, Pending: 1, Hole: 2 } as const;

/** Whether a request could use the holes of a segment, and if not, why. */
export const HoleUse = { Usable: 0, OtherSize: 1, OtherStream: 2, OtherPool: 3 } as const;
export type HoleUse = (typeof HoleUse)[keyof typeof HoleUse];

export const STRIP_ORDERS = ['hole', 'address'] as const;
/** Of segments: those with the largest holes first, or as they lie in memory. */
export type StripOrder = (typeof STRIP_ORDERS)[number];

/** Whoever asks for memory. */
export interface Asker {
  readonly stream: number;
  readonly pool: number;
  readonly isSmall: boolean;
  /** Free memory of any segment of the pool serves it, in pieces: Weir's engine stitches. */
  readonly isStitched: boolean;
}

/** Positions and sizes are bytes from the strip's beginning. */
export interface Strip {
  /** All segments: `used`, `pending` and `free` add up to it. */
  readonly reserved: number;
  readonly used: number;
  readonly pending: number;
  readonly free: number;
  /** Part of `free` that the request could use, if it were in one piece. */
  readonly usable: number;
  /** Segments in the order of the strip. */
  readonly segmentAt: Float64Array;
  readonly segmentSize: Float64Array;
  readonly segmentUse: Uint8Array;
  /** Used memory and holes, from the beginning to the end. Blocks that touch are one. */
  readonly runAt: Float64Array;
  readonly runSize: Float64Array;
  readonly runKind: Uint8Array;
  readonly runSegment: Int32Array;
  /** Addresses tell runs of different moments apart. */
  readonly runAddress: Float64Array;
  /** Numbers of the runs that are holes: usable ones first, each group from the largest to the smallest. */
  readonly holes: Int32Array;
}

export function stripOf(memory: HeldMemory, asker: Asker, order: StripOrder): Strip {
  const segments = memory.segments.map((segment) => ({ segment, use: useOf(segment, asker), largest: largestHole(segment) }));
  if (order === 'address') segments.sort((a, b) => a.segment.address - b.segment.address);
  else segments.sort((a, b) => a.use - b.use || b.largest - a.largest || b.segment.size - a.segment.size || compareAddress(a, b));
  const sums = { used: 0, pending: 0, free: 0, usable: 0 };
  const runs: { at: number; size: number; kind: number; segment: number; address: number }[] = [];
  const segmentAt = new Float64Array(segments.length);
  let reserved = 0;
  for (const [index, { segment, use }] of segments.entries()) {
    segmentAt[index] = reserved;
    eachPart(segment, (offset, size, block) => {
      const kind = kindOf(block);
      if (kind === RunKind.Used) sums.used += size;
      else if (kind === RunKind.Pending) sums.pending += size;
      else {
        sums.free += size;
        if (use === HoleUse.Usable) sums.usable += size;
      }
      const inside = offset - segment.offset;
      const last = runs.at(-1);
      if (last?.segment === index && last.kind === kind) last.size += size;
      else runs.push({ at: reserved + inside, size, kind, segment: index, address: segment.address + inside });
    });
    reserved += segment.size;
  }
  const holes = runs.flatMap(({ kind }, run) => (kind === RunKind.Hole ? [run] : []));
  holes.sort((a, b) => segments[runs[a]!.segment]!.use - segments[runs[b]!.segment]!.use || runs[b]!.size - runs[a]!.size || a - b);
  return {
    reserved,
    ...sums,
    segmentAt,
    segmentSize: Float64Array.from(segments, ({ segment }) => segment.size),
    segmentUse: Uint8Array.from(segments, ({ use }) => use),
    runAt: Float64Array.from(runs, ({ at }) => at),
    runSize: Float64Array.from(runs, ({ size }) => size),
    runKind: Uint8Array.from(runs, ({ kind }) => kind),
    runSegment: Int32Array.from(runs, ({ segment }) => segment),
    runAddress: Float64Array.from(runs, ({ address }) => address),
    holes: Int32Array.from(holes),
  };
}

function kindOf(block: HeldBlock | undefined): number {
  if (!block) return RunKind.Hole;
  return block.isPending ? RunKind.Pending : RunKind.Used;
}

export function useOf(segment: HeldSegment, asker: Asker): HoleUse {
  if (segment.pool !== asker.pool) return HoleUse.OtherPool;
  if (asker.isStitched) return HoleUse.Usable;
  if (segment.stream !== asker.stream) return HoleUse.OtherStream;
  return segment.isSmall === asker.isSmall ? HoleUse.Usable : HoleUse.OtherSize;
}

function largestHole(segment: HeldSegment): number {
  let largest = 0;
  eachPart(segment, (_, size, block) => {
    if (!block && size > largest) largest = size;
  });
  return largest;
}

function compareAddress(a: { segment: HeldSegment }, b: { segment: HeldSegment }): number {
  return a.segment.address - b.segment.address;
}

/** The run of the largest hole that the request could use; -1: there is none. */
export function largestUsable(strip: Strip): number {
  const [run] = strip.holes;
  return run !== undefined && useOfRun(strip, run) === HoleUse.Usable ? run : -1;
}

export function useOfRun({ segmentUse, runSegment }: Strip, run: number): HoleUse {
  return segmentUse[runSegment[run]!] as HoleUse;
}

/** Where parts on the map's axis lie on the strip: position and size of each. */
export function placesOnStrip(memory: HeldMemory, strip: Strip, parts: ArrayLike<number>): Float64Array {
  const places: number[] = [];
  // Addresses identify segments: the strip has them in another order.
  const starts = new Map<number, number>();
  for (let run = 0; run < strip.runAt.length; run++) {
    const segment = strip.runSegment[run]!;
    if (strip.runAt[run] === strip.segmentAt[segment]) starts.set(strip.runAddress[run]!, strip.segmentAt[segment]!);
  }
  for (let part = 0; part < parts.length; part += 2) {
    const offset = parts[part]!;
    const segment = memory.segments.find((each) => each.offset <= offset && offset < each.offset + each.size);
    const start = segment && starts.get(segment.address);
    if (segment && start !== undefined) places.push(start + offset - segment.offset, parts[part + 1]!);
  }
  return Float64Array.from(places);
}

/** The run at a position of the strip; -1: beyond its end. */
export function runAt({ runAt: at, runSize: size }: Strip, position: number): number {
  let low = 0;
  let high = at.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (at[middle]! <= position) low = middle + 1;
    else high = middle;
  }
  const run = low - 1;
  return run >= 0 && position < at[run]! + size[run]! ? run : -1;
}
