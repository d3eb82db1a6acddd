// Blocks by address, for callers that know nothing else of them: open addressing with linear probing.
// Removal moves later entries back instead of leaving marks, so the table never has to be cleaned.
import { give, takeClear } from './memory';
import { NO_RANGE, Range } from './nodes';

const ENTRY: usize = 4;
const FIRST_ROOM: u32 = 1024;

let entries: usize = 0;
let room: u32 = 0;
let count: u32 = 0;

function at(index: u32): Range {
  return changetype<Range>(load<usize>(entries + <usize>index * ENTRY));
}

function set(index: u32, block: Range): void {
  store<usize>(entries + <usize>index * ENTRY, changetype<usize>(block));
}

/** Addresses are multiples of 512: the low bits say nothing, the product spreads the others. */
function homeOf(address: u64): u32 {
  return <u32>(((address >> 9) * 0x9e3779b97f4a7c15) >> 32) & (room - 1);
}

/** Remembers a block under the address given out; false when the engine's own memory is exhausted. */
export function remember(block: Range): bool {
  if ((count + 1) * 2 > room && !enlarge()) return false;
  let index = homeOf(block.va);
  while (at(index) !== NO_RANGE) index = (index + 1) & (room - 1);
  set(index, block);
  count++;
  return true;
}

export function recall(address: u64): Range {
  if (room === 0) return NO_RANGE;
  let index = homeOf(address);
  let block = at(index);
  while (block !== NO_RANGE && block.va !== address) {
    index = (index + 1) & (room - 1);
    block = at(index);
  }
  return block;
}

export function forgetAddress(address: u64): void {
  if (room === 0) return;
  let hole = homeOf(address);
  while (at(hole) !== NO_RANGE && at(hole).va !== address) hole = (hole + 1) & (room - 1);
  if (at(hole) === NO_RANGE) return;
  let index = hole;
  while (true) {
    index = (index + 1) & (room - 1);
    const block = at(index);
    if (block === NO_RANGE) break;
    // An entry may move back to the hole unless its home lies behind the hole.
    if (((index - homeOf(block.va)) & (room - 1)) < ((index - hole) & (room - 1))) continue;
    set(hole, block);
    hole = index;
  }
  set(hole, NO_RANGE);
  count--;
}

function enlarge(): bool {
  const oldEntries = entries;
  const oldRoom = room;
  const grown = room === 0 ? FIRST_ROOM : room << 1;
  const fresh = takeClear(<usize>grown * ENTRY);
  if (fresh === 0) return false;
  entries = fresh;
  room = grown;
  for (let index: u32 = 0; index < oldRoom; index++) {
    const block = changetype<Range>(load<usize>(oldEntries + <usize>index * ENTRY));
    if (block === NO_RANGE) continue;
    let place = homeOf(block.va);
    while (at(place) !== NO_RANGE) place = (place + 1) & (room - 1);
    set(place, block);
  }
  give(oldEntries, <usize>oldRoom * ENTRY);
  return true;
}
