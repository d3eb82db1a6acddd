// The end of blocks: their memory becomes free for its stream, at once or when other streams have passed.
import { noteCompleted } from './completed';
import { countComplete } from './counters';
import { markBusy } from './gmlake';
import { Arena, NO_RANGE, NO_STREAM, NO_VIEW, ownerOf, Range } from './nodes';
import { finishPlanned } from './planned';
import { isPlanned } from './planned-blocks';
import { setFreeOf } from './ranges';
import { gmlake } from './settings';
import { returnSlab } from './small';
import { stamp } from './streams';
import { hasParked, pollUses, takeParked } from './uses';

/** Bytes given out for a block. */
export function blockSize(block: Range): u64 {
  let size: u64 = 0;
  for (let piece = block; piece !== NO_RANGE; piece = piece.left) size += piece.size;
  return size;
}

/** Completes the parked blocks whose other streams have passed. */
export function completeParked(): void {
  pollUses();
  let block = takeParked(NO_STREAM, false);
  while (block !== NO_RANGE) {
    noteCompleted(block);
    finish(block);
    block = takeParked(NO_STREAM, false);
  }
}

/** Makes the arena's stream wait for those that use a parked block of it, and completes that one. */
export function awaitParked(arena: Arena): bool {
  if (!hasParked()) return false;
  const block = takeParked(arena.lane, true);
  if (block === NO_RANGE) return false;
  noteCompleted(block);
  finish(block);
  return true;
}

/** The block's memory may be given out again on its stream. */
export function finish(block: Range): void {
  if (isPlanned(block)) {
    finishPlanned(block);
    return;
  }
  const arena = ownerOf(block);
  arena.churned = true;
  if (block.view === NO_VIEW) {
    countComplete(block.size);
    if (gmlake !== 0) markBusy(block, false);
    const whole = setFreeOf(arena, block, stamp(arena.lane, block.size));
    if (whole.region.loan !== NO_RANGE) returnSlab(whole);
    return;
  }
  const size = blockSize(block);
  const point = stamp(arena.lane, size);
  countComplete(size);
  block.view.live--;
  let piece = block;
  while (piece !== NO_RANGE) {
    const next = piece.left;
    piece.view = NO_VIEW;
    if (gmlake !== 0) markBusy(piece, false);
    setFreeOf(arena, piece, point);
    piece = next;
  }
}
