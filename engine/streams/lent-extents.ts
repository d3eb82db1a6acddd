// Free extents in any stitch of a pool, over memory of any stream that may lend. So a stitch made once serves all streams.
import { State } from '../abi/numbers';
import { larger, smaller } from '../base/units';
import { ownerOf } from '../records/arena-table';
import { Arena, NO_ARENA, NO_RANGE, NO_STITCH, Range, Stitch } from '../records/nodes';
import { pieceHandle, pieceIndex, pieceOffset } from '../records/pieces';
import { ensureRanges } from '../records/range-pool';
import { firstArena } from '../space/arenas';
import { extentStart, extentStitch, searchExtents, searchMoreExtents } from '../space/extents';
import { firstFree, nextFree } from '../space/free-set';
import { cutOut, rangeAt } from '../space/ranges';
import { beginSurvey, surveyRange } from '../space/survey';
import { hand, isReady, lends } from './lending';
import { order } from './progress';

/**
 * Borrows the memory of the shortest extent of at least `size`. With `waiting`, waits may be made. If true, `extentStitch` and
 * `extentStart` say where the extent is, and the borrower owns all of it.
 */
export function borrowExtent(borrower: Arena, size: u64, waiting: bool): bool {
  beginSurvey();
  for (let lender = firstArena(); lender !== NO_ARENA; lender = lender.next) {
    const own = lender === borrower;
    if (!own && !lends(lender, borrower)) continue;
    for (let range = firstFree(lender); range !== NO_RANGE; range = nextFree(lender, range)) {
      if (!own && !waiting && !isReady(range, lender, borrower)) continue;
      if (!surveyRange(range)) return false;
    }
  }
  searchExtents(borrower, size);
  for (let other = firstArena(); other !== NO_ARENA; other = other.next) {
    if (other !== borrower && other.pool === borrower.pool) searchMoreExtents(other, size);
  }
  if (extentStitch === NO_STITCH || !ensureRanges(2 * extentStitch.count + 2)) return false;
  if (!orderExtent(borrower, extentStitch, extentStart, extentStart + size)) return false;
  takeExtent(borrower, extentStitch, extentStart, extentStart + size);
  return true;
}

/** The range under the part of an extent in one piece. An extent has one range in each piece. */
function rangeUnder(stitch: Stitch, index: u32, start: u64): Range {
  const handle = pieceHandle(stitch, index);
  const offset = pieceOffset(stitch, index);
  const from = handle.address + (start > offset ? start - offset : 0);
  return rangeAt(from === handle.address ? handle.finding.head : handle.finding.tail, from);
}

function orderExtent(borrower: Arena, stitch: Stitch, start: u64, end: u64): bool {
  for (let index = pieceIndex(stitch, start); index < stitch.count && pieceOffset(stitch, index) < end; index++) {
    const range = rangeUnder(stitch, index, start);
    const lender = ownerOf(range);
    if (lender !== borrower && !order(borrower.lane, lender.lane, range.releasePoint)) return false;
  }
  return true;
}

/**
 * First cuts the memory of the extent out of the lenders' ranges, then makes it free. Joining earlier would move ranges that
 * the survey knows.
 */
function takeExtent(borrower: Arena, stitch: Stitch, start: u64, end: u64): void {
  let taken = NO_RANGE;
  for (let index = pieceIndex(stitch, start); index < stitch.count && pieceOffset(stitch, index) < end; index++) {
    const range = rangeUnder(stitch, index, start);
    if (range.owner === borrower.index) continue;
    const handle = pieceHandle(stitch, index);
    const offset = pieceOffset(stitch, index);
    const from = handle.address + (larger(start, offset) - offset);
    const to = handle.address + smaller(handle.bytes, end - offset);
    const part = cutOut(range, from, to - from, State.Piece);
    part.nextPiece = taken;
    taken = part;
  }
  while (taken !== NO_RANGE) {
    const next = taken.nextPiece;
    hand(taken, ownerOf(taken), borrower);
    taken = next;
  }
}
