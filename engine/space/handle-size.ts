// How large new handles are.
import { fixedHandle, handleCount, handleUnit, loadHandle } from '../abi/settings';
import { larger, smaller } from '../base/units';
import { Arena } from '../records/nodes';

/** With handle units of 2 MiB: from 8 MiB to 64 MiB. */
const SMALLEST_HANDLE_UNITS: u64 = 4;
const LARGEST_HANDLE_UNITS: u64 = 32;
/** What is loaded is made of about this many handles until they have reached their largest. */
const LOADED_HANDLES: u64 = 16;
/** What streams lend each other goes from hand to hand by the handle: more of them leave less behind. */
const SHARED_FACTOR: u64 = 2;
/** A large growth is cut into about this many. */
const GROWTH_HANDLES: u64 = 12;

/**
 * The size of handles for a growth of `growth` bytes: small ones where every piece counts, few large ones where much is held
 * or comes at once, and for what is loaded and stays: the size of a handle matters only where memory becomes free piece by piece.
 */
export function handleBytes(arena: Arena, growth: u64): u64 {
  if (fixedHandle !== 0) return fixedHandle;
  const share = arena.churned ? changingShare(arena, growth) : arena.loaded / LOADED_HANDLES;
  const most = arena.churned ? LARGEST_HANDLE_UNITS * handleUnit : loadHandle;
  let bytes = SMALLEST_HANDLE_UNITS * handleUnit;
  while (bytes * 2 <= share && bytes * 2 <= most) bytes <<= 1;
  return bytes;
}

/** A share of what changes in the arena; or of the growth, but not more than half the share of what the arena holds then. */
function changingShare(arena: Arena, growth: u64): u64 {
  const count = arena.shared ? SHARED_FACTOR * handleCount : handleCount;
  const ofGrowth = smaller(growth / GROWTH_HANDLES, (arena.held + growth) / (2 * count));
  return larger((arena.held - arena.loaded) / count, ofGrowth);
}
