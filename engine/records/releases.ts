// The latest releases of memory. A free range has the latest release of its parts; a handle in it may be over earlier.
// A free costs one entry of a ring here. Handles learn of it only when one of them is to be lent.
import { larger } from '../base/units';
import { Handle, handleAt, handleIndex } from './handles';
import { take } from './memory';
import { Range, Region } from './nodes';
import { Stream } from './streams';

@unmanaged
class Release {
  address: u64 = 0;
  end: u64 = 0;
  /** The number of the release; 0: the entry is empty. */
  point: u64 = 0;
  region: Region = changetype<Region>(0);
  lane: Stream = changetype<Stream>(0);
}

const ENTRIES: u32 = 1024;
/** Most notes in handles that one request makes. */
const MOST_NOTES: u32 = 65536;

let entries: usize = 0;
/** The entry that is written next, and how many before it handles have not learned of. */
let next: u32 = 0;
let count: u32 = 0;

function entryAt(index: u32): Release {
  return changetype<Release>(entries + <usize>(index % ENTRIES) * offsetof<Release>());
}

/** Notes the release of memory on the stream of its owner. */
export function noteRelease(range: Range, lane: Stream, point: u64): void {
  if (point === 0) return;
  if (entries === 0) {
    entries = take(<usize>ENTRIES * offsetof<Release>());
    if (entries === 0) {
      lane.floor = larger(lane.floor, point);
      return;
    }
  }
  const entry = entryAt(next++);
  if (count === ENTRIES) giveUp(entry);
  else count++;
  entry.address = range.address;
  entry.end = range.address + range.size;
  entry.point = point;
  entry.region = range.region;
  entry.lane = lane;
}

/** From now on, every handle of the stream counts as released at least as late. Such old releases are mostly over. */
function giveUp(entry: Release): void {
  if (entry.point > entry.lane.floor) entry.lane.floor = entry.point;
}

/** Lets handles know of all releases that are not over. */
export function settleReleases(): void {
  let notes: u32 = 0;
  while (count > 0) {
    const entry = entryAt(next - count);
    count--;
    if (entry.point <= entry.lane.done) continue;
    if (notes < MOST_NOTES) notes += noteInHandles(entry);
    else giveUp(entry);
  }
}

/** Notes the release in every handle that it touches. Gives their number. */
function noteInHandles(entry: Release): u32 {
  const region = entry.region;
  const first = handleIndex(region, entry.address);
  let index = first;
  for (; index < region.handleCount; index++) {
    const handle = handleAt(region, index);
    if (handle.address >= entry.end) break;
    handle.released = larger(handle.released, entry.point);
  }
  return index - first;
}

/** The last release of any byte of a handle whose memory the stream owns. `settleReleases` comes first. */
export function lastRelease(handle: Handle, lane: Stream): u64 {
  return larger(handle.released, lane.floor);
}

/** A region without memory goes. */
export function forgetRegion(region: Region): void {
  for (let back: u32 = 1; back <= count; back++) {
    const entry = entryAt(next - back);
    if (entry.region === region) entry.point = 0;
  }
}
