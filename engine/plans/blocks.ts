// Blocks at planned places. They are ranges that belong to no region's tiling; they are kept in a list, and their cells are
// taken. Their region is a marker: it says that a block is planned, and to which arena it belongs.
import { countComplete, countPlanBlock, countUse } from '../abi/counters';
import { State } from '../abi/numbers';
import { Arena, NO_RANGE, NO_REGION, Range, Region } from '../records/nodes';
import { dropRange, newRange } from '../records/range-pool';
import { NO_USE } from '../records/streams';
import { newRegion } from '../space/arenas';
import { freeCells, takeCells } from './cells';

let mark: Region = NO_REGION;
let newest: Range = NO_RANGE;

/** Makes the marker. False if the engine's own memory is exhausted. */
export function preparePlannedBlocks(): bool {
  if (mark === NO_REGION) mark = newRegion();
  return mark !== NO_REGION;
}

export function isPlanned(block: Range): bool {
  return block.region === mark;
}

export function newestPlanned(): Range {
  return newest;
}

/** Sets the cells of a block, and takes them. */
export function setCells(block: Range, first: u32, end: u32): void {
  block.firstCell = first;
  block.endCell = end;
  takeCells(first, end);
}

/** A live block at cells that were taken for it. Needs one spare range. */
export function addPlanned(arena: Arena, address: u64, size: u64, asked: u64, first: u32, end: u32): Range {
  mark.arena = arena;
  const block = newRange(mark, address, size, State.Live);
  block.va = address;
  block.requested = asked;
  block.uses = NO_USE;
  block.firstCell = first;
  block.endCell = end;
  block.olderPlanned = newest;
  if (newest !== NO_RANGE) newest.newerPlanned = block;
  newest = block;
  countPlanBlock(1);
  countUse(size, asked);
  return block;
}

/** Frees the place of a block that is complete. */
export function dropPlanned(block: Range): void {
  countComplete(block.size);
  freeCells(block.firstCell, block.endCell);
  if (block.newerPlanned !== NO_RANGE) block.newerPlanned.olderPlanned = block.olderPlanned;
  else newest = block.olderPlanned;
  if (block.olderPlanned !== NO_RANGE) block.olderPlanned.newerPlanned = block.newerPlanned;
  countPlanBlock(-1);
  dropRange(block);
}
