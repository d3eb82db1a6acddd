// Free runs in the views of a pool, whoever made them, over memory of whoever may lend it: a stitch made once serves all.
import { State } from '../abi/range-states';
import { larger, smaller } from '../base/units';
import { ownerOf } from '../records/arena-table';
import { Arena, NO_ARENA, NO_RANGE, NO_VIEW, Range, View } from '../records/nodes';
import { pieceHandle, pieceIndex, pieceOffset } from '../records/pieces';
import { ensureRanges } from '../records/range-pool';
import { firstArena } from '../space/arenas';
import { runStart, runView, searchMoreRuns, searchRuns } from '../space/extents';
import { firstFree, nextFree } from '../space/free-set';
import { carve, rangeAt } from '../space/ranges';
import { beginSurvey, surveyRange } from '../space/survey';
import { hand, isReady, lends } from './lending';
import { order } from './progress';

/**
 * Makes the borrower's what the shortest run of at least `size` needs of others' memory. `waiting`: waits may be made for
 * it. True if there is such a run: then `runView` and `runStart` say where, and all of it is the borrower's.
 */
export function borrowRun(borrower: Arena, size: u64, waiting: bool): bool {
  beginSurvey();
  for (let lender = firstArena(); lender !== NO_ARENA; lender = lender.next) {
    const own = lender === borrower;
    if (!own && !lends(lender, borrower)) continue;
    for (let range = firstFree(lender); range !== NO_RANGE; range = nextFree(lender, range)) {
      if (!own && !waiting && !isReady(range, lender, borrower)) continue;
      if (!surveyRange(range)) return false;
    }
  }
  searchRuns(borrower, size);
  for (let other = firstArena(); other !== NO_ARENA; other = other.next) {
    if (other !== borrower && other.pool === borrower.pool) searchMoreRuns(other, size);
  }
  if (runView === NO_VIEW || !ensureRanges(2 * runView.count + 2)) return false;
  if (!orderRun(borrower, runView, runStart, runStart + size)) return false;
  takeRun(borrower, runView, runStart, runStart + size);
  return true;
}

/** The range under the part of a run that lies in a piece of its view: the run has one range in each piece. */
function rangeUnder(view: View, index: u32, start: u64): Range {
  const handle = pieceHandle(view, index);
  const offset = pieceOffset(view, index);
  const from = handle.address + (start > offset ? start - offset : 0);
  return rangeAt(from === handle.address ? handle.finding.head : handle.finding.tail, from);
}

function orderRun(borrower: Arena, view: View, start: u64, end: u64): bool {
  for (let index = pieceIndex(view, start); index < view.count && pieceOffset(view, index) < end; index++) {
    const range = rangeUnder(view, index, start);
    const lender = ownerOf(range);
    if (lender !== borrower && !order(borrower.lane, lender.lane, range.requested)) return false;
  }
  return true;
}

/** Cuts the run's memory out of what others own, and only then makes it free: joining would move ranges the survey knows. */
function takeRun(borrower: Arena, view: View, start: u64, end: u64): void {
  let taken = NO_RANGE;
  for (let index = pieceIndex(view, start); index < view.count && pieceOffset(view, index) < end; index++) {
    const range = rangeUnder(view, index, start);
    if (range.owner === borrower.index) continue;
    const handle = pieceHandle(view, index);
    const offset = pieceOffset(view, index);
    const from = handle.address + (larger(start, offset) - offset);
    const to = handle.address + smaller(handle.bytes, end - offset);
    const part = carve(range, from, to - from, State.Piece);
    part.left = taken;
    taken = part;
  }
  while (taken !== NO_RANGE) {
    const next = taken.left;
    hand(taken, ownerOf(taken), borrower);
    taken = next;
  }
}
