// The search for the largest value: exact where fitting is monotone, and few replays.
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { largestValue, MOST_VALUE } from '../../src/fit/search.ts';

function search(start: number, multiple: number, mayFit: number, fits: number) {
  const tried: number[] = [];
  const found = largestValue(start, multiple, {
    mayFit: (value) => value <= mayFit,
    fits: (value) => {
      tried.push(value);
      return value <= fits;
    },
  });
  return { found, tried };
}

test('finds the largest multiple from every start', () => {
  const values = fc.integer({ min: 0, max: 5000 });
  fc.assert(
    fc.property(values, values, fc.integer({ min: 1, max: 300 }), fc.integer({ min: 1, max: 9 }), (fits, more, start, multiple) => {
      const { found } = search(start, multiple, fits + more, fits);
      expect(found).toEqual({ value: Math.floor(fits / multiple) * multiple, isBounded: true });
    }),
  );
});

test('replays only near the answer', () => {
  const { found, tried } = search(8, 1, 1000, 970);
  expect(found.value).toBe(970);
  expect(tried.length).toBeLessThan(15);
  expect(Math.min(...tried)).toBeGreaterThan(900);
});

test('ends where nothing grows', () => {
  const endless = search(8, 1, Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY);
  expect([endless.found, endless.tried]).toEqual([{ value: MOST_VALUE, isBounded: false }, [MOST_VALUE]]);
  expect(search(8, 1, Number.POSITIVE_INFINITY, 77).found).toEqual({ value: 77, isBounded: true });
});
