// New memory at the end of an arena: handles are created, mapped and made accessible, all or nothing.
// If the driver refuses to undo a step, the memory is kept as an orphan or a stuck range.
import { countOrphan, countReleased, countReserved } from '../abi/counters';
import { create, map, release, setAccess, unmap } from '../abi/driver';
import { noteFailure } from '../abi/failure';
import { Call, State } from '../abi/numbers';
import { accessEach, longRegions } from '../abi/settings';
import { smaller } from '../base/units';
import {
  addHandle,
  dropHandle,
  dropOrphan,
  HANDLE_ENTRY,
  Handle,
  handleAt,
  handleIndex,
  NO_HANDLE,
  NO_ORPHAN,
  newHandle,
  Orphan,
  orphanOf,
} from '../records/handles';
import { regrow } from '../records/memory';
import { Arena, NO_RANGE, NO_REGION, Range, Region } from '../records/nodes';
import { ensureRanges } from '../records/range-pool';
import { addRegion, isEmptyRegion, releaseRegion } from './arenas';
import { handleBytes } from './handle-size';
import { setFree, takeTail } from './ranges';

let orphans: Orphan = NO_ORPHAN;

/** Free bytes directly before the place where the arena grows. */
export function freeTail(arena: Arena): u64 {
  const region = arena.growing;
  if (region === NO_REGION || region.tail === NO_RANGE) return 0;
  const last = region.tail.prev;
  return last !== NO_RANGE && last.state === State.Free && last.owner === arena.index ? last.size : 0;
}

/** Bytes by which the arena can grow without new addresses. */
export function tailRoom(arena: Arena): u64 {
  const region = arena.growing;
  return region === NO_REGION || region.tail === NO_RANGE ? 0 : region.tail.size;
}

/** Makes the arena grow in another of its regions, if one has enough addresses. */
function growElsewhere(arena: Arena, bytes: u64): bool {
  for (let region = arena.regions; region !== NO_REGION; region = region.next) {
    if (region.tail === NO_RANGE || region.tail.size < bytes) continue;
    arena.growing = region;
    return true;
  }
  return false;
}

/**
 * Adds `bytes` (a multiple of the handle unit) of free memory at the end of the arena. Gives the free range that it is part of.
 */
export function grow(arena: Arena, bytes: u64): Range {
  if (tailRoom(arena) < bytes && !growElsewhere(arena, bytes)) addRegion(arena, bytes);
  const region = tailRoom(arena) < bytes ? NO_REGION : arena.growing;
  if (region === NO_REGION) {
    noteFailure(Call.Reserve);
    return NO_RANGE;
  }
  const step = handleBytes(arena, bytes);
  const count = <u32>((bytes + step - 1) / step);
  if (!ensureRanges(2) || !makeRoom(region, count)) {
    noteFailure(Call.OwnMemory);
    return NO_RANGE;
  }
  const first = region.handleCount;
  const start = region.tail.address;
  if (!createHandles(region, start, bytes, step)) {
    // A region for this growth alone is of no use to another.
    if (longRegions === 0 && isEmptyRegion(region)) releaseRegion(region);
    return NO_RANGE;
  }
  const mapped = mapHandles(region, first, count);
  if (mapped === count && openAccess(region, first, count)) {
    if (!arena.churned) arena.loaded += bytes;
    return setFree(takeTail(region.tail, bytes, State.Free), 0);
  }
  undo(region, first, mapped);
  return NO_RANGE;
}

/** Creates handles behind those of the region. If one fails, none stays. */
function createHandles(region: Region, start: u64, bytes: u64, step: u64): bool {
  const first = region.handleCount;
  for (let done: u64 = 0; done < bytes; ) {
    const size = smaller(step, bytes - done);
    const handle = newHandle();
    const id = handle === NO_HANDLE ? -1 : create(size);
    if (id < 0) {
      noteFailure(handle === NO_HANDLE ? Call.OwnMemory : Call.Create);
      if (handle !== NO_HANDLE) dropHandle(handle);
      releaseFrom(region, first);
      return false;
    }
    handle.id = <u64>id;
    handle.address = start + done;
    handle.bytes = size;
    handle.region = region;
    addHandle(region, handle);
    region.arena.held += size;
    countReserved(size);
    done += size;
  }
  return true;
}

/** Maps handles from `first` on. Gives how many could be mapped. */
function mapHandles(region: Region, first: u32, count: u32): u32 {
  for (let index: u32 = 0; index < count; index++) {
    const handle = handleAt(region, first + index);
    if (map(handle.address, handle.id) < 0) {
      noteFailure(Call.Map);
      return index;
    }
  }
  return count;
}

function openAccess(region: Region, first: u32, count: u32): bool {
  const lowest = handleAt(region, first);
  const highest = handleAt(region, first + count - 1);
  if (accessEach === 0) {
    if (setAccess(lowest.address, highest.address + highest.bytes - lowest.address) >= 0) return true;
  } else {
    let index: u32 = 0;
    while (index < count) {
      const handle = handleAt(region, first + index);
      if (setAccess(handle.address, handle.bytes) < 0) break;
      index++;
    }
    if (index === count) return true;
  }
  noteFailure(Call.SetAccess);
  return false;
}

/** Frees the handles from `first` on. The first `mapped` of them are mapped without access. */
function undo(region: Region, first: u32, mapped: u32): void {
  releaseFrom(region, first + mapped);
  if (mapped === 0) return;
  const lowest = handleAt(region, first);
  const highest = handleAt(region, first + mapped - 1);
  const bytes = highest.address + highest.bytes - lowest.address;
  if (unmap(lowest.address, bytes) >= 0) releaseFrom(region, first);
  else takeTail(region.tail, bytes, State.Stuck);
}

function releaseFrom(region: Region, first: u32): void {
  while (region.handleCount > first) {
    const handle = handleAt(region, region.handleCount - 1);
    forgetHandle(handle);
    releaseHandle(handle);
  }
}

/** Frees a handle that is mapped nowhere, or keeps it as an orphan. */
export function releaseHandle(handle: Handle): void {
  if (release(handle.id) >= 0) {
    countReleased(handle.bytes);
    dropHandle(handle);
    return;
  }
  const orphan = orphanOf(handle);
  orphan.next = orphans;
  orphans = orphan;
  countOrphan(1);
}

/** Tries again to free handles that the driver refused before. */
export function releaseOrphans(): void {
  let kept = NO_ORPHAN;
  let orphan = orphans;
  while (orphan !== NO_ORPHAN) {
    const next = orphan.next;
    if (release(orphan.id) >= 0) {
      countReleased(orphan.bytes);
      countOrphan(-1);
      dropOrphan(orphan);
    } else {
      orphan.next = kept;
      kept = orphan;
    }
    orphan = next;
  }
  orphans = kept;
}

export function orphanBytes(): u64 {
  let bytes: u64 = 0;
  for (let orphan = orphans; orphan !== NO_ORPHAN; orphan = orphan.next) bytes += orphan.bytes;
  return bytes;
}

/** Makes room for `count` more handles in the list of a region. */
function makeRoom(region: Region, count: u32): bool {
  const needed = region.handleCount + count;
  if (needed <= region.handleRoom) return true;
  let room: u32 = region.handleRoom === 0 ? 4 : region.handleRoom;
  while (room < needed) room <<= 1;
  const list = regrow(region.handles, <usize>region.handleRoom * HANDLE_ENTRY, <usize>room * HANDLE_ENTRY);
  if (list === 0) return false;
  region.handles = list;
  region.handleRoom = room;
  return true;
}

/** Removes a handle from the list of its region. */
export function forgetHandle(handle: Handle): void {
  const region = handle.region;
  const index = handleIndex(region, handle.address);
  const place = region.handles + <usize>index * HANDLE_ENTRY;
  memory.copy(place, place + HANDLE_ENTRY, <usize>(region.handleCount - index - 1) * HANDLE_ENTRY);
  region.handleCount--;
  const arena = region.arena;
  arena.held -= handle.bytes;
  if (arena.loaded > arena.held) arena.loaded = arena.held;
}
