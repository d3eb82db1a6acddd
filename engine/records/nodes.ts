// What the engine keeps: the five kinds of record, all in linear memory, all linked by plain pointers.
//
//   arena    the memory of one stream in one pool, small or large requests: ranges it owns, wherever they lie
//   region   addresses reserved in one piece for an arena; tiled by ranges, partly backed by handles
//   range    an extent of a region's addresses in one state; physical bytes are named by the address they have here
//   handle   one piece of physical memory, mapped at its place in a region and perhaps in stitches
//   stitch     a stitch: other addresses for handles of an arena, side by side in an order of its own
import { Stream } from './streams';

/** 64 bytes: one cache line. Links of the free tree serve other ends while the range is in use. */
@unmanaged
export class Range {
  address: u64 = 0;
  size: u64 = 0;
  /** In use: bytes asked for. Free: the point of its release (see streams.ts), 0 for memory never used. */
  requested: u64 = 0;
  /** In use: the address given out, which lies in a stitch if the block has one. */
  va: u64 = 0;
  /** Neighbours in the region, by address. */
  prev: Range = changetype<Range>(0);
  next: Range = changetype<Range>(0);
  /** In use: the next range of the same block. */
  left: Range = changetype<Range>(0);
  /** Of a block: its first Use, if other streams were recorded on it. */
  right: Range = changetype<Range>(0);
  /** Of a Piece: the first range of its block. Of a planned block, `parent` and `stitch` are its cells (see planned-blocks.ts). */
  parent: Range = changetype<Range>(0);
  region: Region = changetype<Region>(0);
  stitch: Stitch = changetype<Stitch>(0);
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
  /** Stitches by last use, most recent first. */
  newestStitch: Stitch = changetype<Stitch>(0);
  oldestStitch: Stitch = changetype<Stitch>(0);
  stitchCount: u32 = 0;
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
export const ARENA_SIZE: usize = ARENA_ROOTS + BINS * 4;

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
  /** The range lent to us, if this region is a carved and not a reservation of its own. */
  carvedFrom: Range = changetype<Range>(0);
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
  /** In how many stitches it is mapped. */
  stitchCount: u32 = 0;
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
export class Stitch {
  address: u64 = 0;
  reserved: u64 = 0;
  /** Pieces lie from the start of the stitch to here. */
  mapped: u64 = 0;
  arena: Arena = changetype<Arena>(0);
  newer: Stitch = changetype<Stitch>(0);
  older: Stitch = changetype<Stitch>(0);
  /** What it maps: see pieces.ts. */
  pieces: usize = 0;
  count: u32 = 0;
  room: u32 = 0;
  /** The piece at every multiple of 2^cellShift, a u32 each: where to begin looking for an offset. */
  cells: usize = 0;
  cellShift: u32 = 0;
  /** Blocks that lie in it. */
  live: u32 = 0;
  /** Larger than that of every stitch used less recently. */
  lastUse: u32 = 0;
  /** False when a driver call failed half way and could not be undone: good for nothing but to be dropped. */
  usable: bool = true;
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
export const NO_STITCH: Stitch = changetype<Stitch>(0);
export const NO_ORPHAN: Orphan = changetype<Orphan>(0);
