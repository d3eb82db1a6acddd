// Rebuilds the segments held before the first event, by walking back from the segments at the end.
// Undoing a segment_alloc removes a segment, undoing a segment_free adds it. Also finds each event's pool.
import { formatBytes, MIB } from '../base/bytes.ts';
import { InputError } from '../base/errors.ts';
import { type EventColumns, EventKind, type Segment } from './trace.ts';

/** Segment size of PyTorch's small pool (requests up to 1 MiB), and page size of small expandable segments. */
export const SMALL_SEGMENT: number = 2 * MIB;
/** All page sizes of PyTorch's expandable segments are multiples of this. */
const GRANULE = MIB;
/** Most granules mapped in one recording. A job of weeks stays far below; a corrupt size does not. */
const MAX_GRANULES = 2 ** 25;
/** Most granules mapped at a time: 2 TiB. No GPU has this much, and each takes memory here. */
const MAX_MAPPED = 2 ** 21;

/** The segments before the first event, and the events that contradict the segments at the end: others must be missing. */
export interface StartSegments {
  readonly segments: Segment[];
  /** Memory that is given back, although it was given back before and never taken again. */
  readonly missingGrowths: number;
  /** Memory that is taken and not held at the end, although it was never given back. */
  readonly missingReleases: number;
}

export function rebuildStartSegments(events: EventColumns, endSegments: readonly Segment[]): StartSegments {
  let missingGrowths = 0;
  let missingReleases = 0;
  const plain = new Map<number, Segment>();
  const mapped = new Map<number, Segment>();
  let granulesLeft = MAX_GRANULES;
  const eachGranule = (address: number, size: number, visit: (granule: number) => void) => {
    const granules = Math.floor(size / GRANULE);
    granulesLeft -= granules;
    if (granulesLeft < 0 || mapped.size + granules > MAX_MAPPED)
      throw new InputError(`the expandable segments are larger than any GPU (${formatBytes(size)} in one piece): the file is damaged`);
    const first = Math.floor(address / GRANULE);
    for (let index = 0; index < granules; index++) visit(first + index);
  };
  for (const segment of endSegments) {
    if (segment.expandable) eachGranule(segment.address, segment.size, (granule) => mapped.set(granule, segment));
    else plain.set(segment.address, segment);
  }
  for (let event = events.count - 1; event >= 0; event--) {
    const address = events.address[event]!;
    switch (events.kind[event]) {
      case EventKind.SegmentAlloc:
        if (!plain.delete(address)) missingReleases++;
        break;
      case EventKind.SegmentFree:
        if (plain.has(address)) missingGrowths++;
        plain.set(address, segmentOf(events, event, false));
        break;
      case EventKind.SegmentMap: {
        let isHeld = true;
        eachGranule(address, events.size[event]!, (granule) => {
          isHeld = mapped.delete(granule) && isHeld;
        });
        if (!isHeld) missingReleases++;
        break;
      }
      case EventKind.SegmentUnmap: {
        const segment = segmentOf(events, event, true);
        let isHeld = false;
        eachGranule(address, segment.size, (granule) => {
          isHeld = mapped.has(granule) || isHeld;
          mapped.set(granule, segment);
        });
        if (isHeld) missingGrowths++;
        break;
      }
    }
  }
  const segments = [...plain.values(), ...extentsOf(mapped)].sort((a, b) => a.address - b.address);
  return { segments, missingGrowths, missingReleases };
}

function segmentOf(events: EventColumns, event: number, expandable: boolean): Segment {
  const size = events.size[event]!;
  return {
    address: events.address[event]!,
    size,
    stream: events.stream[event]!,
    pool: Math.max(0, events.pool[event]!),
    small: expandable ? size % (20 * MIB) !== 0 : size === SMALL_SEGMENT,
    expandable,
    stack: events.stack[event]!,
    blocks: [],
  };
}

/** Joins adjacent granules of one stream, pool and kind to mapped extents. */
function extentsOf(mapped: ReadonlyMap<number, Segment>): Segment[] {
  const granules = [...mapped.keys()].sort((a, b) => a - b);
  const extents: (Segment & { size: number })[] = [];
  for (const granule of granules) {
    const from = mapped.get(granule)!;
    const last = extents.at(-1);
    const continues =
      last !== undefined &&
      last.address + last.size === granule * GRANULE &&
      last.stream === from.stream &&
      last.pool === from.pool &&
      last.small === from.small;
    if (continues) last.size += GRANULE;
    else extents.push({ ...from, address: granule * GRANULE, size: GRANULE, blocks: [] });
  }
  return extents;
}

/**
 * Sets the pool of every event that does not record one (PyTorch up to 2.11): the pool of the end segment that holds
 * the address, else the default pool.
 */
export function fillPools(events: EventColumns, endSegments: readonly Segment[]): void {
  const segments = endSegments.filter((segment) => segment.pool !== 0).sort((a, b) => a.address - b.address);
  const since = segments.map(() => 0);
  if (segments.length > 0) {
    const bySegmentAddress = new Map(segments.map((segment, index) => [segment.address, index]));
    for (let event = 0; event < events.count; event++) {
      if (events.kind[event] !== EventKind.SegmentAlloc) continue;
      const index = bySegmentAddress.get(events.address[event]!);
      if (index !== undefined) since[index] = event;
    }
  }
  for (let event = 0; event < events.count; event++) {
    if (events.pool[event]! >= 0) continue;
    const index = events.kind[event] === EventKind.Oom ? -1 : segmentHolding(segments, events.address[event]!);
    events.pool[event] = index >= 0 && event >= since[index]! ? segments[index]!.pool : 0;
  }
}

/** Index of the segment that holds `address`, or -1. */
export function segmentHolding(sorted: readonly Segment[], address: number): number {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle]!.address <= address) low = middle + 1;
    else high = middle;
  }
  const index = low - 1;
  return index >= 0 && address < sorted[index]!.address + sorted[index]!.size ? index : -1;
}
