// What the engine counts, over all arenas. abi/statistics.ts gives the counters to the caller; policies decide by some of them.
import { forgetNeed } from './settings';

/** Physical memory held: the bytes of all handles, usable or not. */
export let reserved: u64 = 0;
export let peakReserved: u64 = 0;
/** Bytes given out and not freed. */
export let allocated: u64 = 0;
/** Bytes given out and not complete. They cannot be given out again yet. */
export let inUse: u64 = 0;
export let peakInUse: u64 = 0;
/** Most bytes in use since the last emptyCache(). Policies take this for the memory that the program needs. */
export let neededInUse: u64 = 0;
/** Bytes asked for, over all allocated blocks. */
export let requested: u64 = 0;

export let handles: u32 = 0;
export let keptStitches: u32 = 0;
/** Bytes of addresses that stitches map. */
export let stitchedBytes: u64 = 0;
export let regions: u32 = 0;
export let orphans: u32 = 0;
export let blocks: u32 = 0;

// How many requests were served in which way.
export let fits: u64 = 0;
export let reuses: u64 = 0;
export let growths: u64 = 0;
export let stitches: u64 = 0;
export let extensions: u64 = 0;
export let carves: u64 = 0;
export let evictions: u64 = 0;
/** Requests that were served, or failed, only after memory was given back. */
export let retries: u64 = 0;
export let ooms: u64 = 0;
// Lending between streams.
export let borrows: u64 = 0;
export let borrowedBytes: u64 = 0;
export let waits: u64 = 0;
export let events: u64 = 0;
export let queries: u64 = 0;
/** Freed blocks that wait for other streams. */
export let parked: u32 = 0;

/** The engine's own linear memory in use, recycled pieces included. */
export let ownMemory: usize = 0;

// How plans are followed.
export let planHits: u64 = 0;
/** Requests that no plan expected, or whose place has no memory. */
export let planMisses: u64 = 0;
/** Requests whose place was taken. */
export let planOccupied: u64 = 0;
/** The plan in use; 0 if there is none. */
export let activePlan: u32 = 0;
/** Memory lent to plans. */
export let planBytes: u64 = 0;
/** Plans installed. */
export let planCount: u32 = 0;
/** Blocks at planned places. */
export let planBlocks: u32 = 0;

export function countReserved(bytes: u64): void {
  reserved += bytes;
  handles++;
  if (reserved > peakReserved) peakReserved = reserved;
}

export function countReleased(bytes: u64): void {
  reserved -= bytes;
  handles--;
}

export function countUse(size: u64, asked: u64): void {
  allocated += size;
  requested += asked;
  inUse += size;
  blocks++;
  // What is needed is never more than the peak.
  if (inUse <= neededInUse) return;
  neededInUse = inUse;
  if (inUse > peakInUse) peakInUse = inUse;
}

export function countFree(size: u64, asked: u64): void {
  allocated -= size;
  requested -= asked;
}

export function countComplete(size: u64): void {
  inUse -= size;
  blocks--;
}

export function countStitch(): void {
  keptStitches++;
}

export function countMapped(bytes: u64): void {
  stitchedBytes += bytes;
}

export function countUnmapped(bytes: u64): void {
  stitchedBytes -= bytes;
}

export function countStitchGone(): void {
  keptStitches--;
  evictions++;
}

export function countRegion(change: i32): void {
  regions += change;
}

export function countOrphan(change: i32): void {
  orphans += change;
}

export function countBorrow(bytes: u64): void {
  borrows++;
  borrowedBytes += bytes;
}

export function countWait(): void {
  waits++;
}

export function countEvent(): void {
  events++;
}

export function countQuery(): void {
  queries++;
}

export function countParked(change: i32): void {
  parked += change;
}

export function countOwnMemory(bytes: usize): void {
  ownMemory = bytes;
}

export function countPlanHit(): void {
  planHits++;
}

export function countPlanMiss(): void {
  planMisses++;
}

export function countPlanOccupied(): void {
  planOccupied++;
}

export function countPlan(change: i32): void {
  planCount += change;
}

export function countPlanBlock(change: i32): void {
  planBlocks += change;
}

export function setActivePlan(id: u32): void {
  activePlan = id;
}

export function setPlanBytes(bytes: u64): void {
  planBytes = bytes;
}

/** How a request was served. */
export namespace Way {
  export const Fit: u32 = 0;
  export const Reuse: u32 = 1;
  export const Growth: u32 = 2;
  export const Stitch: u32 = 3;
  export const Extension: u32 = 4;
  export const Carve: u32 = 5;
  export const Retry: u32 = 6;
  export const Oom: u32 = 7;
  export const Borrow: u32 = 8;
}

export function countWay(way: u32): void {
  switch (way) {
    case Way.Fit:
      fits++;
      break;
    case Way.Reuse:
      reuses++;
      break;
    case Way.Growth:
      growths++;
      break;
    case Way.Stitch:
      stitches++;
      break;
    case Way.Extension:
      extensions++;
      break;
    case Way.Carve:
      carves++;
      break;
    case Way.Retry:
      retries++;
      break;
    case Way.Oom:
      ooms++;
      break;
  }
}

/** After emptyCache() the program may need less memory than before. */
export function restartNeed(): void {
  if (forgetNeed !== 0) neededInUse = inUse;
}
