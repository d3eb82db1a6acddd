// The memory behind plans: a stitch of its own over whole handles that the arena of the planned stream lends it.
// A handle lent is one range of state Planned where it lies. Lending and giving back take no driver call by themselves:
// only mapping a handle into the stitch for the first time does, and creating what is missing.
import { neededInUse, planBytes, reserved, setPlanBytes } from '../abi/counters';
import { State } from '../abi/range-states';
import { handleUnit, regionBytes } from '../abi/settings';
import { larger, MIB, roundUp, smaller } from '../base/units';
import { Handle, NO_HANDLE } from '../records/handles';
import { Arena, NO_ARENA, NO_RANGE, NO_STITCH, Range, Stitch } from '../records/nodes';
import { pieceHandle, pieceOffset } from '../records/pieces';
import { ensureRanges } from '../records/range-pool';
import { firstArena } from '../space/arenas';
import { budgetWith } from '../space/budget';
import { grow } from '../space/growth';
import { cutOut, rangeAt, setFree } from '../space/ranges';
import { clearSelection, selectedCount, selectHandle } from '../space/selection';
import { cutStitch, dismiss, extend, reserveStitch } from '../space/stitches';
import { isWhole, listWholes, surveyArena, wholeAt, wholeBytes, wholeCount } from '../space/survey';
import { gather, lends, mayBorrow, pollLenders } from '../streams/lending';
import { isCapturing, stamp } from '../streams/progress';

/** What plans may lead to being held beyond peak live, in 1/65536: a little less than one in a hundred. */
const PLANNED_SLACK: u64 = 590;

/** What may be exceeded for the last part of a plan: 1/1024 of it. */
const LAST_SHIFT: u64 = 10;

/** What may be exceeded where it presses, or a thirty-second of the peak. */
const LEAST_EXCESS: u64 = 64 * MIB;

let stitch: Stitch = NO_STITCH;
/** The first `heldCount` pieces of the stitch are lent, `planBytes` in all; what is mapped above them belongs to the arena again. */
let heldCount: u32 = 0;
/** Pieces above those may be mapped without access: they have to go before others come. */
let ragged: bool = false;

export function planStitch(): Stitch {
  return stitch;
}

export function plannedAddress(): u64 {
  return stitch.address;
}

export function heldPieces(): u32 {
  return heldCount;
}

/** The range of a lent handle. */
export function lentRange(index: u32): Range {
  return pieceHandle(stitch, index).lent;
}

/**
 * Lends memory until there are `bytes`, or as much as there is: free handles first, then those of other streams, then new
 * ones as far as the budget goes. Without hope of `least` nothing is done. Nothing that fails here is a failure of the program's.
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
  // Small blocks lie on top of large ones: many would miss their places for the last few megabytes.
  const created = missing <= allowed + (goal >> LAST_SHIFT) ? missing : allowed;
  if (created > 0 && grow(arena, created) !== NO_RANGE && !addWholes(arena, goal, false)) return;
  // At the end a handle may be longer than needed rather than that a place lacks memory.
  if (planBytes < goal) addWholes(arena, goal, true);
}

/**
 * Bytes that may be created for plans: up to the peak so far. Where that did not suffice even after a whole step, which shows
 * the peak, a little more: what blocks of the time before leave free of their handles cannot be lent, and comes back with them.
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

/** A stitch of the arena with addresses for `goal`. One that is too short is left as it is while something lies in it. */
function prepare(arena: Arena, goal: u64): bool {
  if (stitch !== NO_STITCH && (stitch.arena !== arena || stitch.reserved < goal)) {
    if (heldCount > 0) return stitch.arena === arena;
    if (!closePlanned()) return false;
  }
  if (stitch !== NO_STITCH) return true;
  stitch = reserveStitch(arena, larger(regionBytes, goal), goal);
  if (stitch === NO_STITCH) return false;
  // For the plans alone, and not to be dropped by whoever makes room.
  stitch.usable = false;
  stitch.live = 1;
  return true;
}

/** Takes what the stitch still maps from an earlier time, as far as it is free; the rest makes way. */
function takeUp(arena: Arena, goal: u64): bool {
  if (ragged && !cutStitch(stitch, heldCount)) return false;
  ragged = false;
  if (heldCount === stitch.count) return true;
  if (!surveyArena(arena) || !ensureRanges(2 * (stitch.count - heldCount))) return false;
  while (heldCount < stitch.count && planBytes < goal) {
    const handle = pieceHandle(stitch, heldCount);
    // As surveyed: ranges have changed since, by lending the handles before.
    if (handle === NO_HANDLE || !isWhole(handle.finding)) break;
    lendPiece(handle);
  }
  if (planBytes >= goal || heldCount === stitch.count) return true;
  if (cutStitch(stitch, heldCount)) return true;
  return false;
}

/** Maps wholly free handles of the arena at the stitch's end, up to `goal`; with `beyond` one that is longer than what is missing. */
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
  // Stitches that the driver leaves half made say so by no longer being usable.
  stitch.usable = true;
  const added = extend(stitch);
  if (!stitch.usable) ragged = true;
  stitch.usable = false;
  if (!added) return false;
  while (heldCount < stitch.count) lendPiece(pieceHandle(stitch, heldCount));
  return true;
}

/** Lends the handle of the next piece, which is wholly free. Needs two spare ranges, and the survey. */
function lendPiece(handle: Handle): void {
  handle.lent = cutOut(rangeAt(handle.finding.head, handle.address), handle.address, handle.bytes, State.Planned);
  heldCount++;
  setPlanBytes(planBytes + handle.bytes);
}

/** Gives the arena back what lies wholly above `bytes`, where no block is. It stays mapped, and can be taken up again. */
export function giveBackAbove(bytes: u64): bool {
  if (heldCount === 0 || pieceOffset(stitch, heldCount - 1) < bytes) return false;
  const point = stamp(stitch.arena.lane, 0);
  while (heldCount > 0 && pieceOffset(stitch, heldCount - 1) >= bytes) {
    heldCount--;
    setPlanBytes(pieceOffset(stitch, heldCount));
    setFree(lentRange(heldCount), point);
  }
  return true;
}

/** Drops the stitch if nothing is lent; false if the driver refuses. */
export function closePlanned(): bool {
  if (stitch === NO_STITCH) return true;
  if (heldCount > 0) return false;
  stitch.live = 0;
  if (dismiss(stitch)) {
    stitch = NO_STITCH;
    ragged = false;
    return true;
  }
  stitch.live = 1;
  ragged = true;
  return false;
}
