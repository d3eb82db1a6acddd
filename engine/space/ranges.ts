// Splits and joins ranges. Of two ranges that join, the lower stays.
// So a pointer to a range stays valid for a walk: what became of the range lies at or after it.
import { countWay } from '../abi/counters';
import { State } from '../abi/numbers';
import { larger } from '../base/units';
import { ownerOf } from '../records/arena-table';
import { Arena, NO_RANGE, Range } from '../records/nodes';
import { dropRange, ensureRanges, newPart, newRange } from '../records/range-pool';
import { noteRelease } from '../records/releases';
import { streamCount } from '../records/streams';
import { addFree, moveFree, takeFree } from './free-set';

function linkAfter(range: Range, after: Range): void {
  const next = after.next;
  range.prev = after;
  range.next = next;
  after.next = range;
  if (next !== NO_RANGE) next.prev = range;
}

function absorbNext(range: Range): void {
  range.size += range.next.size;
  unlinkNext(range);
}

function unlinkNext(range: Range): void {
  const gone = range.next;
  const next = gone.next;
  range.next = next;
  if (next !== NO_RANGE) next.prev = range;
  dropRange(gone);
}

/** Cuts a free range to its first `size` bytes, which leave the free set in the given state. Needs one spare range. */
export function takeFront(range: Range, size: u64, state: u8): void {
  takeFrontOf(ownerOf(range), range, size, state);
}

/** The same for a known owner. */
export function takeFrontOf(arena: Arena, range: Range, size: u64, state: u8): void {
  const whole = range.size;
  if (whole > size) {
    const rest = newPart(range, range.address + size, whole - size, State.Free);
    linkAfter(rest, range);
    moveFree(arena, range, whole, rest);
    range.size = size;
  } else {
    takeFree(arena, range);
  }
  range.state = state;
  range.nextPiece = NO_RANGE;
}

/** A block at the start of a free range, served in the given way; NO_RANGE if the engine's own memory is exhausted. */
export function takeBlock(range: Range, size: u64, way: u32): Range {
  if (!ensureRanges(1)) return NO_RANGE;
  takeFront(range, size, State.Live);
  range.va = range.address;
  countWay(way);
  return range;
}

/** Cuts [from, from + size) out of a free range. The rest on either side stays free. Needs two spare ranges. */
export function cutOut(range: Range, from: u64, size: u64, state: u8): Range {
  if (from === range.address) {
    takeFront(range, size, state);
    return range;
  }
  const arena = ownerOf(range);
  const whole = range.size;
  const end = range.address + whole;
  range.size = from - range.address;
  const middle = newPart(range, from, size, state);
  linkAfter(middle, range);
  moveFree(arena, range, whole, range);
  if (end > from + size) {
    const rest = newPart(range, from + size, end - from - size, State.Free);
    linkAfter(rest, middle);
    addFree(arena, rest);
  }
  return middle;
}

/**
 * Makes a range that is in no set free, and joins it with free neighbours of the same owner. Gives the joined range. `point` is
 * the release; the joined range has the latest release of its parts.
 */
export function setFree(range: Range, point: u64): Range {
  return setFreeOf(ownerOf(range), range, point);
}

/** The same for a known owner. */
export function setFreeOf(arena: Arena, range: Range, point: u64): Range {
  range.state = State.Free;
  if (streamCount > 1 && !arena.small) noteRelease(range, arena.lane, point);
  const owner = range.owner;
  const next = range.next;
  const prev = range.prev;
  const joinsNext = next !== NO_RANGE && next.state === State.Free && next.owner === owner;
  const joinsPrev = prev !== NO_RANGE && prev.state === State.Free && prev.owner === owner;
  if (joinsNext) {
    point = larger(point, next.releasePoint);
    range.size += next.size;
    range.va &= next.va;
    if (joinsPrev) takeFree(arena, next);
    else moveFree(arena, next, next.size, range);
    unlinkNext(range);
  }
  if (joinsPrev) {
    const size = prev.size;
    prev.releasePoint = larger(point, prev.releasePoint);
    prev.size = size + range.size;
    prev.va &= range.va;
    moveFree(arena, prev, size, prev);
    unlinkNext(prev);
    return prev;
  }
  range.releasePoint = point;
  if (!joinsNext) addFree(arena, range);
  return range;
}

/** Makes a range that is in no set unbacked and joins it with unbacked neighbours. */
export function setUnbacked(range: Range): void {
  const region = range.region;
  range.state = State.Unbacked;
  const next = range.next;
  if (next !== NO_RANGE && next.state === State.Unbacked) absorbNext(range);
  const prev = range.prev;
  if (prev !== NO_RANGE && prev.state === State.Unbacked) {
    absorbNext(prev);
    range = prev;
  }
  if (range.next === NO_RANGE) region.tail = range;
}

/** Turns the first `size` bytes of the unbacked tail into a range of the given state, in no set. Needs one spare range. */
export function takeTail(tail: Range, size: u64, state: u8): Range {
  const region = tail.region;
  tail.state = state;
  tail.va = 0;
  tail.owner = region.arena.index;
  if (tail.size === size) {
    region.tail = NO_RANGE;
  } else {
    const rest = newRange(region, tail.address + size, tail.size - size, State.Unbacked);
    tail.size = size;
    linkAfter(rest, tail);
    region.tail = rest;
  }
  return tail;
}

/** The range at `address`, at or after `start` in the same region. */
export function rangeAt(start: Range, address: u64): Range {
  let range = start;
  while (address >= range.address + range.size) range = range.next;
  return range;
}

/** Bytes of all ranges of a block. */
export function blockSize(block: Range): u64 {
  let size: u64 = 0;
  for (let piece = block; piece !== NO_RANGE; piece = piece.nextPiece) size += piece.size;
  return size;
}
