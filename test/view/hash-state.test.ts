// A link brings back what it was made of, and a damaged one does no harm.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { COLOUR_MODES } from '../../src/view/block-classes.ts';
import { readHash, writeHash } from '../../src/view/hash-state.ts';
import { STACK_MODES } from '../../src/view/stack-columns.ts';

describe("the page's address", () => {
  it('holds the whole state', () => {
    const number = fc.integer({ min: 0, max: 1e9 });
    const state = fc.record(
      {
        axis: fc.constantFrom('event', 'time'),
        colour: fc.constantFrom(...COLOUR_MODES),
        stack: fc.constantFrom(...STACK_MODES),
        cursor: number,
        gpu: number,
        capacity: number,
        block: number,
        node: fc.integer({ min: -3, max: 1e6 }),
        since: number,
        run: fc.constantFrom('pytorch[max_split_size_mb:128]', 'weir'),
        with: fc.constantFrom('file:a b&c#.pickle', 'expandable'),
        search: fc.string({ minLength: 1, unit: 'grapheme' }),
      },
      { requiredKeys: [] },
    );
    fc.assert(
      fc.property(state, (value) => {
        expect(readHash(writeHash(value as never))).toEqual(value);
      }),
    );
  });

  it('keeps a view only if it is one', () => {
    expect(readHash('#from=2&to=5')).toEqual({ from: 2, to: 5 });
    expect(readHash('#from=5&to=2')).toEqual({});
    expect(readHash('#from=x&to=2')).toEqual({});
  });

  it('reads anything without complaint', () => {
    fc.assert(fc.property(fc.string(), (text) => void readHash(text)));
    expect(readHash('#axis=sideways&colour=beige&stack=books&cursor=many')).toEqual({});
    expect(readHash('#block=1.5&node=0.1&gpu=1e999&capacity=2.5')).toEqual({});
  });
});
