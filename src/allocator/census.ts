// Counts an allocator's memory by stream, pool and size class, from its block table.
import type { CensusGroup } from './allocator.ts';
import { BlockState, type BlockTable } from './block-table.ts';

export function takeCensus(
  table: BlockTable,
  groupOf: (group: number) => { readonly pool: number; readonly small: boolean },
): CensusGroup[] {
  const groups = new Map<string, { -readonly [Field in keyof CensusGroup]: CensusGroup[Field] }>();
  for (let block = 0; block < table.rows; block++) {
    const state = table.state[block]!;
    if (state === BlockState.None || state === BlockState.Unmapped || state === BlockState.HandedOver) continue;
    const { pool, small } = groupOf(table.group[block]!);
    const stream = table.stream[block]!;
    const key = `${stream}/${pool}/${small}`;
    let group = groups.get(key);
    if (!group) {
      group = { stream, pool, small, reserved: 0, requested: 0, rounding: 0, pending: 0, free: 0, freePieces: 0, largestFree: 0 };
      groups.set(key, group);
    }
    const size = table.size[block]!;
    group.reserved += size;
    if (state === BlockState.Live) {
      group.requested += table.requested[block]!;
      group.rounding += size - table.requested[block]!;
    } else if (state === BlockState.Pending) {
      group.pending += size;
    } else {
      group.free += size;
      group.freePieces++;
      group.largestFree = Math.max(group.largestFree, size);
    }
  }
  return [...groups.values()].sort((a, b) => b.reserved - a.reserved);
}
