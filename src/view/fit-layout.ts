// All memory that a run holds at one moment: segments, the blocks in them, and the holes between these. Segments and holes
// add up to reserved memory, to the byte.
import { SMALL_REQUEST } from '../allocator/pytorch/sizes.ts';
import { SMALL_SEGMENT, segmentHolding } from '../trace/start-state.ts';
import type { Segment, Trace } from '../trace/trace.ts';
import type { History } from './history.ts';
import type { Lifetimes } from './lifetimes.ts';

/** Memory from the driver: one segment, or mapped pages without a gap. Positions are on the map's axis. */
export interface HeldSegment {
  readonly address: number;
  readonly offset: number;
  readonly size: number;
  readonly stream: number;
  readonly pool: number;
  /** It serves only requests up to 1 MiB. */
  readonly isSmall: boolean;
  /** Its pages were mapped one by one, so its ends can be given back without the rest. */
  readonly isMapped: boolean;
  /** Its blocks in order of offset. Only their parts inside the segment count. */
  readonly blocks: readonly HeldBlock[];
}

/** A block, or a part of a stitched one. */
export interface HeldBlock {
  readonly allocation: number;
  readonly offset: number;
  readonly size: number;
  /** Freed by the program, still in use by other streams. */
  readonly isPending: boolean;
}

export interface HeldMemory {
  /** In order of offset. */
  readonly segments: readonly HeldSegment[];
  /** Bytes of blocks that lie in no segment: the recording leaves out where they are. */
  readonly strayBytes: number;
}

interface Growing {
  address: number;
  offset: number;
  size: number;
  from: number;
  isSmall: boolean;
  isMapped: boolean;
  blocks: HeldBlock[];
}

/** The memory after an event. */
export function heldMemory(trace: Trace, lifetimes: Lifetimes, history: History, event: number): HeldMemory {
  const growing = heldSegments(history, event);
  const strayBytes = putBlocks(growing, lifetimes, history, event);
  const segments = growing.map(({ from, ...segment }) => ({ ...segment, ...ownerOf(trace, segment, from) }));
  return { segments, strayBytes };
}

function heldSegments({ pieces, pieceOffset }: History, event: number): Growing[] {
  const rows: number[] = [];
  for (let row = 0; row < pieceOffset.length; row++) if (pieces.from[row]! <= event && pieces.to[row]! > event) rows.push(row);
  rows.sort((a, b) => pieceOffset[a]! - pieceOffset[b]!);
  const segments: Growing[] = [];
  for (const row of rows) {
    const last = segments.at(-1);
    const address = pieces.address[row]!;
    const size = pieces.size[row]!;
    const isMapped = pieces.mapped[row]!;
    if (last?.isMapped && isMapped && last.address + last.size === address) {
      last.size += size;
      last.isSmall &&= size === SMALL_SEGMENT;
    } else {
      const isSmall = size === SMALL_SEGMENT;
      segments.push({ address, offset: pieceOffset[row]!, size, from: pieces.from[row]!, isSmall, isMapped, blocks: [] });
    }
  }
  return segments;
}

/** Puts blocks into their segments. Returns the bytes that lie in none. */
function putBlocks(segments: readonly Growing[], lifetimes: Lifetimes, history: History, event: number): number {
  let strayBytes = 0;
  const put = (block: HeldBlock) => {
    let low = 0;
    let high = segments.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (segments[middle]!.offset <= block.offset) low = middle + 1;
      else high = middle;
    }
    const segment = segments[low - 1];
    if (segment && block.offset < segment.offset + segment.size) segment.blocks.push(block);
    else strayBytes += block.size;
  };
  lifetimes.each(event, event + 1, (allocation) => {
    const isPending = lifetimes.released[allocation]! <= event;
    const parts = placesOf(history, allocation);
    for (let part = 0; part < parts.length; part += 2) put({ allocation, offset: parts[part]!, size: parts[part + 1]!, isPending });
  });
  for (const segment of segments) segment.blocks.sort((a, b) => a.offset - b.offset);
  return strayBytes;
}

/** Offset and size of each part of an allocation; empty: it was not served. */
export function placesOf(history: History, allocation: number): ArrayLike<number> {
  const stitched = history.parts.size > 0 ? history.parts.get(allocation) : undefined;
  if (stitched) return stitched;
  const size = history.size[allocation]!;
  if (Number.isNaN(size)) return [];
  return [history.offset[allocation]!, size];
}

/** Whom a segment serves: as a block in it, as the request that took it, or as recorded before the first event. */
function ownerOf(trace: Trace, segment: Omit<Growing, 'from'>, from: number): Pick<HeldSegment, 'stream' | 'pool' | 'isSmall'> {
  const { events, allocations } = trace;
  const start: Segment | undefined = from < 0 ? trace.startSegments[segmentHolding(trace.startSegments, segment.address)] : undefined;
  const isSmall = (start?.small ?? segment.isSmall) && !segment.blocks.some(({ size }) => size > SMALL_REQUEST);
  const [first] = segment.blocks;
  if (first) return { stream: allocations.stream[first.allocation]!, pool: poolOf(allocations.pool[first.allocation]!), isSmall };
  if (start) return { stream: start.stream, pool: poolOf(start.pool), isSmall };
  if (from < 0 || from >= events.count) return { stream: 0, pool: 0, isSmall };
  return { stream: events.stream[from]!, pool: poolOf(events.pool[from]!), isSmall };
}

function poolOf(recorded: number): number {
  return Math.max(0, recorded);
}

/** Walks a segment from its beginning to its end: holes have no block. Overlaps, which only damaged recordings have, count once. */
export function eachPart(segment: HeldSegment, visit: (offset: number, size: number, block: HeldBlock | undefined) => void): void {
  const end = segment.offset + segment.size;
  let at = segment.offset;
  for (const block of segment.blocks) {
    const until = Math.min(end, block.offset + block.size);
    if (block.offset > at) {
      visit(at, block.offset - at, undefined);
      at = block.offset;
    }
    if (until > at) {
      visit(at, until - at, block);
      at = until;
    }
  }
  if (end > at) visit(at, end - at, undefined);
}
