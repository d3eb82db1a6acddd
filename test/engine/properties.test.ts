// For every program, after every step: the invariants hold, no byte is in two live blocks, and a block keeps its memory until
// it ends. After everything is freed, the backend holds nothing.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { GIB, MIB } from '../../src/base/bytes.ts';
import { PRESETS, randomProgram, runProgram } from './drive.ts';
import { StrictBackend } from './strict-backend.ts';

describe.each(Object.entries(PRESETS))('%s', (_, settings) => {
  test('random programs on ample memory', () => {
    fc.assert(
      fc.property(fc.integer(), fc.integer({ min: 1, max: 3 }), (seed, streams) => {
        const backend = new StrictBackend();
        const { failures } = runProgram(randomProgram(seed, { steps: 300, streams }), backend, settings);
        expect(failures).toBe(0);
        expect(backend.describe()).toBe('0 handles, 0 reservations, 0 mapped units');
      }),
      { numRuns: 12 },
    );
  });

  test('random programs that run out of memory', () => {
    let failures = 0;
    let served = 0;
    fc.assert(
      fc.property(fc.integer(), fc.integer({ min: 20, max: 300 }), (seed, capacityUnits) => {
        const backend = new StrictBackend(capacityUnits * 2 * MIB);
        const outcome = runProgram(randomProgram(seed, { steps: 300 }), backend, settings);
        failures += outcome.failures;
        served += outcome.addresses.length - outcome.failures;
        expect(backend.holdsNothing).toBe(true);
      }),
      { numRuns: 12 },
    );
    expect(failures).toBeGreaterThan(0);
    expect(served).toBeGreaterThan(0);
  });

  test('programs that stitch much', () => {
    const ways = { reuses: 0, stitches: 0, extensions: 0 };
    fc.assert(
      fc.property(fc.integer(), fc.integer({ min: 32, max: 96 }), (seed, largestMib) => {
        const backend = new StrictBackend();
        const program = randomProgram(seed, { steps: 700, streams: 1, pools: 1, largest: largestMib * MIB, stitching: true });
        const { statistics } = runProgram(program, backend, settings).allocator;
        ways.reuses += statistics.reuses;
        ways.stitches += statistics.stitches;
        ways.extensions += statistics.extensions;
        expect(backend.holdsNothing).toBe(true);
      }),
      { numRuns: 12 },
    );
    expect(ways.stitches).toBeGreaterThan(10);
    expect(ways.reuses).toBeGreaterThan(0);
    if (settings.stitchRoom > 1) expect(ways.extensions).toBeGreaterThan(0);
  });

  test('sizes from one byte to gigabytes', () => {
    const backend = new StrictBackend(40 * GIB);
    runProgram(randomProgram(7, { steps: 300, level: 30 * GIB, largest: 6 * GIB, streams: 1 }), backend, settings);
    expect(backend.holdsNothing).toBe(true);
  });
});
