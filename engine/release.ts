// Giving memory back to the driver, handle by handle: whatever is wholly free and whatever a failure left behind.
import { firstArena, isEmptyRegion, releaseRegion } from './arenas';
import { unmap } from './env';
import { forgetHandle, handleIndex, releaseHandle, releaseOrphans } from './growth';
import { Arena, ensureRanges, Handle, handleAt, NO_ARENA, NO_RANGE, NO_REGION, NO_VIEW, pieceHandle, Range, Region, State } from './nodes';
import { carve, rangeAt, setUnbacked } from './ranges';
import { freeHeadOf, surveyArena } from './survey';
import { dismissIdle, punch } from './views';

/** Gives back all that can be. */
export function releaseAll(): void {
  releaseOrphans();
  for (let arena = firstArena(); arena !== NO_ARENA; arena = arena.next) releaseArena(arena);
}

/** Gives back the free memory of every arena but one. */
export function releaseOthers(kept: Arena): void {
  releaseOrphans();
  for (let arena = firstArena(); arena !== NO_ARENA; arena = arena.next) if (arena !== kept) releaseArena(arena);
}

/** Drops the idle views of all arenas: addresses and mappings come free, memory does not. */
export function releaseAddresses(): void {
  for (let arena = firstArena(); arena !== NO_ARENA; arena = arena.next) dismissIdle(arena);
}

function releaseArena(arena: Arena): void {
  dismissIdle(arena);
  let region = arena.regions;
  while (region !== NO_REGION) {
    releaseStuck(region);
    region = region.next;
  }
  if (!surveyArena(arena)) return;
  region = arena.regions;
  while (region !== NO_REGION) {
    const next = region.next;
    // From the end down: the range a handle was found in stays where it is until its lowest handle is gone.
    for (let index = region.handleCount; index > 0; index--) releaseIfFree(region, index - 1);
    if (isEmptyRegion(region)) releaseRegion(region);
    region = next;
  }
}

function releaseIfFree(region: Region, index: u32): void {
  const handle = handleAt(region, index);
  if (freeHeadOf(handle) !== handle.bytes || !ensureRanges(2)) return;
  if (handle.views > 0 && !punchAll(region.arena, handle)) return;
  if (unmap(handle.address, handle.bytes) < 0) return;
  setUnbacked(carve(rangeAt(handle.headRange, handle.address), handle.address, handle.bytes, State.Unbacked));
  forgetHandle(handle);
  releaseHandle(handle);
}

/** Takes a free handle out of the views that other blocks keep alive. */
function punchAll(arena: Arena, handle: Handle): bool {
  let view = arena.newestView;
  while (view !== NO_VIEW && handle.views > 0) {
    const older = view.older;
    for (let index: u32 = 0; index < view.count; index++) {
      if (pieceHandle(view, index) === handle && !punch(view, index)) return false;
    }
    view = older;
  }
  return handle.views === 0;
}

/** Tries again to undo mappings that once could not be undone. */
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
