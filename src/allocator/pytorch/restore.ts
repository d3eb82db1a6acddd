// Puts a heap into the state a recording began with: its segments, with the live ranges cut out of them.
import type { Segment } from '../../trace/trace.ts';
import type { LiveRange } from '../allocator.ts';
import { BlockState, NO_BLOCK } from '../block-table.ts';
import { type Heap, PLAIN } from './heap.ts';
import type { PyTorchSettings } from './settings.ts';
import { MIN_BLOCK, MIN_LARGE_REMAINDER, roundRequest, SMALL_SEGMENT } from './sizes.ts';

/** Blocks for the live ranges, NO_BLOCK for those that lie in no segment. */
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
    carve(heap, settings, segment, block, within(segment), live, blocks);
  }
  for (const runs of groupExpandable(segments.filter((candidate) => candidate.expandable))) {
    restoreExpandable(heap, settings, runs, within, live, blocks, expandableBytes);
  }
  return blocks;
}

/** Runs of one pool and stream lie in one expandable segment. */
function groupExpandable(runs: readonly Segment[]): Segment[][] {
  const groups = new Map<string, Segment[]>();
  for (const run of runs) {
    const key = `${run.pool}/${run.small}/${run.stream}`;
    groups.set(key, [...(groups.get(key) ?? []), run]);
  }
  return [...groups.values()].map((group) => group.sort((a, b) => a.address - b.address));
}

function restoreExpandable(
  heap: Heap,
  settings: PyTorchSettings,
  runs: readonly Segment[],
  within: (segment: Segment) => number[],
  live: readonly LiveRange[],
  blocks: number[],
  expandableBytes: (page: number) => number,
): void {
  const { table } = heap;
  const first = runs[0]!;
  const last = runs.at(-1)!;
  const pool = heap.pools.of(first.pool, first.small);
  const page = first.small ? SMALL_SEGMENT : settings.largeSegmentSize;
  const span = Math.ceil((last.address + last.size - first.address) / page) * page;
  let open = heap.addExpandable(pool, first.stream, page, Math.max(expandableBytes(page), span), first.address);
  if (open === NO_BLOCK) return;
  const shift = table.address[open]! - first.address;
  for (const run of runs) {
    const gap = run.address + shift - table.address[open]!;
    if (gap % page !== 0 || gap < 0) continue;
    if (gap > 0) open = skipUnmapped(heap, open, gap);
    const block = open;
    if (!heap.mapBlock(block, run.size)) return;
    open = table.next[block]!;
    heap.takeFree(block);
    carve(heap, settings, run, block, within(run), live, blocks);
    if (open === NO_BLOCK) return;
  }
}

/** Leaves the first `bytes` of an unmapped block unmapped and gives back the block behind them. */
function skipUnmapped(heap: Heap, block: number, bytes: number): number {
  const { table } = heap;
  const unmapped = heap.poolOf(block).unmappedOf(table.stream[block]!);
  unmapped.remove(block);
  const rest = table.add(
    table.address[block]! + bytes,
    table.size[block]! - bytes,
    BlockState.Unmapped,
    table.stream[block]!,
    table.group[block]!,
    table.tag[block]!,
  );
  table.size[block] = bytes;
  table.linkAfter(rest, block);
  unmapped.insert(block);
  unmapped.insert(rest);
  return rest;
}

/** Cuts the live ranges out of a block that is in no set; what lies between them becomes free. */
function carve(
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
  // Neither free nor joined with what becomes free until the carving is done.
  table.state[whole] = BlockState.Pending;
  inside.forEach((index, position) => {
    const { address, requested } = live[index]!;
    const room = (position + 1 < inside.length ? live[inside[position + 1]!]!.address : end) - address;
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

/** A request's block also holds what was left of the range it was cut from, if that was too little to split off. */
function blockSize(requested: number, room: number, small: boolean, expandable: boolean, settings: PyTorchSettings): number {
  const rounded = Math.min(room, roundRequest(requested, settings));
  const left = room - rounded;
  const splits = small || expandable ? left >= MIN_BLOCK : rounded < settings.maxSplitSize && left > MIN_LARGE_REMAINDER;
  return splits ? rounded : room;
}
