// The size of new handles.
import { fixedHandle, handleCount, handleFloor, handleUnit, loadHandle } from '../abi/settings';
import { larger, roundUp, smaller } from '../base/units';
import { Arena } from '../records/nodes';

/** Of memory that changes: 64 MiB where the handle unit is 2 MiB. Twice that where even such a handle is half a share. */
const LARGEST_HANDLE_UNITS: u64 = 32;
/** Loaded memory consists of about this many handles, until they have reached their largest size. */
const LOADED_HANDLES: u64 = 16;
/** Streams lend each other whole handles. So arenas that borrow have this many times as many, and smaller ones. */
const SHARED_FACTOR: u64 = 2;
const SHARED_FLOOR: u64 = 4;
/** A large growth consists of about this many handles. */
const GROWTH_HANDLES: u64 = 12;
/** Handles may be larger than they should be by this part, if the growth then needs one handle less. */
const LARGER_BY: u64 = 4;

/**
 * The size of the handles of a growth, the last of which may be smaller. They are about as large as `handleAim` says, and alike:
 * a small rest would cost the driver as much as a whole handle.
 */
export function handleBytes(arena: Arena, growth: u64): u64 {
  if (fixedHandle !== 0) return fixedHandle;
  const count = handlesIn(arena, growth);
  return roundUp((growth + count - 1) / count, handleUnit);
}

/** How many handles a growth consists of. */
export function handlesIn(arena: Arena, growth: u64): u64 {
  if (fixedHandle !== 0) return (growth + fixedHandle - 1) / fixedHandle;
  const aim = handleAim(arena, growth);
  return larger((growth + aim - aim / LARGER_BY) / aim, 1);
}

/**
 * About how large the handles of a growth should be. They are small where memory becomes free piece by piece. They are large
 * where much is held or created at once, and for memory that is loaded and stays.
 */
export function handleAim(arena: Arena, growth: u64): u64 {
  const share = arena.churned ? changingShare(arena, growth) : arena.loaded / LOADED_HANDLES;
  const most = arena.churned ? LARGEST_HANDLE_UNITS * handleUnit : loadHandle;
  let bytes = (arena.shared ? smaller(handleFloor, SHARED_FLOOR) : handleFloor) * handleUnit;
  while (bytes * 2 <= share && bytes * 2 <= most) bytes <<= 1;
  return arena.churned && bytes * 2 > most && bytes * 4 <= share ? bytes * 2 : bytes;
}

/**
 * A share of the memory that changes, or of the growth. The second is at most half the share of all that the arena then holds.
 */
function changingShare(arena: Arena, growth: u64): u64 {
  const count = arena.shared ? SHARED_FACTOR * handleCount : handleCount;
  const ofGrowth = smaller(growth / GROWTH_HANDLES, (arena.held + growth) / (2 * count));
  return larger((arena.held - arena.loaded) / count, ofGrowth);
}
