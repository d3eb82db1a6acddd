// Live blocks by address: a hash table with open addressing and linear probing.
// A removal moves later entries back, so the table needs no marks and no cleaning. Entries hold the hash of the address: a
// search reads no other block, which would be a cache miss.
import { give, takeClear } from './memory';
import { NO_RANGE, Range } from './nodes';

/** An entry: the block (u32), the hash of its address (u32). */
const ENTRY: usize = 8;
const FIRST_ROOM: u32 = 1024;

let entries: usize = 0;
let room: u32 = 0;
let count: u32 = 0;
/** Where the last search ended. A removal mostly follows a search. */
let found: u32 = 0;

function at(index: u32): Range {
  return changetype<Range>(load<usize>(entries + <usize>index * ENTRY));
}

function hashAt(index: u32): u32 {
  return load<u32>(entries + <usize>index * ENTRY, 4);
}

function set(index: u32, block: Range, hash: u32): void {
  const entry = entries + <usize>index * ENTRY;
  store<usize>(entry, changetype<usize>(block));
  store<u32>(entry, hash, 4);
}

/** Addresses are multiples of 512, so the low bits are dropped. */
function hashOf(address: u64): u32 {
  return <u32>(((address >> 9) * 0x9e3779b97f4a7c15) >> 32);
}

/** Adds a block under the address given out. False if the engine's own memory is exhausted. */
export function remember(block: Range): bool {
  if ((count + 1) * 2 > room && !enlarge()) return false;
  insert(block, hashOf(block.va));
  count++;
  return true;
}

/** Loads the entry of an address into the cache while other work goes on. */
export function approach(address: u64): void {
  if (room !== 0) load<u32>(entries + <usize>(hashOf(address) & (room - 1)) * ENTRY);
}

function insert(block: Range, hash: u32): void {
  let index = hash & (room - 1);
  while (at(index) !== NO_RANGE) index = (index + 1) & (room - 1);
  set(index, block, hash);
}

export function recall(address: u64): Range {
  if (room === 0) return NO_RANGE;
  const hash = hashOf(address);
  let index = hash & (room - 1);
  let block = at(index);
  while (block !== NO_RANGE && (hashAt(index) !== hash || block.va !== address)) {
    index = (index + 1) & (room - 1);
    block = at(index);
  }
  found = index;
  return block;
}

export function forgetAddress(address: u64): void {
  const isRecalled = room !== 0 && at(found) !== NO_RANGE && at(found).va === address;
  if (isRecalled || recall(address) !== NO_RANGE) forgetRecalled();
}

/** Removes the block that was recalled last. */
export function forgetRecalled(): void {
  const mask = room - 1;
  let hole = found;
  let index = hole;
  while (true) {
    index = (index + 1) & mask;
    const later = at(index);
    if (later === NO_RANGE) break;
    // An entry may move to the hole unless its home lies behind the hole.
    const hash = hashAt(index);
    if (((index - hash) & mask) < ((index - hole) & mask)) continue;
    set(hole, later, hash);
    hole = index;
  }
  set(hole, NO_RANGE, 0);
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
  found = 0;
  for (let index: u32 = 0; index < oldRoom; index++) {
    const old = oldEntries + <usize>index * ENTRY;
    const block = changetype<Range>(load<usize>(old));
    if (block !== NO_RANGE) insert(block, load<u32>(old, 4));
  }
  give(oldEntries, <usize>oldRoom * ENTRY);
  return true;
}
