// The runtime inside a process that plays PyTorch's part over the host driver: threads, streams, shortages, faults, captures.
// The same program runs plainly and under sanitizers; deliberate mistakes show that its checks can fail.
import { beforeAll, describe, expect, test } from 'vitest';
import { buildStandin, runStandin, type Sanitizer, whyNoNative } from './build.ts';

const reason = whyNoNative();
describe.skipIf(reason !== undefined)(`a process with the runtime in it${reason ? ` (skipped: ${reason})` : ''}`, () => {
  let standin = '';
  beforeAll(() => {
    standin = buildStandin('none');
  });

  test('keeps what its header promises', () => {
    expect(runStandin(standin, { conform: 1 })).toEqual({});
  });

  test('threads and streams share a GPU and read what they wrote', () => {
    for (const seed of [1, 2, 3, 4]) {
      const result = runStandin(standin, { seed });
      expect(result.corrupted).toBe(0);
      expect(result.allocations).toBeGreaterThan(1000);
      // The program was one that needs all of this.
      for (const count of ['waits', 'borrows', 'stitches', 'recorded', 'unmaps'] as const) expect(result[count]).toBeGreaterThan(0);
    }
  });

  test.each([
    ['one thread', { threads: 1 }],
    ['eight threads', { threads: 8, rounds: 1500 }],
    ['the rules of GMLake', { gmlake: 1 }],
    ['nothing lent between streams', { lend: 0 }],
    ['small handles', { fine: 1 }],
    ['streams that may be destroyed', { foreign: 1, total: 128 }],
  ])('%s', (_, options) => {
    expect(runStandin(standin, { seed: 7, ...options }).corrupted).toBe(0);
  });

  test('memory runs out, by the GPU or by a limit that moves, and work goes on', () => {
    for (const seed of [1, 2, 3]) {
      const small = runStandin(standin, { seed, total: 96, reclaim: 1 });
      expect(small.corrupted).toBe(0);
      expect(small.shortages).toBeGreaterThan(10);
      expect(small.reclaims).toBeGreaterThanOrEqual(small.shortages);
      expect(small.peakReserved).toBeLessThanOrEqual((96 + 3) * 2 ** 20);
      const limited = runStandin(standin, { seed, limit: 150 });
      expect(limited.corrupted).toBe(0);
      expect(limited.shortages).toBeGreaterThan(10);
    }
  });

  test.each([200, 2_000, 20_000, 200_000])('%d of a million driver calls fail', (rate) => {
    for (const seed of [1, 2, 3, 4, 5, 6]) {
      const result = runStandin(standin, { seed, rate, rounds: 1500, total: seed % 2 === 0 ? 128 : 512, gmlake: seed % 3 === 0 ? 1 : 0 });
      expect(result.corrupted).toBe(0);
    }
  });

  test('a mistake shows as corrupted bytes', () => {
    for (const mistake of [{ forget_streams: 1 }, { lie: 1 }, { lie: 2 }, { lie: 3 }]) {
      const corrupted = [1, 2, 3].map((seed) => runStandin(standin, { seed, ...mistake }).corrupted);
      expect(Math.max(...corrupted), JSON.stringify(mistake)).toBeGreaterThan(0);
    }
  });
});

describe.each(['address,undefined', 'thread'] as const)('sanitizer %s', (sanitizer: Sanitizer) => {
  const missing = whyNoNative(sanitizer);

  test.skipIf(missing !== undefined)(`the same${missing ? ` (skipped: ${missing})` : ''}`, () => {
    const standin = buildStandin(sanitizer);
    for (const options of [
      { seed: 1 },
      { seed: 2, rate: 20_000 },
      { seed: 3, total: 96, reclaim: 1 },
      { seed: 4, gmlake: 1, limit: 200 },
    ]) {
      expect(runStandin(standin, { rounds: 1000, ...options }).corrupted).toBe(0);
    }
  });
});
