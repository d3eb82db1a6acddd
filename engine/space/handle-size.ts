// The size of new handles.
import { fixedHandle, handleCount, handleUnit, loadedCount, loadHandle, smallestHandle } from '../abi/settings';
import { larger, smaller } from '../base/units';
import { Arena } from '../records/nodes';

/** Of memory that changes: up to 64 MiB where the handle unit is 2 MiB, and 128 MiB where even that is half a share. */
const LARGEST_HANDLE_UNITS: u64 = 32;
/** Streams lend each other whole handles, so arenas that borrow have this many times as many. */
const SHARED_FACTOR: u64 = 2;
/** A large growth consists of about this many handles. */
const GROWTH_HANDLES: u64 = 12;

/**
 * The size of handles for a growth of `growth` bytes. Handles are small where memory becomes free piece by piece. They are
 * large where much is held or created at once, and for memory that is loaded and stays.
 */
export function handleBytes(arena: Arena, growth: u64): u64 {
  if (fixedHandle !== 0) return fixedHandle;
  const share = arena.churned ? changingShare(arena, growth) : arena.loaded / loadedCount;
  const most = arena.churned ? LARGEST_HANDLE_UNITS * handleUnit : loadHandle;
  let bytes = smallestHandle * handleUnit;
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
