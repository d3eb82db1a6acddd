// Programs that cut their work into chunks and keep them: a larger value makes more of them than any run had.
import { expect, test } from 'vitest';
import { PhaseMark } from '../../src/abi/events.ts';
import { MIB } from '../../src/base/bytes.ts';
import { learnFit } from '../../src/fit/model.ts';
import { replaysOf } from '../../src/fit/prediction.ts';
import { summarizeTrace } from '../../src/trace/summary.ts';
import { RunRecorder } from './program.ts';

interface Loop {
  /** Blocks at a value, and the size of each. */
  count(value: number): number;
  size(value: number): number;
}

function run({ count, size }: Loop, value: number, isKept = true) {
  const into = new RunRecorder(true);
  into.alloc(40 * MIB, ['weight', 0]);
  for (let step = 0; step < 4; step++) {
    const saved = into.alloc(3 * MIB * value, ['forward', 1]);
    const chunks: number[] = [];
    for (let chunk = 0; chunk < count(value); chunk++) {
      chunks.push(into.alloc(size(value), ['chunk', 2]));
      if (!isKept) into.free(chunks.pop()!);
    }
    for (const chunk of chunks) into.free(chunk);
    into.free(saved);
    into.mark(PhaseMark.step);
  }
  return into.finish();
}

const learn = (loop: Loop, values: readonly number[], isKept = true) =>
  replaysOf(learnFit(values.map((value) => ({ trace: run(loop, value, isKept), values: [value] }))));

test.each<[string, Loop]>([
  ['of a fixed size', { count: (value) => value / 2, size: () => 5 * MIB }],
  ['that begin to be several', { count: (value) => Math.ceil(value / 4), size: () => 5 * MIB + 100 }],
  ['that grow, too', { count: (value) => value / 2, size: (value) => 300_000 * value }],
])('live memory of chunks %s is inside the interval', (_, loop) => {
  for (const values of [
    [2, 4, 8],
    [4, 8],
    [4, 8, 12],
  ]) {
    const { replays } = learn(loop, values);
    for (const value of [16, 32, 64]) {
      const real = summarizeTrace(run(loop, value)).peakLive;
      expect(replays.peakLive([value], 'lower')).toBeLessThanOrEqual(real);
      expect(replays.peakLive([value], 'upper')).toBeGreaterThanOrEqual(real);
    }
  }
});

test('chunks that are freed before the next one add nothing', () => {
  const loop: Loop = { count: (value) => value / 2, size: () => 5 * MIB };
  const { replays } = learn(loop, [4, 8, 12], false);
  expect(replays.peakLive([64], 'upper')).toBeLessThan(summarizeTrace(run(loop, 64, false)).peakLive + 30 * MIB);
});
