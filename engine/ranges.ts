// Splitting and joining ranges. Of two that join, the lower stays: whoever holds a pointer into a region
// finds what has become of its range at or after that pointer.
import { addFree, takeFree } from './free-set';
import { dropRange, NO_RANGE, newRange, ownerOf, Range, State } from './nodes';
import { larger } from './units';

function linkAfter(range: Range, after: Range): void {
  const next = after.next;
  range.prev = after;
  range.next = next;
  after.next = range;
  if (next !== NO_RANGE) next.prev = range;
}

function absorbNext(range: Range): void {
  const next = range.next;
  range.size += next.size;
  range.next = next.next;
  if (next.next !== NO_RANGE) next.next.prev = range;
  dropRange(next);
}

/** A part of a range has its owner and its release. */
function inherit(part: Range, range: Range): void {
  part.owner = range.owner;
  part.requested = range.requested;
}

/** Cuts a free range to its first `size` bytes, which leave the free set in the given state. Needs one spare range. */
export function takeFront(range: Range, size: u64, state: u8): void {
  const arena = ownerOf(range);
  takeFree(arena, range);
  if (range.size > size) {
    const rest = newRange(range.region, range.address + size, range.size - size, State.Free);
    inherit(rest, range);
    range.size = size;
    linkAfter(rest, range);
    addFree(arena, rest);
  }
  range.state = state;
  range.left = NO_RANGE;
}

/** Takes [from, from + size) out of a free range; what is left on either side stays free. Needs two spare ranges. */
export function carve(range: Range, from: u64, size: u64, state: u8): Range {
  if (from === range.address) {
    takeFront(range, size, state);
    return range;
  }
  const arena = ownerOf(range);
  takeFree(arena, range);
  const end = range.address + range.size;
  range.size = from - range.address;
  const middle = newRange(range.region, from, size, state);
  inherit(middle, range);
  linkAfter(middle, range);
  addFree(arena, range);
  if (end > from + size) {
    const rest = newRange(range.region, from + size, end - from - size, State.Free);
    inherit(rest, range);
    linkAfter(rest, middle);
    addFree(arena, rest);
  }
  return middle;
}

/**
 * Makes a range that is in no set free and joins it with the neighbours of its owner; gives the whole. `point` is its
 * release; the whole has the latest release of its parts.
 */
export function setFree(range: Range, point: u64): Range {
  const arena = ownerOf(range);
  range.state = State.Free;
  range.requested = point;
  const next = range.next;
  if (next !== NO_RANGE && next.state === State.Free && next.owner === range.owner) {
    takeFree(arena, next);
    range.requested = larger(range.requested, next.requested);
    absorbNext(range);
  }
  const prev = range.prev;
  if (prev !== NO_RANGE && prev.state === State.Free && prev.owner === range.owner) {
    takeFree(arena, prev);
    prev.requested = larger(prev.requested, range.requested);
    absorbNext(prev);
    range = prev;
  }
  addFree(arena, range);
  return range;
}

/** Makes a range that is in no set unbacked and joins it with its neighbours. */
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

/** Turns the first `size` bytes of the region's unbacked tail into a range of the given state, in no set. Needs one spare range. */
export function takeTail(tail: Range, size: u64, state: u8): Range {
  const region = tail.region;
  tail.state = state;
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

/** The range that holds `address`, at or after a range of the same region. */
export function rangeAt(start: Range, address: u64): Range {
  let range = start;
  while (address >= range.address + range.size) range = range.next;
  return range;
}
