// The end of blocks: their memory becomes free for their stream, at once or after other streams have passed.
import { countComplete } from '../abi/counters';
import { gmlake } from '../abi/settings';
import { isPlanned } from '../plans/blocks';
import { finishPlanned } from '../plans/following';
import { ownerOf } from '../records/arena-table';
import { markBusy } from '../records/handles';
import { Arena, FLEETING, NO_RANGE, NO_STITCH, Range } from '../records/nodes';
import { NO_STREAM } from '../records/streams';
import { noteRelease } from '../space/last-use';
import { blockSize, setFreeOf } from '../space/ranges';
import { noteCompleted } from '../streams/completed';
import { stamp } from '../streams/progress';
import { hasParked, parkedPoint, pollUses, takeParked } from '../streams/uses';
import { returnSlab } from './small';

/** Completes parked blocks that no stream uses any more. */
export function completeParked(): void {
  pollUses();
  let block = takeParked(NO_STREAM, false);
  while (block !== NO_RANGE) {
    noteCompleted(block);
    finish(block, parkedPoint);
    block = takeParked(NO_STREAM, false);
  }
}

/** Makes the stream of the arena wait for the users of one parked block, and completes the block. */
export function awaitParked(arena: Arena): bool {
  if (!hasParked()) return false;
  const block = takeParked(arena.lane, true);
  if (block === NO_RANGE) return false;
  noteCompleted(block);
  finish(block, parkedPoint);
  return true;
}

/** Makes the memory of a block free for its stream. `released`: the number of its release; 0: it is released now. */
export function finish(block: Range, released: u64): void {
  if (isPlanned(block)) {
    finishPlanned(block, released);
    return;
  }
  if (block.stitch === NO_STITCH) finishRange(block, block.red !== 0, released);
  else finishStitched(block, released);
}

/** The same for a block that is one range. `brief`: it lived briefly. */
export function finishRange(block: Range, brief: bool, released: u64): void {
  const arena = ownerOf(block);
  const size = block.size;
  arena.churned = true;
  countComplete(size);
  if (gmlake !== 0) markBusy(block, false);
  const now = stamp(arena.lane, size);
  block.va = brief ? FLEETING : 0;
  const whole = setFreeOf(arena, block, released !== 0 ? released : now);
  if (whole.region.carvedFrom !== NO_RANGE) returnSlab(whole);
}

function finishStitched(block: Range, released: u64): void {
  const arena = ownerOf(block);
  arena.churned = true;
  const trace = block.red !== 0 ? FLEETING : 0;
  const size = blockSize(block);
  const now = stamp(arena.lane, size);
  const point = released !== 0 ? released : now;
  countComplete(size);
  block.stitch.live--;
  noteRelease(block.stitch, arena.lane, point);
  let piece = block;
  while (piece !== NO_RANGE) {
    const next = piece.nextPiece;
    piece.stitch = NO_STITCH;
    piece.va = trace;
    if (gmlake !== 0) markBusy(piece, false);
    setFreeOf(arena, piece, point);
    piece = next;
  }
}
