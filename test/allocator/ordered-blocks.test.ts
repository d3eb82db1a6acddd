// The ordered set against a sorted array, through random insertions, removals and searches.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { BlockState, BlockTable } from '../../src/allocator/block-table.ts';
import { OrderedBlocks } from '../../src/allocator/ordered-blocks.ts';

describe.each(['size', 'address'] as const)('ordered by %s', (order) => {
  it('keeps order and finds what a sorted array finds', () => {
    const step = fc.record({ insert: fc.boolean(), size: fc.integer({ min: 1, max: 40 }), pick: fc.nat() });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 2000 }), (steps) => {
        const table = new BlockTable();
        const set = new OrderedBlocks(table, order);
        const model: number[] = [];
        const key = (block: number) => (order === 'size' ? table.size[block]! * 1e6 : 0) + table.address[block]!;
        let address = 0;
        for (const { insert, size, pick } of steps) {
          if (insert || model.length === 0) {
            // Distinct addresses in an order of their own, as freed blocks come.
            const block = table.add((++address * 7919) % 1e6, size, BlockState.Free, 0, 0, 0);
            set.insert(block);
            model.push(block);
            model.sort((a, b) => key(a) - key(b));
          } else {
            const [block] = model.splice(pick % model.length, 1);
            set.remove(block!);
          }
          const expected = model.find((block) => (order === 'size' ? table.size[block]! >= size : true)) ?? -1;
          expect(set.seek(order === 'size' ? size : 0, 0)).toBe(expected);
        }
        expect(set.toArray()).toEqual(model);
        expect(set.size).toBe(model.length);
        expect(set.last()).toBe(model.at(-1) ?? -1);
        // Forward and back from a search walk the same order.
        const walked: number[] = [];
        for (let block = set.seek(0, 0); block !== -1; block = set.forward()) walked.push(block);
        expect(walked).toEqual(model);
        const backwards: number[] = [];
        set.seek(Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER);
        for (let block = set.back(); block !== -1; block = set.back()) backwards.push(block);
        expect(backwards.reverse()).toEqual(model);
      }),
      { numRuns: 20 },
    );
  });
});
