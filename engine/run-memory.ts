// What searches for runs have found, by the free set they were made in. Training repeats itself: the same request comes
// again when the same ranges are free, and then the same run is the shortest, without looking at every view again.
import { firstFree, nextFree } from './free-set';
import { take } from './memory';
import {
  Arena,
  follows,
  NO_HANDLE,
  NO_RANGE,
  NO_VIEW,
  pieceEnd,
  pieceHandle,
  pieceIndex,
  pieceOffset,
  Range,
  View,
  viewChanges,
} from './nodes';
import { MOST_RUNS, runCount, runStartAt, runViewAt } from './reuse';
import { smaller } from './units';

/** An answer: what was asked in which state, and the views that have a run of the length found. */
@unmanaged
class Answer {
  signature: u64 = 0;
  size: u64 = 0;
  arena: Arena = changetype<Arena>(0);
  changes: u32 = 0;
  count: u32 = 0;
  // Runs follow as in reuse.ts: MOST_RUNS entries.
}

const RUN: usize = 16;
const RUNS: usize = 32;
const ANSWER: usize = RUNS + <usize>MOST_RUNS * RUN;
const ANSWERS: usize = 512;
/** With more free ranges than this the survey finds them faster. */
const MOST_RANGES: u32 = 64;

let answers: usize = 0;
const ranges: usize = memory.data(256);

export let knownView: View = NO_VIEW;
export let knownStart: u64 = 0;

function answerFor(arena: Arena, size: u64): Answer {
  const mixed = (arena.signature ^ size) * 0x9e3779b97f4a7c15;
  return changetype<Answer>(answers + (<usize>(mixed >> 55)) * ANSWER);
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
  if (answer.signature !== arena.signature || answer.size !== size || answer.arena !== arena || answer.changes !== viewChanges) return false;
  // Among equals the view used last, as the search would have it.
  knownView = NO_VIEW;
  for (let index: u32 = 0; index < answer.count; index++) {
    const run = changetype<usize>(answer) + RUNS + <usize>index * RUN;
    const view = changetype<View>(load<usize>(run, 8));
    if (knownView !== NO_VIEW && view.lastUse < knownView.lastUse) continue;
    knownView = view;
    knownStart = load<u64>(run);
  }
  return knownView !== NO_VIEW && knownView.usable && locate(arena, knownView, knownStart, knownStart + size);
}

/** Notes in findings which free ranges the run lies in; false if it is not free after all: signatures can coincide. */
function locate(arena: Arena, view: View, start: u64, end: u64): bool {
  let count: usize = 0;
  for (let range = firstFree(arena); range !== NO_RANGE; range = nextFree(arena, range)) {
    store<usize>(ranges + (count++ << 2), changetype<usize>(range));
  }
  let index = pieceIndex(view, start);
  while (index < view.count && pieceOffset(view, index) < end) {
    const handle = pieceHandle(view, index);
    if (handle === NO_HANDLE) return false;
    const offset = pieceOffset(view, index);
    const from = handle.address + (start > offset ? start - offset : 0);
    index++;
    while (index < view.count && pieceOffset(view, index) < end && follows(view, index)) index++;
    const to = handle.address + (smaller(end, pieceEnd(view, index - 1)) - offset);
    const range = rangeAround(count, from, to);
    if (range === NO_RANGE) return false;
    if (from === handle.address) handle.finding.head = range;
    else handle.finding.tail = range;
  }
  return true;
}

function rangeAround(count: usize, from: u64, to: u64): Range {
  for (let index: usize = 0; index < count; index++) {
    const range = changetype<Range>(load<usize>(ranges + (index << 2)));
    if (range.address <= from && to <= range.address + range.size) return range;
  }
  return NO_RANGE;
}
