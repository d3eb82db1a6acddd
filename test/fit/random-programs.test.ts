// Random programs against their own run at a larger value: what is live at its peak lies inside the interval.
import { expect, test } from 'vitest';
import { PhaseMark } from '../../src/abi/events.ts';
import { chooseAllocators } from '../../src/allocator/registry.ts';
import { roundUp } from '../../src/base/bytes.ts';
import { learnFit } from '../../src/fit/model.ts';
import { predictPeak, replaysOf } from '../../src/fit/prediction.ts';
import { randomFrom } from '../../src/plan/offsets/random.ts';
import { UNLIMITED_GPU, whatIf } from '../../src/replay/what-if.ts';
import { summarizeTrace } from '../../src/trace/summary.ts';
import { RunRecorder } from './program.ts';

type Size = (value: number) => number;

/** Functions with a unit. Some are no function that is searched for, so that the answer has to be an interval. */
const KINDS: Readonly<Record<string, (unit: number) => Size>> = {
  constant: (unit) => () => 8 * unit,
  linear: (unit) => (value) => unit * value,
  affine: (unit) => (value) => 3 * unit + 7 + unit * value,
  quadratic: (unit) => (value) => Math.ceil(unit / 8) * value * value,
  'broken square': (unit) => (value) => Math.ceil((unit / 7) * value * (value + 1.5)),
  triangular: (unit) => (value) => (Math.ceil(unit / 8) * value * (value + 1)) / 2,
  cubic: (unit) => (value) => Math.ceil(unit / 64) * value ** 3,
  power: (unit) => (value) => Math.ceil(unit * value ** 1.5),
  root: (unit) => (value) => Math.ceil(unit * Math.sqrt(value)),
  padded: (unit) => (value) => unit * roundUp(value, 4),
};

interface Block {
  readonly size: Size;
  readonly isSaved: boolean;
}

function programOf(kind: string, seed: number): { blocks: readonly Block[]; hasStacks: boolean } {
  const random = randomFrom(seed);
  const unit = () => Math.ceil(2 ** (8 + random() * 12));
  const blocks = Array.from({ length: 3 + Math.floor(random() * 5) }, (_, index) => {
    const name = index === 0 || random() < 0.3 ? kind : 'linear';
    return { size: KINDS[name]!(unit()), isSaved: random() < 0.6 };
  });
  return { blocks, hasStacks: random() < 0.5 };
}

function run({ blocks, hasStacks }: ReturnType<typeof programOf>, value: number, steps: number) {
  const into = new RunRecorder(hasStacks);
  into.alloc(500_000, ['weight', 0]);
  for (let step = 0; step < steps; step++) {
    const saved: number[] = [];
    blocks.forEach(({ size, isSaved }, index) => {
      const block = into.alloc(size(value), ['forward', index]);
      const other = into.alloc(1000 * value, ['output', index]);
      if (isSaved) saved.push(block);
      else into.free(block);
      into.free(other);
    });
    for (const block of saved.reverse()) into.free(block);
    into.mark(PhaseMark.step);
  }
  return into.finish();
}

test.each(Object.keys(KINDS))('the interval of programs with %s sizes contains their peak', (kind) => {
  const choices = chooseAllocators('pytorch,weir');
  const outside: string[] = [];
  for (const values of [
    [2, 4, 8],
    [4, 6, 8],
    [4, 8],
    [3, 5],
  ]) {
    for (let seed = 1; seed <= 12; seed++) {
      const program = programOf(kind, seed);
      const runs = replaysOf(learnFit(values.map((value) => ({ trace: run(program, value, 3), values: [value] }))));
      for (const value of [16, 40]) {
        const real = run(program, value, 6);
        const { peakLive } = summarizeTrace(real);
        for (const choice of choices) {
          const { lower, upper, liveLower, liveUpper } = predictPeak(runs, choice, [value]);
          const words = `${values} seed ${seed} at ${value}`;
          if (peakLive < liveLower || peakLive > liveUpper) outside.push(`${words}: ${peakLive} live, not ${liveLower} to ${liveUpper}`);
          // One figure instead of an interval must be right.
          const { peakReserved } = whatIf(real, choice, UNLIMITED_GPU);
          if (lower === upper && liveLower === liveUpper && peakReserved !== upper) outside.push(`${words}: ${peakReserved}, not ${upper}`);
        }
      }
    }
  }
  expect(outside).toEqual([]);
});
