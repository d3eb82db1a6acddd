// Stitches: makes one of the selected handles, extends it, places blocks in it, drops it.
// If the driver refuses to undo half of the work, the stitch is kept as unusable, and dropped when the driver allows it.
import { countMapped, countStitch, countStitchGone, countUnmapped } from '../abi/counters';
import { map, reserve, setAccess, unmap, unreserve } from '../abi/driver';
import { noteFailure } from '../abi/failure';
import { Call, State } from '../abi/numbers';
import { accessEach, handleUnit, stitchRoom } from '../abi/settings';
import { larger, roundUp, smaller } from '../base/units';
import { NO_HANDLE } from '../records/handles';
import { regrow } from '../records/memory';
import { Arena, NO_RANGE, NO_STITCH, Range, Stitch } from '../records/nodes';
import {
  addPiece,
  clearPiece,
  dropStitch,
  groupEnd,
  newStitch,
  pieceEnd,
  pieceHandle,
  pieceIndex,
  pieceOffset,
  retractPiece,
  STITCH_PIECE,
  setAddresses,
} from '../records/pieces';
import { forgetReleases, isStitchOver } from './last-use';
import { cutOut, rangeAt } from './ranges';
import { selectedAt, selectedBytes, selectedCount } from './selection';

/** A stitch of the selected handles; NO_STITCH if the driver fails, and then nothing has changed. */
export function makeStitch(arena: Arena): Stitch {
  const stitch = newStitch();
  if (stitch === NO_STITCH || !makeRoom(stitch, selectedCount)) {
    if (stitch !== NO_STITCH) dropStitch(stitch);
    noteFailure(Call.OwnMemory);
    return NO_STITCH;
  }
  if (!reserveFor(stitch, arena, roundUp(selectedBytes * stitchRoom, handleUnit), selectedBytes)) return NO_STITCH;
  if (append(stitch)) return stitch;
  stitch.usable = false;
  dismiss(stitch);
  return NO_STITCH;
}

/** A stitch without memory, of `generous` addresses or at least `needed`; NO_STITCH if the driver fails. */
export function reserveStitch(arena: Arena, generous: u64, needed: u64): Stitch {
  const stitch = newStitch();
  if (stitch !== NO_STITCH) return reserveFor(stitch, arena, generous, needed) ? stitch : NO_STITCH;
  noteFailure(Call.OwnMemory);
  return NO_STITCH;
}

/** Gives a new stitch its addresses and its arena, or drops it. */
function reserveFor(stitch: Stitch, arena: Arena, generous: u64, needed: u64): bool {
  let room = generous;
  let address = reserve(room);
  if (address <= 0 && room > needed) {
    room = needed;
    address = reserve(room);
  }
  if (address <= 0) {
    noteFailure(Call.Reserve);
    dropStitch(stitch);
    return false;
  }
  setAddresses(stitch, <u64>address, room);
  stitch.arena = arena;
  stitch.usable = true;
  enlist(stitch);
  countStitch();
  return true;
}

/** Adds the selected handles at the end of a stitch. If the driver fails, the stitch is as before, or unusable for new blocks. */
export function extend(stitch: Stitch): bool {
  if (stitch.mapped + selectedBytes > stitch.reserved || !makeRoom(stitch, stitch.count + selectedCount)) return false;
  return append(stitch);
}

function append(stitch: Stitch): bool {
  const start = stitch.mapped;
  const first = stitch.count;
  for (let index: u32 = 0; index < selectedCount; index++) {
    const handle = selectedAt(index);
    if (map(stitch.address + stitch.mapped, handle.id) < 0) {
      noteFailure(Call.Map);
      retract(stitch, first, start);
      return false;
    }
    addPiece(stitch, handle);
    handle.stitchCount++;
    countMapped(handle.bytes);
  }
  if (openAccess(stitch, first, start)) return true;
  noteFailure(Call.SetAccess);
  retract(stitch, first, start);
  return false;
}

function openAccess(stitch: Stitch, first: u32, start: u64): bool {
  if (accessEach === 0) return setAccess(stitch.address + start, stitch.mapped - start) >= 0;
  for (let index = first; index < stitch.count; index++) {
    if (setAccess(stitch.address + pieceOffset(stitch, index), pieceHandle(stitch, index).bytes) < 0) return false;
  }
  return true;
}

/** Unmaps the pieces from `first` on. If that fails they stay, and the stitch becomes unusable. */
function retract(stitch: Stitch, first: u32, start: u64): void {
  if (stitch.mapped > start && unmap(stitch.address + start, stitch.mapped - start) < 0) {
    stitch.usable = false;
    return;
  }
  while (stitch.count > first) {
    const handle = pieceHandle(stitch, stitch.count - 1);
    retractPiece(stitch);
    handle.stitchCount--;
    countUnmapped(handle.bytes);
  }
}

/**
 * Places a block at [start, start + size) of a stitch: takes the free memory there. Gives the first range of the block. Needs
 * two spare ranges per piece. `surveyed`: the survey is valid for all handles of the stitch.
 */
export function place(stitch: Stitch, start: u64, size: u64, surveyed: bool): Range {
  let first = NO_RANGE;
  let last = NO_RANGE;
  const end = start + size;
  let index = pieceIndex(stitch, start);
  while (index < stitch.count && pieceOffset(stitch, index) < end) {
    const handle = pieceHandle(stitch, index);
    const offset = pieceOffset(stitch, index);
    const from = handle.address + (start > offset ? start - offset : 0);
    const finding = handle.finding;
    const origin = !surveyed ? handle.region.first : from === handle.address ? finding.head : finding.tail;
    // Handles that are contiguous in memory as in the stitch become one range.
    index = groupEnd(stitch, index, end);
    const to = handle.address + (smaller(end, pieceEnd(stitch, index - 1)) - offset);
    const piece = cutOut(rangeAt(origin, from), from, to - from, State.Piece);
    piece.stitch = stitch;
    piece.nextPiece = NO_RANGE;
    if (first === NO_RANGE) {
      first = piece;
    } else {
      last.nextPiece = piece;
      piece.head = first;
    }
    last = piece;
  }
  first.state = State.Live;
  first.va = stitch.address + start;
  stitch.live++;
  touch(stitch);
  return first;
}

/**
 * Drops a stitch without blocks. If the GPU may still use it or the driver refuses, the result is false, and the rest stays as
 * it was.
 */
export function dismiss(stitch: Stitch): bool {
  if (!isStitchOver(stitch) || !cutStitch(stitch, 0)) return false;
  stitch.usable = false;
  if (unreserve(stitch.address, stitch.reserved) < 0) return false;
  delist(stitch);
  forgetReleases(stitch);
  dropStitch(stitch);
  countStitchGone();
  return true;
}

/**
 * Unmaps the pieces of a stitch from `start` on. If the driver refuses, the result is false, and pieces already unmapped are
 * holes.
 */
export function cutStitch(stitch: Stitch, start: u32): bool {
  let index = start;
  while (index < stitch.count) {
    // Pieces between two holes are unmapped in one call.
    if (pieceHandle(stitch, index) === NO_HANDLE) {
      index++;
      continue;
    }
    const first = index;
    while (index < stitch.count && pieceHandle(stitch, index) !== NO_HANDLE) index++;
    const from = pieceOffset(stitch, first);
    const to = index < stitch.count ? pieceOffset(stitch, index) : stitch.mapped;
    if (unmap(stitch.address + from, to - from) < 0) return false;
    for (let gone = first; gone < index; gone++) forgetPiece(stitch, gone);
  }
  if (start < stitch.count) {
    stitch.mapped = pieceOffset(stitch, start);
    stitch.count = start;
  }
  return true;
}

/** Unmaps one piece of a stitch. A hole remains. */
export function punch(stitch: Stitch, index: u32): bool {
  const handle = pieceHandle(stitch, index);
  if (unmap(stitch.address + pieceOffset(stitch, index), handle.bytes) < 0) return false;
  forgetPiece(stitch, index);
  return true;
}

function forgetPiece(stitch: Stitch, index: u32): void {
  const handle = pieceHandle(stitch, index);
  handle.stitchCount--;
  countUnmapped(handle.bytes);
  clearPiece(stitch, index);
}

/** Drops all stitches of the arena that have no blocks and that the GPU has finished with. */
export function dismissIdle(arena: Arena): void {
  let stitch = arena.oldestStitch;
  while (stitch !== NO_STITCH) {
    const newer = stitch.newer;
    if (stitch.live === 0) dismiss(stitch);
    stitch = newer;
  }
}

let uses: u32 = 0;

function enlist(stitch: Stitch): void {
  const arena = stitch.arena;
  stitch.older = arena.newestStitch;
  stitch.newer = NO_STITCH;
  if (arena.newestStitch !== NO_STITCH) arena.newestStitch.newer = stitch;
  else arena.oldestStitch = stitch;
  arena.newestStitch = stitch;
  arena.stitchCount++;
  stitch.lastUse = ++uses;
}

function delist(stitch: Stitch): void {
  const arena = stitch.arena;
  if (stitch.newer !== NO_STITCH) stitch.newer.older = stitch.older;
  else arena.newestStitch = stitch.older;
  if (stitch.older !== NO_STITCH) stitch.older.newer = stitch.newer;
  else arena.oldestStitch = stitch.newer;
  arena.stitchCount--;
}

function touch(stitch: Stitch): void {
  if (stitch.arena.newestStitch === stitch) return;
  delist(stitch);
  enlist(stitch);
}

function makeRoom(stitch: Stitch, needed: u32): bool {
  if (needed <= stitch.room) return true;
  let room: u32 = larger(<u64>stitch.room, 4) as u32;
  while (room < needed) room <<= 1;
  const list = regrow(stitch.pieces, <usize>stitch.room * STITCH_PIECE, <usize>room * STITCH_PIECE);
  if (list === 0) return false;
  stitch.pieces = list;
  stitch.room = room;
  return true;
}
