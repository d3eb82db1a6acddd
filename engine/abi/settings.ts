// What a preset is: a set of numbers, given once before the first request. The order is the ABI of `configure`.
import { BLOCK_UNIT, GIB, MIB } from '../base/units';

/** Requests up to this go to the arena of small requests, in slabs of one handle unit. */
export let smallLimit: u64 = 1 * MIB;
/** Larger requests are rounded up to this. */
export let largeUnit: u64 = BLOCK_UNIT;
/** The device's granularity: handles are multiples of it. */
export let handleUnit: u64 = 2 * MIB;
/** Size of new handles; 0: by how much is reserved (see handleBytes). */
export let fixedHandle: u64 = 0;
/** Requests below this are never stitched unless memory has run out. */
export let minStitch: u64 = 4 * MIB;
/** Stitches an arena may keep. */
export let stitchLimit: u64 = 256;
/** Addresses reserved for a stitch, as a multiple of its first length: room to extend it. */
export let stitchRoom: u64 = 8;
/** Whether an arena grows in one long region; else every growth has addresses of its own and never joins another. */
export let longRegions: u64 = 1;
/** Addresses of a long region. */
export let regionBytes: u64 = 1152 * GIB;
/** GMLake's rules (S1 to S5) instead of Weir's. */
export let gmlake: u64 = 0;
/** Create only what is missing and stitch it to what is free (the paper's S4). */
export let shortfall: u64 = 1;
/** Memory the arena may hold beyond peak live before it stitches, in 1/65536 of peak live. */
export let slackShare: u64 = 164;
/** The same as bytes: the larger of the two counts. */
export let slackBytes: u64 = 2 * MIB;
/** Up to this many bytes growing is always preferred to stitching: memory the user does not mind being held. */
export let ceiling: u64 = 0;
/** The least an arena grows by, in 1/65536 of what is reserved... */
export let growthShare: u64 = 64;
/** ...but not more than this. */
export let growthLimit: u64 = 64 * MIB;
/** Whether small requests may borrow from the arena of large ones. */
export let carveSlabs: u64 = 1;
/** Whether access is set handle by handle, as GMLake does, instead of once for all. */
export let accessEach: u64 = 0;
// What decisions weigh, in nanoseconds: driver calls per handle, and what all memory held is worth: a share of it is worth its share.
export let createCost: u64 = 9000;
export let mapCost: u64 = 24000;
export let reserveCost: u64 = 18000;
export let poolPrice: u64 = 200000000;

/** Largest handles while a model is being loaded. */
export let loadHandle: u64 = 64 * MIB;

/** About how many handles an arena that changes is made of: their size grows with it, from 8 MiB to 64 MiB. */
export let handleCount: u64 = 128;

// What streams lend each other; see lending.ts.
/** Whether they do. */
export let lend: u64 = 1;
/** Whether memory whose release is over is preferred to what needs a wait, wherever the better fit is. */
export let preferDone: u64 = 1;
/** Whether memory may be borrowed before its release is over, by a wait on the GPU. */
export let waitAllowed: u64 = 1;
/** Whether among what needs a wait the earliest release counts, else the best fit. */
export let earliestFirst: u64 = 1;
/** How much larger than the request a borrowed range may be, in 1/65536 of the request; 0 is no limit. */
export let sizeDifferenceLimit: u64 = 0;
/** Whether a borrower takes only what it needs of a range; else it is given the whole. */
export let splitBorrowed: u64 = 1;
/** Whether borrowed handles may be stitched. */
export let stitchBorrowed: u64 = 1;
/** Whether only stream 0 lends. */
export let mainLendsOnly: u64 = 0;
/** A stream's progress is marked by an event each time this much was released on it. */
export let eventBytes: u64 = 256 * MIB;

/** What slackShare and growthShare are where streams lend: memory that wanders needs a little room to settle. */
export let sharedSlackShare: u64 = 300;
export let sharedGrowthShare: u64 = 192;

/** A stream waits for another only if more than this would be held otherwise, beyond peak live, in 1/65536 of it: a wait costs time. */
export let waitShare: u64 = 1900;

/** Whether giving back all free memory also forgets how much was needed until then. */
export let forgetNeed: u64 = 1;

/** Whether blocks that complete later than their free are queued for the caller, who must then drain the queue (completed.ts). */
export let queueCompleted: u64 = 0;

const COUNT: u32 = 38;

/** Sets the setting with this number; false if there is none, or the value cannot be. */
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
