// Preset weir: serves large requests that no free range of the arena holds.
// First a free extent in a stitch; then growth, while little more is held than was ever live; then a stitch of what is free,
// with only the missing bytes created. Growing and stitching are compared by their cost.
import { countWay, inUse, neededInUse, reserved, Way } from '../abi/counters';
import {
  carveSlabs,
  createCost,
  growthLimit,
  growthShare,
  handleUnit,
  mapCost,
  minStitch,
  poolPrice,
  reserveCost,
  sharedGrowthShare,
  stitchBorrowed,
  waitAllowed,
  waitShare,
} from '../abi/settings';
import { larger, MIB, roundUp, smaller } from '../base/units';
import { Arena, NO_ARENA, NO_RANGE, NO_STITCH, Range, Stitch } from '../records/nodes';
import { ensureRanges } from '../records/range-pool';
import { arenaOf } from '../space/arenas';
import { budgetWith, hasLenders, noteLenders } from '../space/budget';
import { keepExtents, knownStart, knownStitch, recallExtent } from '../space/extent-memory';
import { extentStart, extentStitch, openBytes, openStitch, searchExtents, searchOpen } from '../space/extents';
import { bestFit } from '../space/free-set';
import { freeTail, grow, tailRoom } from '../space/growth';
import { handleBytes } from '../space/handle-size';
import { takeBlock } from '../space/ranges';
import { selectedBytes, selectedCount } from '../space/selection';
import { extend, makeStitch, place } from '../space/stitches';
import { assemblable, listWholes, surveyArena, wholeCount } from '../space/survey';
import { makeWay } from '../streams/eviction';
import { borrowBlock, borrowHandles, gather, pollLenders, reunite } from '../streams/lending';
import { borrowExtent } from '../streams/lent-extents';
import { sinceWait } from '../streams/progress';
import { markHandles, selectForExtension, selectForStitch, selectionStart } from './assembly';
import { awaitParked } from './completion';

/** A wait is rare if there was none for this many releases. A rare one may save less: this many eighths of waitShare. */
const RARE_WAIT: u64 = 1000;
const RARE_EIGHTHS: u64 = 5;

/** A block for a request that no free range holds. `pressed`: memory has run out, so all that is free is stitched. */
export function serveWeir(arena: Arena, size: u64, pressed: bool): Range {
  // On a second attempt there may be a fit, after waits and freed memory.
  const fit = bestFit(arena, size);
  if (fit !== NO_RANGE) return takeBlock(fit, size, Way.Fit);
  const haveLenders = pollLenders(arena);
  noteLenders(haveLenders);
  arena.shared = haveLenders;
  if (recallExtent(arena, size)) return settle(knownStitch, knownStart, size, Way.Reuse);
  if (arena.newestStitch !== NO_STITCH) {
    if (!surveyArena(arena)) return NO_RANGE;
    searchExtents(arena, size);
    keepExtents(arena, size);
    if (extentStitch !== NO_STITCH) return settle(extentStitch, extentStart, size, Way.Reuse);
  }

  // Memory of another stream costs nothing once its release is over.
  if (haveLenders) {
    const block = borrowBlock(arena, size, false);
    if (block !== NO_RANGE) return block;
  }
  const growth = growthFor(arena, size);
  const affordable = reserved + atLeast(arena, growth) <= budgetWith(size);
  if (!affordable) {
    const spare = spareSlab(arena, size);
    if (spare !== NO_RANGE) return takeBlock(spare, size, Way.Carve);
  }
  if (haveLenders && (!affordable || pressed)) {
    const block = borrowLate(arena, size, pressed);
    if (block !== NO_RANGE) return block;
    if (!surveyArena(arena)) return NO_RANGE;
  }
  const wantsStitch = pressed || size >= minStitch;
  if (!wantsStitch || (!pressed && affordable)) {
    const block = growAndTake(arena, size, growth);
    if (block !== NO_RANGE) return block;
  }

  if (!surveyArena(arena)) return NO_RANGE;
  const free = assemblable();
  if (free < size) {
    const missing = size - free;
    if (!pressed && growthIsCheaper(arena, atLeast(arena, growth), atLeast(arena, missing))) return growAndTake(arena, size, growth);
    if (expand(arena, missing) === NO_RANGE) return NO_RANGE;
    const grown = bestFit(arena, size);
    if (grown !== NO_RANGE) return takeBlock(grown, size, Way.Growth);
    if (!surveyArena(arena)) return NO_RANGE;
  }
  const block = join(arena, size, pressed);
  return block !== NO_RANGE ? block : growAndTake(arena, size, growth);
}

/** Borrows memory before more is created than the budget allows. Means that need a wait come last. */
function borrowLate(arena: Arena, size: u64, pressed: bool): Range {
  const stitches = stitchBorrowed !== 0 && (size >= minStitch || pressed);
  if (stitches && borrowExtent(arena, size, false)) return settleLent(size);
  if (reunite(arena, false)) {
    const fit = bestFit(arena, size);
    if (fit !== NO_RANGE) return takeBlock(fit, size, Way.Borrow);
  }
  if (!surveyArena(arena)) return NO_RANGE;
  if (borrowHandles(arena, size)) {
    const fit = bestFit(arena, size);
    if (fit !== NO_RANGE) return takeBlock(fit, size, Way.Borrow);
  }
  if (stitches) {
    const own = assemblable();
    if (own < size && gather(arena, size - own, false) !== 0) {
      const fit = bestFit(arena, size);
      if (fit !== NO_RANGE) return takeBlock(fit, size, Way.Borrow);
      if (!surveyArena(arena)) return NO_RANGE;
    }
  }
  if (!pressed && isCheaperThanWaiting(arena, size)) return NO_RANGE;
  while (waitAllowed !== 0 && awaitParked(arena)) {
    const fit = bestFit(arena, size);
    if (fit !== NO_RANGE) return takeBlock(fit, size, Way.Fit);
  }
  const block = borrowBlock(arena, size, true);
  if (block !== NO_RANGE) return block;
  if (!stitches) return NO_RANGE;
  if (waitAllowed !== 0 && borrowExtent(arena, size, true)) return settleLent(size);
  if (!surveyArena(arena)) return NO_RANGE;
  let free = assemblable();
  if (free < size && reunite(arena, true)) {
    const fit = bestFit(arena, size);
    if (fit !== NO_RANGE) return takeBlock(fit, size, Way.Borrow);
    if (!surveyArena(arena)) return NO_RANGE;
    free = assemblable();
  }
  if (free >= size || gather(arena, size - free, true) === 0) return NO_RANGE;
  const fit = bestFit(arena, size);
  return fit === NO_RANGE ? NO_RANGE : takeBlock(fit, size, Way.Borrow);
}

/** Whether a stitch of free and missing memory would hold so little that no stream should wait instead. */
function isCheaperThanWaiting(arena: Arena, size: u64): bool {
  const free = assemblable();
  const missing = free < size ? atLeast(arena, size - free) : 0;
  const peak = larger(neededInUse, inUse + size);
  const share = sinceWait() < RARE_WAIT ? waitShare : (waitShare * RARE_EIGHTHS) >> 3;
  return reserved + missing <= peak + (peak >> 16) * share;
}

/**
 * A block in the extent that was borrowed last. No survey knows its memory: an extent inside one handle reaches neither end of the
 * handle once it is cut out of the lender's range.
 */
function settleLent(size: u64): Range {
  if (!ensureRanges(2 * extentStitch.count + 2)) return NO_RANGE;
  countWay(Way.Reuse);
  return place(extentStitch, extentStart, size, false);
}

/** A free range in the slabs of small requests. */
function spareSlab(arena: Arena, size: u64): Range {
  if (carveSlabs === 0) return NO_RANGE;
  const small = arenaOf(arena.stream, arena.pool, true);
  return small === NO_ARENA ? NO_RANGE : bestFit(small, size);
}

/** How much the arena must grow so that `size` fits at its end. */
function growthFor(arena: Arena, size: u64): u64 {
  const missing = size - smaller(freeTail(arena), size);
  return atLeast(arena, missing) <= tailRoom(arena) ? missing : size;
}

/**
 * At least `bytes`, and at least what is worth a driver call. While a model is loaded, that is up to a whole handle, since more
 * will follow.
 */
function atLeast(arena: Arena, bytes: u64): u64 {
  const floor = arena.churned
    ? smaller((reserved >> 16) * (hasLenders ? sharedGrowthShare : growthShare), growthLimit)
    : smaller(handleBytes(arena, bytes), arena.loaded >> 6);
  return roundUp(larger(bytes, floor), handleUnit);
}

/** Grows by a little more than `bytes`, or by exactly that if the driver has no more. */
function expand(arena: Arena, bytes: u64): Range {
  const generous = atLeast(arena, bytes);
  const exact = roundUp(bytes, handleUnit);
  const grown = grow(arena, generous);
  return grown !== NO_RANGE || generous === exact ? grown : grow(arena, exact);
}

function growAndTake(arena: Arena, size: u64, growth: u64): Range {
  const grown = expand(arena, growth);
  return grown === NO_RANGE || grown.size < size ? NO_RANGE : takeBlock(grown, size, Way.Growth);
}

/** Compares the cost of growing by `growth` with that of a stitch for which `missing` bytes are created. */
function growthIsCheaper(arena: Arena, growth: u64, missing: u64): bool {
  const perHandle = createCost + mapCost;
  const mebibytePrice = poolPrice / (reserved / MIB + 1);
  const created = handlesIn(arena, missing);
  const growing = handlesIn(arena, growth) * perHandle + (growth / MIB) * mebibytePrice;
  const pieces = <u64>wholeCount() + 2 + created;
  const stitching = created * perHandle + (missing / MIB) * mebibytePrice + pieces * mapCost + reserveCost;
  return growing <= stitching;
}

/** How many handles a growth of `bytes` needs. */
function handlesIn(arena: Arena, bytes: u64): u64 {
  const step = handleBytes(arena, bytes);
  return (bytes + step - 1) / step;
}

/** Extends a stitch or makes a new one, whichever costs less; NO_RANGE if the driver fails. */
function join(arena: Arena, size: u64, pressed: bool): Range {
  if (!listWholes(arena)) return NO_RANGE;
  searchOpen(arena, size);
  const candidate = openStitch;
  const open = openBytes;
  let extension: i64 = -1;
  if (candidate !== NO_STITCH) {
    markHandles(candidate, candidate.count);
    extension = selectForExtension(size - open);
    if (candidate.mapped + selectedBytes > candidate.reserved) extension = -1;
  }
  const fresh = selectForStitch(size);
  if (extension >= 0 && (fresh < 0 || extension <= fresh + <i64>reserveCost)) {
    markHandles(candidate, candidate.count);
    selectForExtension(size - open);
    const start = candidate.mapped - open;
    if (ready() && extend(candidate)) return settle(candidate, start, size, Way.Extension);
    selectForStitch(size);
  }
  if (fresh < 0 || !ready() || !makeWay(arena, pressed)) return NO_RANGE;
  const start = selectionStart;
  const stitch = makeStitch(arena);
  return stitch === NO_STITCH ? NO_RANGE : settle(stitch, start, size, Way.Stitch);
}

/** Takes spare ranges for all selected pieces, before the first driver call. */
function ready(): bool {
  return ensureRanges(2 * selectedCount + 2);
}

function settle(stitch: Stitch, start: u64, size: u64, way: u32): Range {
  if (!ensureRanges(2 * stitch.count + 2)) return NO_RANGE;
  countWay(way);
  return place(stitch, start, size, true);
}
