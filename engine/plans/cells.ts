// Which bytes of the plans' memory are taken, in cells. The edges of all planned places divide the memory into cells.
// A place is a number of whole cells, so a few words of bits say whether it is free, however large it is.
import { sortWords } from '../base/sorting';
import { give, take, takeClear } from '../records/memory';

/** Edges in units of 512 bytes, ascending; cell n lies between edges n and n + 1. */
let edges: usize = 0;
let edgeRoom: usize = 0;
let edgeCount: u32 = 0;
/** One bit per cell. */
let bits: usize = 0;
let bitBytes: usize = 0;

// The new set, until it replaces the old one or is given up.
let madeEdges: usize = 0;
let madeRoom: usize = 0;
let madeCount: u32 = 0;
let madeBits: usize = 0;
let madeBytes: usize = 0;

/** Begins a new set of at most `most` edges. False if the engine's own memory is exhausted. */
export function beginCells(most: u32): bool {
  madeRoom = (<usize>most + 1) << 2;
  madeEdges = take(madeRoom);
  madeCount = 0;
  if (madeEdges === 0) return false;
  addEdge(0);
  return true;
}

export function addEdge(units: u32): void {
  store<u32>(madeEdges + ((<usize>madeCount) << 2), units);
  madeCount++;
}

/** Sorts the edges and makes cleared bits. The set in use stays as it is. */
export function finishCells(): bool {
  sortWords<u32>(madeEdges, madeCount);
  let kept: u32 = 1;
  for (let index: u32 = 1; index < madeCount; index++) {
    const edge = load<u32>(madeEdges + ((<usize>index) << 2));
    if (edge === load<u32>(madeEdges + ((<usize>(kept - 1)) << 2))) continue;
    store<u32>(madeEdges + ((<usize>kept) << 2), edge);
    kept++;
  }
  madeCount = kept;
  madeBytes = ((<usize>madeCount + 63) >> 6) << 3;
  madeBits = takeClear(madeBytes);
  if (madeBits !== 0) return true;
  give(madeEdges, madeRoom);
  return false;
}

/** Replaces the old set by the new one. The caller takes cells again. */
export function adoptCells(): void {
  give(edges, edgeRoom);
  give(bits, bitBytes);
  edges = madeEdges;
  edgeRoom = madeRoom;
  edgeCount = madeCount;
  bits = madeBits;
  bitBytes = madeBytes;
}

/** The cell that begins at an edge of the set. */
export function cellAt(units: u32): u32 {
  let low: u32 = 0;
  let high = edgeCount - 1;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (edgeAt(middle) < units) low = middle + 1;
    else high = middle;
  }
  return low;
}

export function edgeAt(index: u32): u32 {
  return load<u32>(edges + ((<usize>index) << 2));
}

export function cellCount(): u32 {
  return edgeCount === 0 ? 0 : edgeCount - 1;
}

function wordAt(cell: u32): usize {
  return bits + ((<usize>(cell >> 6)) << 3);
}

/** The bits from `first` to the end of its word. */
function headMask(first: u32): u64 {
  return ~(<u64>0) << (<u64>first & 63);
}

/** The bits from the start of a word to before `end`, which is not 0. */
function tailMask(end: u32): u64 {
  return ~(<u64>0) >> (63 - (<u64>(end - 1) & 63));
}

/** Whether none of the cells [first, end) is taken. */
export function areFree(first: u32, end: u32): bool {
  let word = wordAt(first);
  const last = wordAt(end - 1);
  if (word === last) return (load<u64>(word) & headMask(first) & tailMask(end)) === 0;
  if ((load<u64>(word) & headMask(first)) !== 0) return false;
  for (word += 8; word < last; word += 8) if (load<u64>(word) !== 0) return false;
  return (load<u64>(last) & tailMask(end)) === 0;
}

export function takeCells(first: u32, end: u32): void {
  let word = wordAt(first);
  const last = wordAt(end - 1);
  if (word === last) {
    store<u64>(word, load<u64>(word) | (headMask(first) & tailMask(end)));
    return;
  }
  store<u64>(word, load<u64>(word) | headMask(first));
  for (word += 8; word < last; word += 8) store<u64>(word, ~(<u64>0));
  store<u64>(last, load<u64>(last) | tailMask(end));
}

/** Takes the cells if none of them is taken. The words between the ends are read and written in one go. */
export function takeFreeCells(first: u32, end: u32): bool {
  const start = wordAt(first);
  const last = wordAt(end - 1);
  const head = headMask(first);
  const tail = tailMask(end);
  const bits = load<u64>(start);
  if (start === last) {
    if ((bits & head & tail) !== 0) return false;
    store<u64>(start, bits | (head & tail));
    return true;
  }
  const lastBits = load<u64>(last);
  if (((bits & head) | (lastBits & tail)) !== 0) return false;
  for (let word = start + 8; word < last; word += 8) {
    if (load<u64>(word) !== 0) {
      while (word > start + 8) {
        word -= 8;
        store<u64>(word, 0);
      }
      return false;
    }
    store<u64>(word, ~(<u64>0));
  }
  store<u64>(start, bits | head);
  store<u64>(last, lastBits | tail);
  return true;
}

export function freeCells(first: u32, end: u32): void {
  let word = wordAt(first);
  const last = wordAt(end - 1);
  if (word === last) {
    store<u64>(word, load<u64>(word) & ~(headMask(first) & tailMask(end)));
    return;
  }
  store<u64>(word, load<u64>(word) & ~headMask(first));
  for (word += 8; word < last; word += 8) store<u64>(word, 0);
  store<u64>(last, load<u64>(last) & ~tailMask(end));
}

/** How many cells are taken. */
export function takenCells(): u32 {
  let count: u32 = 0;
  for (let at: usize = 0; at < bitBytes; at += 8) count += <u32>popcnt<u64>(load<u64>(bits + at));
  return count;
}

/** Bytes up to the end of the highest cell that is taken. */
export function takenEnd(): u64 {
  for (let at: usize = bitBytes; at > 0; at -= 8) {
    const word = load<u64>(bits + at - 8);
    if (word === 0) continue;
    const cell = <u32>((at - 8) << 3) + 63 - <u32>clz<u64>(word);
    return (<u64>edgeAt(cell + 1)) << 9;
  }
  return 0;
}
