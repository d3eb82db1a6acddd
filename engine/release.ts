// Giving memory back to the driver, handle by handle: whatever is wholly free and whatever a failure left behind.
import { firstArena, isEmptyRegion, releaseRegion } from './arenas';
import { unmap } from './env';
import { forgetHandle, handleIndex, releaseHandle, releaseOrphans } from './growth';
import { Arena, ensureRanges, Handle, handleAt, NO_ARENA, NO_RANGE, NO_REGION, NO_VIEW, pieceHandle, Range, Region, State } from './nodes';
import { carve, rangeAt, setUnbacked } from './ranges';
import { dismissIdle, punch } from './views';

const NOBODY: i32 = -1;
/** The number of an arena whose free memory stays, wherever it lies. */
let spared: i32 = NOBODY;

/** Gives back all that can be. */
export function releaseAll(): void {
  releaseOrphans();
  for (let arena = firstArena(); arena !== NO_ARENA; arena = arena.next) releaseArena(arena);
}

/** Gives back the free memory of every arena but one. */
export function releaseOthers(kept: Arena): void {
  releaseOrphans();
  spared = <i32>kept.index;
  for (let arena = firstArena(); arena !== NO_ARENA; arena = arena.next) if (arena !== kept) releaseArena(arena);
  spared = NOBODY;
}

/** Drops the idle views of all arenas: addresses and mappings come free, memory does not. */
export function releaseAddresses(): void {
  for (let arena = firstArena(); arena !== NO_ARENA; arena = arena.next) dismissIdle(arena);
}

/** Needs no memory of the engine's own: this must work when there is none left. */
function releaseArena(arena: Arena): void {
  dismissIdle(arena);
  let region = arena.regions;
  while (region !== NO_REGION) {
    const next = region.next;
    releaseStuck(region);
    releaseRanges(region);
    if (isEmptyRegion(region)) releaseRegion(region);
    region = next;
  }
}

function releaseRanges(region: Region): void {
  let range: Range = region.first;
  while (range !== NO_RANGE) {
    const end = range.address + range.size;
    if (range.state === State.Free && <i32>range.owner !== spared) {
      // What becomes of the range lies at or after what was before it.
      const before = range.prev !== NO_RANGE ? range.prev : range;
      releaseWhole(region, range);
      range = before;
    }
    while (range !== NO_RANGE && range.address < end) range = range.next;
  }
}

/** Gives back the handles that lie wholly in a free range, from its end down: so the range stays what is left of it. */
function releaseWhole(region: Region, range: Range): void {
  const start = range.address;
  const end = start + range.size;
  for (let index = handleIndex(region, end - 1) + 1; index > 0; index--) {
    if (index > region.handleCount) continue;
    const handle = handleAt(region, index - 1);
    if (handle.address + handle.bytes > end) continue;
    if (handle.address < start || !ensureRanges(2)) break;
    if (handle.views > 0 && !punchAll(handle)) continue;
    if (unmap(handle.address, handle.bytes) < 0) continue;
    setUnbacked(carve(rangeAt(range, handle.address), handle.address, handle.bytes, State.Unbacked));
    forgetHandle(handle);
    releaseHandle(handle);
  }
}

/** Takes a free handle out of the views that other blocks keep alive: of any arena, since it may have been lent. */
function punchAll(handle: Handle): bool {
  for (let arena = firstArena(); arena !== NO_ARENA && handle.views > 0; arena = arena.next) {
    let view = arena.newestView;
    while (view !== NO_VIEW && handle.views > 0) {
      const older = view.older;
      for (let index: u32 = 0; index < view.count; index++) {
        if (pieceHandle(view, index) === handle && !punch(view, index)) return false;
      }
      view = older;
    }
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
