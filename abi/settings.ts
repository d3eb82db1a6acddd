// The engine's settings. Their order is their number: append, never reorder.
// Presets and lending rules name only what differs from the defaults.
import { type Entry, GIB, MIB } from './table.ts';

export type Unit = 'bytes' | 'count' | 'flag' | 'nanoseconds' | 'share' | 'multiple';

/** What a value must satisfy. `handleUnit` stands for the value of that setting. */
export interface Bounds {
  readonly atLeast?: number | 'handleUnit';
  readonly atMost?: number | 'handleUnit';
  readonly multipleOf?: number | 'handleUnit';
  readonly powerOfTwo?: true;
}

export interface Setting extends Entry {
  /** A share is in 1/65536. */
  readonly unit: Unit;
  readonly value: number;
  readonly bounds: Bounds;
}

/** Blocks are multiples of this, and live memory is counted in it. */
export const BLOCK_UNIT = 512;

const ANY: Bounds = {};
const FLAG: Bounds = { atMost: 1 };
const POSITIVE: Bounds = { atLeast: 1 };

function setting(name: string, unit: Unit, value: number, bounds: Bounds, doc: string): Setting {
  return { name, unit, value, bounds, doc };
}

export const SETTINGS: readonly Setting[] = [
  setting(
    'smallLimit',
    'bytes',
    MIB / 4,
    { multipleOf: BLOCK_UNIT, atMost: 'handleUnit' },
    'Requests up to this size share slabs of one handle unit. A slab holds eight of the largest, so little of it is left over.',
  ),
  setting(
    'largeUnit',
    'bytes',
    BLOCK_UNIT,
    { atLeast: BLOCK_UNIT, powerOfTwo: true },
    'Larger requests are rounded up to a multiple of this.',
  ),
  setting(
    'handleUnit',
    'bytes',
    2 * MIB,
    { atLeast: BLOCK_UNIT, powerOfTwo: true },
    "The driver's granularity. Handles are multiples of it.",
  ),
  setting(
    'fixedHandle',
    'bytes',
    0,
    { multipleOf: 'handleUnit' },
    'Size of every new handle. 0: the size follows from handleCount and loadHandle.',
  ),
  setting('minStitch', 'bytes', 4 * MIB, ANY, 'Smaller requests are stitched only when memory has run out.'),
  setting(
    'stitchLimit',
    'count',
    256,
    ANY,
    'Stitches that an arena may keep. Stitches that the GPU still uses may exceed it, up to four times.',
  ),
  setting('stitchRoom', 'multiple', 8, POSITIVE, 'Addresses reserved for a stitch, as a multiple of its first length: room to extend it.'),
  setting('longRegions', 'flag', 1, ANY, '1: an arena grows in one long region. 0: every growth has its own region and joins no other.'),
  setting(
    'regionBytes',
    'bytes',
    1152 * GIB,
    { atLeast: 'handleUnit', multipleOf: 'handleUnit' },
    'Addresses of a long region. The default exceeds every GPU.',
  ),
  setting('gmlake', 'flag', 0, ANY, "1: the rules of GMLake's paper (S1 to S5). 0: Weir's."),
  setting('shortfall', 'flag', 1, ANY, '1: create only the missing bytes and stitch them to free memory (S4 in the paper).'),
  setting('slackShare', 'share', 164, ANY, 'Memory that an arena may hold beyond peak live before it stitches, as a share of peak live.'),
  setting('slackBytes', 'bytes', 2 * MIB, ANY, 'The same in bytes. The larger of the two counts.'),
  setting('ceiling', 'bytes', 0, ANY, 'Up to this many bytes, growing is always preferred to stitching.'),
  setting('growthShare', 'share', 64, ANY, 'Least growth of an arena, as a share of reserved memory.'),
  setting('growthLimit', 'bytes', 64 * MIB, ANY, 'The least growth is never more than this.'),
  setting('carveSlabs', 'flag', 1, ANY, '1: slabs for small requests may be carved out of the memory of large ones.'),
  setting('accessEach', 'flag', 0, ANY, '1: access is set handle by handle, as GMLake does. 0: once for all.'),
  setting('createCost', 'nanoseconds', 9_000, ANY, 'Assumed time to create a handle.'),
  setting('mapCost', 'nanoseconds', 24_000, ANY, 'Assumed time to map a handle and set access.'),
  setting('reserveCost', 'nanoseconds', 18_000, ANY, 'Assumed time to reserve addresses.'),
  setting(
    'poolPrice',
    'nanoseconds',
    200_000_000,
    ANY,
    'Price of the whole pool. Bytes are charged pro rata, so small pools stay as tight as large ones.',
  ),
  setting(
    'loadHandle',
    'bytes',
    64 * MIB,
    { atLeast: 1, multipleOf: 'handleUnit' },
    'Largest handle while a model is loaded, that is before the first free.',
  ),
  setting(
    'handleCount',
    'count',
    128,
    POSITIVE,
    'About how many handles changing memory consists of. Their size grows with it, from 8 to 128 MiB.',
  ),
  setting('lend', 'flag', 1, FLAG, '1: streams of a pool lend each other free memory, if the backend has events.'),
  setting('preferDone', 'flag', 1, FLAG, '1: memory that needs no wait is preferred to memory that does, whichever fits better.'),
  setting('waitAllowed', 'flag', 1, FLAG, '1: memory may be borrowed before its release is over, by a wait on the GPU.'),
  setting('earliestFirst', 'flag', 1, FLAG, '1: of memory that needs a wait, the earliest release is taken. 0: the best fit.'),
  setting(
    'sizeDifferenceLimit',
    'share',
    0,
    { atMost: 2 ** 20 },
    'How much larger than the request a borrowed range may be, as a share of the request. 0: no limit.',
  ),
  setting('splitBorrowed', 'flag', 1, FLAG, '1: a borrower takes only the bytes it needs of a range. 0: the whole range.'),
  setting('stitchBorrowed', 'flag', 1, FLAG, '1: borrowed handles may be stitched.'),
  setting('mainLendsOnly', 'flag', 0, FLAG, '1: only stream 0 lends.'),
  setting('eventBytes', 'bytes', 64 * MIB, POSITIVE, 'An event marks a stream each time this much was released on it.'),
  setting('sharedSlackShare', 'share', 300, ANY, 'slackShare where streams lend: memory that changes hands needs room to settle.'),
  setting('sharedGrowthShare', 'share', 16, ANY, 'growthShare where streams lend.'),
  setting('queueCompleted', 'flag', 0, FLAG, '1: blocks that complete after their free are queued. The caller must drain the queue.'),
  setting(
    'waitShare',
    'share',
    1400,
    ANY,
    'A stream waits for another only if that saves more than this share of peak live: a wait costs time. Rare waits: five eighths.',
  ),
  setting('forgetNeed', 'flag', 1, FLAG, '1: after emptyCache() the engine takes for needed only the peak in use since then.'),
  setting(
    'unmapFinished',
    'flag',
    1,
    FLAG,
    '1: memory is unmapped once the GPU has finished with it, as events or a wait show. 0: the driver waits before it unmaps.',
  ),
  setting('groupLives', 'flag', 1, FLAG, '1: blocks are placed beside blocks that are expected to end when they do.'),
  setting(
    'groupBytes',
    'bytes',
    2 * GIB,
    ANY,
    'Memory that an arena must hold before it groups blocks. In small ones best fit wastes less.',
  ),
  setting('smallestHandle', 'multiple', 4, POSITIVE, 'Size of the smallest handles, as a multiple of handleUnit.'),
  setting('loadedCount', 'count', 16, POSITIVE, 'Loaded memory consists of about this many handles, until they have reached loadHandle.'),
];

/** Values that differ from the defaults. */
export interface Preset extends Entry {
  readonly values: Readonly<Record<string, number>>;
}

/** Rules of lending between streams. */
export const LENDING: readonly Preset[] = [
  { name: 'weir', doc: 'The defaults.', values: {} },
  { name: 'off', doc: 'Streams keep to their own memory.', values: { lend: 0 } },
  {
    name: 'glake',
    doc: 'As the GLake talk describes it. It says "much larger" without a number: we read more than a quarter.',
    values: { sizeDifferenceLimit: 65536 / 4, splitBorrowed: 0, stitchBorrowed: 0, mainLendsOnly: 1, waitShare: 0 },
  },
];

/** In every preset, settings that must be multiples of handleUnit are rounded up to it. */
export const PRESETS: readonly Preset[] = [
  { name: 'weir', doc: "Weir's own policy: the defaults.", values: {} },
  {
    name: 'gmlake',
    doc: 'GMLake as its paper describes it: handles of 2 MiB, requests rounded to them, stitched from 128 MiB up, no lending.',
    values: {
      smallLimit: 1 * MIB,
      largeUnit: 2 * MIB,
      fixedHandle: 2 * MIB,
      minStitch: 128 * MIB,
      stitchLimit: 4096,
      stitchRoom: 1,
      longRegions: 0,
      gmlake: 1,
      carveSlabs: 0,
      accessEach: 1,
      lend: 0,
      groupLives: 0,
    },
  },
  {
    name: 'fine',
    doc: "Weir's policy on small handles: for jobs that swap down to a size, where every free piece counts.",
    values: { loadHandle: 16 * MIB, handleCount: 512 },
  },
  {
    name: 'planned',
    doc: "Weir's policy on handles so small that a plan finds nearly all free memory in whole ones: for jobs that wait for a plan.",
    values: { handleCount: 4096, loadedCount: 4096, smallestHandle: 1, poolPrice: 4_000_000_000 },
  },
];

/** An arena reserves addresses for this multiple of the GPU's memory, as PyTorch does for expandable segments. */
export const REGION_EIGHTHS = 9;
