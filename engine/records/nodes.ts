// The records of memory, all in linear memory, linked by plain pointers. records/handles.ts has the fifth, the handle.
//
//   arena    the memory of one stream in one pool, for small or for large requests: all ranges that it owns
//   region   addresses reserved at once for an arena: tiled by ranges, partly backed by handles
//   range    contiguous addresses of a region in one state; they name the physical bytes that are mapped there
//   handle   one piece of physical memory, mapped at one place in a region and perhaps in stitches
//   stitch   further addresses for handles, side by side in any order
import { Life } from './lives';
import { Stream, Use } from './streams';

/** Not the address of any block: those are multiples of 512. */
export const FLEETING: u64 = 1;

/**
 * 64 bytes: one cache line. Fields that are needed in different states share memory. Each has its own accessors; the comment
 * says in which state they are valid.
 */
@unmanaged
export class Range {
  address: u64 = 0;
  size: u64 = 0;
  /** requested, releasePoint or nextParked. */
  private number: u64 = 0;
  /** Of a block: the address given out. It lies in a stitch if the block has one. Of free memory: FLEETING or another number. */
  va: u64 = 0;
  /** Neighbours in the region, by address. */
  prev: Range = changetype<Range>(0);
  next: Range = changetype<Range>(0);
  /** left or nextPiece. */
  private linkA: usize = 0;
  /** right or uses. */
  private linkB: usize = 0;
  /** parent, head, life or firstCell. */
  private linkC: usize = 0;
  region: Region = changetype<Region>(0);
  /** stitch or endCell. */
  private linkD: usize = 0;
  state: u8 = 0;
  /** Of a node of the free tree: its color. Of a block that is freed: whether it lived briefly. */
  red: u8 = 0;
  /** The arena that may use the range, by number. The region may belong to another arena. */
  owner: u16 = 0;

  /** Of free memory: whether only blocks that lived briefly had it since it was last part of a larger free range. */
  @inline
  get fleeting(): bool {
    return this.va === FLEETING;
  }

  /** Of a block that is not parked: bytes asked for. */
  @inline
  get requested(): u64 {
    return this.number;
  }

  @inline
  set requested(value: u64) {
    this.number = value;
  }

  /** Of free or carved memory: the number of its last release (streams/progress.ts); 0: never used. */
  @inline
  get releasePoint(): u64 {
    return this.number;
  }

  @inline
  set releasePoint(value: u64) {
    this.number = value;
  }

  /** Of a parked block: the block parked after it. */
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

  /** Of a block: the first use by another stream. */
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

  /** Of the first range of a block that is not planned. */
  @inline
  get life(): Life {
    return changetype<Life>(this.linkC);
  }

  @inline
  set life(value: Life) {
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

  /** Of a planned block: its first cell, and the cell after its last (plans/cells.ts). */
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

  /** Of a planned block, which has no neighbours: the list of planned blocks. */
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

/** Offsets of the links to the children of a node, for code that takes a side. They lie side by side. */
export const LEFT: usize = offsetof<Range>('linkA');
export const RIGHT: usize = offsetof<Range>('linkB');

/** Size classes of the free set: 64 to each power of two of units of 512 B, up to 2^43 units. */
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
  /** Bytes of the arena's handles, and how many of them were created before the first free. */
  held: u64 = 0;
  loaded: u64 = 0;
  /** Whether anything was freed here. Memory created before that belongs to a model that is loaded, and stays. */
  churned: bool = false;
  /** Whether other streams could lend at the last request that needed more than a free range. */
  shared: bool = false;
  /** Stitches by last use, the latest first. */
  newestStitch: Stitch = changetype<Stitch>(0);
  oldestStitch: Stitch = changetype<Stitch>(0);
  stitchCount: u32 = 0;
  /** Hashes of the sizes of the last four large requests, 16 bits each. */
  recentSizes: u64 = 0;
  // Sums of the check in progress.
  seenBytes: u64 = 0;
  seenCount: u32 = 0;
  // The free set follows: a summary word with a bit per word, BIN_WORDS words with a bit per bin, then BINS tree roots.
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
  /** The lowest range. It never changes: of two ranges that join, the lower stays. */
  first: Range = changetype<Range>(0);
  /** The unbacked range at the end, where the region grows. None if the region is full. */
  tail: Range = changetype<Range>(0);
  /** If the region is a slab carved out of an arena of large requests: the range there. */
  carvedFrom: Range = changetype<Range>(0);
  /** Handles by address; see records/handles.ts. */
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
  /** What it maps; see records/pieces.ts. */
  pieces: usize = 0;
  count: u32 = 0;
  room: u32 = 0;
  /** The piece at every multiple of 2^cellShift, a u32 each. A search for an offset begins there. */
  cells: usize = 0;
  cellShift: u32 = 0;
  /** Blocks in the stitch. */
  live: u32 = 0;
  /** Larger than that of every stitch used earlier. */
  lastUse: u32 = 0;
  /** The last release of a block in the stitch, and its stream (space/last-use.ts). */
  lane: Stream = changetype<Stream>(0);
  releasePoint: u64 = 0;
  /** Streams that released blocks here before, and may still use them. */
  otherUses: Use = changetype<Use>(0);
  /** A release that could not be noted: only a wait for the device shows that it is over. */
  blindPoint: u64 = 0;
  /** False if a driver call failed half way and could not be undone. Such a stitch can only be dropped. */
  usable: bool = true;
}

export const NO_RANGE: Range = changetype<Range>(0);
export const NO_ARENA: Arena = changetype<Arena>(0);
export const NO_REGION: Region = changetype<Region>(0);
export const NO_STITCH: Stitch = changetype<Stitch>(0);
