// The free ranges of an arena by size: a small tree per size class, and a bit per class that says whether it is empty.
// Best fit is exact: the smallest sufficient range, the lowest address among equals.
import { ARENA_BITS, ARENA_ROOTS, Arena, BIN_WORDS, BINS, NO_RANGE, Range } from './nodes';
import { after, before, checkTree, firstOf, insert, lastOf, lowerBound, remove } from './tree';

/** Eight classes to each power of two; sizes of one class are in order of size with those of the next. */
function binOf(size: u64): usize {
  const units = size >> 9;
  if (units < 8) return <usize>units;
  const high = <usize>(63 - clz<u64>(units));
  return ((high - 2) << 3) + (<usize>(units >> (high - 3)) & 7);
}

function slotOf(arena: Arena, bin: usize): usize {
  return changetype<usize>(arena) + ARENA_ROOTS + (bin << 2);
}

function wordOf(arena: Arena, bin: usize): usize {
  return changetype<usize>(arena) + ARENA_BITS + ((bin >> 6) << 3);
}

export function addFree(arena: Arena, range: Range): void {
  const bin = binOf(range.size);
  const slot = slotOf(arena, bin);
  if (load<usize>(slot) === 0) {
    const word = wordOf(arena, bin);
    store<u64>(word, load<u64>(word) | ((<u64>1) << (<u64>bin & 63)));
  }
  insert(slot, range);
  arena.freeBytes += range.size;
  arena.freeCount++;
  arena.version++;
}

export function takeFree(arena: Arena, range: Range): void {
  const bin = binOf(range.size);
  const slot = slotOf(arena, bin);
  remove(slot, range);
  if (load<usize>(slot) === 0) {
    const word = wordOf(arena, bin);
    store<u64>(word, load<u64>(word) & ~((<u64>1) << (<u64>bin & 63)));
  }
  arena.freeBytes -= range.size;
  arena.freeCount--;
  arena.version++;
}

/** The first class at or after `bin` that holds something; -1 if none does. */
function nextBin(arena: Arena, bin: usize): i32 {
  let index = bin >> 6;
  if (index >= BIN_WORDS) return -1;
  let word = load<u64>(changetype<usize>(arena) + ARENA_BITS + (index << 3)) & (~(<u64>0) << (<u64>bin & 63));
  while (word === 0) {
    if (++index === BIN_WORDS) return -1;
    word = load<u64>(changetype<usize>(arena) + ARENA_BITS + (index << 3));
  }
  return <i32>((index << 6) + <usize>ctz<u64>(word));
}

function previousBin(arena: Arena, bin: i32): i32 {
  for (let index = bin; index >= 0; index--) if (load<usize>(slotOf(arena, <usize>index)) !== 0) return index;
  return -1;
}

export function bestFit(arena: Arena, size: u64): Range {
  const bin = binOf(size);
  const here = lowerBound(slotOf(arena, bin), size);
  if (here !== NO_RANGE) return here;
  const higher = nextBin(arena, bin + 1);
  return higher < 0 ? NO_RANGE : firstOf(slotOf(arena, <usize>higher));
}

/** The walk over all free ranges, smallest first. */
export function firstFree(arena: Arena): Range {
  const bin = nextBin(arena, 0);
  return bin < 0 ? NO_RANGE : firstOf(slotOf(arena, <usize>bin));
}

export function nextFree(arena: Arena, range: Range): Range {
  const next = after(range);
  if (next !== NO_RANGE) return next;
  const bin = nextBin(arena, binOf(range.size) + 1);
  return bin < 0 ? NO_RANGE : firstOf(slotOf(arena, <usize>bin));
}

/** The walk over all free ranges, largest first. */
export function largestFree(arena: Arena): Range {
  const bin = previousBin(arena, <i32>BINS - 1);
  return bin < 0 ? NO_RANGE : lastOf(slotOf(arena, <usize>bin));
}

export function nextSmallerFree(arena: Arena, range: Range): Range {
  const next = before(range);
  if (next !== NO_RANGE) return next;
  const bin = previousBin(arena, <i32>binOf(range.size) - 1);
  return bin < 0 ? NO_RANGE : lastOf(slotOf(arena, <usize>bin));
}

/** Whether the trees are sound and hold what the arena counts. */
export function checkFreeSet(arena: Arena): bool {
  let count: u32 = 0;
  for (let bin: usize = 0; bin < BINS; bin++) {
    const held = checkTree(slotOf(arena, bin));
    if (held < 0) return false;
    const bit = (load<u64>(wordOf(arena, bin)) >> (<u64>bin & 63)) & 1;
    if (held > 0 !== (bit !== 0)) return false;
    count += held;
  }
  if (count !== arena.freeCount) return false;
  let bytes: u64 = 0;
  for (let range = firstFree(arena); range !== NO_RANGE; range = nextFree(arena, range)) bytes += range.size;
  return bytes === arena.freeBytes;
}
