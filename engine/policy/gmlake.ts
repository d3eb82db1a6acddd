// Preset gmlake: the five cases of the paper, on handles of 2 MiB. S1: a block of exactly the size. S2: the best fit, split.
// S3: several, stitched. S4: the missing part created and stitched to the rest. S5: out of memory.
// Below minStitch only S1, S2 and a new block.
import { countWay, Way } from '../abi/counters';
import { minStitch, shortfall } from '../abi/settings';
import { handleAt, handleIndex, NO_HANDLE } from '../records/handles';
import { Arena, NO_RANGE, NO_STITCH, Range, Stitch } from '../records/nodes';
import { pieceHandle } from '../records/pieces';
import { ensureRanges } from '../records/range-pool';
import { bestFit, largestFree, nextSmallerFree } from '../space/free-set';
import { grow } from '../space/growth';
import { takeBlock } from '../space/ranges';
import { clearSelection, selectedBytes, selectedCount, selectHandle } from '../space/selection';
import { makeStitch, place } from '../space/stitches';
import { makeWay } from '../streams/eviction';

export function serveGmlake(arena: Arena, size: u64): Range {
  const fit = bestFit(arena, size);
  if (fit !== NO_RANGE && fit.size === size) return takeBlock(fit, size, Way.Fit);
  const stitch = exactStitch(arena, size);
  if (stitch !== NO_STITCH) {
    if (!ensureRanges(2 * stitch.count + 2)) return NO_RANGE;
    countWay(Way.Reuse);
    return place(stitch, 0, size, false);
  }
  if (fit !== NO_RANGE) return takeBlock(fit, size, Way.Fit);
  if (size >= minStitch) {
    if (arena.freeBytes < size && arena.freeBytes > 0 && shortfall !== 0) grow(arena, size - arena.freeBytes);
    if (arena.freeBytes >= size) {
      const block = stitchLargest(arena, size);
      if (block !== NO_RANGE) return block;
    }
  }
  const grown = grow(arena, size);
  return grown === NO_RANGE ? NO_RANGE : takeBlock(grown, size, Way.Growth);
}

/** An idle stitch of exactly the size whose handles are all free. */
function exactStitch(arena: Arena, size: u64): Stitch {
  for (let stitch = arena.newestStitch; stitch !== NO_STITCH; stitch = stitch.older) {
    if (stitch.mapped !== size || !stitch.usable || stitch.live !== 0) continue;
    let index: u32 = 0;
    while (index < stitch.count && pieceHandle(stitch, index) !== NO_HANDLE && !pieceHandle(stitch, index).busy) index++;
    if (index === stitch.count) return stitch;
  }
  return NO_STITCH;
}

/** Stitches free ranges, largest first, until they suffice. */
function stitchLargest(arena: Arena, size: u64): Range {
  clearSelection();
  for (let range = largestFree(arena); range !== NO_RANGE && selectedBytes < size; range = nextSmallerFree(arena, range)) {
    const region = range.region;
    const end = range.address + range.size;
    for (let index = handleIndex(region, range.address); index < region.handleCount && selectedBytes < size; index++) {
      const handle = handleAt(region, index);
      if (handle.address >= end) break;
      if (!selectHandle(handle)) return NO_RANGE;
    }
  }
  if (selectedBytes < size || !ensureRanges(2 * selectedCount + 2) || !makeWay(arena, false)) return NO_RANGE;
  const stitch = makeStitch(arena);
  if (stitch === NO_STITCH) return NO_RANGE;
  countWay(Way.Stitch);
  return place(stitch, 0, size, false);
}
