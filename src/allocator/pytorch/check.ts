// Checks the invariants of the PyTorch heap: neighbours agree, every free block is in its set once, sums are right.
import { InvariantError } from '../../base/errors.ts';
import { BlockState, NO_BLOCK } from '../block-table.ts';
import type { Heap } from './heap.ts';

export function checkHeap(heap: Heap, allocatedBytes: number, streams: readonly number[]): void {
  const { table } = heap;
  let reserved = 0;
  let allocated = 0;
  let free = 0;
  for (let block = 0; block < table.rows; block++) {
    const state = table.state[block]!;
    if (state === BlockState.None) continue;
    const size = table.size[block]!;
    if (!(size > 0)) fail(`block ${block} has size ${size}`);
    if (state !== BlockState.Unmapped) reserved += size;
    if (state === BlockState.Live) {
      allocated += size;
      if (table.requested[block]! > size) fail(`block ${block} of ${size} bytes is too small for its request of ${table.requested[block]}`);
    }
    if (state === BlockState.Free) free++;
    const next = table.next[block]!;
    if (next === NO_BLOCK) continue;
    if (table.prev[next] !== block) fail(`block ${next} is not linked back to its neighbour ${block}`);
    if (table.address[next] !== table.address[block]! + size) fail(`blocks ${block} and ${next} do not touch`);
    if (table.stream[next] !== table.stream[block] || table.group[next] !== table.group[block])
      fail(`blocks ${block} and ${next} of one segment have different owners`);
    const joins = state === BlockState.Free || state === BlockState.Unmapped;
    if (joins && table.state[next] === state) fail(`blocks ${block} and ${next} should have been joined`);
  }
  if (reserved !== heap.reservedBytes) fail(`blocks add up to ${reserved} bytes, but ${heap.reservedBytes} are reserved`);
  if (allocated !== allocatedBytes) fail(`live blocks add up to ${allocated} bytes, but ${allocatedBytes} are allocated`);
  const listed = new Set(heap.pools.all.flatMap((pool) => pool.freeInOrder(streams)));
  if (listed.size !== free || heap.pools.all.reduce((sum, pool) => sum + pool.freeCount, 0) !== free) {
    fail(`${free} blocks are free, but ${listed.size} are listed`);
  }
  for (const block of listed) if (table.state[block] !== BlockState.Free) fail(`block ${block} is listed as free but is not`);
}

function fail(message: string): never {
  throw new InvariantError(message);
}
