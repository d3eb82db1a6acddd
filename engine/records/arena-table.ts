// Arenas by number, so that a range names its owner in two bytes.
import { regrow, takeClear } from './memory';
import { ARENA_SIZE, Arena, NO_ARENA, Range } from './nodes';

/** Arenas are never deleted, so a number always means the same arena. */
let arenaTable: usize = 0;
let arenaRoom: u32 = 0;
let arenaCount: u32 = 0;
const MOST_ARENAS: u32 = 65535;

export function newArena(): Arena {
  if (arenaCount === arenaRoom) {
    const room: u32 = arenaRoom === 0 ? 16 : arenaRoom << 1;
    const grown = regrow(arenaTable, (<usize>arenaRoom) << 2, (<usize>room) << 2);
    if (grown === 0) return NO_ARENA;
    arenaTable = grown;
    arenaRoom = room;
  }
  if (arenaCount === MOST_ARENAS) return NO_ARENA;
  const arena = changetype<Arena>(takeClear(ARENA_SIZE));
  if (arena === NO_ARENA) return NO_ARENA;
  store<usize>(arenaTable + ((<usize>arenaCount) << 2), changetype<usize>(arena));
  arena.index = <u16>arenaCount;
  arenaCount++;
  return arena;
}

/** The arena that may use the range. */
export function ownerOf(range: Range): Arena {
  return changetype<Arena>(load<usize>(arenaTable + ((<usize>range.owner) << 2)));
}
