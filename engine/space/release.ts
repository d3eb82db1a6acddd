// Frees memory, handle by handle: all that is wholly free and that the GPU has finished with, and all that a failure left behind.
import { unmap } from '../abi/driver';
import { State } from '../abi/numbers';
import { larger } from '../base/units';
import { Handle, handleAt, handleIndex } from '../records/handles';
import { Arena, NO_ARENA, NO_RANGE, NO_REGION, NO_STITCH, Range, Region } from '../records/nodes';
import { pieceHandle } from '../records/pieces';
import { ensureRanges } from '../records/range-pool';
import { firstArena, isEmptyRegion, releaseRegion } from './arenas';
import { forgetHandle, releaseHandle, releaseOrphans } from './growth';
import { isRangeOver } from './last-use';
import { cutOut, rangeAt, setUnbacked } from './ranges';
import { dismissIdle, punch } from './stitches';

const NOBODY: i32 = -1;
/** The number of an arena whose free memory stays. */
let spared: i32 = NOBODY;

/** Frees all that can be freed. */
export function releaseAll(): void {
  releaseOrphans();
  for (let arena = firstArena(); arena !== NO_ARENA; arena = arena.next) releaseArena(arena);
}

/** Frees the free memory of every arena but one. */
export function releaseOthers(kept: Arena): void {
  releaseOrphans();
  spared = <i32>kept.index;
  for (let arena = firstArena(); arena !== NO_ARENA; arena = arena.next) if (arena !== kept) releaseArena(arena);
  spared = NOBODY;
}

/** Drops the idle stitches of all arenas. This frees addresses and mappings, but no memory. */
export function releaseAddresses(): void {
  for (let arena = firstArena(); arena !== NO_ARENA; arena = arena.next) dismissIdle(arena);
}

/** Takes no memory of the engine's own, since it must work when that is exhausted. */
function releaseArena(arena: Arena): void {
  dismissIdle(arena);
  let region = arena.regions;
  while (region !== NO_REGION) {
    const next = region.next;
    releaseStuck(region);
    releaseRanges(region);
    releaseShared(region);
    if (isEmptyRegion(region)) releaseRegion(region);
    region = next;
  }
}

function releaseRanges(region: Region): void {
  let range: Range = region.first;
  while (range !== NO_RANGE) {
    const end = range.address + range.size;
    if (range.state === State.Free && <i32>range.owner !== spared && isRangeOver(range)) {
      // After the joining of ranges, the walk goes on from the one before.
      const before = range.prev !== NO_RANGE ? range.prev : range;
      releaseWhole(region, range);
      range = before;
    }
    while (range !== NO_RANGE && range.address < end) range = range.next;
  }
}

/** Frees the handles that lie wholly in a free range, from its end down, so that the range keeps its start. */
function releaseWhole(region: Region, range: Range): void {
  const start = range.address;
  const end = start + range.size;
  for (let index = handleIndex(region, end - 1) + 1; index > 0; index--) {
    if (index > region.handleCount) continue;
    const handle = handleAt(region, index - 1);
    if (handle.address + handle.bytes > end) continue;
    if (handle.address < start || !ensureRanges(2)) break;
    if (handle.stitchCount > 0 && !punchAll(handle)) continue;
    if (unmap(handle.address, handle.bytes) < 0) continue;
    setUnbacked(cutOut(rangeAt(range, handle.address), handle.address, handle.bytes, State.Unbacked));
    forgetHandle(handle);
    releaseHandle(handle);
  }
}

/** Frees handles that are wholly free, but whose parts have different owners. */
function releaseShared(region: Region): void {
  let range: Range = region.first;
  while (range !== NO_RANGE) {
    const next = range.next;
    if (next === NO_RANGE) return;
    const parted = range.state === State.Free && next.state === State.Free;
    const index = parted ? handleIndex(region, next.address) : region.handleCount;
    // The range before the handle stays, so the walk goes on from there.
    const before = index < region.handleCount ? rangeBefore(range, handleAt(region, index)) : NO_RANGE;
    if (index < region.handleCount && releaseParts(handleAt(region, index), range)) {
      range = before === NO_RANGE ? region.first : before;
    } else {
      range = next;
    }
  }
}

/** The last range that ends before a handle. `range` begins before the end of the handle. */
function rangeBefore(range: Range, handle: Handle): Range {
  let before = range;
  while (before !== NO_RANGE && before.address + before.size > handle.address) before = before.prev;
  return before;
}

/** Frees a handle if all ranges in it are free. `range` is one of them. */
function releaseParts(handle: Handle, range: Range): bool {
  const end = handle.address + handle.bytes;
  let first = range;
  while (first.address > handle.address && first.prev !== NO_RANGE) first = first.prev;
  let parts: u32 = 0;
  for (let part = first; part !== NO_RANGE && part.address < end; part = part.next) {
    if (part.state !== State.Free || <i32>part.owner === spared || !isRangeOver(part)) return false;
    parts++;
  }
  if (!ensureRanges(2 * parts) || (handle.stitchCount > 0 && !punchAll(handle)) || unmap(handle.address, handle.bytes) < 0) return false;
  // From the end down, so that ranges join only behind the next part.
  for (let at = end; at > handle.address; ) {
    const part = rangeAt(first, at - 1);
    const start = larger(part.address, handle.address);
    const size = at - start;
    setUnbacked(cutOut(part, start, size, State.Unbacked));
    at = start;
  }
  forgetHandle(handle);
  releaseHandle(handle);
  return true;
}

/** Removes a free handle from all stitches, of any arena, since it may have been lent. The GPU has finished with its memory. */
function punchAll(handle: Handle): bool {
  for (let arena = firstArena(); arena !== NO_ARENA && handle.stitchCount > 0; arena = arena.next) {
    let stitch = arena.newestStitch;
    while (stitch !== NO_STITCH && handle.stitchCount > 0) {
      const older = stitch.older;
      for (let index: u32 = 0; index < stitch.count; index++) {
        if (pieceHandle(stitch, index) === handle && !punch(stitch, index)) return false;
      }
      stitch = older;
    }
  }
  return handle.stitchCount === 0;
}

/** Tries again to remove mappings that the driver refused to remove before. */
function releaseStuck(region: Region): void {
  let range: Range = region.first;
  while (range !== NO_RANGE) {
    if (range.state === State.Stuck && unmap(range.address, range.size) >= 0) {
      const first = handleIndex(region, range.address);
      const end = range.address + range.size;
      while (first < region.handleCount && handleAt(region, first).address < end) {
        const handle = handleAt(region, first);
        forgetHandle(handle);
        releaseHandle(handle);
      }
      const resume = range.prev !== NO_RANGE && range.prev.state === State.Unbacked ? range.prev : range;
      setUnbacked(range);
      range = resume;
    }
    range = range.next;
  }
}
