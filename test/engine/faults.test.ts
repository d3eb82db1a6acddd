// Every driver call can fail at any time. For every k, the k-th call of a program fails. After each step the invariants hold
// and no byte is in two blocks. The program goes on, and at the end the backend holds nothing.
import { describe, expect, test } from 'vitest';
import { MIB } from '../../src/base/bytes.ts';
import { numbersFrom, PRESETS, randomProgram, runProgram } from './drive.ts';
import { StrictBackend } from './strict-backend.ts';

const PROGRAM = randomProgram(11, { steps: 170, streams: 2, level: 260 * MIB, largest: 64 * MIB });
const STITCHING = randomProgram(4, { steps: 150, streams: 1, pools: 1, level: 260 * MIB, largest: 48 * MIB, stitching: true });
const CASES = ['weir', 'weir, few stitches, handles of 4 MiB', 'weir, tight', 'gmlake'] as const;

describe.each(CASES)('%s', (preset) => {
  const settings = PRESETS[preset]!;

  test('each call fails once', () => {
    const clean = new StrictBackend();
    runProgram(PROGRAM, clean, settings);
    expect(clean.callsMade).toBeGreaterThan(200);
    let served = 0;
    for (let failing = 0; failing < clean.callsMade; failing++) {
      const backend = new StrictBackend(Number.POSITIVE_INFINITY, (call) => call === failing);
      const { failures } = runProgram(PROGRAM, backend, settings, { checked: preset !== 'gmlake' || failing % 4 === 0 });
      expect(backend.holdsNothing, `call ${failing}: ${backend.calls[failing]}; left: ${backend.describe()}`).toBe(true);
      if (failures === 0) served++;
    }
    // One failed driver call hardly ever fails a request, since there is another way.
    expect(served / clean.callsMade).toBeGreaterThan(0.98);
  });

  test('each call fails together with the one after it', () => {
    const clean = new StrictBackend();
    runProgram(STITCHING, clean, settings);
    const step = Math.ceil(clean.callsMade / 400);
    for (let failing = 0; failing < clean.callsMade; failing += step) {
      const backend = new StrictBackend(Number.POSITIVE_INFINITY, (call) => call === failing || call === failing + 1);
      runProgram(STITCHING, backend, settings);
      expect(backend.holdsNothing, `calls ${failing} and next: ${backend.calls[failing]}; left: ${backend.describe()}`).toBe(true);
    }
  });

  test('each kind of call fails from some moment on, for a while', () => {
    const next = numbersFrom(5);
    for (const kind of ['create', 'release', 'reserve', 'unreserve', 'map', 'setAccess', 'unmap'] as const) {
      for (let round = 0; round < 12; round++) {
        const from = Math.floor(next() * 300);
        const to = from + 1 + Math.floor(next() * 60);
        const backend = new StrictBackend(Number.POSITIVE_INFINITY, (call, called) => called === kind && call >= from && call < to);
        runProgram(PROGRAM, backend, settings);
        expect(backend.holdsNothing, `${kind} from call ${from} to ${to}; left: ${backend.describe()}`).toBe(true);
      }
    }
  });

  test('calls fail at random, on little memory', () => {
    for (let seed = 1; seed <= 25; seed++) {
      const next = numbersFrom(seed);
      let quiet = false;
      const backend = new StrictBackend(180 * MIB, () => !quiet && next() < 0.15);
      const program = randomProgram(seed, { steps: 220, level: 220 * MIB, largest: 64 * MIB });
      const { allocator } = runProgram(program, backend, settings);
      quiet = true;
      allocator.emptyCache();
      allocator.emptyCache();
      allocator.check(3);
      expect(backend.holdsNothing, `seed ${seed}; left: ${backend.describe()}`).toBe(true);
    }
  });
});
