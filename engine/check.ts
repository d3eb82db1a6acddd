// The invariants. Level 1 checks sums, 2 every range, handle and stitch, 3 also the trees and every block in a stitch.
// Gives 0 or the number of the first broken rule; abi/engine.ts has the rules as sentences.
import {
  allocated,
  blocks,
  handles,
  inUse,
  keptStitches,
  orphans,
  peakInUse,
  peakReserved,
  regions,
  requested,
  reserved,
  stitchedBytes,
} from './abi/counters';
import { Rule, State } from './abi/numbers';
import { smaller } from './base/units';
import { newestPlanned } from './plans/blocks';
import { checkPlanned } from './plans/check';
import { planStitch } from './plans/memory';
import { ownerOf } from './records/arena-table';
import { handleAt, handleIndex, NO_HANDLE } from './records/handles';
import { liveCount, NO_LIFE } from './records/lives';
import { NO_ARENA, NO_RANGE, NO_REGION, NO_STITCH, Range, Region, Stitch } from './records/nodes';
import { pieceHandle, pieceOffset } from './records/pieces';
import { firstArena } from './space/arenas';
import { checkFreeSet } from './space/free-set';
import { orphanBytes } from './space/growth';

// Sums of the check in progress.
let liveBytes: u64 = 0;
let usedBytes: u64 = 0;
let askedBytes: u64 = 0;
let blockCount: u32 = 0;
/** Blocks that have a life. */
let lifeCount: u32 = 0;
let heldBytes: u64 = 0;
let heldHandles: u32 = 0;
/** Bytes lent to plans. */
let lentBytes: u64 = 0;
let stitchUses: u64 = 0;
/** Mappings that handles count, minus those that stitches have. */
let mappedHandles: u64 = 0;
/** Marks the handles of a stitch. policy/assembly.ts never reaches such marks. */
let mark: u32 = 0x80000000;

export function checkEngine(level: u32): u32 {
  if (allocated > inUse || requested > allocated) return Rule.UseCoversAllocated;
  if (inUse > reserved || reserved > peakReserved || inUse > peakInUse) return Rule.ReservedCoversUse;
  if (level < 2) return 0;
  liveBytes = 0;
  usedBytes = 0;
  askedBytes = 0;
  blockCount = 0;
  lifeCount = 0;
  lentBytes = 0;
  heldBytes = orphanBytes();
  heldHandles = orphans;
  let regionCount: u32 = 0;
  let stitchCount: u32 = 0;
  let mappedBytes: u64 = 0;
  let lived: u64 = 0;
  stitchUses = 0;
  mappedHandles = 0;
  for (let arena = firstArena(); arena !== NO_ARENA; arena = arena.next) {
    arena.seenBytes = 0;
    arena.seenCount = 0;
  }
  for (let arena = firstArena(); arena !== NO_ARENA; arena = arena.next) {
    for (let region = arena.regions; region !== NO_REGION; region = region.next) {
      if (region.arena !== arena) return Rule.RegionOfArena;
      if (region.carvedFrom === NO_RANGE) regionCount++;
      const broken = checkRegion(region, level);
      if (broken !== 0) return broken;
    }
  }
  // After all regions, since an arena may own ranges in any region of its pool.
  for (let arena = firstArena(); arena !== NO_ARENA; arena = arena.next) {
    if (arena.seenBytes !== arena.freeBytes || arena.seenCount !== arena.freeCount) return Rule.FreeBytesOfArena;
    if (level >= 3 && !checkFreeSet(arena)) return Rule.FreeTrees;
    let seen: u32 = 0;
    for (let stitch = arena.newestStitch; stitch !== NO_STITCH; stitch = stitch.older) {
      seen++;
      lived += stitch.live;
      if (stitch.arena !== arena || (stitch.older === NO_STITCH && arena.oldestStitch !== stitch)) return Rule.StitchLinks;
      if (stitch.older !== NO_STITCH && stitch.older.newer !== stitch) return Rule.StitchLinks;
      const broken = checkStitch(stitch);
      if (broken !== 0) return broken;
      mappedBytes += mappedOf(stitch);
    }
    if (seen !== arena.stitchCount) return Rule.StitchesOfArena;
    stitchCount += seen;
  }
  if (mappedHandles !== 0) return Rule.StitchesOfHandle;
  for (let block = newestPlanned(); block !== NO_RANGE; block = block.olderPlanned) {
    const broken = checkPlannedBlock(block);
    if (broken !== 0) return broken;
  }
  // The stitch of the plans counts as used, though no block of an arena lies in it.
  if (planStitch() !== NO_STITCH) stitchUses++;
  if (lived !== stitchUses) return Rule.BlocksOfStitch;
  if (lifeCount !== liveCount()) return Rule.LifeOfBlock;
  if (liveBytes !== allocated || usedBytes !== inUse || askedBytes !== requested || blockCount !== blocks) return Rule.BlocksCounted;
  if (heldBytes !== reserved || heldHandles !== handles) return Rule.HandlesCounted;
  const planned = checkPlanned(lentBytes);
  if (planned !== 0) return planned;
  if (regionCount !== regions || stitchCount !== keptStitches || mappedBytes !== stitchedBytes) return Rule.RangesCounted;
  return 0;
}

function checkRegion(region: Region, level: u32): u32 {
  let expected = region.address;
  let previous = NO_RANGE;
  for (let range = region.first; range !== NO_RANGE; range = range.next) {
    if (range.region !== region || range.prev !== previous) return Rule.RangeLinks;
    if (range.address !== expected || range.size === 0) return Rule.RangesTile;
    expected += range.size;
    const joins = range.state === State.Unbacked || (range.state === State.Free && previous !== NO_RANGE && previous.owner === range.owner);
    if (joins && previous !== NO_RANGE && previous.state === range.state) return Rule.FreeJoined;
    if (range.state !== State.Unbacked && !mayOwn(range, region)) return Rule.LentInPool;
    if (range.state === State.Free) {
      const owner = ownerOf(range);
      owner.seenBytes += range.size;
      owner.seenCount++;
    } else if (range.state === State.Live || range.state === State.Pending || range.state === State.Parked) {
      const broken = checkBlock(range, level);
      if (broken !== 0) return broken;
    } else if (range.state === State.Piece) {
      const state = range.head.state;
      if (state !== State.Live && state !== State.Pending && state !== State.Parked) return Rule.PieceOfBlock;
    } else if (range.state === State.Planned) {
      lentBytes += range.size;
    } else if (range.state < State.Free || range.state > State.Planned) {
      return Rule.RangeState;
    }
    previous = range;
  }
  if (expected !== region.address + region.bytes) return Rule.RangesFill;
  const tail = previous.state === State.Unbacked ? previous : NO_RANGE;
  if (region.tail !== tail) return Rule.GrowthEnd;
  if (region.carvedFrom !== NO_RANGE) {
    if (region.carvedFrom.state !== State.Carved || region.carvedFrom.address !== region.address || region.carvedFrom.size !== region.bytes)
      return Rule.SlabPlace;
    return region.handleCount === 0 ? 0 : Rule.SlabHandles;
  }
  return checkHandles(region);
}

/** Memory is lent only between arenas of large requests in one pool. */
function mayOwn(range: Range, region: Region): bool {
  const owner = ownerOf(range);
  if (owner === region.arena) return true;
  return owner.pool === region.arena.pool && !owner.small && !region.arena.small;
}

/** Handles lie exactly under the ranges that are backed. */
function checkHandles(region: Region): u32 {
  let range = region.first;
  let end: u64 = 0;
  let backed: u64 = 0;
  for (; range !== NO_RANGE; range = range.next) if (range.state !== State.Unbacked) backed += range.size;
  for (let index: u32 = 0; index < region.handleCount; index++) {
    const handle = handleAt(region, index);
    if (handle.region !== region || handle.address < end || handle.bytes === 0) return Rule.HandleOrder;
    end = handle.address + handle.bytes;
    heldBytes += handle.bytes;
    heldHandles++;
    backed -= handle.bytes;
    mappedHandles += handle.stitchCount;
  }
  if (backed !== 0) return Rule.HandleBytes;
  for (range = region.first; range !== NO_RANGE; range = range.next) {
    const index = handleIndex(region, range.address);
    const covered = index < region.handleCount && handleAt(region, index).address <= range.address;
    if (covered !== (range.state !== State.Unbacked)) return Rule.RangeBacked;
  }
  return 0;
}

function checkPlannedBlock(block: Range): u32 {
  if (block.state !== State.Live && block.state !== State.Pending && block.state !== State.Parked) return Rule.RangeState;
  return addBlock(block, block.size);
}

function addBlock(block: Range, size: u64): u32 {
  blockCount++;
  usedBytes += size;
  if (block.state === State.Live) {
    liveBytes += size;
    askedBytes += block.requested;
  }
  return block.state !== State.Parked && block.requested > size ? Rule.BlockHoldsRequest : 0;
}

function checkBlock(block: Range, level: u32): u32 {
  let size: u64 = 0;
  for (let piece = block; piece !== NO_RANGE; piece = piece.nextPiece) {
    size += piece.size;
    if (piece !== block && (piece.state !== State.Piece || piece.head !== block)) return Rule.PiecesOfBlock;
    if (piece.stitch !== block.stitch || piece.owner !== block.owner) return Rule.PiecesInStitch;
  }
  const broken = addBlock(block, size);
  if (broken !== 0) return broken;
  if (block.life !== NO_LIFE) {
    if (block.state !== State.Live) return Rule.LifeOfBlock;
    lifeCount++;
  }
  if (block.stitch === NO_STITCH) return block.va === block.address && block.nextPiece === NO_RANGE ? 0 : Rule.PlainBlock;
  stitchUses++;
  return level >= 3 ? checkPlacement(block, block.stitch, size) : 0;
}

/** A block in a stitch has the memory that the stitch maps at its addresses. */
function checkPlacement(block: Range, stitch: Stitch, size: u64): u32 {
  if (block.va < stitch.address || block.va + size > stitch.address + stitch.mapped) return Rule.BlockInStitch;
  let offset = block.va - stitch.address;
  let piece = block;
  let within: u64 = 0;
  for (let index: u32 = 0; index < stitch.count && piece !== NO_RANGE; index++) {
    const handle = pieceHandle(stitch, index);
    const start = pieceOffset(stitch, index);
    const end = index + 1 < stitch.count ? pieceOffset(stitch, index + 1) : stitch.mapped;
    while (piece !== NO_RANGE && offset < end) {
      if (handle === NO_HANDLE) return Rule.BlockOverHole;
      const bytes = smaller(end - offset, piece.size - within);
      if (piece.address + within !== handle.address + (offset - start) || piece.region !== handle.region) return Rule.BlockMemory;
      offset += bytes;
      within += bytes;
      if (within === piece.size) {
        piece = piece.nextPiece;
        within = 0;
      }
    }
  }
  return piece === NO_RANGE ? 0 : Rule.BlockEnd;
}

function checkStitch(stitch: Stitch): u32 {
  let offset: u64 = 0;
  mark++;
  for (let index: u32 = 0; index < stitch.count; index++) {
    if (pieceOffset(stitch, index) !== offset) return Rule.StitchPieces;
    const handle = pieceHandle(stitch, index);
    const end = index + 1 < stitch.count ? pieceOffset(stitch, index + 1) : stitch.mapped;
    if (handle !== NO_HANDLE) {
      if (handle.bytes !== end - offset || handle.region.arena.pool !== stitch.arena.pool || handle.stitchCount === 0)
        return Rule.StitchHandles;
      if (handle.mark === mark) return Rule.HandleOnce;
      handle.mark = mark;
      mappedHandles--;
    }
    offset = end;
  }
  if (offset !== stitch.mapped || stitch.mapped > stitch.reserved) return Rule.StitchReserved;
  return 0;
}

function mappedOf(stitch: Stitch): u64 {
  let bytes: u64 = 0;
  for (let index: u32 = 0; index < stitch.count; index++) {
    const handle = pieceHandle(stitch, index);
    if (handle !== NO_HANDLE) bytes += handle.bytes;
  }
  return bytes;
}
