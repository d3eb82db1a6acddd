// Memory lent between streams of one pool. A free range belongs to the arena that may use it at once. To borrow it is to change
// its owner, which costs no driver call. But the borrower's work must come after the lender's. Either the release is over, or
// the borrower already waits for the lender, or a new wait is made.
import { countBorrow } from '../abi/counters';
import { State } from '../abi/numbers';
import { earliestFirst, gmlake, lend, mainLendsOnly, preferDone, sizeDifferenceLimit, splitBorrowed, waitAllowed } from '../abi/settings';
import { larger, smaller } from '../base/units';
import { handleAt, handleIndex } from '../records/handles';
import { Arena, NO_ARENA, NO_RANGE, Range } from '../records/nodes';
import { ensureRanges } from '../records/range-pool';
import { lastRelease, settleReleases } from '../records/releases';
import { firstArena } from '../space/arenas';
import { bestFit, firstFree, largestFree, nextFree, nextSmallerFree, takeFree } from '../space/free-set';
import { cutOut, setFree, takeFront } from '../space/ranges';
import { isCapturing, isOrdered, order, orderedUpTo, poll, stamp } from './progress';

/** Most ranges of one lender that are looked at for one request. */
const MOST_LOOKS: u32 = 64;
/** Most handles that are looked at for one request. */
const MOST_HANDLES: u32 = 65536;
/** Most ranges gathered with a wait for one request. */
const MOST_WAITED: u32 = 64;

export function mayBorrow(arena: Arena): bool {
  return lend !== 0 && gmlake === 0 && !isCapturing() && !arena.small;
}

export function lends(lender: Arena, borrower: Arena): bool {
  if (lender === borrower || lender.small || lender.pool !== borrower.pool || lender.freeCount === 0) return false;
  return mainLendsOnly === 0 || lender.stream === 0;
}

/** Polls all streams that could lend. False if there are none. */
export function pollLenders(borrower: Arena): bool {
  if (!mayBorrow(borrower)) return false;
  let any = false;
  for (let lender = firstArena(); lender !== NO_ARENA; lender = lender.next) {
    if (!lends(lender, borrower)) continue;
    poll(lender.lane);
    any = true;
  }
  return any;
}

export function isReady(range: Range, lender: Arena, borrower: Arena): bool {
  return isOrdered(borrower.lane, lender.lane, range.releasePoint);
}

function isAlike(range: Range, size: u64): bool {
  return sizeDifferenceLimit === 0 || range.size - size <= (size >> 16) * sizeDifferenceLimit;
}

/**
 * Takes a block of `size` out of one range of another stream; NO_RANGE if there is none. With `waiting`, a wait may be made.
 * Among ranges that need no wait the smallest is taken, among the others the earliest release, whose wait is likely to be
 * short. Settings can change both rules.
 */
export function borrowBlock(borrower: Arena, size: u64, waiting: bool): Range {
  let ready = NO_RANGE;
  let late = NO_RANGE;
  let readyLender = NO_ARENA;
  let lateLender = NO_ARENA;
  for (let lender = firstArena(); lender !== NO_ARENA; lender = lender.next) {
    if (!lends(lender, borrower) || lender.freeBytes < size) continue;
    let looks: u32 = 0;
    for (let range = bestFit(lender, size); range !== NO_RANGE && looks < MOST_LOOKS; range = nextFree(lender, range)) {
      if (!isAlike(range, size)) break;
      looks++;
      if (isReady(range, lender, borrower)) {
        if (ready === NO_RANGE || range.size < ready.size) {
          ready = range;
          readyLender = lender;
        }
        break;
      }
      const better = late === NO_RANGE || (earliestFirst !== 0 ? range.releasePoint < late.releasePoint : range.size < late.size);
      if (better) {
        late = range;
        lateLender = lender;
      }
    }
  }
  const mayWait = waiting && waitAllowed !== 0;
  const prefersLate = preferDone === 0 && mayWait && late !== NO_RANGE && (ready === NO_RANGE || late.size < ready.size);
  if (ready !== NO_RANGE && !prefersLate) return take(ready, readyLender, borrower, size);
  return mayWait && late !== NO_RANGE ? take(late, lateLender, borrower, size) : NO_RANGE;
}

function take(range: Range, lender: Arena, borrower: Arena, size: u64): Range {
  if (!ensureRanges(1) || !order(borrower.lane, lender.lane, range.releasePoint)) return NO_RANGE;
  takeFront(range, splitBorrowed !== 0 ? size : range.size, State.Live);
  range.owner = borrower.index;
  range.va = range.address;
  countBorrow(range.size);
  return range;
}

/**
 * Takes free ranges of other streams that touch own free ranges, so that what was lent and split joins again. With `waiting`,
 * also those that need a wait. True if there were any.
 */
export function reunite(borrower: Arena, waiting: bool): bool {
  const mayWait = waiting && waitAllowed !== 0;
  let any = false;
  for (let lender = firstArena(); lender !== NO_ARENA; lender = lender.next) {
    if (!lends(lender, borrower)) continue;
    let range = firstFree(lender);
    while (range !== NO_RANGE) {
      const next = nextFree(lender, range);
      const ready =
        touches(range, borrower) &&
        (isReady(range, lender, borrower) || (mayWait && order(borrower.lane, lender.lane, range.releasePoint)));
      if (ready) {
        adopt(range, lender, borrower);
        any = true;
      }
      range = next;
    }
  }
  return any;
}

function touches(range: Range, arena: Arena): bool {
  const prev = range.prev;
  const next = range.next;
  if (prev !== NO_RANGE && prev.state === State.Free && prev.owner === arena.index) return true;
  return next !== NO_RANGE && next.state === State.Free && next.owner === arena.index;
}

/** Takes a whole free range. The order of the two streams is certain. */
function adopt(range: Range, lender: Arena, borrower: Arena): Range {
  takeFree(lender, range);
  return hand(range, lender, borrower);
}

/** Gives a range that is in no set to the borrower as free memory. */
export function hand(range: Range, lender: Arena, borrower: Arena): Range {
  countBorrow(range.size);
  // If the release is over, it is over for every stream. Else the borrower's progress decides from now on.
  const point = range.releasePoint <= lender.lane.done ? 0 : stamp(borrower.lane, 0);
  range.owner = borrower.index;
  return setFree(range, point);
}

/**
 * Takes contiguous handles of another stream that hold `bytes` and whose releases are over. True if there were some. A free range
 * has the latest release of its parts, so most of it may be over long before the range is. If ranges may not be split, none is.
 */
export function borrowHandles(borrower: Arena, bytes: u64): bool {
  if (splitBorrowed === 0) return false;
  beginLooking();
  for (let lender = firstArena(); lender !== NO_ARENA; lender = lender.next) {
    if (!lends(lender, borrower)) continue;
    const ordered = orderedUpTo(borrower.lane, lender.lane);
    let range = bestFit(lender, bytes);
    for (let looks: u32 = 0; range !== NO_RANGE && looks < MOST_LOOKS && isAlike(range, bytes); looks++) {
      if (takeReady(range, lender, borrower, ordered, bytes, bytes) !== 0) return true;
      range = nextFree(lender, range);
    }
  }
  return false;
}

/**
 * Takes wholly free handles of other streams until they hold `bytes`. Handles that need no wait come first, from large ranges.
 * With `waiting`, the others follow, earliest release first. Gives the bytes taken.
 */
export function gather(borrower: Arena, bytes: u64, waiting: bool): u64 {
  let gathered = gatherReady(borrower, bytes);
  if (!waiting || waitAllowed === 0) return gathered;
  for (let count: u32 = 0; count < MOST_WAITED && gathered < bytes; count++) {
    const taken = gatherEarliest(borrower, bytes - gathered);
    if (taken === 0) break;
    gathered += taken;
  }
  return gathered;
}

function gatherReady(borrower: Arena, bytes: u64): u64 {
  let gathered: u64 = 0;
  beginLooking();
  for (let lender = firstArena(); lender !== NO_ARENA; lender = lender.next) {
    if (!lends(lender, borrower)) continue;
    const ordered = orderedUpTo(borrower.lane, lender.lane);
    let range = largestFree(lender);
    while (range !== NO_RANGE && gathered < bytes) {
      // Taken before the range is cut, which gives it another place in the order.
      const following = nextSmallerFree(lender, range);
      while (range !== NO_RANGE && gathered < bytes) {
        const taken = takeReady(range, lender, borrower, ordered, 1, bytes - gathered);
        if (taken === 0) break;
        gathered += taken;
        range = rest;
      }
      range = following;
    }
  }
  return gathered;
}

/** Handles that were looked at for this request. */
let lookedAt: u32 = 0;
/** What follows, in their free range, the handles that were taken last. */
let rest: Range = NO_RANGE;

function beginLooking(): void {
  settleReleases();
  lookedAt = 0;
}

/**
 * Takes contiguous handles of a free range whose releases are at most `ordered`: the first that hold `least` bytes, and more of
 * them until they hold `most`. Gives the bytes taken.
 */
function takeReady(range: Range, lender: Arena, borrower: Arena, ordered: u64, least: u64, most: u64): u64 {
  const region = range.region;
  const end = range.address + range.size;
  let start: u64 = 0;
  let size: u64 = 0;
  let latest: u64 = 0;
  let index = handleIndex(region, range.address);
  if (index < region.handleCount && handleAt(region, index).address < range.address) index++;
  for (; index < region.handleCount && size < most && lookedAt < MOST_HANDLES; index++) {
    const handle = handleAt(region, index);
    if (handle.address + handle.bytes > end) break;
    lookedAt++;
    const point = smaller(lastRelease(handle, lender.lane), range.releasePoint);
    if (point > ordered) {
      if (size >= least) break;
      size = 0;
      latest = 0;
      continue;
    }
    if (size === 0) start = handle.address;
    size += handle.bytes;
    latest = larger(latest, point);
  }
  if (size < least || !ensureRanges(2)) return 0;
  const part = cutOut(range, start, size, State.Free);
  part.releasePoint = latest;
  const next = part.next;
  rest = next !== NO_RANGE && next.state === State.Free && next.owner === lender.index ? next : NO_RANGE;
  hand(part, lender, borrower);
  return size;
}

/** Takes whole handles of the range that was released first. The borrower waits for it. */
function gatherEarliest(borrower: Arena, bytes: u64): u64 {
  let earliest = NO_RANGE;
  let owner = NO_ARENA;
  for (let lender = firstArena(); lender !== NO_ARENA; lender = lender.next) {
    if (!lends(lender, borrower)) continue;
    for (let range = firstFree(lender); range !== NO_RANGE; range = nextFree(lender, range)) {
      if (earliest !== NO_RANGE && range.releasePoint >= earliest.releasePoint) continue;
      if (!spanHandles(range, bytes)) continue;
      earliest = range;
      owner = lender;
    }
  }
  if (earliest === NO_RANGE || !order(borrower.lane, owner.lane, earliest.releasePoint)) return 0;
  return takeHandles(earliest, owner, borrower, bytes);
}

let spanStart: u64 = 0;
let spanEnd: u64 = 0;

/** Finds the handles that lie wholly in a range, up to `bytes`. False if there are none. */
function spanHandles(range: Range, bytes: u64): bool {
  const region = range.region;
  const end = range.address + range.size;
  let index = handleIndex(region, range.address);
  while (index < region.handleCount && handleAt(region, index).address < range.address) index++;
  spanStart = index < region.handleCount ? handleAt(region, index).address : end;
  spanEnd = spanStart;
  while (index < region.handleCount && spanEnd - spanStart < bytes) {
    const handle = handleAt(region, index);
    if (handle.address !== spanEnd || handle.address + handle.bytes > end) break;
    spanEnd += handle.bytes;
    index++;
  }
  return spanEnd > spanStart;
}

function takeHandles(range: Range, lender: Arena, borrower: Arena, bytes: u64): u64 {
  if (!spanHandles(range, bytes) || !ensureRanges(2)) return 0;
  const size = spanEnd - spanStart;
  hand(cutOut(range, spanStart, size, State.Free), lender, borrower);
  return size;
}
