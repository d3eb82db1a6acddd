// Free extents in stitches: free memory that is contiguous in a stitch, though not in the arena's own addresses.
import { NO_HANDLE } from '../records/handles';
import { Arena, NO_STITCH, Stitch } from '../records/nodes';
import { pieceEnd, pieceFinding, pieceHandle, pieceIndex, pieceOffset } from '../records/pieces';
import { freeHeadOf, freeTailOf, isFound, isWhole } from './survey';

/** Result of the last search for an extent. */
export let extentStitch: Stitch = NO_STITCH;
export let extentStart: u64 = 0;
let extentBytes: u64 = 0;
/** How many stitches have an extent of that length. */
export let extentCount: u32 = 0;

/** The first of those stitches. An entry: start of the extent (u64), stitch (u32). */
export const MOST_EXTENTS: u32 = 4;
const EXTENT: usize = 16;
const extents: usize = memory.data(64);

export function extentStitchAt(index: u32): Stitch {
  return changetype<Stitch>(load<usize>(extents + <usize>index * EXTENT, 8));
}

export function extentStartAt(index: u32): u64 {
  return load<u64>(extents + <usize>index * EXTENT);
}

/** Result of the last search for a stitch to extend: the one with the longest free end. */
export let openStitch: Stitch = NO_STITCH;
export let openBytes: u64 = 0;

/** Finds the shortest free extent of at least `size` in the stitches of the arena. Needs its survey. */
export function searchExtents(arena: Arena, size: u64): void {
  extentStitch = NO_STITCH;
  extentBytes = u64.MAX_VALUE;
  extentCount = 0;
  searchMoreExtents(arena, size);
}

/** Continues the search in the stitches of another arena. */
export function searchMoreExtents(arena: Arena, size: u64): void {
  for (let stitch = arena.newestStitch; stitch !== NO_STITCH; stitch = stitch.older) {
    if (stitch.usable && stitch.mapped >= size) searchStitch(stitch, size);
  }
}

/**
 * An extent of at least `size` covers a multiple of `size`. So the search looks only at the pieces there and at what is free
 * around them. A stitch in use costs one or two looks.
 */
function searchStitch(stitch: Stitch, size: u64): void {
  let seen: u64 = 0;
  for (let point: u64 = 0; point < stitch.mapped; point += size) {
    if (point < seen) continue;
    const index = pieceIndex(stitch, point);
    // Most memory is in use during a search, so most looks end here.
    const finding = pieceFinding(stitch, index);
    if (!isFound(finding)) continue;
    const handle = pieceHandle(stitch, index);
    if (handle === NO_HANDLE) continue;
    const offset = pieceOffset(stitch, index);
    const head = freeHeadOf(handle);
    let start = offset;
    let end = offset + head;
    if (point - offset >= head) {
      const tail = freeTailOf(handle);
      if (point - offset < handle.bytes - tail) continue;
      start = offset + handle.bytes - tail;
      end = offset + handle.bytes;
    }
    if (start === offset) start -= freeBefore(stitch, index);
    if (end === offset + handle.bytes) end += freeAfter(stitch, index);
    seen = end;
    if (end - start < size || end - start > extentBytes) continue;
    if (end - start < extentBytes) {
      extentStitch = stitch;
      extentStart = start;
      extentBytes = end - start;
      extentCount = 0;
    }
    noteExtent(stitch, start);
  }
}

/** Keeps the first extent of each stitch among equally short ones, up to MOST_EXTENTS. */
function noteExtent(stitch: Stitch, start: u64): void {
  if (extentCount > 0 && extentCount <= MOST_EXTENTS && extentStitchAt(extentCount - 1) === stitch) return;
  if (extentCount < MOST_EXTENTS) {
    store<u64>(extents + <usize>extentCount * EXTENT, start);
    store<usize>(extents + <usize>extentCount * EXTENT, changetype<usize>(stitch), 8);
  }
  extentCount++;
}

/** Free bytes directly before a piece. */
function freeBefore(stitch: Stitch, index: u32): u64 {
  const end = index < stitch.count ? pieceOffset(stitch, index) : stitch.mapped;
  let at = index;
  while (at > 0 && isWhole(pieceFinding(stitch, at - 1)) && pieceHandle(stitch, at - 1) !== NO_HANDLE) at--;
  const start = at < stitch.count ? pieceOffset(stitch, at) : stitch.mapped;
  const handle = at > 0 ? pieceHandle(stitch, at - 1) : NO_HANDLE;
  return end - start + (handle === NO_HANDLE ? 0 : freeTailOf(handle));
}

/** Free bytes directly after a piece. */
function freeAfter(stitch: Stitch, index: u32): u64 {
  let at = index + 1;
  while (at < stitch.count && isWhole(pieceFinding(stitch, at)) && pieceHandle(stitch, at) !== NO_HANDLE) at++;
  const handle = at < stitch.count ? pieceHandle(stitch, at) : NO_HANDLE;
  return pieceEnd(stitch, at - 1) - pieceEnd(stitch, index) + (handle === NO_HANDLE ? 0 : freeHeadOf(handle));
}

/** Finds the stitch with the longest free end that has addresses to be extended to `size`. Needs the survey. */
export function searchOpen(arena: Arena, size: u64): void {
  openStitch = NO_STITCH;
  openBytes = 0;
  for (let stitch = arena.newestStitch; stitch !== NO_STITCH; stitch = stitch.older) {
    if (!stitch.usable || stitch.count === 0) continue;
    const open = freeBefore(stitch, stitch.count);
    if (open <= openBytes || open >= size || stitch.mapped - open + size > stitch.reserved) continue;
    openStitch = stitch;
    openBytes = open;
  }
}
