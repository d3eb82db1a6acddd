// Puts a heap into the state that a recording began with: its segments, and the live blocks inside them.
import { SMALL_SEGMENT } from '../../trace/start-state.ts';
import type { Segment } from '../../trace/trace.ts';
import type { LiveRange } from '../allocator.ts';
import { BlockState, NO_BLOCK } from '../block-table.ts';
import { type Heap, PLAIN } from './heap.ts';
import type { PyTorchSettings } from './settings.ts';
import { MIN_BLOCK, MIN_LARGE_REMAINDER, roundRequest } from './sizes.ts';

/** Returns a block for every live range, or NO_BLOCK for a range outside all segments. */
export function restoreHeap(
  heap: Heap,
  settings: PyTorchSettings,
  segments: readonly Segment[],
  live: readonly LiveRange[],
  expandableBytes: (page: number) => number,
): number[] {
  const blocks: number[] = live.map(() => NO_BLOCK);
  const order = live.map((_, index) => index).sort((a, b) => live[a]!.address - live[b]!.address);
  const firstFrom = (address: number) => {
    let low = 0;
    let high = order.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (live[order[middle]!]!.address < address) low = middle + 1;
      else high = middle;
    }
    return low;
  };
  const within = (segment: Segment) => order.slice(firstFrom(segment.address), firstFrom(segment.address + segment.size));

  for (const segment of segments.filter((candidate) => !candidate.expandable)) {
    const pool = heap.pools.of(segment.pool, segment.small);
    const block = heap.addSegment(pool, segment.stream, segment.size);
    if (block === NO_BLOCK) continue;
    cutOutLive(heap, settings, segment, block, within(segment), live, blocks);
  }
  for (const extents of groupExpandable(segments.filter((candidate) => candidate.expandable))) {
    restoreExpandable(heap, settings, extents, within, live, blocks, expandableBytes);
  }
  return blocks;
}

/** Groups extents by pool and stream: each group lies in one expandable segment. */
function groupExpandable(extents: readonly Segment[]): Segment[][] {
  const groups = new Map<string, Segment[]>();
  for (const extent of extents) {
    const key = `${extent.pool}/${extent.small}/${extent.stream}`;
    groups.set(key, [...(groups.get(key) ?? []), extent]);
  }
  return [...groups.values()].map((group) => group.sort((a, b) => a.address - b.address));
}

function restoreExpandable(
  heap: Heap,
  settings: PyTorchSettings,
  extents: readonly Segment[],
  within: (segment: Segment) => number[],
  live: readonly LiveRange[],
  blocks: number[],
  expandableBytes: (page: number) => number,
): void {
  const { table } = heap;
  const first = extents[0]!;
  const last = extents.at(-1)!;
  const pool = heap.pools.of(first.pool, first.small);
  const page = first.small ? SMALL_SEGMENT : settings.largeSegmentSize;
  const span = Math.ceil((last.address + last.size - first.address) / page) * page;
  let open = heap.addExpandable(pool, first.stream, page, Math.max(expandableBytes(page), span), first.address);
  if (open === NO_BLOCK) return;
  const shift = table.address[open]! - first.address;
  for (const extent of extents) {
    const gap = extent.address + shift - table.address[open]!;
    if (gap % page !== 0 || gap < 0) continue;
    if (gap > 0) open = skipUnmapped(heap, open, gap);
    const block = open;
    if (!heap.mapBlock(block, extent.size)) return;
    open = table.next[block]!;
    heap.takeFree(block);
    cutOutLive(heap, settings, extent, block, within(extent), live, blocks);
    if (open === NO_BLOCK) return;
  }
}

/** Leaves the first `bytes` of an unmapped block unmapped. Returns the block behind them. */
function skipUnmapped(heap: Heap, block: number, bytes: number): number {
  const { table } = heap;
  const unmapped = heap.poolOf(block).unmappedOf(table.stream[block]!);
  unmapped.remove(block);
  const rest = heap.addPart(block, table.address[block]! + bytes, table.size[block]! - bytes, BlockState.Unmapped);
  table.size[block] = bytes;
  table.linkAfter(rest, block);
  unmapped.insert(block);
  unmapped.insert(rest);
  return rest;
}

/** Cuts the live ranges out of a block that is in no set. The gaps between them become free. */
function cutOutLive(
  heap: Heap,
  settings: PyTorchSettings,
  segment: Segment,
  whole: number,
  inside: readonly number[],
  live: readonly LiveRange[],
  blocks: number[],
): void {
  const { table } = heap;
  const shift = table.address[whole]! - segment.address;
  const end = segment.address + segment.size;
  const gaps: number[] = [];
  let rest = whole;
  // Pending until all live ranges are cut out, so that no gap is joined with it.
  table.state[whole] = BlockState.Pending;
  inside.forEach((index, position) => {
    const { address, requested, end: latestEnd } = live[index]!;
    const next = position + 1 < inside.length ? live[inside[position + 1]!]!.address : end;
    const room = Math.min(next, latestEnd) - address;
    const before = address + shift - table.address[rest]!;
    if (rest === NO_BLOCK || room <= 0 || before < 0) return;
    if (before > 0) gaps.push(heap.cutFront(rest, before));
    const size = blockSize(requested, room, segment.small, table.tag[rest]! !== PLAIN, settings);
    let block = rest;
    if (size < table.size[rest]!) block = heap.cutFront(rest, size);
    else rest = NO_BLOCK;
    table.state[block] = BlockState.Live;
    table.requested[block] = requested;
    blocks[index] = block;
  });
  for (const gap of gaps) heap.makeFree(gap);
  if (rest !== NO_BLOCK) heap.makeFree(rest);
}

/** Size of the block that serves a request. If the rest of its range is too small to split off, the block keeps it. */
function blockSize(requested: number, room: number, small: boolean, expandable: boolean, settings: PyTorchSettings): number {
  const rounded = Math.min(room, roundRequest(requested, settings));
  const left = room - rounded;
  const splits = small || expandable ? left >= MIN_BLOCK : rounded < settings.maxSplitSize && left > MIN_LARGE_REMAINDER;
  return splits ? rounded : room;
}
