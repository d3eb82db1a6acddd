// The size of new handles.
import { fixedHandle, handleCount, handleUnit, loadHandle } from '../abi/settings';
import { larger, roundUp, smaller } from '../base/units';
import { Arena } from '../records/nodes';

/** Of memory that changes: from 8 to 64 MiB where the handle unit is 2 MiB, and 128 MiB where even that is half a share. */
const SMALLEST_HANDLE_UNITS: u64 = 4;
const LARGEST_HANDLE_UNITS: u64 = 32;
/** Loaded memory consists of about this many handles, until they have reached their largest size. */
const LOADED_HANDLES: u64 = 16;
/** Streams lend each other whole handles, so arenas that borrow have this many times as many. */
const SHARED_FACTOR: u64 = 2;
/** A large growth consists of about this many handles. */
const GROWTH_HANDLES: u64 = 12;
/** Handles may be larger than they should be by this part, if the growth then needs one handle less. */
const LARGER_BY: u64 = 4;

/**
 * The size of the handles of a growth, the last of which may be smaller. They are about as large as `handleAim` says, and alike:
 * a small rest would cost the driver as much as a whole handle. Where streams lend, the rest is a handle of its own: it is lent
 * more easily.
 */
export function handleBytes(arena: Arena, growth: u64): u64 {
  if (fixedHandle !== 0) return fixedHandle;
  if (arena.shared) return handleAim(arena, growth);
  const count = handlesIn(arena, growth);
  return roundUp((growth + count - 1) / count, handleUnit);
}

/** How many handles a growth consists of. */
export function handlesIn(arena: Arena, growth: u64): u64 {
  if (fixedHandle !== 0) return (growth + fixedHandle - 1) / fixedHandle;
  const aim = handleAim(arena, growth);
  if (arena.shared) return (growth + aim - 1) / aim;
  return larger((growth + aim - aim / LARGER_BY) / aim, 1);
}

/**
 * About how large the handles of a growth should be. They are small where memory becomes free piece by piece. They are large
 * where much is held or created at once, and for memory that is loaded and stays.
 */
export function handleAim(arena: Arena, growth: u64): u64 {
  const share = arena.churned ? changingShare(arena, growth) : arena.loaded / LOADED_HANDLES;
  const most = arena.churned ? LARGEST_HANDLE_UNITS * handleUnit : loadHandle;
  let bytes = SMALLEST_HANDLE_UNITS * handleUnit;
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
