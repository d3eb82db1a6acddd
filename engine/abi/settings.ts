// The settings of the engine, by number. A preset is a set of values, given before the first request.
import { BLOCK_UNIT, GIB, MIB } from '../base/units';

/** Largest small request. Small requests share slabs of one handle unit. */
export let smallLimit: u64 = 1 * MIB;
/** Unit that larger requests are rounded up to; a power of two. */
export let largeUnit: u64 = BLOCK_UNIT;
/** Granularity of the driver: handles are multiples of it. */
export let handleUnit: u64 = 2 * MIB;
/** Size of new handles; 0: it depends on the arena (space/handle-size.ts). */
export let fixedHandle: u64 = 0;
/** Smallest request that is stitched before memory has run out. */
export let minStitch: u64 = 4 * MIB;
/** Most stitches that an arena keeps. */
export let stitchLimit: u64 = 256;
/** Addresses reserved for a stitch, as a multiple of its first length. The rest is room to extend it. */
export let stitchRoom: u64 = 8;
/** 1: an arena grows in one long region; 0: each growth has a region of its own. */
export let longRegions: u64 = 1;
/** Addresses of a long region. */
export let regionBytes: u64 = 1152 * GIB;
/** 1: GMLake's rules (S1 to S5); 0: Weir's. */
export let gmlake: u64 = 0;
/** gmlake, 1: create only the missing bytes and stitch them to free memory (S4 of the paper). */
export let shortfall: u64 = 1;
/** Memory that may be held beyond peak live before stitching is preferred to growing, in 1/65536 of peak live. */
export let slackShare: u64 = 164;
/** The same in bytes. The larger of the two counts. */
export let slackBytes: u64 = 2 * MIB;
/** Up to this much reserved memory, growing is always preferred to stitching. */
export let ceiling: u64 = 0;
/** Smallest growth, in 1/65536 of reserved memory. */
export let growthShare: u64 = 64;
/** Upper limit of growthShare, in bytes. */
export let growthLimit: u64 = 64 * MIB;
/** 1: slabs for small requests may be carved out of the arena of large ones. */
export let carveSlabs: u64 = 1;
/** 1: access is set handle by handle, as GMLake does; 0: once for all. */
export let accessEach: u64 = 0;
// Costs that policies compare, in nanoseconds. poolPrice is the cost of all reserved memory; bytes are charged pro rata.
export let createCost: u64 = 9000;
export let mapCost: u64 = 24000;
export let reserveCost: u64 = 18000;
export let poolPrice: u64 = 200000000;

/** Largest handle while a model is loaded, that is, before the first free in the arena. */
export let loadHandle: u64 = 64 * MIB;

/** About how many handles the changing part of an arena consists of. Their size grows with it, from 8 to 64 MiB. */
export let handleCount: u64 = 128;

// Lending between streams; see streams/lending.ts.
/** 1: streams lend each other free memory. */
export let lend: u64 = 1;
/** 1: memory that needs no wait is preferred to memory that does, even if it fits worse. */
export let preferDone: u64 = 1;
/** 1: memory may be borrowed before its release is over, by a wait on the GPU. */
export let waitAllowed: u64 = 1;
/** Among ranges that need a wait, 1: the earliest release is taken; 0: the best fit. */
export let earliestFirst: u64 = 1;
/** How much larger than the request a borrowed range may be, in 1/65536 of the request; 0: no limit. */
export let sizeDifferenceLimit: u64 = 0;
/** 1: a borrower takes only the bytes it needs of a range; 0: the whole range. */
export let splitBorrowed: u64 = 1;
/** 1: borrowed handles may be stitched. */
export let stitchBorrowed: u64 = 1;
/** 1: only stream 0 lends. */
export let mainLendsOnly: u64 = 0;
/** An event is recorded each time this many bytes were released on a stream. */
export let eventBytes: u64 = 256 * MIB;

/** slackShare and growthShare where streams lend: memory that changes owners needs more room. */
export let sharedSlackShare: u64 = 300;
export let sharedGrowthShare: u64 = 192;

/** A stream waits for another only if the alternative would hold more than this beyond peak live, in 1/65536 of peak live. */
export let waitShare: u64 = 1900;

/** 1: emptyCache() also forgets how much memory was needed before. */
export let forgetNeed: u64 = 1;

/** 1: blocks that complete later than their free are queued; the caller must drain the queue (streams/completed.ts). */
export let queueCompleted: u64 = 0;

const COUNT: u32 = 38;

/** Sets the setting with this number. False if there is no such setting, or the value is out of bounds. */
export function setSetting(index: u32, value: u64): bool {
  switch (index) {
    case 0:
      smallLimit = value;
      return value % BLOCK_UNIT === 0 && value <= handleUnit;
    case 1:
      largeUnit = value;
      return value >= BLOCK_UNIT && popcnt<u64>(value) === 1;
    case 2:
      handleUnit = value;
      return value >= BLOCK_UNIT && popcnt<u64>(value) === 1;
    case 3:
      fixedHandle = value;
      return value % handleUnit === 0;
    case 4:
      minStitch = value;
      return true;
    case 5:
      stitchLimit = value;
      return true;
    case 6:
      stitchRoom = value;
      return value >= 1;
    case 7:
      longRegions = value;
      return true;
    case 8:
      regionBytes = value;
      return value >= handleUnit && value % handleUnit === 0;
    case 9:
      gmlake = value;
      return true;
    case 10:
      shortfall = value;
      return true;
    case 11:
      slackShare = value;
      return true;
    case 12:
      slackBytes = value;
      return true;
    case 13:
      ceiling = value;
      return true;
    case 14:
      growthShare = value;
      return true;
    case 15:
      growthLimit = value;
      return true;
    case 16:
      carveSlabs = value;
      return true;
    case 17:
      accessEach = value;
      return true;
    case 18:
      createCost = value;
      return true;
    case 19:
      mapCost = value;
      return true;
    case 20:
      reserveCost = value;
      return true;
    case 21:
      poolPrice = value;
      return true;
    case 22:
      loadHandle = value;
      return value > 0 && value % handleUnit === 0;
    case 23:
      handleCount = value;
      return value > 0;
    case 24:
      lend = value;
      return value <= 1;
    case 25:
      preferDone = value;
      return value <= 1;
    case 26:
      waitAllowed = value;
      return value <= 1;
    case 27:
      earliestFirst = value;
      return value <= 1;
    case 28:
      sizeDifferenceLimit = value;
      return value <= (<u64>1) << 20;
    case 29:
      splitBorrowed = value;
      return value <= 1;
    case 30:
      stitchBorrowed = value;
      return value <= 1;
    case 31:
      mainLendsOnly = value;
      return value <= 1;
    case 32:
      eventBytes = value;
      return value > 0;
    case 33:
      sharedSlackShare = value;
      return true;
    case 34:
      sharedGrowthShare = value;
      return true;
    case 35:
      queueCompleted = value;
      return value <= 1;
    case 36:
      waitShare = value;
      return true;
    case 37:
      forgetNeed = value;
      return value <= 1;
  }
  return false;
}

export function settingCount(): u32 {
  return COUNT;
}
