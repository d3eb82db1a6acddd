// The free ranges of an arena by size: a small tree per size class, and a bit per class that says whether it is empty.
// Best fit is exact: the smallest sufficient range, the lowest address among equals.
import { log2 } from '../base/units';
import { ARENA_BITS, ARENA_ROOTS, Arena, BIN_WORDS, BINS, NO_RANGE, Range } from '../records/nodes';
import { after, before, checkTree, firstOf, insert, isLeaf, lastOf, lowerBound, plant, remove } from './tree';

/** Counts changes of free ranges, of all arenas. What was learnt of free ranges is valid while it stays the same. */
export let freeChanges: u64 = 0;

/**
 * 64 classes to each power of two keep trees small. Below 64 KiB a class has ranges of one size only. Every range of a class is
 * smaller than those of the next.
 */
function binOf(size: u64): usize {
  const units = size >> 9;
  if (units < 64) return <usize>units;
  const high = <usize>(63 - clz<u64>(units));
  return ((high - 5) << 6) + (<usize>(units >> (high - 6)) & 63);
}

function slotOf(arena: Arena, bin: usize): usize {
  return changetype<usize>(arena) + ARENA_ROOTS + (bin << 2);
}

function summaryOf(arena: Arena): u64 {
  return load<u64>(changetype<usize>(arena) + ARENA_BITS);
}

function wordOf(arena: Arena, word: usize): u64 {
  return load<u64>(changetype<usize>(arena) + ARENA_BITS + 8 + (word << 3));
}

function setWord(arena: Arena, word: usize, bits: u64): void {
  store<u64>(changetype<usize>(arena) + ARENA_BITS + 8 + (word << 3), bits);
}

function setSummary(arena: Arena, bits: u64): void {
  store<u64>(changetype<usize>(arena) + ARENA_BITS, bits);
}

function bitOf(index: usize): u64 {
  return (<u64>1) << (<u64>(index & 63));
}

function isAlone(slot: usize, range: Range): bool {
  return load<usize>(slot) === changetype<usize>(range) && isLeaf(range);
}

/** Adds the first range of a class. */
function openBin(arena: Arena, bin: usize, range: Range): void {
  const word = bin >> 6;
  setWord(arena, word, wordOf(arena, word) | bitOf(bin));
  setSummary(arena, summaryOf(arena) | bitOf(word));
  plant(slotOf(arena, bin), range);
}

/** Removes the last range of a class. */
function closeBin(arena: Arena, bin: usize): void {
  const word = bin >> 6;
  const bits = wordOf(arena, word) & ~bitOf(bin);
  store<usize>(slotOf(arena, bin), 0);
  setWord(arena, word, bits);
  if (bits === 0) setSummary(arena, summaryOf(arena) & ~bitOf(word));
}

export function addFree(arena: Arena, range: Range): void {
  const size = range.size;
  const bin = binOf(size);
  arena.freeBytes += size;
  arena.freeCount++;
  freeChanges++;
  const slot = slotOf(arena, bin);
  if (load<usize>(slot) === 0) openBin(arena, bin, range);
  else insert(slot, range);
}

export function takeFree(arena: Arena, range: Range): void {
  const size = range.size;
  const bin = binOf(size);
  const slot = slotOf(arena, bin);
  arena.freeBytes -= size;
  arena.freeCount--;
  freeChanges++;
  if (isAlone(slot, range)) closeBin(arena, bin);
  else remove(slot, range);
}

/**
 * Replaces a range of `size` bytes by another, or by itself with a new size. This happens when a block is cut off a free range
 * or joins it. A long range is mostly alone in its class and stays there, so little has to be done.
 */
export function moveFree(arena: Arena, gone: Range, size: u64, come: Range): void {
  const from = binOf(size);
  const to = binOf(come.size);
  const slot = slotOf(arena, from);
  arena.freeBytes += come.size - size;
  freeChanges++;
  if (isAlone(slot, gone)) {
    if (from === to) {
      if (come !== gone) plant(slot, come);
      return;
    }
    closeBin(arena, from);
  } else {
    remove(slot, gone);
  }
  const target = slotOf(arena, to);
  if (load<usize>(target) === 0) openBin(arena, to, come);
  else insert(target, come);
}

/** The first class at or after `bin` that is not empty; -1 if there is none. */
function nextBin(arena: Arena, bin: usize): i32 {
  let word = bin >> 6;
  if (word >= BIN_WORDS) return -1;
  let bits = wordOf(arena, word) & (~(<u64>0) << (<u64>(bin & 63)));
  if (bits === 0) {
    const words = summaryOf(arena) & ~(((<u64>2) << (<u64>word)) - 1);
    if (words === 0) return -1;
    word = <usize>ctz<u64>(words);
    bits = wordOf(arena, word);
  }
  return <i32>((word << 6) + <usize>ctz<u64>(bits));
}

/** The last class at or before `bin` that is not empty; -1 if there is none. */
function previousBin(arena: Arena, bin: i32): i32 {
  if (bin < 0) return -1;
  let word = <usize>bin >> 6;
  let bits = wordOf(arena, word) & (~(<u64>0) >> <u64>(63 - (bin & 63)));
  if (bits === 0) {
    const words = summaryOf(arena) & (bitOf(word) - 1);
    if (words === 0) return -1;
    word = <usize>log2(words);
    bits = wordOf(arena, word);
  }
  return <i32>((word << 6) + <usize>log2(bits));
}

export function bestFit(arena: Arena, size: u64): Range {
  const bin = binOf(size);
  const here = lowerBound(slotOf(arena, bin), size);
  if (here !== NO_RANGE) return here;
  const higher = nextBin(arena, bin + 1);
  return higher < 0 ? NO_RANGE : firstOf(slotOf(arena, <usize>higher));
}

/** Walks all free ranges, smallest first. */
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

/** Walks all free ranges, largest first. */
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
  for (let bin: usize = 0; bin < BINS; bin += 2) {
    const word = bin >> 6;
    const bits = wordOf(arena, word);
    if ((bits !== 0) !== ((summaryOf(arena) & bitOf(word)) !== 0)) return false;
    const marked = (bits >> <u64>(bin & 63)) & 3;
    // Two classes at once: nearly all are empty, and tests check after every operation.
    if (load<u64>(slotOf(arena, bin)) === 0) {
      if (marked !== 0) return false;
      continue;
    }
    const first = checkTree(slotOf(arena, bin));
    const second = checkTree(slotOf(arena, bin + 1));
    if (first < 0 || second < 0) return false;
    if (first > 0 !== ((marked & 1) !== 0) || second > 0 !== ((marked & 2) !== 0)) return false;
    count += first + second;
  }
  if (count !== arena.freeCount) return false;
  let bytes: u64 = 0;
  for (let range = firstFree(arena); range !== NO_RANGE; range = nextFree(arena, range)) bytes += range.size;
  return bytes === arena.freeBytes;
}
