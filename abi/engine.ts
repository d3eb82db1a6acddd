// Numbers at the border of the engine: what its callers in TypeScript and C read and write by number or by offset.
import type { Field, Numbered } from './table.ts';

/** A value that the engine tells by number. */
export interface Value extends Numbered {
  /** The engine's variable, in engine/abi/counters.ts or engine/abi/failure.ts. */
  readonly variable: string;
}

/** By number: `statistic(n)`. Numbers 28 to 31 are free. */
export const STATISTICS: readonly Value[] = numbered(0, [
  ['reserved', 'Bytes of handles held from the driver.'],
  ['peakReserved', 'Peak of reserved.'],
  ['allocated', 'Bytes of blocks given out.'],
  ['inUse', 'Bytes of blocks given out or freed and not yet complete.'],
  ['peakInUse', 'Peak of inUse.'],
  ['requested', 'Bytes asked for by the blocks given out.'],
  ['handles', 'Handles held, count.'],
  ['keptStitches', 'Stitches kept now, count.'],
  ['stitchedBytes', 'Addresses that stitches map, bytes.'],
  ['regions', 'Regions of addresses, count.'],
  ['orphans', 'Handles that the driver refuses to take back, count.'],
  ['blocks', 'Blocks in use, count.'],
  ['fits', 'Requests served from a free range of their arena, count.'],
  ['reuses', 'Requests served from an extent inside a kept stitch, count.'],
  ['growths', 'Requests served by growing the arena, count.'],
  ['stitches', 'Requests served by a new stitch, count.'],
  ['extensions', 'Requests served by extending a stitch, count.'],
  ['carves', 'Slabs carved out of the memory of large requests, count.'],
  ['evictions', 'Stitches dropped, count.'],
  ['retries', 'Requests that needed memory given back first, count.'],
  ['ooms', 'Requests that failed, count.'],
  ['ownMemory', "Linear memory that the engine's own records take, bytes."],
  ['borrows', 'Ranges borrowed from another stream, count.'],
  ['borrowedBytes', 'Bytes of them.'],
  ['waits', 'Waits of a stream for memory it borrowed, count.'],
  ['events', 'Events recorded, count.'],
  ['queries', 'Events queried, count.'],
  ['parked', 'Freed blocks that other streams have not passed yet, count.'],
]);

/** Statistics of plans, behind the others. */
export const PLAN_STATISTICS: readonly Value[] = numbered(32, [
  ['hits', 'Requests served at their planned place, count.', 'planHits'],
  ['misses', 'Requests that no plan named, or whose place has no memory, count.', 'planMisses'],
  ['occupied', 'Requests whose planned place was still taken, count.', 'planOccupied'],
  ['active', 'Number of the plan in use; 0: none.', 'activePlan'],
  ['arenaBytes', 'Memory lent to plans, bytes.', 'planBytes'],
  ['plans', 'Plans installed, count.', 'planCount'],
  ['blocks', 'Blocks at planned places, count.', 'planBlocks'],
]);

/** By number: `explanation(n)`, about the last request that failed. */
export const EXPLANATIONS: readonly Value[] = numbered(0, [
  ['asked', 'Bytes asked for.', 'askedThen'],
  ['allocated', 'Bytes of blocks given out.', 'allocatedThen'],
  ['reserved', 'Bytes held from the driver.', 'reservedThen'],
  ['free', "Free in the request's arena.", 'freeThen'],
  ['largestFree', 'The largest free range there.', 'largestThen'],
  ['assemblable', 'The largest block that could be stitched from free memory there.', 'assemblableThen'],
  ['failedCall', 'The driver call that failed last.', 'callThen'],
  ['freeElsewhere', 'Free on other streams of the same pool.', 'elsewhereThen'],
]);

/** Driver calls that can make a request fail. */
export const DRIVER_CALLS: readonly Numbered[] = numbered(0, [
  ['none', 'No call failed.'],
  ['create', 'Creating a handle.'],
  ['reserve', 'Reserving addresses.'],
  ['map', 'Mapping a handle.'],
  ['setAccess', 'Making a mapping accessible.'],
  ['ownMemory', "Taking linear memory for the engine's own records."],
]);

/** What a range is. Snapshots hold these numbers. */
export const RANGE_STATES: readonly Numbered[] = numbered(1, [
  ['free', 'Free for the stream that owns it.'],
  ['live', 'Given out. A block is known by its first range.'],
  ['pending', 'Freed by the program, perhaps still in use on other streams.'],
  ['unbacked', 'Addresses without memory.'],
  ['piece', 'A further range of a block whose memory lies in several places.'],
  ['carved', 'Carved out as a slab for small requests.'],
  ['stuck', 'Mapped, but access could not be set nor the mapping undone. Given back once the driver allows it.'],
  ['parked', 'Freed for good, but recorded streams have not passed the release yet. The engine completes it.'],
  ['planned', 'A handle lent to the memory of plans, where planned blocks lie.'],
]);

/** What `free` did with a block. */
export const FREE_RESULTS: readonly Numbered[] = numbered(0, [
  ['notLive', 'Nothing is live at the address.'],
  ['freed', 'The memory is free again.'],
  ['parked', 'The block is parked until the streams recorded on it have passed.'],
]);

/** A row of a snapshot. */
export const SNAPSHOT_ROW: readonly Field[] = fields('f64', [
  ['address', 'Where the range lies.'],
  ['size', 'Bytes.'],
  ['requested', 'Bytes asked for; 0 where no block begins.'],
  ['given', 'The address given out for the block that begins here; 0 otherwise.'],
  ['state', 'A range state.'],
  ['stream', 'Of the arena that may use it.'],
  ['pool', 'Of the arena.'],
  ['small', '1: an arena of small requests.'],
]);

/** The head of a plan's row; an offset (u64) for each turn follows. */
export const PLAN_ROW: readonly Field[] = [
  { name: 'bytes', type: 'u64', doc: 'Of the request, a multiple of the block unit.' },
  { name: 'stream', type: 'u32', doc: 'The same for all requests of all plans.' },
  { name: 'unused', type: 'u32', doc: 'Zero.' },
];

/** An event of `replay`: a request if it has bytes, else a free of what the slot holds. */
export const REPLAY_EVENT: readonly Field[] = [
  { name: 'slot', type: 'u32', doc: 'Where the block is kept.' },
  { name: 'stream', type: 'u16', doc: 'Of the request.' },
  { name: 'pool', type: 'u16', doc: 'Of the request.' },
  { name: 'bytes', type: 'u64', doc: 'Of the request; 0: a free.' },
];

function numbered(first: number, rows: readonly (readonly [name: string, doc: string, variable?: string])[]): Value[] {
  return rows.map(([name, doc, variable = name], index) => ({ name, doc, variable, number: first + index }));
}

function fields(type: Field['type'], rows: readonly (readonly [string, string])[]): Field[] {
  return rows.map(([name, doc]) => ({ name, doc, type }));
}

/** The invariants of the engine, by the number that `check` gives. */
export const RULES: readonly Numbered[] = [
  { number: 1, name: 'useCoversAllocated', doc: 'allocated memory is part of memory in use, and requests are part of it' },
  { number: 2, name: 'reservedCoversUse', doc: 'memory in use is part of reserved memory, and neither is above its peak' },
  { number: 3, name: 'regionOfArena', doc: 'a region belongs to the arena that lists it' },
  { number: 4, name: 'freeBytesOfArena', doc: "the free ranges add up to the arena's count" },
  { number: 5, name: 'freeTrees', doc: 'the trees of free ranges are ordered, balanced and complete' },
  { number: 6, name: 'stitchLinks', doc: 'stitches are linked both ways' },
  { number: 7, name: 'stitchesOfArena', doc: 'an arena has as many stitches as it counts' },
  { number: 8, name: 'blocksOfStitch', doc: 'stitches count the blocks that lie in them' },
  { number: 9, name: 'blocksCounted', doc: 'blocks add up to the statistics' },
  { number: 10, name: 'handlesCounted', doc: 'handles add up to reserved memory' },
  { number: 11, name: 'rangesCounted', doc: 'regions and stitches add up to the statistics' },
  { number: 20, name: 'rangeLinks', doc: 'ranges are linked both ways and belong to their region' },
  { number: 21, name: 'rangesTile', doc: 'ranges tile their region' },
  { number: 22, name: 'freeJoined', doc: 'free neighbours of one arena are joined' },
  { number: 23, name: 'pieceOfBlock', doc: 'a piece belongs to a block that is in use' },
  { number: 24, name: 'rangeState', doc: 'a range has a state' },
  { number: 25, name: 'rangesFill', doc: 'ranges fill their region' },
  { number: 26, name: 'growthEnd', doc: 'a region knows where it grows' },
  { number: 27, name: 'slabPlace', doc: 'a carved slab lies where it was carved out' },
  { number: 28, name: 'slabHandles', doc: 'a carved slab has no handles of its own' },
  { number: 29, name: 'lentInPool', doc: 'memory is lent only between streams, in one pool' },
  { number: 30, name: 'handleOrder', doc: 'handles are in order of address and do not overlap' },
  { number: 31, name: 'handleBytes', doc: 'handles are as many bytes as the ranges they back' },
  { number: 32, name: 'rangeBacked', doc: 'a range is backed unless it says that it is not' },
  { number: 40, name: 'piecesOfBlock', doc: 'the pieces of a block belong to it' },
  { number: 41, name: 'piecesInStitch', doc: 'the pieces of a block lie in one stitch and belong to one arena' },
  { number: 42, name: 'blockHoldsRequest', doc: 'a block holds its request' },
  { number: 43, name: 'plainBlock', doc: 'a block outside stitches is one range at its own address' },
  { number: 44, name: 'blockInStitch', doc: 'a block lies inside its stitch' },
  { number: 45, name: 'blockOverHole', doc: 'no block lies over a hole of its stitch' },
  { number: 46, name: 'blockMemory', doc: 'a block has the memory that its stitch maps there' },
  { number: 47, name: 'blockEnd', doc: 'a block ends inside its stitch' },
  { number: 48, name: 'lifeOfBlock', doc: 'only live blocks have a life, and no life has two of them or none' },
  { number: 50, name: 'stitchPieces', doc: 'the pieces of a stitch follow each other' },
  { number: 51, name: 'stitchHandles', doc: 'the handles of a stitch are of its pool and know of it' },
  { number: 52, name: 'stitchReserved', doc: 'a stitch maps no more than it reserved' },
  { number: 53, name: 'handleOnce', doc: 'no handle is twice in one stitch' },
  { number: 54, name: 'stitchesOfHandle', doc: 'handles count the stitches they are in' },
  { number: 60, name: 'plannedPlace', doc: 'a planned block lies at a planned place, in memory that plans hold' },
  { number: 61, name: 'plannedCells', doc: 'the cells of planned blocks are taken, and no others' },
  { number: 62, name: 'plannedHandles', doc: 'plans hold whole handles, in the order of their stitch' },
  { number: 63, name: 'plannedBytes', doc: 'memory lent to plans adds up' },
  { number: 64, name: 'cellsOfPlace', doc: 'the cells of a place are those between its edges' },
];
