// Statistics by number. The order is part of the ABI; abi/counters.ts has the values.
import {
  activePlan,
  allocated,
  blocks,
  borrowedBytes,
  borrows,
  carves,
  events,
  evictions,
  extensions,
  fits,
  growths,
  handles,
  inUse,
  keptStitches,
  ooms,
  orphans,
  ownMemory,
  parked,
  peakInUse,
  peakReserved,
  planBlocks,
  planBytes,
  planCount,
  planHits,
  planMisses,
  planOccupied,
  queries,
  regions,
  requested,
  reserved,
  retries,
  reuses,
  stitchedBytes,
  stitches,
  waits,
} from './counters';

export function statisticOf(index: u32): u64 {
  switch (index) {
    case 0:
      return reserved;
    case 1:
      return peakReserved;
    case 2:
      return allocated;
    case 3:
      return inUse;
    case 4:
      return peakInUse;
    case 5:
      return requested;
    case 6:
      return handles;
    case 7:
      return keptStitches;
    case 8:
      return stitchedBytes;
    case 9:
      return regions;
    case 10:
      return orphans;
    case 11:
      return blocks;
    case 12:
      return fits;
    case 13:
      return reuses;
    case 14:
      return growths;
    case 15:
      return stitches;
    case 16:
      return extensions;
    case 17:
      return carves;
    case 18:
      return evictions;
    case 19:
      return retries;
    case 20:
      return ooms;
    case 21:
      return ownMemory;
    case 22:
      return borrows;
    case 23:
      return borrowedBytes;
    case 24:
      return waits;
    case 25:
      return events;
    case 26:
      return queries;
    case 27:
      return parked;
    case 32:
      return planHits;
    case 33:
      return planMisses;
    case 34:
      return planOccupied;
    case 35:
      return activePlan;
    case 36:
      return planBytes;
    case 37:
      return planCount;
    case 38:
      return planBlocks;
  }
  return 0;
}
