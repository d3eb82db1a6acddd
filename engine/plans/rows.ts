// Rows of the snapshot for the memory of plans: planned blocks, and what is free between them.
// The handles behind them have rows of state Planned at their own addresses.
import { planBlocks, planBytes } from '../abi/counters';
import { SnapshotRow, State } from '../abi/numbers';
import { give, takeClear } from '../records/memory';
import { NO_RANGE, Range } from '../records/nodes';
import { writeRow } from '../records/snapshot-row';
import { newestPlanned } from './blocks';
import { cellCount, edgeAt } from './cells';
import { plannedAddress, planStitch } from './memory';

/** Upper limit of the rows. */
export function plannedRows(): u32 {
  return planBytes === 0 ? 0 : 2 * planBlocks + 1;
}

/** Writes the rows from `row` on. Gives the address after the last. */
export function writePlannedRows(row: usize): usize {
  if (planBytes === 0) return row;
  // Blocks by first cell are in order of address. If memory is exhausted, they are left out.
  const cells = (<usize>cellCount()) << 2;
  const blocks = takeClear(cells);
  if (blocks === 0) return row;
  for (let block = newestPlanned(); block !== NO_RANGE; block = block.olderPlanned) {
    store<usize>(blocks + ((<usize>block.firstCell) << 2), changetype<usize>(block));
  }
  let end: u64 = 0;
  for (let cell: u32 = 0; cell < cellCount(); cell++) {
    const block = changetype<Range>(load<usize>(blocks + ((<usize>cell) << 2)));
    if (block === NO_RANGE) continue;
    row = writeGap(row, end, (<u64>edgeAt(cell)) << 9);
    writeRow(row, planStitch().arena, block);
    row += SnapshotRow.BYTES;
    end = (<u64>edgeAt(block.endCell)) << 9;
  }
  give(blocks, cells);
  return writeGap(row, end, planBytes);
}

function writeGap(row: usize, from: u64, to: u64): usize {
  if (from >= to) return row;
  gap.address = plannedAddress() + from;
  gap.size = to - from;
  gap.state = State.Free;
  writeRow(row, planStitch().arena, gap);
  return row + SnapshotRow.BYTES;
}

/** A range for the rows of free memory. */
const gap = changetype<Range>(memory.data(64));
