// Surveys what is free in each handle. Made only if no free range is large enough, and valid until a free range changes.
// A wholly free handle can be anywhere in a stitch. A handle that is free at one end can only be the first or the last.
import { larger, log2, smaller } from '../base/units';
import { Finding, findingAt, Handle, handleAt, handleEnd, handleIndex, NO_HANDLE } from '../records/handles';
import { regrow } from '../records/memory';
import { Arena, NO_RANGE, Range } from '../records/nodes';
import { firstFree, freeChanges, nextFree } from './free-set';

/** A list of handles with a sort key each: 16 bytes an entry. */
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
/** The survey is of this arena, after so many changes of free ranges. */
let arenaSurveyed: usize = 0;
let changesSurveyed: u64 = 0;
let complete: bool = false;
/** Whether whole handles are listed. Only stitching needs the list, searches for extents do not. */
let listed: bool = false;
let wholeHandles: u32 = 0;

export let wholeBytes: u64 = 0;
/** Most free bytes at the start of a listed handle. */
let mostHead: u64 = 0;

/** Makes a survey of the arena unless there is one. False if the engine's own memory is exhausted. */
export function surveyArena(arena: Arena): bool {
  if (complete && arenaSurveyed === changetype<usize>(arena) && changesSurveyed === freeChanges) return true;
  beginSurvey();
  if (!surveyMore(arena)) return false;
  arenaSurveyed = changetype<usize>(arena);
  changesSurveyed = freeChanges;
  complete = true;
  return true;
}

/** Begins an empty survey of no arena. */
export function beginSurvey(): void {
  survey++;
  complete = false;
  listed = false;
  wholeBytes = 0;
  wholeHandles = 0;
  headList.count = 0;
  mostHead = 0;
  tailList.count = 0;
}

function surveyMore(arena: Arena): bool {
  for (let range = firstFree(arena); range !== NO_RANGE; range = nextFree(arena, range)) if (!surveyRange(range)) return false;
  return true;
}

/** Adds a free range to the survey. False if the engine's own memory is exhausted. */
export function surveyRange(range: Range): bool {
  const region = range.region;
  const start = range.address;
  const end = start + range.size;
  let index = handleIndex(region, start);
  const first = handleAt(region, index);
  let from = first.address;
  if (from < start) {
    from = first.address + first.bytes;
    // A range inside a handle, at neither end, cannot be stitched.
    if (from > end) return true;
    const finding = touch(first.finding);
    finding.tail = range;
    if (!add(tailList, first, from - start)) return false;
    index++;
  }
  // Handles under a free range are contiguous, so only their ends are read.
  const whole = from;
  let to = from;
  while (to < end && handleEnd(region, index) <= end) {
    const finding = findingAt(region, index);
    finding.survey = survey;
    finding.head = range;
    finding.tail = range;
    to = handleEnd(region, index++);
    wholeHandles++;
  }
  wholeBytes += to - whole;
  if (to >= end) return true;
  touch(findingAt(region, index)).head = range;
  mostHead = larger(mostHead, end - to);
  return add(headList, handleAt(region, index), end - to);
}

/** The finding, cleared if this survey has not written it yet. */
function touch(finding: Finding): Finding {
  if (finding.survey !== survey) {
    finding.survey = survey;
    finding.head = NO_RANGE;
    finding.tail = NO_RANGE;
  }
  return finding;
}

/** Whether the handle is free at one of its ends. */
export function isFound(finding: Finding): bool {
  return finding.survey === survey;
}

/** Whether the handle is wholly free. Only then the same range covers both ends. */
export function isWhole(finding: Finding): bool {
  return finding.survey === survey && finding.head === finding.tail;
}

/** Free bytes at the start and at the end of a handle. Not valid after a change of free ranges. */
export function freeHeadOf(handle: Handle): u64 {
  const finding = handle.finding;
  if (finding.survey !== survey || finding.head === NO_RANGE) return 0;
  return smaller(handle.bytes, finding.head.address + finding.head.size - handle.address);
}

export function freeTailOf(handle: Handle): u64 {
  const finding = handle.finding;
  if (finding.survey !== survey || finding.tail === NO_RANGE) return 0;
  return smaller(handle.bytes, handle.address + handle.bytes - finding.tail.address);
}

/** Size of the free range around a wholly free handle. */
export function aroundOf(handle: Handle): u64 {
  return handle.finding.head.size;
}

/** Sort key: large handles first, since fewer are needed; then those in short free ranges, so that long ones stay whole. */
function wholeKey(handle: Handle): u64 {
  return ((<u64>(63 - log2(handle.bytes))) << 56) | (aroundOf(handle) >> 9);
}

export function wholeCount(): u32 {
  return wholeHandles;
}

/** Lists the wholly free handles of the surveyed arena in order of preference. False if the engine's own memory is exhausted. */
export function listWholes(arena: Arena): bool {
  if (listed) return true;
  wholeList.count = 0;
  for (let range = firstFree(arena); range !== NO_RANGE; range = nextFree(arena, range)) {
    const region = range.region;
    for (let index = handleIndex(region, range.address); index < region.handleCount; index++) {
      const handle = handleAt(region, index);
      if (handle.address >= range.address + range.size) break;
      if (isWhole(handle.finding) && !add(wholeList, handle, wholeKey(handle))) return false;
    }
  }
  sort(wholeList);
  listed = true;
  return true;
}

export function wholeAt(index: u32): Handle {
  return entryHandle(wholeList, index);
}

/** The handle with most free bytes at its end, except one. */
export function bestTail(except: Handle): Handle {
  return bestOf(tailList, except);
}

/** The handle with most free bytes at its start, except one. */
export function bestHead(except: Handle): Handle {
  return bestOf(headList, except);
}

/** The handle with the fewest free bytes at its start that are at least `bytes`; not `except`, and not marked. */
export function fittingHead(bytes: u64, except: Handle, mark: u32): Handle {
  let best = NO_HANDLE;
  if (bytes > mostHead) return best;
  let least: u64 = u64.MAX_VALUE;
  for (let index: u32 = 0; index < headList.count; index++) {
    const handle = entryHandle(headList, index);
    const free = entryKey(headList, index);
    if (free < bytes || free >= least || handle === except || handle.mark === mark) continue;
    best = handle;
    least = free;
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

/** The largest block that could be stitched of what is free. */
export function assemblable(): u64 {
  const tail = bestTail(NO_HANDLE);
  const head = bestHead(NO_HANDLE);
  if (tail === NO_HANDLE) return wholeBytes + (head === NO_HANDLE ? 0 : freeHeadOf(head));
  if (head === NO_HANDLE) return wholeBytes + freeTailOf(tail);
  if (head !== tail) return wholeBytes + freeTailOf(tail) + freeHeadOf(head);
  // One handle cannot be first and last. Either end is combined with another handle, and the better pair counts.
  const otherHead = bestHead(tail);
  const otherTail = bestTail(head);
  const one = freeTailOf(tail) + (otherHead === NO_HANDLE ? 0 : freeHeadOf(otherHead));
  const other = freeHeadOf(head) + (otherTail === NO_HANDLE ? 0 : freeTailOf(otherTail));
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
    const grown = regrow(list.entries, <usize>list.room * ENTRY, <usize>room * ENTRY);
    if (grown === 0) return false;
    list.entries = grown;
    list.room = room;
  }
  const entry = list.entries + <usize>list.count * ENTRY;
  store<u64>(entry, key);
  store<usize>(entry, changetype<usize>(handle), 8);
  list.count++;
  return true;
}

/** Shell sort by key, then address: it needs no recursion and no scratch memory, and gives the same order in every build. */
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
