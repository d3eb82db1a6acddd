// The pyramid gives the same least and most as looking at every value.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { MinMax } from '../../src/view/min-max.ts';

describe('MinMax', () => {
  it('agrees with a plain scan on any range', () => {
    const values = fc.array(fc.integer({ min: -1000, max: 1000 }), { minLength: 1, maxLength: 2000 });
    fc.assert(
      fc.property(values, fc.nat(), fc.nat(), (list, a, b) => {
        const from = Math.min(a % list.length, b % list.length);
        const to = Math.max(a % list.length, b % list.length) + 1;
        const found = { min: 0, max: 0 };
        new MinMax(Float64Array.from(list)).range(from, to, found);
        expect(found).toEqual({ min: Math.min(...list.slice(from, to)), max: Math.max(...list.slice(from, to)) });
        expect(new MinMax(Float64Array.from(list)).highestAt(from, to)).toBe(list.indexOf(found.max, from));
      }),
    );
  });
});
