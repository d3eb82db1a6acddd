// Readers with planted defects. The test of the fuzzer expects it to find each of them.
import { InputError } from '../../src/base/errors.ts';
import { randomOf } from './random.ts';
import type { Target } from './targets.ts';

/** The first byte of inputs that show the defect, which is one in a hundred. */
const SHOWS = 7;
const FIRST = 60;
const kept: Uint8Array[] = [];

function planted(name: string, misbehave: () => void): Target {
  return {
    name: `planted-${name}`,
    reads: 'a planted defect',
    weight: 1,
    input: (seed, number) => {
      const random = randomOf(name, seed, number);
      return Uint8Array.of(number % 100 === FIRST ? SHOWS : 0, random.below(100));
    },
    read: ([first, second]) => {
      if (first === SHOWS) misbehave();
      if (second! % 2 === 0) throw new InputError(`the number ${second} is even`);
    },
    isRefusal: (error) => error instanceof InputError,
  };
}

export const PLANTED: readonly Target[] = [
  planted('throw', () => {
    (undefined as unknown as { length: number }).length.toFixed();
  }),
  planted('loop', () => {
    for (let count = 0; ; count++) if (count < 0) break;
  }),
  planted('grow', () => {
    // 256 MiB at once, and given back before anyone looks at what is in use.
    for (let left = 16; left > 0; left--) kept.push(new Uint8Array(2 ** 24).fill(1));
    kept.length = 0;
  }),
  planted('heap', () => {
    const numbers: number[][] = [];
    for (;;) numbers.push(new Array<number>(2 ** 20).fill(0.5));
  }),
  planted('die', () => process.kill(process.pid, 'SIGKILL')),
];
