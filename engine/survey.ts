// What is free, handle by handle: worked out only when no single free range fits, and kept until something changes.
// Handles that are wholly free can lie anywhere in a view; those free at one end can only begin or end one.
import { firstFree, nextFree } from './free-set';
import { handleIndex } from './growth';
import { give, take } from './memory';
import { Arena, Handle, handleAt, NO_HANDLE, NO_RANGE, Range } from './nodes';
import { larger, log2 } from './units';

/** A growing list of handles with a sort key each: 16 bytes an entry. */
@unmanaged
class HandleList {
  entries: usize = 0;
  count: u32 = 0;
  room: u32 = 0;
}

const ENTRY: usize = 16;
const wholeList = changetype<HandleList>(memory.data(16));
const headList = changetype<HandleList>(memory.data(16));
const tailList = changetype<HandleList>(memory.data(16));

let survey: u32 = 0;
/** The arena and version the lists speak of. */
let arenaSurveyed: usize = 0;
let versionSurveyed: u32 = 0;
let complete: bool = false;
/** Whole handles are listed only for a stitch: finding a free run in a view does not need them. */
let listed: bool = false;
let wholeHandles: u32 = 0;

export let wholeBytes: u64 = 0;

/** Brings the survey of the arena up to date; false when the engine's own memory is exhausted. */
export function surveyArena(arena: Arena): bool {
  if (complete && arenaSurveyed === changetype<usize>(arena) && versionSurveyed === arena.version) return true;
  beginSurvey();
  if (!surveyMore(arena)) return false;
  arenaSurveyed = changetype<usize>(arena);
  versionSurveyed = arena.version;
  complete = true;
  return true;
}

/** A survey of nothing yet, which holds for no arena. */
export function beginSurvey(): void {
  survey++;
  complete = false;
  listed = false;
  wholeBytes = 0;
  wholeHandles = 0;
  headList.count = 0;
  tailList.count = 0;
}

function surveyMore(arena: Arena): bool {
  for (let range = firstFree(arena); range !== NO_RANGE; range = nextFree(arena, range)) if (!surveyRange(range)) return false;
  return true;
}

/** Adds a free range to the survey; false when the engine's own memory is exhausted. */
export function surveyRange(range: Range): bool {
  const region = range.region;
  const start = range.address;
  const end = start + range.size;
  for (let index = handleIndex(region, start); index < region.handleCount; index++) {
    const handle = handleAt(region, index);
    if (handle.address >= end) break;
    if (handle.survey !== survey) {
      handle.survey = survey;
      handle.freeHead = 0;
      handle.freeTail = 0;
    }
    const handleEnd = handle.address + handle.bytes;
    if (start <= handle.address && end >= handleEnd) {
      handle.freeHead = handle.bytes;
      handle.freeTail = handle.bytes;
      handle.around = range.size;
      handle.headRange = range;
      handle.tailRange = range;
      wholeBytes += handle.bytes;
      wholeHandles++;
    } else if (start <= handle.address) {
      handle.freeHead = end - handle.address;
      handle.headRange = range;
      if (!add(headList, handle, handle.freeHead)) return false;
    } else if (end >= handleEnd) {
      handle.freeTail = handleEnd - start;
      handle.tailRange = range;
      if (!add(tailList, handle, handle.freeTail)) return false;
    }
  }
  return true;
}

/** Free bytes at the start of a handle, at its end; all of it if wholly free. */
export function freeHeadOf(handle: Handle): u64 {
  return handle.survey === survey ? handle.freeHead : 0;
}

export function freeTailOf(handle: Handle): u64 {
  return handle.survey === survey ? handle.freeTail : 0;
}

/** Large handles first, since fewer are needed; among alike those from short free ranges, so that long ones stay whole. */
function wholeKey(handle: Handle): u64 {
  return ((<u64>(63 - log2(handle.bytes))) << 56) | (handle.around >> 9);
}

export function wholeCount(): u32 {
  return wholeHandles;
}

/** Lists the wholly free handles of the arena surveyed in the order in which to use them; false without memory for the list. */
export function listWholes(arena: Arena): bool {
  if (listed) return true;
  wholeList.count = 0;
  for (let range = firstFree(arena); range !== NO_RANGE; range = nextFree(arena, range)) {
    const region = range.region;
    for (let index = handleIndex(region, range.address); index < region.handleCount; index++) {
      const handle = handleAt(region, index);
      if (handle.address >= range.address + range.size) break;
      if (freeHeadOf(handle) === handle.bytes && !add(wholeList, handle, wholeKey(handle))) return false;
    }
  }
  sort(wholeList);
  listed = true;
  return true;
}

export function wholeAt(index: u32): Handle {
  return entryHandle(wholeList, index);
}

/** The handle with most free bytes at its end, other than `except`. */
export function bestTail(except: Handle): Handle {
  return bestOf(tailList, except);
}

/** The handle with most free bytes at its start, other than `except`. */
export function bestHead(except: Handle): Handle {
  return bestOf(headList, except);
}

/** The handle with fewest but at least `bytes` free at its start, not `except` and not marked. */
export function fittingHead(bytes: u64, except: Handle, mark: u32): Handle {
  let best = NO_HANDLE;
  for (let index: u32 = 0; index < headList.count; index++) {
    const handle = entryHandle(headList, index);
    if (handle.freeHead < bytes || handle === except || handle.mark === mark) continue;
    if (best === NO_HANDLE || handle.freeHead < best.freeHead) best = handle;
  }
  return best;
}

function bestOf(list: HandleList, except: Handle): Handle {
  let best = NO_HANDLE;
  let most: u64 = 0;
  for (let index: u32 = 0; index < list.count; index++) {
    const handle = entryHandle(list, index);
    const key = entryKey(list, index);
    if (handle === except || key <= most) continue;
    best = handle;
    most = key;
  }
  return best;
}

/** The largest block that could be put together from what is free. */
export function assemblable(): u64 {
  const tail = bestTail(NO_HANDLE);
  const head = bestHead(NO_HANDLE);
  if (tail === NO_HANDLE) return wholeBytes + (head === NO_HANDLE ? 0 : head.freeHead);
  if (head === NO_HANDLE) return wholeBytes + tail.freeTail;
  if (head !== tail) return wholeBytes + tail.freeTail + head.freeHead;
  // One handle cannot be both the first and the last: its better end counts, or each end with another handle's.
  const otherHead = bestHead(tail);
  const otherTail = bestTail(head);
  const one = tail.freeTail + (otherHead === NO_HANDLE ? 0 : otherHead.freeHead);
  const other = head.freeHead + (otherTail === NO_HANDLE ? 0 : otherTail.freeTail);
  return wholeBytes + larger(one, other);
}

function entryKey(list: HandleList, index: u32): u64 {
  return load<u64>(list.entries + <usize>index * ENTRY);
}

function entryHandle(list: HandleList, index: u32): Handle {
  return changetype<Handle>(load<usize>(list.entries + <usize>index * ENTRY, 8));
}

function add(list: HandleList, handle: Handle, key: u64): bool {
  if (list.count === list.room) {
    const room: u32 = list.room === 0 ? 64 : list.room << 1;
    const grown = take(<usize>room * ENTRY);
    if (grown === 0) return false;
    memory.copy(grown, list.entries, <usize>list.room * ENTRY);
    give(list.entries, <usize>list.room * ENTRY);
    list.entries = grown;
    list.room = room;
  }
  const entry = list.entries + <usize>list.count * ENTRY;
  store<u64>(entry, key);
  store<usize>(entry, changetype<usize>(handle), 8);
  list.count++;
  return true;
}

/** Shell sort by key, then address: no recursion, no scratch, and the same order in every build. */
function sort(list: HandleList): void {
  let gap: u32 = 1;
  while (gap < list.count / 3) gap = gap * 3 + 1;
  for (; gap > 0; gap /= 3) {
    for (let index = gap; index < list.count; index++) {
      const key = entryKey(list, index);
      const handle = entryHandle(list, index);
      let hole = index;
      while (hole >= gap && isAfter(list, hole - gap, key, handle)) {
        const from = list.entries + <usize>(hole - gap) * ENTRY;
        const to = list.entries + <usize>hole * ENTRY;
        store<u64>(to, load<u64>(from));
        store<usize>(to, load<usize>(from, 8), 8);
        hole -= gap;
      }
      const entry = list.entries + <usize>hole * ENTRY;
      store<u64>(entry, key);
      store<usize>(entry, changetype<usize>(handle), 8);
    }
  }
}

function isAfter(list: HandleList, index: u32, key: u64, handle: Handle): bool {
  const other = entryKey(list, index);
  return other > key || (other === key && entryHandle(list, index).address > handle.address);
}
