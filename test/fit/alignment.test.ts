// Alignment of sequences: what was inserted or removed stays alone, everything else finds its partner.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { alignTokens } from '../../src/fit/diff.ts';
import { bestPairs } from '../../src/fit/scored-pairs.ts';

/** Length of the longest common subsequence, by the textbook table. */
function commonLength(a: Int32Array, b: Int32Array): number {
  const table = Array.from({ length: a.length + 1 }, () => new Int32Array(b.length + 1));
  for (let i = 1; i <= a.length; i++)
    for (let j = 1; j <= b.length; j++)
      table[i]![j] = a[i - 1] === b[j - 1] ? table[i - 1]![j - 1]! + 1 : Math.max(table[i - 1]![j]!, table[i]![j - 1]!);
  return table[a.length]![b.length]!;
}

const tokens = fc.array(fc.integer({ min: 0, max: 3 }), { maxLength: 40 }).map((list) => Int32Array.from(list));

describe('equal tokens', () => {
  test('pairs are equal and ascend in both', () => {
    fc.assert(
      fc.property(tokens, tokens, (a, b) => {
        let [i, j] = [-1, -1];
        for (const [x, y] of alignTokens(a, b)) {
          expect(a[x]).toBe(b[y]);
          expect(x).toBeGreaterThan(i);
          expect(y).toBeGreaterThan(j);
          [i, j] = [x, y];
        }
      }),
    );
  });

  test('no pair is lost in short sequences', () => {
    fc.assert(
      fc.property(tokens, tokens, (a, b) => {
        expect(alignTokens(a, b).length).toBe(commonLength(a, b));
      }),
    );
  });

  test('unique tokens are anchors in long sequences', () => {
    const a = Int32Array.from({ length: 5000 }, (_, index) => (index % 50 === 0 ? 1000 + index : index % 3));
    const b = a.filter((_, index) => index % 17 !== 1);
    expect(alignTokens(a, b).length).toBe(b.length);
  });

  test('an insertion shifts the rest', () => {
    const a = Int32Array.from({ length: 1000 }, (_, index) => index % 7);
    const b = Int32Array.from([...a.slice(0, 500), 99, 98, 99, ...a.slice(500)]);
    expect(alignTokens(a, b).every(([x, y]) => y === (x < 500 ? x : x + 3))).toBe(true);
  });
});

test('alike elements: the pairs with the highest score', () => {
  const sizes = { a: [10, 20, 30, 40], b: [20, 7, 40, 60, 80] };
  const related = (i: number, j: number) => (sizes.b[j] === 2 * sizes.a[i]! ? 4 : -4);
  const all = (count: number) => Int32Array.from({ length: count }, (_, index) => index);
  expect(bestPairs(all(4), all(5), related)).toEqual([
    [0, 0],
    [1, 2],
    [2, 3],
    [3, 4],
  ]);
});
