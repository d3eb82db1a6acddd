// Distances between equal windows, against plain counting; and which interruptions a period survives.
import { describe, expect, it } from 'vitest';
import type { MemoryOps } from '../../src/plan/steps/memory-ops.ts';
import { findPeriod, type Period, WindowDistances } from '../../src/plan/steps/period.ts';

const WINDOWS = [4, 16, 64];

/** Numbers below `most`, the same in every run. */
function numbers(seed: number): (most: number) => number {
  let state = seed + 1;
  return (most) => {
    state = (Math.imul(state, 1103515245) + 12345) >>> 0;
    return Math.floor((state / 2 ** 32) * most);
  };
}

/** Counts by comparing the windows themselves. */
function plainDistances(symbols: Int32Array, window: number): number[] {
  const latest = new Map<string, number>();
  const votes = new Map<number, number>();
  for (let end = window; end <= symbols.length; end++) {
    const name = symbols.subarray(end - window, end).join();
    const before = latest.get(name);
    if (before !== undefined) votes.set(end - before, (votes.get(end - before) ?? 0) + 1);
    latest.set(name, end);
  }
  const worth = ([distance, count]: readonly [number, number]) => count * Math.min(distance, 4 * window);
  return [...votes]
    .sort((a, b) => worth(b) - worth(a) || a[0] - b[0])
    .slice(0, 6)
    .map(([distance]) => distance);
}

describe('the commonest distances', () => {
  it.each(Array.from({ length: 40 }, (_, seed) => seed))('are those of plain counting, run %i', (seed) => {
    const below = numbers(seed);
    const step = Array.from({ length: 20 + below(300) }, () => below(2 + (seed % 9)));
    // Every seventh run has no step. In the others, single operations are unlike all others.
    const noise = seed % 7 === 0 ? 1000 : below(40);
    const symbols = Int32Array.from({ length: 6000 }, (_, op) => (below(1000) < noise ? 10 + below(op + 1) : step[op % step.length]!));
    const distances = new WindowDistances(symbols);
    for (const window of WINDOWS)
      expect({ window, best: distances.commonest(window) }).toEqual({ window, best: plainDistances(symbols, window) });
  });
});

function opsOf(sizes: readonly number[]): MemoryOps {
  const count = sizes.length;
  const isAlloc = Uint8Array.from(sizes, (_, op) => (op % 2 === 0 ? 1 : 0));
  return {
    count,
    isAlloc,
    size: Float64Array.from(sizes, (size) => size * 512),
    stream: new Int32Array(count),
    partner: Int32Array.from(sizes, (_, op) => (op % 2 === 0 ? op + 1 : op - 1)),
    liveBefore: 0,
    peak: 100 * 512,
    marks: [],
  };
}

describe('a period', () => {
  const LENGTH = 40;
  const sizeAt = (op: number) => 1 + (((op % LENGTH) >> 1) % 20);

  it('goes on over any number of single differences that are far apart', () => {
    const ops = opsOf(Array.from({ length: 2000 }, (_, op) => (op % 90 < 2 && op > 100 ? 50 : sizeAt(op))));
    expect(findPeriod(ops)).toMatchObject({ length: LENGTH, stretches: [{ from: 0, to: 2000 - LENGTH }] });
  });

  it('ends where nine of 32 operations differ', () => {
    const ops = opsOf(Array.from({ length: 2000 }, (_, op) => (op >= 1000 && op < 1010 ? 50 : sizeAt(op))));
    const { stretches } = findPeriod(ops) as Period;
    expect(stretches.map(({ from, to }) => [from, to])).toEqual([
      [0, 960 - 1],
      [1010, 2000 - LENGTH],
    ]);
  });
});
