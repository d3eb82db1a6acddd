// What the engine says about itself: why the last request failed, statistics by number, and every range it keeps.
import { firstArena } from './arenas';
import {
  allocated,
  blocks,
  borrowedBytes,
  borrows,
  evictions,
  extensions,
  fits,
  growths,
  handles,
  inUse,
  loans,
  ooms,
  orphans,
  parked,
  peakInUse,
  peakReserved,
  queries,
  events as recordedEvents,
  regions,
  requested,
  reserved,
  retries,
  reuses,
  stitches,
  viewBytes,
  views,
  waits,
} from './counters';
import { failedCall } from './failure';
import { largestFree } from './free-set';
import { give, take, usedMemory } from './memory';
import { Arena, NO_ARENA, NO_RANGE, NO_REGION, ownerOf, Range, State } from './nodes';
import { activePlan, plannedHits, plannedMisses, plannedOccupied } from './planned';
import { plannedBlocks } from './planned-blocks';
import { heldBytes } from './planned-memory';
import { planCount } from './planned-plans';
import { plannedRows, writePlannedRows } from './planned-rows';
import { assemblable, surveyArena } from './survey';
import { larger } from './units';

let asked: u64 = 0;
let freeThen: u64 = 0;
let largestThen: u64 = 0;
let assemblableThen: u64 = 0;
let reservedThen: u64 = 0;
let allocatedThen: u64 = 0;
let callThen: u32 = 0;
let elsewhereThen: u64 = 0;

/** Keeps how things stood when a request failed. */
export function explain(arena: Arena, bytes: u64): void {
  asked = bytes;
  callThen = failedCall;
  reservedThen = reserved;
  allocatedThen = allocated;
  freeThen = 0;
  largestThen = 0;
  assemblableThen = 0;
  elsewhereThen = 0;
  if (arena === NO_ARENA) return;
  freeThen = arena.freeBytes;
  for (let other = firstArena(); other !== NO_ARENA; other = other.next) {
    if (other.pool === arena.pool && other.stream !== arena.stream) elsewhereThen += other.freeBytes;
  }
  const largest = largestFree(arena);
  if (largest !== NO_RANGE) largestThen = largest.size;
  assemblableThen = largestThen;
  if (!arena.small && surveyArena(arena)) assemblableThen = larger(largestThen, assemblable());
}

/** The last failure: asked, allocated, reserved, free in the arena, largest free piece, largest that could be assembled, driver call, free on other streams of the pool. */
export function explanationOf(index: u32): u64 {
  switch (index) {
    case 0:
      return asked;
    case 1:
      return allocatedThen;
    case 2:
      return reservedThen;
    case 3:
      return freeThen;
    case 4:
      return largestThen;
    case 5:
      return assemblableThen;
    case 6:
      return callThen;
    case 7:
      return elsewhereThen;
  }
  return 0;
}

/** Statistics by number; the order is part of the ABI. */
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
      return views;
    case 8:
      return viewBytes;
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
      return loans;
    case 18:
      return evictions;
    case 19:
      return retries;
    case 20:
      return ooms;
    case 21:
      return usedMemory();
    case 22:
      return borrows;
    case 23:
      return borrowedBytes;
    case 24:
      return waits;
    case 25:
      return recordedEvents;
    case 26:
      return queries;
    case 27:
      return parked;
    case 32:
      return plannedHits;
    case 33:
      return plannedMisses;
    case 34:
      return plannedOccupied;
    case 35:
      return activePlan();
    case 36:
      return heldBytes;
    case 37:
      return planCount;
    case 38:
      return plannedBlocks();
  }
  return 0;
}

/** A row of the snapshot: address, size, requested, address given out, state, stream, pool, small, eight f64 in all. */
export const ROW: usize = 64;

let rows: usize = 0;
let rowBytes: usize = 0;

/** Writes a row per range; gives how many. The rows are at `snapshotAddress` until the next snapshot. */
export function takeSnapshot(): u32 {
  let count: usize = 0;
  for (let arena = firstArena(); arena !== NO_ARENA; arena = arena.next) {
    for (let region = arena.regions; region !== NO_REGION; region = region.next) {
      for (let range = region.first; range !== NO_RANGE; range = range.next) count++;
    }
  }
  give(rows, rowBytes);
  count += <usize>plannedRows();
  rowBytes = larger(<u64>(count * ROW), <u64>ROW) as usize;
  rows = take(rowBytes);
  if (rows === 0) {
    rowBytes = 0;
    return 0;
  }
  let row = rows;
  for (let arena = firstArena(); arena !== NO_ARENA; arena = arena.next) {
    for (let region = arena.regions; region !== NO_REGION; region = region.next) {
      for (let range = region.first; range !== NO_RANGE; range = range.next) {
        writeRow(row, ownerOf(range), range);
        row += ROW;
      }
    }
  }
  return <u32>((writePlannedRows(row) - rows) / ROW);
}

export function snapshotAddress(): usize {
  return rows;
}

export function writeRow(row: usize, arena: Arena, range: Range): void {
  const isBlock = range.state === State.Live || range.state === State.Pending || range.state === State.Parked;
  // A further piece shows the state of its block: what matters is whether its memory is live.
  const state = range.state === State.Piece ? range.parent.state : range.state;
  store<f64>(row, <f64>(<i64>range.address));
  store<f64>(row, <f64>(<i64>range.size), 8);
  store<f64>(row, isBlock && range.state !== State.Parked ? <f64>(<i64>range.requested) : 0, 16);
  store<f64>(row, isBlock ? <f64>(<i64>range.va) : 0, 24);
  store<f64>(row, <f64>state, 32);
  store<f64>(row, <f64>arena.stream, 40);
  store<f64>(row, <f64>arena.pool, 48);
  store<f64>(row, arena.small ? 1 : 0, 56);
}
