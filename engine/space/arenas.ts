// Arenas by stream and pool, and their regions of addresses.
import { countRegion } from '../abi/counters';
import { reserve, unreserve } from '../abi/driver';
import { State } from '../abi/numbers';
import { handleUnit, longRegions, regionBytes } from '../abi/settings';
import { larger, roundUp } from '../base/units';
import { newArena } from '../records/arena-table';
import { HANDLE_ENTRY } from '../records/handles';
import { give, takeClear } from '../records/memory';
import { Arena, NO_ARENA, NO_RANGE, NO_REGION, Range, Region } from '../records/nodes';
import { dropRange, ensureRanges, newRange } from '../records/range-pool';
import { forgetRegion } from '../records/releases';
import { NO_STREAM, streamOf } from '../records/streams';

let arenas: Arena = NO_ARENA;

export function firstArena(): Arena {
  return arenas;
}

/** The arena of a stream and pool, made on first use; NO_ARENA if there is no room for another. */
export function arenaOf(stream: u32, pool: u32, small: bool): Arena {
  const first = arenas;
  if (first !== NO_ARENA && first.stream === stream && first.pool === pool) {
    if (first.small === small) return first;
    // The arenas of the stream in use come first in the list, side by side.
    const second = first.next;
    if (second !== NO_ARENA && second.stream === stream && second.pool === pool) return second;
  }
  return searchArena(stream, pool, small);
}

function searchArena(stream: u32, pool: u32, small: bool): Arena {
  let previous = NO_ARENA;
  for (let arena = arenas; arena !== NO_ARENA; arena = arena.next) {
    if (arena.stream === stream && arena.pool === pool && arena.small === small) {
      // The arena in use moves to the front, so that most searches end there.
      if (previous !== NO_ARENA && previous !== arenas) {
        previous.next = arena.next;
        arena.next = arenas;
        arenas = arena;
      }
      return arena;
    }
    previous = arena;
  }
  if (streamOf(stream) === NO_STREAM) return NO_ARENA;
  const made = newArena();
  if (made === NO_ARENA) return NO_ARENA;
  made.stream = stream;
  made.pool = pool;
  made.small = small;
  made.lane = streamOf(stream);
  made.next = arenas;
  arenas = made;
  return made;
}

export function newRegion(): Region {
  return changetype<Region>(takeClear(offsetof<Region>()));
}

function dropRegion(region: Region): void {
  give(region.handles, <usize>region.handleRoom * HANDLE_ENTRY);
  give(changetype<usize>(region), offsetof<Region>());
}

/** Reserves addresses for at least `bytes` as a region without memory; NO_REGION if the driver fails. */
export function addRegion(arena: Arena, bytes: u64): Region {
  const size = longRegions !== 0 ? larger(regionBytes, roundUp(bytes, handleUnit)) : roundUp(bytes, handleUnit);
  if (!ensureRanges(1)) return NO_REGION;
  const region = newRegion();
  if (region === NO_REGION) return NO_REGION;
  const address = reserve(size);
  if (address <= 0) {
    dropRegion(region);
    return NO_REGION;
  }
  region.address = <u64>address;
  region.bytes = size;
  enlist(arena, region);
  region.first = newRange(region, region.address, size, State.Unbacked);
  region.tail = region.first;
  arena.growing = region;
  countRegion(1);
  return region;
}

/**
 * Makes a region of a slab that was carved out of another arena. Gives the range that covers it, in no set. Needs one spare
 * range.
 */
export function addCarved(arena: Arena, carved: Range): Range {
  const region = newRegion();
  if (region === NO_REGION) return NO_RANGE;
  region.address = carved.address;
  region.bytes = carved.size;
  region.carvedFrom = carved;
  enlist(arena, region);
  region.first = newRange(region, carved.address, carved.size, State.Free);
  return region.first;
}

function enlist(arena: Arena, region: Region): void {
  region.arena = arena;
  region.next = arena.regions;
  arena.regions = region;
}

/** Removes a region whose one range is in no set. */
export function removeRegion(region: Region): void {
  const arena = region.arena;
  if (arena.regions === region) {
    arena.regions = region.next;
  } else {
    let previous = arena.regions;
    while (previous.next !== region) previous = previous.next;
    previous.next = region.next;
  }
  if (arena.growing === region) arena.growing = NO_REGION;
  dropRange(region.first);
  dropRegion(region);
}

/** Frees the addresses of a region without memory. False if the driver refuses: the region stays and can grow again. */
export function releaseRegion(region: Region): bool {
  if (unreserve(region.address, region.bytes) < 0) return false;
  forgetRegion(region);
  removeRegion(region);
  countRegion(-1);
  return true;
}

export function isEmptyRegion(region: Region): bool {
  return region.carvedFrom === NO_RANGE && region.first.state === State.Unbacked && region.first.next === NO_RANGE;
}
