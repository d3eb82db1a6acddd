// The pieces of a stitch in order of offset: which handle is mapped where.
// A table of cells finds the piece at an offset without a search through all. An entry has all that searches for extents read.
import { Finding, Handle, NO_HANDLE } from './handles';
import { give, take, takeClear } from './memory';
import { NO_STITCH, Stitch } from './nodes';

/**
 * An entry: offset (u64), handle (u32), finding (u32). Handle 0 is a hole: its memory was given back. The lowest bit of the
 * finding says that the handle directly follows that of the previous piece in memory, too.
 */
export const STITCH_PIECE: usize = 16;
const JOINED: usize = 1;
/** A stitch has at most this many cells. */
const CELL_COUNT: usize = 256;
const CELL_BYTES: usize = CELL_COUNT << 2;

export function dropStitch(stitch: Stitch): void {
  give(stitch.pieces, <usize>stitch.room * STITCH_PIECE);
  give(stitch.cells, CELL_BYTES);
  give(changetype<usize>(stitch), offsetof<Stitch>());
}

/** A new stitch with cells, but without addresses; NO_STITCH if the engine's own memory is exhausted. */
export function newStitch(): Stitch {
  const stitch = changetype<Stitch>(takeClear(offsetof<Stitch>()));
  if (stitch === NO_STITCH) return NO_STITCH;
  stitch.cells = take(CELL_BYTES);
  if (stitch.cells !== 0) return stitch;
  dropStitch(stitch);
  return NO_STITCH;
}

/** Gives a stitch its addresses. */
export function setAddresses(stitch: Stitch, address: u64, bytes: u64): void {
  let shift: u32 = 0;
  while ((bytes - 1) >> shift >= CELL_COUNT) shift++;
  stitch.cellShift = shift;
  stitch.address = address;
  stitch.reserved = bytes;
}

export function pieceOffset(stitch: Stitch, index: u32): u64 {
  return load<u64>(stitch.pieces + <usize>index * STITCH_PIECE);
}

export function pieceHandle(stitch: Stitch, index: u32): Handle {
  return changetype<Handle>(load<usize>(stitch.pieces + <usize>index * STITCH_PIECE, 8));
}

export function pieceFinding(stitch: Stitch, index: u32): Finding {
  return changetype<Finding>(load<usize>(stitch.pieces + <usize>index * STITCH_PIECE, 12) & ~JOINED);
}

/** The first piece after `index` that begins at or after `end`, or that does not directly follow its predecessor in memory. */
export function groupEnd(stitch: Stitch, index: u32, end: u64): u32 {
  const count = stitch.count;
  let piece = stitch.pieces + <usize>index * STITCH_PIECE;
  do {
    index++;
    piece += STITCH_PIECE;
  } while (index < count && (load<usize>(piece, 12) & JOINED) !== 0 && load<u64>(piece) < end);
  return index;
}

/** Where a piece ends and the next one begins. */
export function pieceEnd(stitch: Stitch, index: u32): u64 {
  return index + 1 < stitch.count ? pieceOffset(stitch, index + 1) : stitch.mapped;
}

/** Changes with every change of the pieces of any stitch. */
export let stitchChanges: u32 = 0;

/** Adds a piece at the end of a stitch. */
export function addPiece(stitch: Stitch, handle: Handle): void {
  const piece = stitch.pieces + <usize>stitch.count * STITCH_PIECE;
  const start = stitch.mapped;
  const end = start + handle.bytes;
  store<u64>(piece, start);
  store<usize>(piece, changetype<usize>(handle), 8);
  const before = stitch.count > 0 ? pieceHandle(stitch, stitch.count - 1) : NO_HANDLE;
  const joined = before !== NO_HANDLE && before.region === handle.region && before.address + before.bytes === handle.address;
  store<usize>(piece, changetype<usize>(handle.finding) | (joined ? JOINED : 0), 12);
  stitchChanges++;
  const shift = <u64>stitch.cellShift;
  for (let cell = (start + ((<u64>1) << shift) - 1) >> shift; cell << shift < end; cell++) {
    store<u32>(stitch.cells + ((<usize>cell) << 2), stitch.count);
  }
  stitch.count++;
  stitch.mapped = end;
}

/** Removes the last piece. */
export function retractPiece(stitch: Stitch): void {
  stitch.count--;
  stitch.mapped = pieceOffset(stitch, stitch.count);
  stitchChanges++;
}

/** Turns a piece into a hole. */
export function clearPiece(stitch: Stitch, index: u32): void {
  stitchChanges++;
  store<usize>(stitch.pieces + <usize>index * STITCH_PIECE, 0, 8);
}

/** Index of the piece at `offset`, which lies before the end of the stitch. */
export function pieceIndex(stitch: Stitch, offset: u64): u32 {
  const shift = <u64>stitch.cellShift;
  const cell = offset >> shift;
  let index = load<u32>(stitch.cells + ((<usize>cell) << 2));
  let high = stitch.count - 1;
  if ((cell + 1) << shift < stitch.mapped) high = load<u32>(stitch.cells + ((<usize>cell) << 2), 4);
  while (index < high) {
    const middle = (index + high + 1) >>> 1;
    if (pieceOffset(stitch, middle) <= offset) index = middle;
    else high = middle - 1;
  }
  return index;
}
