// The engine's settings as TypeScript sees them, and the two presets. The order of ENGINE_SETTINGS is the engine's ABI.
import { GIB, MIB, roundUp } from '../../base/bytes.ts';

/** All numbers are bytes unless said otherwise. Names and meaning as in engine/settings.ts. */
export interface EngineSettings {
  /** Requests up to this share slabs of one handle unit. */
  readonly smallLimit: number;
  /** Larger requests are rounded up to this; a power of two, at least 512. */
  readonly largeUnit: number;
  /** The device's granularity. */
  readonly handleUnit: number;
  /** Size of new handles; 0 lets it grow with what is reserved, see `handleCount` and `loadHandle`. */
  readonly fixedHandle: number;
  /** Smaller requests are not stitched until memory has run out. */
  readonly minStitch: number;
  /** Views (stitches) an arena may keep. */
  readonly viewLimit: number;
  /** Addresses reserved for a view as a multiple of its first length. */
  readonly viewRoom: number;
  /** 1: an arena grows in one long range of addresses; 0: each growth stays apart. */
  readonly longRegions: 0 | 1;
  /** Addresses reserved for an arena. */
  readonly regionBytes: number;
  /** 1: the rules of GMLake's paper; 0: Weir's. */
  readonly gmlake: 0 | 1;
  /** 1: create only the missing bytes and stitch them to what is free. */
  readonly shortfall: 0 | 1;
  /** What may be held beyond peak live before stitching is preferred to growing: a share in 1/65536, ... */
  readonly slackShare: number;
  /** ... or these bytes, whichever is more. */
  readonly slackBytes: number;
  /** Up to this growing is always preferred: memory the user does not mind being held. */
  readonly ceiling: number;
  /** Least growth in 1/65536 of what is reserved, up to `growthLimit`. */
  readonly growthShare: number;
  readonly growthLimit: number;
  /** 1: small requests may borrow from large ones' memory. */
  readonly borrow: 0 | 1;
  /** 1: access is set handle by handle, as GMLake does. */
  readonly accessEach: 0 | 1;
  /** What decisions weigh, in nanoseconds: creating a handle, mapping one and setting access, reserving addresses, ... */
  readonly createCost: number;
  readonly mapCost: number;
  readonly reserveCost: number;
  /** ... and all the memory held: a share of it is worth its share, so that small pools are kept as tight as large ones. */
  readonly poolPrice: number;
  /** Largest handles while a model is loaded, that is before anything was freed. */
  readonly loadHandle: number;
  /** About how many handles changing memory is made of: their size grows with it, from 8 MiB to 64 MiB. */
  readonly handleCount: number;
  /** 1: streams of a pool lend each other free memory, where the context has events (docs/streams.md). */
  readonly lend: 0 | 1;
  /** 1: what needs no wait is preferred to what does, whichever fits better. */
  readonly preferDone: 0 | 1;
  /** 1: memory may be borrowed before its release is over, by a wait on the GPU. */
  readonly waitAllowed: 0 | 1;
  /** 1: of what needs a wait the earliest release is taken; 0: the best fit. */
  readonly earliestFirst: 0 | 1;
  /** How much larger than the request a borrowed range may be, in 1/65536 of the request; 0: no limit. */
  readonly sizeDifferenceLimit: number;
  /** 1: a borrower takes only what it needs of a range; 0: the whole. */
  readonly splitBorrowed: 0 | 1;
  /** 1: borrowed handles may be stitched. */
  readonly stitchBorrowed: 0 | 1;
  /** 1: only stream 0 lends. */
  readonly mainLendsOnly: 0 | 1;
  /** An event marks a stream's progress each time this much was released on it. */
  readonly eventBytes: number;
  /** What `slackShare` and `growthShare` are for streams that others lend to: memory that wanders needs room to settle. */
  readonly sharedSlackShare: number;
  readonly sharedGrowthShare: number;
  /** Streams wait for one another only if more than this would be held otherwise, beyond peak live, in 1/65536 of it. */
  readonly waitShare: number;
  /** 1: after `emptyCache()` the engine takes for needed what has been in use since then, not before. */
  readonly forgetNeed: 0 | 1;
  /** 1: blocks that complete later than their free are queued for whoever drains the queue, which nothing in TypeScript does. */
  readonly queueCompleted: 0 | 1;
}

export const ENGINE_SETTINGS: readonly (keyof EngineSettings)[] = [
  'smallLimit',
  'largeUnit',
  'handleUnit',
  'fixedHandle',
  'minStitch',
  'viewLimit',
  'viewRoom',
  'longRegions',
  'regionBytes',
  'gmlake',
  'shortfall',
  'slackShare',
  'slackBytes',
  'ceiling',
  'growthShare',
  'growthLimit',
  'borrow',
  'accessEach',
  'createCost',
  'mapCost',
  'reserveCost',
  'poolPrice',
  'loadHandle',
  'handleCount',
  'lend',
  'preferDone',
  'waitAllowed',
  'earliestFirst',
  'sizeDifferenceLimit',
  'splitBorrowed',
  'stitchBorrowed',
  'mainLendsOnly',
  'eventBytes',
  'sharedSlackShare',
  'sharedGrowthShare',
  'queueCompleted',
  'waitShare',
  'forgetNeed',
];

/** Addresses for an arena when the GPU's size is unknown: more than any GPU has. */
const UNKNOWN_REGION_BYTES: number = 1152 * GIB;

type LendingSettings = Pick<
  EngineSettings,
  | 'lend'
  | 'preferDone'
  | 'waitAllowed'
  | 'earliestFirst'
  | 'sizeDifferenceLimit'
  | 'splitBorrowed'
  | 'stitchBorrowed'
  | 'mainLendsOnly'
  | 'eventBytes'
  | 'sharedSlackShare'
  | 'sharedGrowthShare'
  | 'waitShare'
>;

/** Rules of lending between streams: none, those of the GLake talk, and ours. */
export const LENDING: Readonly<Record<'off' | 'glake' | 'weir', LendingSettings>> = (() => {
  const weir: LendingSettings = {
    lend: 1,
    preferDone: 1,
    waitAllowed: 1,
    earliestFirst: 1,
    sizeDifferenceLimit: 0,
    splitBorrowed: 1,
    stitchBorrowed: 1,
    mainLendsOnly: 0,
    eventBytes: 256 * MIB,
    sharedSlackShare: 300,
    sharedGrowthShare: 192,
    waitShare: 1900,
  };
  return {
    off: { ...weir, lend: 0 },
    // "Much larger" is not said in numbers: more than a quarter is what we read into it.
    glake: { ...weir, sizeDifferenceLimit: 65536 / 4, splitBorrowed: 0, stitchBorrowed: 0, mainLendsOnly: 1, waitShare: 0 },
    weir,
  };
})();

/** Weir's own policy. */
export const WEIR_SETTINGS: EngineSettings = {
  smallLimit: 1 * MIB,
  largeUnit: 512,
  handleUnit: 2 * MIB,
  fixedHandle: 0,
  minStitch: 4 * MIB,
  viewLimit: 256,
  viewRoom: 8,
  longRegions: 1,
  regionBytes: UNKNOWN_REGION_BYTES,
  gmlake: 0,
  shortfall: 1,
  slackShare: 164,
  slackBytes: 2 * MIB,
  ceiling: 0,
  growthShare: 64,
  growthLimit: 64 * MIB,
  borrow: 1,
  accessEach: 0,
  createCost: 9_000,
  mapCost: 24_000,
  reserveCost: 18_000,
  poolPrice: 200_000_000,
  loadHandle: 64 * MIB,
  handleCount: 128,
  queueCompleted: 0,
  forgetNeed: 1,
  ...LENDING.weir,
};

/** GMLake as its paper describes it: handles of 2 MiB, requests rounded to them, stitched from 128 MiB up. */
export const GMLAKE_SETTINGS: EngineSettings = {
  ...WEIR_SETTINGS,
  largeUnit: 2 * MIB,
  fixedHandle: 2 * MIB,
  minStitch: 128 * MIB,
  viewLimit: 4096,
  viewRoom: 1,
  longRegions: 0,
  gmlake: 1,
  borrow: 0,
  accessEach: 1,
  ...LENDING.off,
};

/** Addresses to reserve per arena: nine eighths of the GPU's memory, as PyTorch does for expandable segments. */
export function regionBytesFor(deviceBytes: number | undefined, handleUnit: number): number {
  return deviceBytes === undefined ? UNKNOWN_REGION_BYTES : Math.max(handleUnit, roundUp((deviceBytes * 9) / 8, handleUnit));
}
