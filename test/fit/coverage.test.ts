// Intervals against many runs of a program in which a library chooses among algorithms.
import { expect, test } from 'vitest';
import { PhaseMark } from '../../src/abi/events.ts';
import { chooseAllocators } from '../../src/allocator/registry.ts';
import { MIB } from '../../src/base/bytes.ts';
import { learnFit } from '../../src/fit/model.ts';
import { predictPeak, replaysOf } from '../../src/fit/prediction.ts';
import { randomFrom } from '../../src/plan/offsets/random.ts';
import { UNLIMITED_GPU, whatIf } from '../../src/replay/what-if.ts';
import { RunRecorder } from './program.ts';

const LAYERS = 12;
/** What an algorithm needs, as a multiple of another one. */
const ALGORITHMS: readonly number[] = [0.1, 0.5, 0.9, 1, 1, 1.5];

/** Each layer saves something, and its operation has a workspace whose size depends on the algorithm of the run. */
function run(value: number, seed: number, unit: number) {
  const random = randomFrom(seed);
  const chosen = Array.from({ length: 2 * LAYERS }, () => ALGORITHMS[Math.floor(random() * ALGORITHMS.length)]!);
  const recorder = new RunRecorder(true);
  for (let layer = 0; layer < LAYERS; layer++) recorder.alloc((1 + (layer % 5)) * 3 * MIB, ['weight', layer]);
  for (let step = 0; step < 4; step++) {
    const saved: number[] = [];
    const work = (layer: number, call: number) => {
      const size = Math.ceil(((layer % 4) + 1) * unit * MIB * value * chosen[call]!);
      recorder.free(recorder.alloc(size, ['convolution', 1, `layer${layer}.py`]));
    };
    for (let layer = 0; layer < LAYERS; layer++) {
      work(layer, layer);
      saved.push(recorder.alloc((7 - (layer % 3) * 2) * 333_333 * value, ['saved', layer]));
    }
    for (let layer = LAYERS - 1; layer >= 0; layer--) {
      const gradient = recorder.alloc(saved.length * 111_111 * value, ['backward', layer]);
      work(layer, LAYERS + layer);
      recorder.free(saved.pop()!);
      recorder.free(gradient);
    }
    recorder.mark(PhaseMark.step);
  }
  return recorder.finish();
}

// Fragmentation varies by more than live memory does: the smallest blocks are not those that need least.
test.each([
  ['weir', 0.1],
  ['expandable', 0.25],
  ['pytorch', 0.25],
])('the interval on %s contains the peaks of runs with any algorithms (workspaces of %f MiB)', (name, unit) => {
  const [choice] = chooseAllocators(name);
  const outside: string[] = [];
  for (let set = 0; set < 5; set++) {
    const tried = [4, 6, 8].map((value, index) => ({ trace: run(value, 100 * set + index, unit), values: [value] }));
    const runs = replaysOf(learnFit(tried), 0);
    for (const value of [16, 32]) {
      const { lower, upper } = predictPeak(runs, choice!, [value]);
      for (let truth = 0; truth < 10; truth++) {
        const { peakReserved } = whatIf(run(value, 5000 + truth, unit), choice!, UNLIMITED_GPU);
        if (peakReserved < lower || peakReserved > upper) outside.push(`${value}: ${peakReserved}, not ${lower} to ${upper}`);
      }
    }
  }
  expect(outside).toEqual([]);
});
