// Free runs inside views: memory that lies side by side already, though not in the arena's own addresses.
import { Arena, NO_HANDLE, NO_VIEW, View } from '../records/nodes';
import { pieceEnd, pieceFinding, pieceHandle, pieceIndex, pieceOffset } from '../records/pieces';
import { freeHeadOf, freeTailOf, isFound, isWhole } from './survey';

/** What the last search for a run found. */
export let runView: View = NO_VIEW;
export let runStart: u64 = 0;
export let runBytes: u64 = 0;
/** Views with a run of that length, the one found among them. */
export let runCount: u32 = 0;

/** The first of those views, as entries: where the run begins (u64), view (u32). */
export const MOST_RUNS: u32 = 4;
const RUN: usize = 16;
const runs: usize = memory.data(64);

export function runViewAt(index: u32): View {
  return changetype<View>(load<usize>(runs + <usize>index * RUN, 8));
}

export function runStartAt(index: u32): u64 {
  return load<u64>(runs + <usize>index * RUN);
}

/** What the last search for a view to extend found: the one with the longest free end. */
export let openView: View = NO_VIEW;
export let openBytes: u64 = 0;

/** Finds the shortest free run of at least `size` in the arena's views. Needs the survey. */
export function searchRuns(arena: Arena, size: u64): void {
  runView = NO_VIEW;
  runBytes = u64.MAX_VALUE;
  runCount = 0;
  searchMoreRuns(arena, size);
}

/** The same, in the views of a further arena. */
export function searchMoreRuns(arena: Arena, size: u64): void {
  for (let view = arena.newestView; view !== NO_VIEW; view = view.older) {
    if (view.usable && view.mapped >= size) searchView(view, size);
  }
}

/**
 * A run of at least `size` holds a multiple of `size`. So it is enough to look at the pieces there and at what is free
 * around them: a view that is in use is passed over at the cost of one or two looks.
 */
function searchView(view: View, size: u64): void {
  let seen: u64 = 0;
  for (let point: u64 = 0; point < view.mapped; point += size) {
    if (point < seen) continue;
    const index = pieceIndex(view, point);
    // Most memory is in use when a run is looked for: most looks end here.
    const finding = pieceFinding(view, index);
    if (!isFound(finding)) continue;
    const handle = pieceHandle(view, index);
    if (handle === NO_HANDLE) continue;
    const offset = pieceOffset(view, index);
    const head = freeHeadOf(handle);
    let start = offset;
    let end = offset + head;
    if (point - offset >= head) {
      const tail = freeTailOf(handle);
      if (point - offset < handle.bytes - tail) continue;
      start = offset + handle.bytes - tail;
      end = offset + handle.bytes;
    }
    if (start === offset) start -= freeBefore(view, index);
    if (end === offset + handle.bytes) end += freeAfter(view, index);
    seen = end;
    if (end - start < size || end - start > runBytes) continue;
    if (end - start < runBytes) {
      runView = view;
      runStart = start;
      runBytes = end - start;
      runCount = 0;
    }
    noteRun(view, start);
  }
}

/** Keeps the first run of each view among equally short ones, as far as there is room. */
function noteRun(view: View, start: u64): void {
  if (runCount > 0 && runCount <= MOST_RUNS && runViewAt(runCount - 1) === view) return;
  if (runCount < MOST_RUNS) {
    store<u64>(runs + <usize>runCount * RUN, start);
    store<usize>(runs + <usize>runCount * RUN, changetype<usize>(view), 8);
  }
  runCount++;
}

/** Free bytes right before a piece. */
function freeBefore(view: View, index: u32): u64 {
  const end = index < view.count ? pieceOffset(view, index) : view.mapped;
  let at = index;
  while (at > 0 && isWhole(pieceFinding(view, at - 1)) && pieceHandle(view, at - 1) !== NO_HANDLE) at--;
  const start = at < view.count ? pieceOffset(view, at) : view.mapped;
  const handle = at > 0 ? pieceHandle(view, at - 1) : NO_HANDLE;
  return end - start + (handle === NO_HANDLE ? 0 : freeTailOf(handle));
}

/** Free bytes right after a piece. */
function freeAfter(view: View, index: u32): u64 {
  let at = index + 1;
  while (at < view.count && isWhole(pieceFinding(view, at)) && pieceHandle(view, at) !== NO_HANDLE) at++;
  const handle = at < view.count ? pieceHandle(view, at) : NO_HANDLE;
  return pieceEnd(view, at - 1) - pieceEnd(view, index) + (handle === NO_HANDLE ? 0 : freeHeadOf(handle));
}

/** Finds the view with the longest free end among those with addresses enough to extend it to `size`. Needs the survey. */
export function searchOpen(arena: Arena, size: u64): void {
  openView = NO_VIEW;
  openBytes = 0;
  for (let view = arena.newestView; view !== NO_VIEW; view = view.older) {
    if (!view.usable || view.count === 0) continue;
    const open = freeBefore(view, view.count);
    if (open <= openBytes || open >= size || view.mapped - open + size > view.reserved) continue;
    openView = view;
    openBytes = open;
  }
}
