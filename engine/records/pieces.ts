// The pieces of a view, in its order: which handle is mapped where. Found by offset without a search through all of them, and
// read by those who look for free runs, so an entry has all they need.
import { give, take, takeClear } from './memory';
import { Finding, Handle, NO_HANDLE, View } from './nodes';

/**
 * An entry: offset (u64), handle (u32), finding (u32). A handle of 0 is a hole: its memory was given back. The lowest bit of
 * the finding says that the handle follows that of the piece before in memory, too.
 */
export const VIEW_PIECE: usize = 16;
const JOINED: usize = 1;
/** A view's addresses are at most so many cells, whatever its length. */
const CELL_COUNT: usize = 256;
const CELL_BYTES: usize = CELL_COUNT << 2;

export function newView(): View {
  return changetype<View>(takeClear(offsetof<View>()));
}

export function dropView(view: View): void {
  give(view.pieces, <usize>view.room * VIEW_PIECE);
  give(view.cells, CELL_BYTES);
  give(changetype<usize>(view), offsetof<View>());
}

/** Cells for a view of `bytes` addresses; false when the engine's own memory is exhausted. */
export function makeCells(view: View, bytes: u64): bool {
  let shift: u32 = 0;
  while ((bytes - 1) >> shift >= CELL_COUNT) shift++;
  view.cellShift = shift;
  view.cells = take(CELL_BYTES);
  return view.cells !== 0;
}

export function pieceOffset(view: View, index: u32): u64 {
  return load<u64>(view.pieces + <usize>index * VIEW_PIECE);
}

export function pieceHandle(view: View, index: u32): Handle {
  return changetype<Handle>(load<usize>(view.pieces + <usize>index * VIEW_PIECE, 8));
}

export function pieceFinding(view: View, index: u32): Finding {
  return changetype<Finding>(load<usize>(view.pieces + <usize>index * VIEW_PIECE, 12) & ~JOINED);
}

/** The first piece after `index` that begins at `end` or later, or does not lie in memory right behind the one before it. */
export function groupEnd(view: View, index: u32, end: u64): u32 {
  const count = view.count;
  let piece = view.pieces + <usize>index * VIEW_PIECE;
  do {
    index++;
    piece += VIEW_PIECE;
  } while (index < count && (load<usize>(piece, 12) & JOINED) !== 0 && load<u64>(piece) < end);
  return index;
}

/** Where a piece ends, and the next one begins. */
export function pieceEnd(view: View, index: u32): u64 {
  return index + 1 < view.count ? pieceOffset(view, index + 1) : view.mapped;
}

/** Bumped by every change of a view's pieces. */
export let viewChanges: u32 = 0;

/** Adds a piece at the view's end. */
export function addPiece(view: View, handle: Handle): void {
  const piece = view.pieces + <usize>view.count * VIEW_PIECE;
  const start = view.mapped;
  const end = start + handle.bytes;
  store<u64>(piece, start);
  store<usize>(piece, changetype<usize>(handle), 8);
  const before = view.count > 0 ? pieceHandle(view, view.count - 1) : NO_HANDLE;
  const joined = before !== NO_HANDLE && before.region === handle.region && before.address + before.bytes === handle.address;
  store<usize>(piece, changetype<usize>(handle.finding) | (joined ? JOINED : 0), 12);
  viewChanges++;
  const shift = <u64>view.cellShift;
  for (let cell = (start + ((<u64>1) << shift) - 1) >> shift; cell << shift < end; cell++) {
    store<u32>(view.cells + ((<usize>cell) << 2), view.count);
  }
  view.count++;
  view.mapped = end;
}

/** Takes back the last piece. */
export function retractPiece(view: View): void {
  view.count--;
  view.mapped = pieceOffset(view, view.count);
  viewChanges++;
}

/** Makes a hole of a piece. */
export function clearPiece(view: View, index: u32): void {
  viewChanges++;
  store<usize>(view.pieces + <usize>index * VIEW_PIECE, 0, 8);
}

/** Index of the piece that holds `offset`, which lies before the view's end. */
export function pieceIndex(view: View, offset: u64): u32 {
  const shift = <u64>view.cellShift;
  const cell = offset >> shift;
  let index = load<u32>(view.cells + ((<usize>cell) << 2));
  let high = view.count - 1;
  if ((cell + 1) << shift < view.mapped) high = load<u32>(view.cells + ((<usize>cell) << 2), 4);
  while (index < high) {
    const middle = (index + high + 1) >>> 1;
    if (pieceOffset(view, middle) <= offset) index = middle;
    else high = middle - 1;
  }
  return index;
}
