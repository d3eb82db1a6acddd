// Views: making one from a list of handles, extending it, placing a block in it, dropping it.
// A view that the driver leaves half made and will not undo is kept as unusable and dropped when the driver allows it.
import { countExtension, countUnmapped, countView, countViewGone } from '../abi/counters';
import { map, reserve, setAccess, unmap, unreserve } from '../abi/driver';
import { Call } from '../abi/driver-calls';
import { noteFailure } from '../abi/failure';
import { State } from '../abi/range-states';
import { accessEach, handleUnit, viewLimit, viewRoom } from '../abi/settings';
import { larger, roundUp, smaller } from '../base/units';
import { give, take } from '../records/memory';
import { Arena, NO_HANDLE, NO_RANGE, NO_VIEW, Range, View } from '../records/nodes';
import {
  addPiece,
  clearPiece,
  dropView,
  groupEnd,
  makeCells,
  newView,
  pieceEnd,
  pieceHandle,
  pieceIndex,
  pieceOffset,
  retractPiece,
  VIEW_PIECE,
} from '../records/pieces';
import { carve, rangeAt } from './ranges';
import { planned, plannedBytes, plannedCount } from './selection';

/** A view over the planned handles, in their order; NO_VIEW if the driver fails, with nothing changed. */
export function stitch(arena: Arena): View {
  makeWay(arena);
  const view = newView();
  if (view === NO_VIEW || !makeRoom(view, plannedCount)) {
    if (view !== NO_VIEW) dropView(view);
    noteFailure(Call.Own);
    return NO_VIEW;
  }
  if (!reserveFor(view, arena, roundUp(plannedBytes * viewRoom, handleUnit), plannedBytes)) return NO_VIEW;
  if (append(view)) return view;
  view.usable = false;
  dismiss(view);
  return NO_VIEW;
}

/** A view without memory yet, of `generous` addresses or at least `needed`; NO_VIEW if the driver has none. */
export function reserveStitch(arena: Arena, generous: u64, needed: u64): View {
  const view = newView();
  if (view !== NO_VIEW) return reserveFor(view, arena, generous, needed) ? view : NO_VIEW;
  noteFailure(Call.Own);
  return NO_VIEW;
}

/** Gives a new view its addresses and its arena, or drops it. */
function reserveFor(view: View, arena: Arena, generous: u64, needed: u64): bool {
  let room = generous;
  let address = reserve(room);
  if (address <= 0 && room > needed) {
    room = needed;
    address = reserve(room);
  }
  if (address <= 0) {
    noteFailure(Call.Reserve);
    dropView(view);
    return false;
  }
  if (!makeCells(view, room)) {
    noteFailure(Call.Own);
    unreserve(<u64>address, room);
    dropView(view);
    return false;
  }
  view.address = <u64>address;
  view.reserved = room;
  view.arena = arena;
  view.usable = true;
  enlist(view);
  countView(0);
  return true;
}

/** Adds the planned handles at the view's end; on failure the view is as before, or unusable for new blocks. */
export function extend(view: View): bool {
  if (view.mapped + plannedBytes > view.reserved || !makeRoom(view, view.count + plannedCount)) return false;
  return append(view);
}

function append(view: View): bool {
  const start = view.mapped;
  const first = view.count;
  for (let index: u32 = 0; index < plannedCount; index++) {
    const handle = planned(index);
    if (map(view.address + view.mapped, handle.id) < 0) {
      noteFailure(Call.MapHandle);
      retract(view, first, start);
      return false;
    }
    addPiece(view, handle);
    handle.views++;
    countExtension(handle.bytes);
  }
  if (openAccess(view, first, start)) return true;
  noteFailure(Call.SetAccess);
  retract(view, first, start);
  return false;
}

function openAccess(view: View, first: u32, start: u64): bool {
  if (accessEach === 0) return setAccess(view.address + start, view.mapped - start) >= 0;
  for (let index = first; index < view.count; index++) {
    if (setAccess(view.address + pieceOffset(view, index), pieceHandle(view, index).bytes) < 0) return false;
  }
  return true;
}

/** Unmaps the pieces from `first` on. If that fails they stay, and nothing new may be placed in the view. */
function retract(view: View, first: u32, start: u64): void {
  if (view.mapped > start && unmap(view.address + start, view.mapped - start) < 0) {
    view.usable = false;
    return;
  }
  while (view.count > first) {
    const handle = pieceHandle(view, view.count - 1);
    retractPiece(view);
    handle.views--;
    countUnmapped(handle.bytes);
  }
}

/**
 * Takes [start, start + size) of the view for a block: the free memory under it, wherever it lies. Gives the block's
 * first range. Needs two spare ranges per piece. `surveyed`: the survey holds for all handles of the view.
 */
export function place(view: View, start: u64, size: u64, surveyed: bool): Range {
  let first = NO_RANGE;
  let last = NO_RANGE;
  const end = start + size;
  let index = pieceIndex(view, start);
  while (index < view.count && pieceOffset(view, index) < end) {
    const handle = pieceHandle(view, index);
    const offset = pieceOffset(view, index);
    const from = handle.address + (start > offset ? start - offset : 0);
    const finding = handle.finding;
    const origin = !surveyed ? handle.region.first : from === handle.address ? finding.head : finding.tail;
    // Handles that follow each other in memory as they do in the view are taken in one piece.
    index = groupEnd(view, index, end);
    const to = handle.address + (smaller(end, pieceEnd(view, index - 1)) - offset);
    const piece = carve(rangeAt(origin, from), from, to - from, State.Piece);
    piece.view = view;
    piece.left = NO_RANGE;
    if (first === NO_RANGE) {
      first = piece;
    } else {
      last.left = piece;
      piece.parent = first;
    }
    last = piece;
  }
  first.state = State.Live;
  first.va = view.address + start;
  view.live++;
  touch(view);
  return first;
}

/** Keeps the arena within its limit of views by dropping the least recently used that no block lies in. */
function makeWay(arena: Arena): void {
  let view = arena.oldestView;
  while (view !== NO_VIEW && <u64>arena.viewCount >= viewLimit) {
    const newer = view.newer;
    if (view.live === 0) dismiss(view);
    view = newer;
  }
}

/** Drops a view that no block lies in. False if the driver refuses: what it did not undo stays as it was. */
export function dismiss(view: View): bool {
  if (!cutView(view, 0)) return false;
  view.usable = false;
  if (unreserve(view.address, view.reserved) < 0) return false;
  delist(view);
  dropView(view);
  countViewGone();
  return true;
}

/** Unmaps the pieces of a view from `start` on. False if the driver refuses: what it has undone by then are holes. */
export function cutView(view: View, start: u32): bool {
  let index = start;
  while (index < view.count) {
    // Holes part the mappings: each run of pieces is unmapped in one call.
    if (pieceHandle(view, index) === NO_HANDLE) {
      index++;
      continue;
    }
    const first = index;
    while (index < view.count && pieceHandle(view, index) !== NO_HANDLE) index++;
    const from = pieceOffset(view, first);
    const to = index < view.count ? pieceOffset(view, index) : view.mapped;
    if (unmap(view.address + from, to - from) < 0) return false;
    for (let gone = first; gone < index; gone++) forgetPiece(view, gone);
  }
  if (start < view.count) {
    view.mapped = pieceOffset(view, start);
    view.count = start;
  }
  return true;
}

/** Unmaps one piece of a view; a hole remains. */
export function punch(view: View, index: u32): bool {
  const handle = pieceHandle(view, index);
  if (unmap(view.address + pieceOffset(view, index), handle.bytes) < 0) return false;
  forgetPiece(view, index);
  return true;
}

function forgetPiece(view: View, index: u32): void {
  const handle = pieceHandle(view, index);
  handle.views--;
  countUnmapped(handle.bytes);
  clearPiece(view, index);
}

/** Drops every view of the arena that no block lies in. */
export function dismissIdle(arena: Arena): void {
  let view = arena.oldestView;
  while (view !== NO_VIEW) {
    const newer = view.newer;
    if (view.live === 0) dismiss(view);
    view = newer;
  }
}

let uses: u32 = 0;

function enlist(view: View): void {
  const arena = view.arena;
  view.older = arena.newestView;
  view.newer = NO_VIEW;
  if (arena.newestView !== NO_VIEW) arena.newestView.newer = view;
  else arena.oldestView = view;
  arena.newestView = view;
  arena.viewCount++;
  view.lastUse = ++uses;
}

function delist(view: View): void {
  const arena = view.arena;
  if (view.newer !== NO_VIEW) view.newer.older = view.older;
  else arena.newestView = view.older;
  if (view.older !== NO_VIEW) view.older.newer = view.newer;
  else arena.oldestView = view.newer;
  arena.viewCount--;
}

function touch(view: View): void {
  if (view.arena.newestView === view) return;
  delist(view);
  enlist(view);
}

function makeRoom(view: View, needed: u32): bool {
  if (needed <= view.room) return true;
  let room: u32 = larger(<u64>view.room, 4) as u32;
  while (room < needed) room <<= 1;
  const list = take(<usize>room * VIEW_PIECE);
  if (list === 0) return false;
  memory.copy(list, view.pieces, <usize>view.count * VIEW_PIECE);
  give(view.pieces, <usize>view.room * VIEW_PIECE);
  view.pieces = list;
  view.room = room;
  return true;
}
