// What the engine keeps: the five kinds of record, all in linear memory, all linked by plain pointers.
//
//   arena    the memory of one stream in one pool, small or large requests: ranges it owns, wherever they lie
//   region   addresses reserved in one piece for an arena; tiled by ranges, partly backed by handles
//   range    an extent of a region's addresses in one state; physical bytes are named by the address they have here
//   handle   one piece of physical memory, mapped at its place in a region and perhaps in stitches
//   stitch     a stitch: other addresses for handles of an arena, side by side in an order of its own
import { Stream, Use } from './streams';

/**
 * 64 bytes: one cache line. Fields that only some states need share memory: each has accessors of its own, valid in the states
 * that they name.
 */
@unmanaged
export class Range {
  address: u64 = 0;
  size: u64 = 0;
  private number: u64 = 0;
  /** Of a block: the address given out, which lies in a stitch if the block has one. */
  va: u64 = 0;
  /** Neighbours in the region, by address. */
  prev: Range = changetype<Range>(0);
  next: Range = changetype<Range>(0);
  private linkA: usize = 0;
  private linkB: usize = 0;
  private linkC: usize = 0;
  region: Region = changetype<Region>(0);
  private linkD: usize = 0;
  state: u8 = 0;
  /** Of a node of the free tree: its colour. */
  red: u8 = 0;
  /** The arena that may use the range, by number. Its region may belong to another arena. */
  owner: u16 = 0;

  /** Of a block that is not parked: bytes asked for. */
  @inline
  get requested(): u64 {
    return this.number;
  }

  @inline
  set requested(value: u64) {
    this.number = value;
  }

  /** Of free or carved memory: the number of its release (streams/progress.ts); 0 if it was never used. */
  @inline
  get releasePoint(): u64 {
    return this.number;
  }

  @inline
  set releasePoint(value: u64) {
    this.number = value;
  }

  /** Of a parked block: the one parked after it. */
  @inline
  get nextParked(): Range {
    return changetype<Range>(<usize>this.number);
  }

  @inline
  set nextParked(value: Range) {
    this.number = <u64>changetype<usize>(value);
  }

  /** Of free memory: children and parent in the tree of its size class. */
  @inline
  get left(): Range {
    return changetype<Range>(this.linkA);
  }

  @inline
  set left(value: Range) {
    this.linkA = changetype<usize>(value);
  }

  @inline
  get right(): Range {
    return changetype<Range>(this.linkB);
  }

  @inline
  set right(value: Range) {
    this.linkB = changetype<usize>(value);
  }

  @inline
  get parent(): Range {
    return changetype<Range>(this.linkC);
  }

  @inline
  set parent(value: Range) {
    this.linkC = changetype<usize>(value);
  }

  /** Of a range of a block: the next range of the same block. */
  @inline
  get nextPiece(): Range {
    return changetype<Range>(this.linkA);
  }

  @inline
  set nextPiece(value: Range) {
    this.linkA = changetype<usize>(value);
  }

  /** Of a block: the first of the streams recorded on it. */
  @inline
  get uses(): Use {
    return changetype<Use>(this.linkB);
  }

  @inline
  set uses(value: Use) {
    this.linkB = changetype<usize>(value);
  }

  /** Of a Piece: the first range of its block. */
  @inline
  get head(): Range {
    return changetype<Range>(this.linkC);
  }

  @inline
  set head(value: Range) {
    this.linkC = changetype<usize>(value);
  }

  /** Of a range of a block: the stitch that the block lies in. */
  @inline
  get stitch(): Stitch {
    return changetype<Stitch>(this.linkD);
  }

  @inline
  set stitch(value: Stitch) {
    this.linkD = changetype<usize>(value);
  }

  /** Of a planned block: its cells, from the first to before the end (plans/cells.ts). */
  @inline
  get firstCell(): u32 {
    return <u32>this.linkC;
  }

  @inline
  set firstCell(value: u32) {
    this.linkC = <usize>value;
  }

  @inline
  get endCell(): u32 {
    return <u32>this.linkD;
  }

  @inline
  set endCell(value: u32) {
    this.linkD = <usize>value;
  }

  /** Of a planned block, which has no neighbours: its place in the list of planned blocks. */
  @inline
  get newerPlanned(): Range {
    return this.prev;
  }

  @inline
  set newerPlanned(value: Range) {
    this.prev = value;
  }

  @inline
  get olderPlanned(): Range {
    return this.next;
  }

  @inline
  set olderPlanned(value: Range) {
    this.next = value;
  }
}

/** Where a node of a tree has its links to its children, for code that takes a side. */
export const LEFT: usize = offsetof<Range>('linkA');
export const RIGHT: usize = offsetof<Range>('linkB');

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

export const NO_RANGE: Range = changetype<Range>(0);
export const NO_ARENA: Arena = changetype<Arena>(0);
export const NO_REGION: Region = changetype<Region>(0);
export const NO_STITCH: Stitch = changetype<Stitch>(0);
