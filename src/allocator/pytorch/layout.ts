// The heap as a snapshot would show it now: segments (or mapped extents) with their blocks, in address order.
import type { Block, Segment, BlockState as SnapshotState } from '../../trace/trace.ts';
import { BlockState, NO_BLOCK } from '../block-table.ts';
import type { Heap } from './heap.ts';

export function layoutOf(heap: Heap): Segment[] {
  const { table } = heap;
  const isMapped = (block: number) => block !== NO_BLOCK && table.state[block] !== BlockState.Unmapped;
  const segments: Segment[] = [];
  for (let row = 0; row < table.rows; row++) {
    const isFirst = table.state[row] !== BlockState.None && isMapped(row) && !isMapped(table.prev[row]!);
    if (!isFirst) continue;
    const blocks: Block[] = [];
    for (let block = row; isMapped(block); block = table.next[block]!) {
      blocks.push({
        address: table.address[block]!,
        size: table.size[block]!,
        requested: table.state[block] === BlockState.Free ? 0 : table.requested[block]!,
        state: snapshotState(table.state[block]!),
        stack: -1,
      });
    }
    const pool = heap.poolOf(row);
    segments.push({
      address: table.address[row]!,
      size: blocks.reduce((sum, block) => sum + block.size, 0),
      stream: table.stream[row]!,
      pool: pool.pool,
      small: pool.small,
      expandable: heap.isExpandable(row),
      stack: -1,
      blocks,
    });
  }
  return segments.sort((a, b) => a.address - b.address);
}

function snapshotState(state: number): SnapshotState {
  if (state === BlockState.Live) return 'live';
  return state === BlockState.Pending ? 'pending' : 'free';
}
