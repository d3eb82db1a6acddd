// Remembers the results of searches for extents. Training repeats itself: the same request comes again while the same ranges
// are free. Then the same extent is the shortest, and no stitch has to be searched.
import { smaller } from '../base/units';
import { NO_HANDLE } from '../records/handles';
import { take } from '../records/memory';
import { Arena, NO_ARENA, NO_RANGE, NO_STITCH, Range, Stitch } from '../records/nodes';
import { groupEnd, pieceEnd, pieceHandle, pieceIndex, pieceOffset, stitchChanges } from '../records/pieces';
import { extentCount, extentStartAt, extentStitchAt, MOST_EXTENTS } from './extents';
import { firstFree, freeChanges, nextFree } from './free-set';

/** A remembered result: the request, the free set, and the stitches with an extent of the length found. */
@unmanaged
class Answer {
  signature: u64 = 0;
  size: u64 = 0;
  arena: Arena = changetype<Arena>(0);
  changes: u32 = 0;
  count: u32 = 0;
  // Extents follow as in space/extents.ts, MOST_EXTENTS entries. Then a byte for each part of the extent: the number of its
  // free range in the walk over all free ranges. The walk is the same if the same ranges are free.
}

const EXTENT: usize = 16;
const EXTENTS: usize = 32;
const PLACES: usize = EXTENTS + <usize>MOST_EXTENTS * EXTENT;
const MOST_PLACES: usize = 32;
const ANSWER: usize = PLACES + MOST_PLACES;
const ANSWERS: usize = 512;
/** An odd number without a pattern, for hashes. */
const FACTOR: u64 = 0x9e3779b97f4a7c15;
/** With more free ranges than this, a survey is faster. */
const MOST_RANGES: u32 = 64;

let answers: usize = 0;

/** The free ranges of an arena, the smallest first, and their signature. Valid until a free range changes. */
const ranges: usize = memory.data(256);
let rangeCount: usize = 0;
let signature: u64 = 0;
let arenaListed: Arena = NO_ARENA;
let changesListed: u64 = 0;

export let knownStitch: Stitch = NO_STITCH;
export let knownStart: u64 = 0;

/** Lists the free ranges of the arena. False if they are too many. */
function listRanges(arena: Arena): bool {
  if (arena.freeCount > MOST_RANGES) return false;
  if (arenaListed === arena && changesListed === freeChanges) return true;
  rangeCount = 0;
  signature = 0;
  for (let range = firstFree(arena); range !== NO_RANGE; range = nextFree(arena, range)) {
    store<usize>(ranges + (rangeCount++ << 2), changetype<usize>(range));
    signature += traitOf(range);
  }
  arenaListed = arena;
  changesListed = freeChanges;
  return true;
}

/** What a range adds to the signature. Not linear, so that moving a border changes the sum. */
function traitOf(range: Range): u64 {
  const mixed = (range.address + (range.size << 20)) * FACTOR;
  return mixed ^ (mixed >> 29);
}

/** The place for the answer to a request, while the free ranges are as listed. */
function answerFor(size: u64): Answer {
  const mixed = (signature ^ size) * FACTOR;
  return changetype<Answer>(answers + <usize>(mixed >> 55) * ANSWER);
}

/** Remembers the result of the last search, made in this arena. */
export function keepExtents(arena: Arena, size: u64): void {
  if (extentCount > MOST_EXTENTS || !listRanges(arena)) return;
  if (answers === 0) {
    answers = take(ANSWERS * ANSWER);
    if (answers === 0) return;
    memory.fill(answers, 0, ANSWERS * ANSWER);
  }
  const answer = answerFor(size);
  answer.signature = signature;
  answer.size = size;
  answer.arena = arena;
  answer.changes = stitchChanges;
  answer.count = extentCount;
  for (let index: u32 = 0; index < extentCount; index++) {
    const extent = changetype<usize>(answer) + EXTENTS + <usize>index * EXTENT;
    store<u64>(extent, extentStartAt(index));
    store<usize>(extent, changetype<usize>(extentStitchAt(index)), 8);
  }
}

/**
 * Looks up the shortest extent of at least `size`. If it is known, `knownStitch` and `knownStart` say where it is, and a block
 * can be placed there as after a survey.
 */
export function recallExtent(arena: Arena, size: u64): bool {
  if (answers === 0 || !listRanges(arena)) return false;
  const answer = answerFor(size);
  if (answer.signature !== signature || answer.size !== size || answer.arena !== arena || answer.changes !== stitchChanges) return false;
  // Among equals the stitch used last, as in the search.
  knownStitch = NO_STITCH;
  for (let index: u32 = 0; index < answer.count; index++) {
    const extent = changetype<usize>(answer) + EXTENTS + <usize>index * EXTENT;
    const stitch = changetype<Stitch>(load<usize>(extent, 8));
    if (knownStitch !== NO_STITCH && stitch.lastUse < knownStitch.lastUse) continue;
    knownStitch = stitch;
    knownStart = load<u64>(extent);
  }
  return knownStitch !== NO_STITCH && knownStitch.usable && locate(answer, knownStitch, knownStart, knownStart + size);
}

/** Writes the free ranges of the extent into findings. False if the extent is not free: a hash collision. */
function locate(answer: Answer, stitch: Stitch, start: u64, end: u64): bool {
  let part: usize = 0;
  let index = pieceIndex(stitch, start);
  while (index < stitch.count && pieceOffset(stitch, index) < end) {
    const handle = pieceHandle(stitch, index);
    if (handle === NO_HANDLE) return false;
    const offset = pieceOffset(stitch, index);
    const from = handle.address + (start > offset ? start - offset : 0);
    index = groupEnd(stitch, index, end);
    const to = handle.address + (smaller(end, pieceEnd(stitch, index - 1)) - offset);
    const place = changetype<usize>(answer) + PLACES + (part < MOST_PLACES - 1 ? part++ : part);
    let number = <usize>load<u8>(place);
    if (number >= rangeCount || !holds(rangeOf(number), from, to)) {
      number = 0;
      while (number < rangeCount && !holds(rangeOf(number), from, to)) number++;
      if (number === rangeCount) return false;
      store<u8>(place, <u8>number);
    }
    const range = rangeOf(number);
    if (from === handle.address) handle.finding.head = range;
    else handle.finding.tail = range;
  }
  return true;
}

function rangeOf(number: usize): Range {
  return changetype<Range>(load<usize>(ranges + (number << 2)));
}

function holds(range: Range, from: u64, to: u64): bool {
  return range.address <= from && to <= range.address + range.size;
}
