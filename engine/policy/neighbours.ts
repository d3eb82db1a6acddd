// Places blocks beside blocks that are expected to end when they do, so that whole handles become free at once.
// Best fit mixes short and long lives, and one long life keeps the whole handle from being stitched.
import { planCount } from '../abi/counters';
import { State } from '../abi/numbers';
import { groupBytes, groupLives } from '../abi/settings';
import { log2 } from '../base/units';
import { countRequest, remaining } from '../records/lives';
import { Arena, NO_RANGE, Range } from '../records/nodes';
import { streamCount } from '../records/streams';
import { largestFree, nextFree } from '../space/free-set';
import { cutOut, takeFrontOf } from '../space/ranges';

/** Blocks that live for fewer large requests are placed by best fit: they pin nothing for long. */
const LONG_LIFE: u32 = 100;
/** A best fit that leaves at most this part of the request is taken. */
const CLOSE_FIT: u64 = 16;
/** A block that lives for no more large requests than this is fleeting. Another like it will soon need its place. */
const BRIEF_LIFE: u32 = 20;
/** Free ranges that are looked at, smallest first. The largest is looked at, too. */
const MOST_LOOKS: u32 = 4;
// Costs are log2 in 1/16.
/** Beside no block, or one of which nothing is known. */
const STRANGER: i32 = 64;
/** Most that a range can cost for its size. */
const MOST_WASTE: i32 = 32;
/** What it costs a block with a long life to take the place of a fleeting one. */
const TAKEN_PLACE: i32 = 48;
/** How much better than the best fit another place must be. */
const ADVANTAGE: i32 = 32;
/** Added to lives, so that short ones do not differ. */
const INSTANT: u64 = 30;

// Odd numbers without a pattern, for hashes.
const FACTOR1: u64 = 0x9e3779b97f4a7c15;
const FACTOR2: u64 = 0xbf58476d1ce4e5b9;
/** Bits for the hash of a size. Four of them fill a word. */
const SIZE_BITS: u64 = 16;

/**
 * Whether lives of blocks are noted. Memory that streams lend changes hands before its time, so with several streams they are not.
 * A plan places blocks itself, and needs what is left in one piece.
 */
export function notesLives(): bool {
  return groupLives !== 0 && streamCount <= 1 && planCount === 0;
}

/** Counts a large request and gives the key of its family: its size and the three sizes before it. */
export function familyKey(arena: Arena, size: u64): u64 {
  const recent = (arena.recentSizes << SIZE_BITS) | (((size >> 9) * FACTOR1) >> (64 - SIZE_BITS));
  arena.recentSizes = recent;
  countRequest();
  // The low bits of a key are not used, and no key is NO_KEY.
  return ((recent + arena.index) * FACTOR2) | 1;
}

/** Whether a block that lived this long is fleeting. */
export function isBrief(life: u32): bool {
  return life <= BRIEF_LIFE;
}

/** Whether another place may be better than the best fit. In small arenas a handle is too large a part of them. */
export function mayGroup(arena: Arena, fit: Range, size: u64, expected: u32): bool {
  if (expected <= LONG_LIFE || arena.held < groupBytes) return false;
  return fit.fleeting || fit.size - size > size / CLOSE_FIT;
}

let best: Range = NO_RANGE;
let atEnd: bool = false;
let least: i32 = 0;

/** Takes a block out of the best place. `fit` is the smallest range that holds it. Needs two spare ranges. */
export function placeGrouped(arena: Arena, fit: Range, size: u64, expected: u32): Range {
  const life = logOf(<u64>expected + INSTANT);
  const sizeLog = logOf(size);
  best = fit;
  atEnd = false;
  least = i32.MAX_VALUE;
  consider(fit, sizeLog, life);
  least -= ADVANTAGE;
  // Costs are not negative, so nearly always nothing can be better.
  if (least > 0) search(arena, fit, sizeLog, life);
  if (atEnd && best.size > size) return cutOut(best, best.address + best.size - size, size, State.Live);
  takeFrontOf(arena, best, size, State.Live);
  return best;
}

function search(arena: Arena, fit: Range, sizeLog: i32, life: i32): void {
  let range = nextFree(arena, fit);
  for (let looks: u32 = 1; range !== NO_RANGE && looks < MOST_LOOKS; looks++) {
    if (!consider(range, sizeLog, life)) return;
    range = nextFree(arena, range);
  }
  if (range !== NO_RANGE) consider(largestFree(arena), sizeLog, life);
}

/** Compares a range with the best so far. False if no larger range can be better. */
function consider(range: Range, sizeLog: i32, life: i32): bool {
  const waste = logOf(range.size) - sizeLog;
  let cost = waste < MOST_WASTE ? waste : MOST_WASTE;
  if (cost >= least) return false;
  if (range.fleeting) {
    cost += TAKEN_PLACE;
    if (cost >= least) return true;
  }
  const low = cost + mismatch(range.prev, life);
  if (low < least) {
    least = low;
    best = range;
    atEnd = false;
  }
  const high = cost + mismatch(range.next, life);
  if (high < least) {
    least = high;
    best = range;
    atEnd = true;
  }
  return true;
}

/** How much the remaining lives of a block and of a neighbour differ. */
function mismatch(neighbour: Range, life: i32): i32 {
  if (neighbour === NO_RANGE) return STRANGER;
  const block = neighbour.state === State.Piece ? neighbour.head : neighbour;
  const left = block.state === State.Live ? remaining(block.life) : 0;
  if (left === 0) return STRANGER;
  const other = logOf(<u64>left + INSTANT);
  return life > other ? life - other : other - life;
}

/** log2 in 1/16, linear between powers of two; for values of at least 16. */
function logOf(value: u64): i32 {
  const high = log2(value);
  return <i32>((high << 4) + (<u32>(value >> <u64>(high - 4)) & 15));
}
