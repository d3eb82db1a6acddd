// The engine's own linear memory: pieces by size class, recycled.
// New pieces are taken from the end, so addresses never change.
import { countOwnMemory } from '../abi/counters';
import { noteFailure } from '../abi/failure';
import { Call } from '../abi/numbers';

const GROW_PAGES: i32 = 16;
const PAGE: usize = 65536;
const LINE: usize = 64;
/** Up to this size classes are multiples of 16 bytes, above it powers of two. */
const FINE_LIMIT: usize = 512;
const CLASSES: usize = 64;

const recycled: usize = memory.data(256);
let bump: usize = 0;
let end: usize = 0;

function classOf(bytes: usize): usize {
  if (bytes <= FINE_LIMIT) return (bytes + 15) >> 4;
  return 32 + (32 - clz<u32>(<u32>bytes - 1) - 9);
}

function classBytes(index: usize): usize {
  return index <= 32 ? index << 4 : (<usize>1) << (index - 32 + 9);
}

/** A piece of at least `bytes`, not cleared; 0 if linear memory is exhausted. */
export function take(bytes: usize): usize {
  const index = classOf(bytes);
  assert(index < CLASSES);
  const list = recycled + (index << 2);
  const piece = load<usize>(list);
  if (piece !== 0) {
    store<usize>(list, load<usize>(piece));
    return piece;
  }
  return fresh(classBytes(index));
}

/** Recycles a piece that `take(bytes)` gave. */
export function give(piece: usize, bytes: usize): void {
  if (piece === 0) return;
  const list = recycled + (classOf(bytes) << 2);
  store<usize>(piece, load<usize>(list));
  store<usize>(list, piece);
}

/** Like `take`, but cleared. */
export function takeClear(bytes: usize): usize {
  const piece = take(bytes);
  if (piece !== 0) memory.fill(piece, 0, bytes);
  return piece;
}

/** Moves a list of `bytes` to a piece of `larger` bytes; 0 when linear memory is exhausted, and then the list stays. */
export function regrow(piece: usize, bytes: usize, larger: usize): usize {
  const grown = take(larger);
  if (grown === 0) return 0;
  memory.copy(grown, piece, bytes);
  give(piece, bytes);
  return grown;
}

/** Memory that was never used. */
export function fresh(bytes: usize): usize {
  if (bump === 0) {
    bump = (__heap_base + 63) & ~63;
    end = <usize>memory.size() * PAGE;
  }
  // Long pieces begin at a cache line, so that a record of one line never lies in two.
  if (bytes >= LINE) bump = (bump + LINE - 1) & ~(LINE - 1);
  if (bump > end || bytes > end - bump) {
    const missing = <i32>((bump + bytes - end + PAGE - 1) / PAGE);
    if (memory.grow(missing > GROW_PAGES ? missing : GROW_PAGES) < 0 && memory.grow(missing) < 0) {
      noteFailure(Call.OwnMemory);
      return 0;
    }
    end = <usize>memory.size() * PAGE;
  }
  const piece = bump;
  bump += (bytes + 15) & ~15;
  countOwnMemory(bump);
  return piece;
}
