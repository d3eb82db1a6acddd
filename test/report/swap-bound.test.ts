// Words about the least peak that swapping can reach.
import { describe, expect, test } from 'vitest';
import { boundReason, distanceReason } from '../../src/report/words/swap-bound.ts';

const GIB = 2 ** 30;

describe('the reason for a bound', () => {
  test('names what limits it: idle memory, or the link in one direction', () => {
    const idle = boundReason({ live: 8 * GIB, idle: 2 * GIB, out: 2 * GIB, back: 2 * GIB });
    expect(idle).toBe('of 8.00 GiB live then, 2.00 GiB are idle for long enough');
    expect(boundReason({ live: 8 * GIB, idle: 4 * GIB, out: GIB, back: 3 * GIB })).toBe(
      'of 8.00 GiB live then, 4.00 GiB are idle for long enough, and the link can have copied 1.00 GiB of it out by then',
    );
    expect(boundReason({ live: 8 * GIB, idle: 4 * GIB, out: 3 * GIB, back: GIB })).toContain('can copy 1.00 GiB of it back in time');
  });
});

describe('a peak above the least', () => {
  test('is explained from 5 percent on', () => {
    expect(distanceReason({ bound: 10 * GIB, expected: 10 * GIB, measured: 10.5 * GIB })).toBeUndefined();
    expect(distanceReason({ bound: 10 * GIB, expected: 11 * GIB, measured: 12 * GIB })).toBe(
      '20.0 % above it: the swap plan comes to 11.00 GiB: copies wait for each other, and memory is given up only between layers; the steps took 1.00 GiB more than the plan expected',
    );
    expect(distanceReason({ bound: 10 * GIB, expected: 11 * GIB, measured: 11 * GIB, share: 0.5 })).toBe(
      '10.0 % above it: the swap plan aims at 50 % of the saving, because a fuller one cost too much time',
    );
  });
});
