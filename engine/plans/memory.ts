// The memory of plans: one stitch over whole handles that the arena of the planned stream lends. A lent handle is one range of
// state Planned. Lending and giving back need no driver call. Only creating missing memory does, and mapping a handle into the
// stitch for the first time.
import { neededInUse, planBytes, reserved, setPlanBytes } from '../abi/counters';
import { State } from '../abi/numbers';
import { handleUnit, regionBytes, unmapFinished } from '../abi/settings';
import { larger, MIB, roundUp, smaller } from '../base/units';
import { Handle, NO_HANDLE } from '../records/handles';
import { Arena, NO_ARENA, NO_RANGE, NO_STITCH, Range, Stitch } from '../records/nodes';
import { pieceHandle, pieceOffset } from '../records/pieces';
import { ensureRanges } from '../records/range-pool';
import { firstArena } from '../space/arenas';
import { budgetWith } from '../space/budget';
import { grow } from '../space/growth';
import { isStitchOver, noteRelease } from '../space/last-use';
import { cutOut, rangeAt, setFree } from '../space/ranges';
import { clearSelection, selectedCount, selectHandle } from '../space/selection';
import { cutStitch, dismiss, extend, reserveStitch } from '../space/stitches';
import { isWhole, listWholes, surveyArena, wholeAt, wholeBytes, wholeCount } from '../space/survey';
import { gather, lends, mayBorrow, pollLenders } from '../streams/lending';
import { cover, isCapturing, poll, stamp } from '../streams/progress';

/** Memory that may be held beyond peak live for plans, in 1/65536. */
const PLANNED_SLACK: u64 = 590;

/** Memory that may be held beyond that for the last part of a plan: 1/1024 of the plan. */
const LAST_SHIFT: u64 = 10;

/** Memory that may be held beyond that for a plan that lacked memory in an earlier step; or 1/32 of the peak if that is more. */
const LEAST_EXCESS: u64 = 64 * MIB;

let stitch: Stitch = NO_STITCH;
/** The first `heldCount` pieces of the stitch are lent, `planBytes` in all. Pieces above them belong to the arena again. */
let heldCount: u32 = 0;
/** Whether pieces above them may be mapped without access. They must be unmapped before others are added. */
let ragged: bool = false;
/** The last release of a block at the addresses of pieces that were given back. They are unmapped only once it is over. */
let givenBackPoint: u64 = 0;

export function planStitch(): Stitch {
  return stitch;
}

export function plannedAddress(): u64 {
  return stitch.address;
}

export function heldPieces(): u32 {
  return heldCount;
}

/** Notes the release of a planned block: its number, or 0 if it is released now. */
export function notePlannedRelease(released: u64): void {
  const lane = stitch.arena.lane;
  noteRelease(stitch, lane, released !== 0 ? released : stamp(lane, 0));
}

/** The range of a lent handle. */
export function lentRange(index: u32): Range {
  return pieceHandle(stitch, index).lent;
}

/**
 * Lends memory until there are `bytes`, or as much as possible: free handles first, then those of other streams, then new ones
 * within the allowance. If `least` cannot be reached, nothing is done. A failure here is no failure of a request.
 */
export function lendUpTo(arena: Arena, bytes: u64, least: u64, pressing: bool): void {
  if (isCapturing()) return;
  let goal = roundUp(bytes, handleUnit);
  if (planBytes >= goal || !surveyArena(arena)) return;
  if (planBytes + wholeBytes + lendable(arena) + allowance(pressing) < least || !prepare(arena, goal)) return;
  goal = smaller(goal, stitch.reserved);
  if (!takeUp(arena, goal) || planBytes >= goal) return;
  if (!addWholes(arena, goal, false) || planBytes === goal) return;
  if (surveyArena(arena) && wholeCount() === 0 && pollLenders(arena) && gather(arena, goal - planBytes, true) > 0) {
    if (!addWholes(arena, goal, false) || planBytes === goal) return;
  }
  const missing = goal - planBytes;
  const allowed = allowance(pressing);
  // Small blocks lie on top of large ones. Without the last few megabytes many of them would miss their places.
  const created = missing <= allowed + (goal >> LAST_SHIFT) ? missing : allowed;
  if (created > 0 && grow(arena, created) !== NO_RANGE && !addWholes(arena, goal, false)) return;
  // The last handle may be longer than needed.
  if (planBytes < goal) addWholes(arena, goal, true);
}

/**
 * Bytes that may be created for plans: up to the peak so far. If that was too little after a whole step, a little more: handles
 * that are partly used by earlier blocks cannot be lent until those are freed.
 */
function allowance(pressing: bool): u64 {
  let budget = larger(budgetWith(0), neededInUse + (neededInUse >> 16) * PLANNED_SLACK);
  if (pressing) budget += larger(LEAST_EXCESS, neededInUse >> 5);
  return budget <= reserved ? 0 : (budget - reserved) & ~(handleUnit - 1);
}

/** Bytes that other streams could lend at most. */
function lendable(arena: Arena): u64 {
  let bytes: u64 = 0;
  if (!mayBorrow(arena)) return 0;
  for (let other = firstArena(); other !== NO_ARENA; other = other.next) if (lends(other, arena)) bytes += other.freeBytes;
  return bytes;
}

/** Makes sure that there is a stitch with addresses for `goal`. A stitch that is too short stays while handles are lent. */
function prepare(arena: Arena, goal: u64): bool {
  if (stitch !== NO_STITCH && (stitch.arena !== arena || stitch.reserved < goal)) {
    if (heldCount > 0) return stitch.arena === arena;
    if (!closePlanned()) return false;
  }
  if (stitch !== NO_STITCH) return true;
  stitch = reserveStitch(arena, larger(regionBytes, goal), goal);
  if (stitch === NO_STITCH) return false;
  // The stitch is for plans only. It must not be dropped to make room for others.
  stitch.usable = false;
  stitch.live = 1;
  return true;
}

/**
 * Lends handles again that the stitch still maps, as far as they are free. The others are unmapped. False if the GPU may still
 * use them.
 */
function takeUp(arena: Arena, goal: u64): bool {
  if (ragged && !cutUnlent()) return false;
  ragged = false;
  if (heldCount === stitch.count) return true;
  if (!surveyArena(arena) || !ensureRanges(2 * (stitch.count - heldCount))) return false;
  while (heldCount < stitch.count && planBytes < goal) {
    const handle = pieceHandle(stitch, heldCount);
    // The survey stays valid for these handles, though lending changes ranges.
    if (handle === NO_HANDLE || !isWhole(handle.finding)) break;
    lendPiece(handle);
  }
  return planBytes >= goal || heldCount === stitch.count || cutUnlent();
}

/** Unmaps the pieces that are not lent. */
function cutUnlent(): bool {
  const lane = stitch.arena.lane;
  if (unmapFinished !== 0 && givenBackPoint > lane.done) {
    if (cover(lane, givenBackPoint)) poll(lane);
    if (givenBackPoint > lane.done) return false;
  }
  return cutStitch(stitch, heldCount);
}

/**
 * Maps wholly free handles at the end of the stitch, up to `goal`. With `beyond`, the last may be longer than what is missing.
 */
function addWholes(arena: Arena, goal: u64, beyond: bool): bool {
  if (!surveyArena(arena) || !listWholes(arena)) return false;
  clearSelection();
  let missing = goal - planBytes;
  let longer = NO_HANDLE;
  for (let index: u32 = 0; index < wholeCount() && missing > 0; index++) {
    const handle = wholeAt(index);
    if (handle.bytes > missing) {
      if (longer === NO_HANDLE || handle.bytes <= longer.bytes) longer = handle;
      continue;
    }
    if (!selectHandle(handle)) return false;
    missing -= handle.bytes;
  }
  if (beyond && missing > 0 && longer !== NO_HANDLE && planBytes + longer.bytes <= stitch.reserved && !selectHandle(longer)) return false;
  if (selectedCount === 0) return true;
  if (!ensureRanges(2 * selectedCount)) return false;
  // If the driver leaves a stitch half made, `usable` becomes false.
  stitch.usable = true;
  const added = extend(stitch);
  if (!stitch.usable) ragged = true;
  stitch.usable = false;
  if (!added) return false;
  while (heldCount < stitch.count) lendPiece(pieceHandle(stitch, heldCount));
  return true;
}

/** Lends the handle of the next piece, which is wholly free. Needs two spare ranges and the survey. */
function lendPiece(handle: Handle): void {
  handle.lent = cutOut(rangeAt(handle.finding.head, handle.address), handle.address, handle.bytes, State.Planned);
  heldCount++;
  setPlanBytes(planBytes + handle.bytes);
}

/** Gives back handles wholly above `bytes`, where no block lies. They stay mapped and can be lent again. */
export function giveBackAbove(bytes: u64): bool {
  if (heldCount === 0 || pieceOffset(stitch, heldCount - 1) < bytes) return false;
  givenBackPoint = stitch.releasePoint;
  while (heldCount > 0 && pieceOffset(stitch, heldCount - 1) >= bytes) {
    heldCount--;
    setPlanBytes(pieceOffset(stitch, heldCount));
    const range = lentRange(heldCount);
    setFree(range, larger(range.releasePoint, givenBackPoint));
  }
  // So that a later step can find out whether the release is over.
  if (unmapFinished !== 0) cover(stitch.arena.lane, givenBackPoint);
  return true;
}

/** Drops the stitch if nothing is lent. False if the GPU may still use it or the driver refuses. */
export function closePlanned(): bool {
  if (stitch === NO_STITCH) return true;
  if (heldCount > 0) return false;
  poll(stitch.arena.lane);
  if (!isStitchOver(stitch)) return false;
  stitch.live = 0;
  if (dismiss(stitch)) {
    stitch = NO_STITCH;
    ragged = false;
    givenBackPoint = 0;
    return true;
  }
  stitch.live = 1;
  ragged = true;
  return false;
}
