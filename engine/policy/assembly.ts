// Selects the handles of a stitch for preset weir, and their order.
import { mapCost } from '../abi/settings';
import { log2, smaller } from '../base/units';
import { Handle, NO_HANDLE } from '../records/handles';
import { Stitch } from '../records/nodes';
import { pieceHandle } from '../records/pieces';
import { clearSelection, selectedCount, selectHandle } from '../space/selection';
import { aroundOf, bestHead, bestTail, fittingHead, freeTailOf, wholeAt, wholeCount } from '../space/survey';

let mark: u32 = 0;

/** Marks the first `count` handles of a stitch, so that they are not selected. */
export function markHandles(stitch: Stitch, count: u32): void {
  mark++;
  for (let index: u32 = 0; index < count; index++) {
    const handle = pieceHandle(stitch, index);
    if (handle !== NO_HANDLE) handle.mark = mark;
  }
}

/** Where in its first handle the block begins. */
export let selectionStart: u64 = 0;

/** Selects handles for a new stitch of `size`. Gives its cost in nanoseconds, or -1 if there is not enough. */
export function selectForStitch(size: u64): i64 {
  const first = bestTail(NO_HANDLE);
  const plain = selectFrom(size, NO_HANDLE);
  if (first === NO_HANDLE) return plain;
  const ragged = selectFrom(size, first);
  // At the same cost, use the free end of a handle, which serves little else.
  if (ragged >= 0 && (plain < 0 || ragged <= plain)) return ragged;
  if (plain >= 0) return selectFrom(size, NO_HANDLE);
  // A handle that is free at both ends may be needed as the last.
  const other = bestTail(bestHead(NO_HANDLE));
  return other === NO_HANDLE ? -1 : selectFrom(size, other);
}

/** Selects handles that extend a stitch, whose own handles are marked. Gives the cost, or -1 if there is not enough. */
export function selectForExtension(size: u64): i64 {
  return selectRest(size, NO_HANDLE);
}

/** A selection that begins with the free end of `first`, if there is one. */
function selectFrom(size: u64, first: Handle): i64 {
  mark++;
  if (first === NO_HANDLE) return selectRest(size, first);
  const used = smaller(size, freeTailOf(first));
  return selectRest(size - used, first);
}

function selectRest(size: u64, first: Handle): i64 {
  clearSelection();
  selectionStart = 0;
  if (first !== NO_HANDLE) {
    selectionStart = first.bytes - freeTailOf(first);
    if (!selectHandle(first)) return -1;
  }
  let rest = size;
  let next: u32 = 0;
  while (rest > 0) {
    const head = fittingHead(rest, first, mark);
    const whole = head === NO_HANDLE ? smallestWhole(rest, next) : NO_HANDLE;
    if (head !== NO_HANDLE || whole !== NO_HANDLE) {
      if (!selectHandle(head !== NO_HANDLE ? head : whole)) return -1;
      break;
    }
    while (next < wholeCount() && wholeAt(next).mark === mark) next++;
    if (next === wholeCount()) return -1;
    const handle = wholeAt(next++);
    if (!selectHandle(handle)) return -1;
    rest -= handle.bytes;
  }
  return <i64>(<u64>selectedCount * mapCost);
}

/** The smallest wholly free handle of at least `bytes`, at or after `start` in the list. */
function smallestWhole(bytes: u64, start: u32): Handle {
  let best = NO_HANDLE;
  const leastLog = log2(bytes);
  for (let index = start; index < wholeCount(); index++) {
    const handle = wholeAt(index);
    // The list begins with the largest powers of two.
    if (log2(handle.bytes) < leastLog) break;
    if (handle.bytes < bytes || handle.mark === mark) continue;
    if (best === NO_HANDLE || handle.bytes < best.bytes || (handle.bytes === best.bytes && aroundOf(handle) < aroundOf(best)))
      best = handle;
  }
  return best;
}
