// What searches for runs have found, by the free set they were made in. Training repeats itself: the same request comes
// again when the same ranges are free, and then the same run is the shortest, without looking at every view again.
import { smaller } from '../base/units';
import { take } from '../records/memory';
import { Arena, NO_HANDLE, NO_RANGE, NO_VIEW, Range, View } from '../records/nodes';
import { groupEnd, pieceEnd, pieceHandle, pieceIndex, pieceOffset, viewChanges } from '../records/pieces';
import { MOST_RUNS, runCount, runStartAt, runViewAt } from './extents';
import { firstFree, nextFree } from './free-set';

/** An answer: what was asked in which state, and the views that have a run of the length found. */
@unmanaged
class Answer {
  signature: u64 = 0;
  size: u64 = 0;
  arena: Arena = changetype<Arena>(0);
  changes: u32 = 0;
  count: u32 = 0;
  // Runs follow as in reuse.ts: MOST_RUNS entries. Then, for each part of the run that lies in one free range, a byte: the
  // place of that range in the walk over all of them, which is the same walk when the same ranges are free.
}

const RUN: usize = 16;
const RUNS: usize = 32;
const PLACES: usize = RUNS + <usize>MOST_RUNS * RUN;
const MOST_PLACES: usize = 32;
const ANSWER: usize = PLACES + MOST_PLACES;
const ANSWERS: usize = 512;
/** With more free ranges than this the survey finds them faster. */
const MOST_RANGES: u32 = 64;

let answers: usize = 0;
const ranges: usize = memory.data(256);

export let knownView: View = NO_VIEW;
export let knownStart: u64 = 0;

function answerFor(arena: Arena, size: u64): Answer {
  const mixed = (arena.signature ^ size) * 0x9e3779b97f4a7c15;
  return changetype<Answer>(answers + <usize>(mixed >> 55) * ANSWER);
}

/** Keeps what the search just made in this arena has found. */
export function keepRuns(arena: Arena, size: u64): void {
  if (runCount > MOST_RUNS) return;
  if (answers === 0) {
    answers = take(ANSWERS * ANSWER);
    if (answers === 0) return;
    memory.fill(answers, 0, ANSWERS * ANSWER);
  }
  const answer = answerFor(arena, size);
  answer.signature = arena.signature;
  answer.size = size;
  answer.arena = arena;
  answer.changes = viewChanges;
  answer.count = runCount;
  for (let index: u32 = 0; index < runCount; index++) {
    const run = changetype<usize>(answer) + RUNS + <usize>index * RUN;
    store<u64>(run, runStartAt(index));
    store<usize>(run, changetype<usize>(runViewAt(index)), 8);
  }
}

/**
 * Whether it is known where the shortest run of at least `size` is: then `knownView` and `knownStart` say so, and a block can
 * be placed there as after a survey.
 */
export function recallRun(arena: Arena, size: u64): bool {
  if (answers === 0 || arena.freeCount > MOST_RANGES) return false;
  const answer = answerFor(arena, size);
  if (answer.signature !== arena.signature || answer.size !== size || answer.arena !== arena || answer.changes !== viewChanges)
    return false;
  // Among equals the view used last, as the search would have it.
  knownView = NO_VIEW;
  for (let index: u32 = 0; index < answer.count; index++) {
    const run = changetype<usize>(answer) + RUNS + <usize>index * RUN;
    const view = changetype<View>(load<usize>(run, 8));
    if (knownView !== NO_VIEW && view.lastUse < knownView.lastUse) continue;
    knownView = view;
    knownStart = load<u64>(run);
  }
  return knownView !== NO_VIEW && knownView.usable && locate(answer, arena, knownView, knownStart, knownStart + size);
}

/** Notes in findings which free ranges the run lies in; false if it is not free after all: signatures can coincide. */
function locate(answer: Answer, arena: Arena, view: View, start: u64, end: u64): bool {
  let count: usize = 0;
  for (let range = firstFree(arena); range !== NO_RANGE; range = nextFree(arena, range)) {
    store<usize>(ranges + (count++ << 2), changetype<usize>(range));
  }
  let part: usize = 0;
  let index = pieceIndex(view, start);
  while (index < view.count && pieceOffset(view, index) < end) {
    const handle = pieceHandle(view, index);
    if (handle === NO_HANDLE) return false;
    const offset = pieceOffset(view, index);
    const from = handle.address + (start > offset ? start - offset : 0);
    index = groupEnd(view, index, end);
    const to = handle.address + (smaller(end, pieceEnd(view, index - 1)) - offset);
    const place = changetype<usize>(answer) + PLACES + (part < MOST_PLACES - 1 ? part++ : part);
    let number = <usize>load<u8>(place);
    if (number >= count || !holds(rangeOf(number), from, to)) {
      number = 0;
      while (number < count && !holds(rangeOf(number), from, to)) number++;
      if (number === count) return false;
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
