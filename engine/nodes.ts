// What the engine keeps: the five kinds of record, all in linear memory, all linked by plain pointers.
//
//   arena    the memory of one stream in one pool, small or large requests: ranges it owns, wherever they lie
//   region   addresses reserved in one piece for an arena; tiled by ranges, partly backed by handles
//   range    a run of a region's addresses in one state; physical bytes are named by the address they have here
//   handle   one piece of physical memory, mapped at its place in a region and perhaps in views
//   view     a stitch: other addresses for handles of an arena, side by side in an order of its own
import { fresh, give, take, takeClear } from './memory';

/** What a range is. Written to snapshots: never renumber. */
export namespace State {
  export const Free: u8 = 1;
  /** Given out. A block is known by its first range. */
  export const Live: u8 = 2;
  /** Freed by the program, perhaps still in use on other streams. */
  export const Pending: u8 = 3;
  /** Addresses without memory. */
  export const Unbacked: u8 = 4;
  /** A further range of a block whose memory lies in several places. */
  export const Piece: u8 = 5;
  /** Lent to the arena of small requests. */
  export const Loan: u8 = 6;
  /** Mapped, but access could not be set nor the mapping undone; given back when the driver allows it. */
  export const Stuck: u8 = 7;
  /** Let go for good, but streams that were recorded on it have not passed its release yet: the engine completes it. */
  export const Parked: u8 = 8;
  /** A handle lent to the memory of plans, where planned blocks lie (see planned-memory.ts). */
  export const Planned: u8 = 9;
}

/** 64 bytes: one cache line. Links of the free tree serve other ends while the range is in use. */
@unmanaged
export class Range {
  address: u64 = 0;
  size: u64 = 0;
  /** In use: bytes asked for. Free: the point of its release (see streams.ts), 0 for memory never used. */
  requested: u64 = 0;
  /** In use: the address given out, which lies in a view if the block has one. */
  va: u64 = 0;
  /** Neighbours in the region, by address. */
  prev: Range = changetype<Range>(0);
  next: Range = changetype<Range>(0);
  /** In use: the next range of the same block. */
  left: Range = changetype<Range>(0);
  /** Of a block: its first Use, if other streams were recorded on it. */
  right: Range = changetype<Range>(0);
  /** Of a Piece: the first range of its block. Of a planned block, `parent` and `view` are its cells (see planned-blocks.ts). */
  parent: Range = changetype<Range>(0);
  region: Region = changetype<Region>(0);
  view: View = changetype<View>(0);
  state: u8 = 0;
  red: u8 = 0;
  /** The arena that may use it, by number: not always the one whose region it lies in. */
  owner: u16 = 0;
}

/** Size classes of the free set: a word of 64 to each power of two of 512 B units, up to 2^43 units. */
export const BIN_WORDS: usize = 39;
export const BINS: usize = BIN_WORDS << 6;

@unmanaged
export class Arena {
  next: Arena = changetype<Arena>(0);
  lane: Stream = changetype<Stream>(0);
  stream: u32 = 0;
  pool: u32 = 0;
  small: bool = false;
  index: u16 = 0;
  regions: Region = changetype<Region>(0);
  /** The region that grows. */
  growing: Region = changetype<Region>(0);
  freeBytes: u64 = 0;
  freeCount: u32 = 0;
  /** Bytes of the arena's handles, and how many of them were taken before anything was freed. */
  held: u64 = 0;
  loaded: u64 = 0;
  /** Whether anything was ever freed here. What is taken before that is a model being loaded, and stays. */
  churned: bool = false;
  /** Whether there were streams that could lend when it last had to be filled up. */
  shared: bool = false;
  /** Views by last use, most recent first. */
  newestView: View = changetype<View>(0);
  oldestView: View = changetype<View>(0);
  viewCount: u32 = 0;
  /** Bumped by every change of a free range: tells whether a survey still holds. */
  version: u32 = 0;
  /** A sum over all free ranges that is the same again when they are the same again. */
  signature: u64 = 0;
  // Sums of the check in progress.
  seenBytes: u64 = 0;
  seenCount: u32 = 0;
  // The free set follows: a word that says which words are not 0, BIN_WORDS words that say which bins hold something, then
  // BINS tree roots.
}

export const ARENA_BITS: usize = offsetof<Arena>() + ((8 - (offsetof<Arena>() & 7)) & 7);
export const ARENA_ROOTS: usize = ARENA_BITS + 8 + BIN_WORDS * 8;
const ARENA_SIZE: usize = ARENA_ROOTS + BINS * 4;

/** An entry of a region's list of handles: end (u64), handle (u32), finding (u32). */
export const HANDLE_ENTRY: usize = 16;

@unmanaged
export class Region {
  address: u64 = 0;
  bytes: u64 = 0;
  arena: Arena = changetype<Arena>(0);
  next: Region = changetype<Region>(0);
  /** The lowest range. It outlives its merges: the lower of two ranges that join is the one that stays. */
  first: Range = changetype<Range>(0);
  /** The unbacked range at the end, where the region grows; none when it is full. */
  tail: Range = changetype<Range>(0);
  /** The range lent to us, if this region is a loan and not a reservation of its own. */
  loan: Range = changetype<Range>(0);
  /** Handles by address: see handles.ts. */
  handles: usize = 0;
  handleCount: u32 = 0;
  handleRoom: u32 = 0;
}

@unmanaged
export class Handle {
  address: u64 = 0;
  bytes: u64 = 0;
  /** The driver's name for it. */
  id: u64 = 0;
  region: Region = changetype<Region>(0);
  /** In how many views it is mapped. */
  views: u32 = 0;
  finding: Finding = changetype<Finding>(0);
  /** Scratch of whoever builds a list of handles. */
  mark: u32 = 0;
  /** The range that covers it, while it is lent to plans. */
  lent: Range = changetype<Range>(0);
  /** Preset gmlake: part of a block. */
  busy: bool = false;
}

/**
 * What the last survey found of a handle; valid while `survey` is that survey's number. Apart from the handle, four to a
 * cache line: surveys and searches look at many and need nothing else of most.
 */
@unmanaged
export class Finding {
  survey: u32 = 0;
  /** The free range that begins at or before the handle and ends in it; the one that covers it, if that is one. */
  head: Range = changetype<Range>(0);
  /** The same for the handle's end. */
  tail: Range = changetype<Range>(0);
  /** Of a finding not in use: the next one. */
  next: Finding = changetype<Finding>(0);
}

@unmanaged
export class View {
  address: u64 = 0;
  reserved: u64 = 0;
  /** Pieces lie from the start of the view to here. */
  mapped: u64 = 0;
  arena: Arena = changetype<Arena>(0);
  newer: View = changetype<View>(0);
  older: View = changetype<View>(0);
  /** What it maps: see pieces.ts. */
  pieces: usize = 0;
  count: u32 = 0;
  room: u32 = 0;
  /** The piece at every multiple of 2^cellShift, a u32 each: where to begin looking for an offset. */
  cells: usize = 0;
  cellShift: u32 = 0;
  /** Blocks that lie in it. */
  live: u32 = 0;
  /** Larger than that of every view used less recently. */
  lastUse: u32 = 0;
  /** False when a driver call failed half way and could not be undone: good for nothing but to be dropped. */
  usable: bool = true;
}

/** What is known of a stream's progress; see streams.ts. */
@unmanaged
export class Stream {
  next: Stream = changetype<Stream>(0);
  id: u32 = 0;
  index: u32 = 0;
  capturing: bool = false;
  /** The round of questions it was last asked in. */
  asked: u32 = 0;
  /** Releases up to this point are over: a query has said so. */
  done: u64 = 0;
  /** Bytes released since the newest event. */
  since: u64 = 0;
  /** Events in flight: those numbered from `oldest` to before `newest`, each in slot (number modulo the ring). */
  oldest: u32 = 0;
  newest: u32 = 0;
  /** What this stream waits for anyway. */
  waits: Wait = changetype<Wait>(0);
  // The ring follows: a u64 per slot, the last point its event covers.
}

/** Events a stream may have in flight. */
export const RING: u32 = 32;
export const STREAM_RING: usize = offsetof<Stream>() + ((8 - (offsetof<Stream>() & 7)) & 7);
const STREAM_SIZE: usize = STREAM_RING + <usize>RING * 8;

/** A stream comes after another's releases up to a point, by a wait made earlier. */
@unmanaged
export class Wait {
  next: Wait = changetype<Wait>(0);
  lender: Stream = changetype<Stream>(0);
  point: u64 = 0;
}

/** A stream that was recorded on a block, and from the block's release on the point that it must pass. */
@unmanaged
export class Use {
  next: Use = changetype<Use>(0);
  lane: Stream = changetype<Stream>(0);
  point: u64 = 0;
}

/** A handle that has no address: the driver would not take it back. Tried again at the next occasion. */
@unmanaged
export class Orphan {
  id: u64 = 0;
  bytes: u64 = 0;
  next: Orphan = changetype<Orphan>(0);
}

export const NO_RANGE: Range = changetype<Range>(0);
export const NO_ARENA: Arena = changetype<Arena>(0);
export const NO_REGION: Region = changetype<Region>(0);
export const NO_HANDLE: Handle = changetype<Handle>(0);
export const NO_VIEW: View = changetype<View>(0);
export const NO_ORPHAN: Orphan = changetype<Orphan>(0);
export const NO_STREAM: Stream = changetype<Stream>(0);
export const NO_WAIT: Wait = changetype<Wait>(0);
export const NO_USE: Use = changetype<Use>(0);

let spareRanges: usize = 0;
let spareCount: u32 = 0;
const SLAB_RANGES: usize = 512;

/** Makes sure that `count` ranges can be taken without failing. */
export function ensureRanges(count: u32): bool {
  while (spareCount < count) {
    const slab = fresh(SLAB_RANGES * offsetof<Range>());
    if (slab === 0) return false;
    for (let index: usize = 0; index < SLAB_RANGES; index++) {
      const range = slab + index * offsetof<Range>();
      store<usize>(range, spareRanges);
      spareRanges = range;
    }
    spareCount += <u32>SLAB_RANGES;
  }
  return true;
}

function takeSpare(): Range {
  assert(spareCount > 0);
  const range = changetype<Range>(spareRanges);
  spareRanges = load<usize>(spareRanges);
  spareCount--;
  return range;
}

/** Only after ensureRanges. */
export function newRange(region: Region, address: u64, size: u64, state: u8): Range {
  const range = takeSpare();
  range.address = address;
  range.size = size;
  range.prev = NO_RANGE;
  range.next = NO_RANGE;
  range.left = NO_RANGE;
  range.view = NO_VIEW;
  range.region = region;
  range.owner = region.arena.index;
  range.requested = 0;
  range.state = state;
  return range;
}

/** A part of a range: it has its region, its owner and its release, and is linked to nothing yet. Only after ensureRanges. */
export function newPart(whole: Range, address: u64, size: u64, state: u8): Range {
  const range = takeSpare();
  range.address = address;
  range.size = size;
  range.requested = whole.requested;
  range.region = whole.region;
  range.view = NO_VIEW;
  range.left = NO_RANGE;
  range.owner = whole.owner;
  range.state = state;
  return range;
}

export function dropRange(range: Range): void {
  range.state = 0;
  store<usize>(changetype<usize>(range), spareRanges);
  spareRanges = changetype<usize>(range);
  spareCount++;
}

/** Arenas by number. They are never given up, so a number stands for one arena for good. */
let arenaTable: usize = 0;
let arenaRoom: u32 = 0;
let arenaCount: u32 = 0;
const MOST_ARENAS: u32 = 65535;

export function newArena(): Arena {
  if (arenaCount === arenaRoom) {
    const room: u32 = arenaRoom === 0 ? 16 : arenaRoom << 1;
    const grown = take((<usize>room) << 2);
    if (grown === 0) return NO_ARENA;
    memory.copy(grown, arenaTable, (<usize>arenaRoom) << 2);
    give(arenaTable, (<usize>arenaRoom) << 2);
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

export function newStream(): Stream {
  return changetype<Stream>(takeClear(STREAM_SIZE));
}

export function newWait(): Wait {
  return changetype<Wait>(takeClear(offsetof<Wait>()));
}

export function newUse(): Use {
  return changetype<Use>(takeClear(offsetof<Use>()));
}

export function dropUse(use: Use): void {
  give(changetype<usize>(use), offsetof<Use>());
}

export function newRegion(): Region {
  return changetype<Region>(takeClear(offsetof<Region>()));
}

export function dropRegion(region: Region): void {
  give(region.handles, <usize>region.handleRoom * HANDLE_ENTRY);
  give(changetype<usize>(region), offsetof<Region>());
}
