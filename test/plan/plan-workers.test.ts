// Planning with threads gives what planning without them gives; where threads cannot be started it goes on alone.
import { describe, expect, test } from 'vitest';
import { planOffsetsInWorkers } from '../../src/cli/plan-workers.ts';
import type { Buffer } from '../../src/plan/offsets/buffers.ts';
import { randomFrom } from '../../src/plan/offsets/random.ts';
import { verifyOffsets } from '../../src/plan/offsets/verifier.ts';

/** A full rectangle cut at random: it fits exactly, and no heuristic finds how. */
function cutRectangle(seed: number, cuts: number): Buffer[] {
  const random = randomFrom(seed);
  const pieces = [{ from: 0, to: 64, size: 4096 }];
  while (pieces.length < cuts) {
    const [piece] = pieces.splice(Math.floor(random() * pieces.length), 1);
    const { from, to, size } = piece!;
    const time = from + 1 + Math.floor(random() * (to - from - 1));
    const bytes = 1 + Math.floor(random() * (size - 1));
    if (random() < 0.5 && to - from > 1) pieces.push({ from, to: time, size }, { from: time, to, size });
    else if (size > 1) pieces.push({ from, to, size: bytes }, { from, to, size: size - bytes });
    else pieces.push(piece!);
  }
  return pieces.map(({ from, to, size }, index) => ({ id: String(index), size, spans: [{ from, to }], alignment: 1 }));
}

describe('planOffsetsInWorkers', () => {
  test.each([1, 2])('with %i threads', async (threads) => {
    for (const seed of [1, 2, 3]) {
      const buffers = cutRectangle(seed, 40);
      const plan = await planOffsetsInWorkers(buffers, { threads, budgetMs: 3000 });
      expect(verifyOffsets(buffers, plan)).toEqual([]);
      expect(plan.lowerBound).toBe(4096);
      expect(plan.footprint).toBe(4096);
      expect(plan.optimal).toBe(true);
    }
  });
});
