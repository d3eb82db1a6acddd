// Requests and frees. The pointer of its first range names a block, from malloc until it is complete.
import { countFree, countUse, countWay, Way } from './abi/counters';
import { clearFailure, failedCall } from './abi/failure';
import { BLOCK_UNIT, Call, State } from './abi/numbers';
import { gmlake, largeUnit, smallLimit } from './abi/settings';
import { roundUp } from './base/units';
import { isPlanned } from './plans/blocks';
import { lendIdle, mayBePlanned, servePlanned, yieldPlanned } from './plans/following';
import { awaitParked, completeParked, finish, finishRange } from './policy/completion';
import { serveGmlake } from './policy/gmlake';
import { familyKey, isBrief, mayGroup, notesLives, placeGrouped } from './policy/neighbours';
import { addSlab } from './policy/small';
import { serveWeir } from './policy/weir';
import { approach } from './records/address-table';
import { markBusy } from './records/handles';
import { Family, Life, NO_FAMILY, NO_KEY, NO_LIFE } from './records/lives';
import { Arena, NO_ARENA, NO_RANGE, NO_STITCH, Range } from './records/nodes';
import { ensureRanges } from './records/range-pool';
import { NO_USE } from './records/streams';
import { explain } from './report';
import { arenaOf } from './space/arenas';
import { bestFit } from './space/free-set';
import { blockSize, takeFront, takeFrontOf } from './space/ranges';
import { releaseAddresses, releaseAll, releaseOthers } from './space/release';
import { isCapturing, pollStreams } from './streams/progress';
import { addUse, hasParked, hasUses, park } from './streams/uses';

/** More than any GPU has. Sums of larger sizes could overflow. */
const ABSURD: u64 = (<u64>1) << 46;

/**
 * A block for the request; NO_RANGE if it fails, and then `explain` has kept the reason. Nearly every request ends at a plain fit.
 * What else can happen has functions of its own, called in two places: so compilers keep it out of the short way.
 */
export function mallocBlock(bytes: u64, stream: u32, pool: u32): Range {
  return bytes <= smallLimit ? mallocSmall(bytes, stream, pool) : mallocLarge(bytes, stream, pool);
}

function mallocSmall(bytes: u64, stream: u32, pool: u32): Range {
  if (hasParked() || mayBePlanned(stream, pool)) {
    const planned = mallocPlanned(bytes, stream, pool);
    if (planned !== NO_RANGE) return planned;
  }
  const arena = arenaOf(stream, pool, true);
  if (arena === NO_ARENA || bytes > ABSURD) return refuse(arena, bytes);
  const size = roundUp(atLeastOne(bytes), BLOCK_UNIT);
  const block = bestFit(arena, size);
  if (block === NO_RANGE) return mallocUnfit(arena, size, bytes, NO_KEY);
  if (!ensureRanges(1)) return failFor(arena, bytes);
  approach(block.address);
  takeFrontOf(arena, block, size, State.Live);
  return beginFit(block, size, bytes, NO_LIFE);
}

function mallocLarge(bytes: u64, stream: u32, pool: u32): Range {
  if (hasParked() || mayBePlanned(stream, pool)) {
    const planned = mallocPlanned(bytes, stream, pool);
    if (planned !== NO_RANGE) return planned;
  }
  const arena = arenaOf(stream, pool, false);
  if (arena === NO_ARENA || bytes > ABSURD) return refuse(arena, bytes);
  const size = roundUp(bytes, largeUnit);
  const key = notesLives() ? familyKey(arena, size) : NO_KEY;
  const block = gmlake === 0 ? bestFit(arena, size) : NO_RANGE;
  if (block === NO_RANGE) return mallocUnfit(arena, size, bytes, key);
  if (!ensureRanges(2)) return failFor(arena, bytes);
  approach(block.address);
  let expected: u32 = 0;
  let life = NO_LIFE;
  const family = key !== NO_KEY ? Family.of(key) : NO_FAMILY;
  if (family !== NO_FAMILY) {
    expected = family.expectedLife;
    life = family.beginLife(expected);
  }
  if (mayGroup(arena, block, size, expected)) return beginFit(placeGrouped(arena, block, size, expected), size, bytes, life);
  takeFrontOf(arena, block, size, State.Live);
  return beginFit(block, size, bytes, life);
}

function atLeastOne(bytes: u64): u64 {
  return bytes === 0 ? 1 : bytes;
}

/** The block of a request that a free range held. */
function beginFit(block: Range, size: u64, bytes: u64, life: Life): Range {
  block.life = life;
  block.va = block.address;
  block.requested = bytes;
  block.uses = NO_USE;
  countUse(size, bytes);
  countWay(Way.Fit);
  return block;
}

/** Completes parked blocks. Gives a block at the planned place of the request; NO_RANGE if there is none. */
function mallocPlanned(bytes: u64, stream: u32, pool: u32): Range {
  if (hasParked()) completeParked();
  return mayBePlanned(stream, pool) ? servePlanned(bytes, roundUp(atLeastOne(bytes), BLOCK_UNIT)) : NO_RANGE;
}

/** A request that no free range of the arena holds. */
function mallocUnfit(arena: Arena, size: u64, bytes: u64, key: u64): Range {
  lendIdle();
  const block = serveHard(arena, size, bytes);
  if (block === NO_RANGE) return fail();
  const family = key !== NO_KEY ? Family.of(key) : NO_FAMILY;
  block.life = family !== NO_FAMILY ? family.beginLife(family.expectedLife) : NO_LIFE;
  block.requested = bytes;
  block.uses = NO_USE;
  if (gmlake !== 0) for (let piece = block; piece !== NO_RANGE; piece = piece.nextPiece) markBusy(piece, true);
  // A borrowed block may be larger than the request.
  countUse(blockSize(block), bytes);
  return block;
}

/** Fails before any driver call. */
function refuse(arena: Arena, bytes: u64): Range {
  clearFailure();
  return failFor(arena, bytes);
}

function failFor(arena: Arena, bytes: u64): Range {
  explain(arena, bytes);
  return fail();
}

/**
 * Tries as usual, then after waits on the GPU, then after freeing what other arenas hold, then after freeing everything. Only
 * memory that the GPU has finished with is freed. If the request fails, the caller may wait for the device and try again.
 */
function serveHard(arena: Arena, size: u64, bytes: u64): Range {
  clearFailure();
  let block = serve(arena, size, false);
  if (block !== NO_RANGE) return block;
  // A wait on the GPU for streams that use our blocks is better than freeing memory.
  while (awaitParked(arena)) {
    clearFailure();
    block = serve(arena, size, false);
    if (block !== NO_RANGE) return block;
  }
  // The explanation shows the state before anything is freed: that is what the program ran into.
  explain(arena, bytes);
  countWay(Way.Retry);
  yieldPlanned();
  const frees = !isCapturing();
  pollStreams();
  if (frees && failedCall === Call.Create) releaseOthers(arena);
  else if (frees) releaseAddresses();
  clearFailure();
  block = serve(arena, size, true);
  if (block !== NO_RANGE) return block;
  // A stitch can use the free memory of its own arena, so freeing that helps only arenas that do not stitch.
  if (failedCall === Call.Create && gmlake === 0 && !arena.small) return block;
  if (frees) releaseAll();
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

/** The program frees a block. False if the block is not live. */
export function freeBlock(block: Range): bool {
  if (block.state !== State.Live) return false;
  block.state = State.Pending;
  if (!isPlanned(block)) {
    block.red = <u8>endsBrief(block.life);
    block.life = NO_LIFE;
  }
  countFree(block.stitch === NO_STITCH ? block.size : blockSize(block), block.requested);
  return true;
}

/** Ends a life. Gives whether it was brief. */
function endsBrief(life: Life): bool {
  return life !== NO_LIFE && isBrief(life.finish());
}

/** Another stream uses the block, so its memory is free only after that work. False if the block is not live. */
export function recordUse(block: Range, stream: u32): bool {
  return block.state === State.Live && addUse(block, stream);
}

/** The block's own stream is done with it. Its memory is free once other streams recorded on it have passed. */
export function completeBlock(block: Range): bool {
  if (block.state !== State.Pending) return false;
  if (hasUses(block)) park(block, blockSize(block));
  else finish(block, 0);
  return true;
}

/** The program frees a block, and its own stream is done with it. False if the block is not live. */
export function endBlock(block: Range): bool {
  // Nearly every block is one range that no other stream uses.
  if (isPlanned(block) || block.stitch !== NO_STITCH || hasUses(block)) return freeBlock(block) && completeBlock(block);
  if (block.state !== State.Live) return false;
  const brief = endsBrief(block.life);
  countFree(block.size, block.requested);
  finishRange(block, brief, 0);
  return true;
}
