// What the engine reports: why a request failed, and the snapshot of all ranges.

import { allocated, reserved } from './abi/counters';
import { keepArena, keepTotals } from './abi/failure';
import { SnapshotRow } from './abi/numbers';
import { larger } from './base/units';
import { plannedRows, writePlannedRows } from './plans/rows';
import { ownerOf } from './records/arena-table';
import { give, take } from './records/memory';
import { Arena, NO_ARENA, NO_RANGE, NO_REGION } from './records/nodes';
import { writeRow } from './records/snapshot-row';
import { firstArena } from './space/arenas';
import { largestFree } from './space/free-set';
import { assemblable, surveyArena } from './space/survey';

/** Keeps the state of memory when a request fails. */
export function explain(arena: Arena, bytes: u64): void {
  keepTotals(bytes, allocated, reserved);
  if (arena === NO_ARENA) {
    keepArena(0, 0, 0, 0);
    return;
  }
  let elsewhere: u64 = 0;
  for (let other = firstArena(); other !== NO_ARENA; other = other.next) {
    if (other.pool === arena.pool && other.stream !== arena.stream) elsewhere += other.freeBytes;
  }
  const range = largestFree(arena);
  const largest = range === NO_RANGE ? 0 : range.size;
  const stitched = !arena.small && surveyArena(arena) ? assemblable() : 0;
  keepArena(arena.freeBytes, largest, larger(largest, stitched), elsewhere);
}

let rows: usize = 0;
let rowBytes: usize = 0;

/** Writes a row per range to `snapshotAddress`, where they stay until the next snapshot. Gives their number. */
export function takeSnapshot(): u32 {
  let count: usize = 0;
  for (let arena = firstArena(); arena !== NO_ARENA; arena = arena.next) {
    for (let region = arena.regions; region !== NO_REGION; region = region.next) {
      for (let range = region.first; range !== NO_RANGE; range = range.next) count++;
    }
  }
  give(rows, rowBytes);
  count += <usize>plannedRows();
  rowBytes = larger(<u64>(count * SnapshotRow.BYTES), <u64>SnapshotRow.BYTES) as usize;
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
        row += SnapshotRow.BYTES;
      }
    }
  }
  return <u32>((writePlannedRows(row) - rows) / SnapshotRow.BYTES);
}

export function snapshotAddress(): usize {
  return rows;
}
