// Requests and frees. A block is known by the pointer of its first range, from malloc until it is complete.
import { arenaOf } from './arenas';
import { countComplete, countFree, countUse, countWay, Way } from './counters';
import { Call, clearFailure, failedCall } from './failure';
import { bestFit } from './free-set';
import { markBusy, serveGmlake } from './gmlake';
import { Arena, ensureRanges, NO_ARENA, NO_RANGE, NO_VIEW, Range, State } from './nodes';
import { setFree, takeFront } from './ranges';
import { releaseAddresses, releaseAll, releaseOthers } from './release';
import { explain } from './report';
import { gmlake, largeUnit, smallLimit } from './settings';
import { addSlab, returnSlab } from './small';
import { BLOCK_UNIT, roundUp } from './units';
import { serveWeir } from './weir';

/** No device has this much; beyond it sums could overflow. */
const ABSURD: u64 = (<u64>1) << 46;

/** A block for the request, or NO_RANGE; then `explain` has said why. */
export function mallocBlock(bytes: u64, stream: u32, pool: u32): Range {
  const small = bytes <= smallLimit;
  const size = roundUp(bytes === 0 ? 1 : bytes, small ? BLOCK_UNIT : largeUnit);
  const arena = arenaOf(stream, pool, small);
  if (arena === NO_ARENA || bytes > ABSURD) {
    clearFailure();
    explain(arena, bytes);
    return fail();
  }
  let block = NO_RANGE;
  if (small || gmlake === 0) {
    block = bestFit(arena, size);
    if (block !== NO_RANGE) {
      if (!ensureRanges(1)) {
        explain(arena, bytes);
        return fail();
      }
      takeFront(block, size, State.Live);
      block.va = block.address;
      block.requested = bytes;
      countUse(size, bytes);
      countWay(Way.Fit);
      return block;
    }
  }
  block = serveHard(arena, size, bytes);
  if (block === NO_RANGE) return fail();
  block.requested = bytes;
  if (gmlake !== 0) for (let piece = block; piece !== NO_RANGE; piece = piece.left) markBusy(piece, true);
  countUse(size, bytes);
  return block;
}

/** By ever harder means: as usual, after giving back what others hold, after giving back everything. */
function serveHard(arena: Arena, size: u64, bytes: u64): Range {
  clearFailure();
  let block = serve(arena, size, false);
  if (block !== NO_RANGE) return block;
  // How things stand is told before anything is given back: that is what the program ran into.
  explain(arena, bytes);
  countWay(Way.Retry);
  if (failedCall === Call.Create) releaseOthers(arena);
  else releaseAddresses();
  clearFailure();
  block = serve(arena, size, true);
  if (block !== NO_RANGE) return block;
  // Free memory of the arena itself is not in the way of a stitch, so giving it back helps only those that may not stitch.
  if (failedCall === Call.Create && gmlake === 0 && !arena.small) return block;
  releaseAll();
  return serve(arena, size, true);
}

function serve(arena: Arena, size: u64, pressed: bool): Range {
  if (arena.small) {
    let slab = bestFit(arena, size);
    if (slab === NO_RANGE) slab = addSlab(arena, size);
    if (slab === NO_RANGE || !ensureRanges(1)) return NO_RANGE;
    takeFront(slab, size, State.Live);
    slab.va = slab.address;
    return slab;
  }
  return gmlake !== 0 ? serveGmlake(arena, size) : serveWeir(arena, size, pressed);
}

function fail(): Range {
  countWay(Way.Oom);
  return NO_RANGE;
}

/** Bytes given out for a block. */
export function blockSize(block: Range): u64 {
  let size: u64 = 0;
  for (let piece = block; piece !== NO_RANGE; piece = piece.left) size += piece.size;
  return size;
}

/** The program lets go of a block. False if it is not live. */
export function freeBlock(block: Range): bool {
  if (block.state !== State.Live) return false;
  block.state = State.Pending;
  countFree(block.view === NO_VIEW ? block.size : blockSize(block), block.requested);
  return true;
}

/** Nobody uses the block any more: its memory may be given out again. False if it was not freed. */
export function completeBlock(block: Range): bool {
  if (block.state !== State.Pending) return false;
  block.region.arena.churned = true;
  if (block.view === NO_VIEW) {
    countComplete(block.size);
    if (gmlake !== 0) markBusy(block, false);
    const whole = setFree(block);
    if (whole.region.loan !== NO_RANGE) returnSlab(whole);
    return true;
  }
  countComplete(blockSize(block));
  block.view.live--;
  let piece = block;
  while (piece !== NO_RANGE) {
    const next = piece.left;
    piece.view = NO_VIEW;
    if (gmlake !== 0) markBusy(piece, false);
    setFree(piece);
    piece = next;
  }
  return true;
}
