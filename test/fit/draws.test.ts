// Epochs of random lengths: the share that fails is that of the epochs whose replay does not fit.
import { expect, test } from 'vitest';
import { chooseAllocators } from '../../src/allocator/registry.ts';
import { MIB } from '../../src/base/bytes.ts';
import { drawEpochs, predictDraws } from '../../src/fit/draws.ts';
import { learnFit } from '../../src/fit/model.ts';
import { replaysOf } from '../../src/fit/prediction.ts';
import { randomFrom } from '../../src/plan/offsets/random.ts';
import { whatIf } from '../../src/replay/what-if.ts';
import { type Program, runProgram } from './program.ts';

const program: Program = {
  layers: [{ weight: 16 * MIB, saved: (batch, length) => MIB * batch! * length!, workspace: () => 512 }],
  steps: 4,
  hasStacks: false,
  hasMarks: true,
};
const points = [
  [2, 4],
  [4, 4],
  [2, 8],
  [4, 8],
];
const learn = (of: Program = program) => learnFit(points.map((values) => ({ trace: runProgram(of, ...values), values })));
/** A few samples are long. */
const lengths = Array.from({ length: 200 }, (_, index) => (index < 2 ? 20 : 5 + (index % 3)));

test('an epoch has steps of the longest of a batch, and its longest step is last', () => {
  const epochs = drawEpochs(lengths, 4, 300, 5, 7);
  expect(epochs).toHaveLength(300);
  for (const { longest, steps } of epochs) {
    expect(steps.length).toBeLessThanOrEqual(5);
    expect(steps.at(-1)).toBe(longest);
    expect(Math.max(...steps)).toBe(longest);
    expect(lengths).toContain(longest);
  }
  expect(drawEpochs(lengths, 4, 300, 5, 7)).toEqual(epochs);
});

test('epochs are as if each sample was drawn', () => {
  const [batch, kept, epochs] = [4, 5, 4000];
  const random = randomFrom(3);
  // Every length is the longest of some epochs, and the longest comes at any step.
  const few = lengths.map((length) => (length === 20 ? 8 : length));
  for (const samples of [lengths, few, [5, 6]]) {
    const count = Math.max(1, Math.floor(samples.length / batch));
    const step = () => Math.max(...Array.from({ length: batch }, () => samples[Math.floor(random() * samples.length)]!));
    const drawn = Array.from({ length: epochs }, () => {
      const all = Array.from({ length: count }, step);
      const longest = Math.max(...all);
      return { longest, steps: all.slice(0, all.indexOf(longest) + 1).slice(-kept) };
    });
    const made = drawEpochs(samples, batch, epochs, kept, 7);
    for (const figure of [
      ({ longest }: (typeof made)[0]) => longest,
      ({ steps: last }: (typeof made)[0]) => last.length,
      ({ steps: last }: (typeof made)[0]) => last.reduce((sum, length) => sum + length, 0) / last.length,
    ]) {
      const [real, mean] = [drawn, made].map((each) => each.reduce((sum, epoch) => sum + figure(epoch), 0) / epochs);
      expect(Math.abs(mean! / real! - 1)).toBeLessThan(0.03);
    }
  }
});

test('millions of samples take no longer', () => {
  const many = Array.from({ length: 3_000_000 }, (_, index) => 1 + (index % 1000));
  const epochs = drawEpochs(many, 8, 50_000, 8, 1);
  expect(epochs.every(({ longest, steps }) => longest === 1000 && steps.length >= 1)).toBe(true);
});

test('the share that fails', () => {
  const runs = replaysOf(learn(), 6);
  // 16 MiB of weights, a gradient as large, and batch * length MiB: 20 x 10 fits, 20 x 11 does not.
  const rows = predictDraws(runs, { gpuBytes: 240 * MIB, choices: chooseAllocators('weir'), lengths, batch: 10, epochs: 400 });
  const share = (batch: number) => rows.find((row) => row.batch === batch)!.failing[0]!.share;
  expect(share(10)).toBe(0);
  const expected = drawEpochs(lengths, 11, 400, 6, 1).filter(({ longest }) => longest === 20).length / 400;
  expect(expected).toBeGreaterThan(0.5);
  expect(share(11)).toBeCloseTo(expected, 10);
});

test('an allocator that needs more than what is live fails in more epochs', () => {
  const runs = replaysOf(learn(), 6);
  const live = runs.replays.peakLive([10, 20], 'upper');
  const options = { gpuBytes: live, choices: chooseAllocators('pytorch'), lengths, batch: 10, epochs: 50 };
  const row = predictDraws(runs, options).find(({ batch }) => batch === 10);
  const withLong = drawEpochs(lengths, 10, 50, 6, 1).filter(({ longest }) => longest === 20).length / 50;
  expect(row!.failing[0]!.share).toBeCloseTo(withLong, 10);
});

test('each epoch counts, and it begins with a batch that fits in all', () => {
  const layer = (index: number) => ({
    weight: (3 + index) * MIB,
    saved: (batch?: number, length?: number) => 3001 * (index + 1) * batch! * length!,
    workspace: (batch?: number, length?: number) => 7000 * batch! * length! + (index % 2) * 40 * batch! * length! ** 2,
  });
  const runs = replaysOf(learn({ ...program, layers: [0, 1, 2, 3, 4, 5].map(layer) }), 8);
  const varied = Array.from({ length: 600 }, (_, index) => Math.round(20 + 60 * ((index * 0.61803) % 1) ** 2));
  const options = { gpuBytes: 400 * MIB, choices: chooseAllocators('pytorch'), lengths: varied, epochs: 40 };
  // With the longest sample in each step, 52 fits.
  expect(runs.replays.fits(options.choices[0]!, [52, Math.max(...varied)], 'upper', options.gpuBytes)).toBe(true);
  const rows = predictDraws(runs, { ...options, batch: 52 });
  expect(rows[0]!.failing[0]!.share).toBe(0);
  expect(rows.map(({ batch }) => batch)).toEqual([...rows.map(({ batch }) => batch)].sort((a, b) => a - b));
  const { batch, failing, epochs } = rows.find((row) => row.batch === 52)!;
  const failed = drawEpochs(varied, batch, epochs, runs.synthesis.repeats, 1).filter(({ steps }) => {
    const first = [batch, Math.min(...steps)];
    const padded = [...Array(runs.synthesis.repeats - steps.length).fill(first[1]!), ...steps].map((length) => [batch, length]);
    const trace = runs.synthesis.at(first, 'upper', padded);
    return whatIf(trace, options.choices[0]!, { capacity: options.gpuBytes }).ooms > 0;
  });
  expect(failing[0]!.share).toBe(failed.length / epochs);
  expect(failed.length).toBeGreaterThan(0);
});

test('needs steps that repeat, and two parameters', () => {
  const options = { gpuBytes: 1, choices: chooseAllocators('weir'), lengths, batch: 1 };
  expect(() => predictDraws(replaysOf(learn({ ...program, steps: 1, hasMarks: false })), options)).toThrow(/^no step of the runs repeats/);
  const single = learnFit([2, 4].map((value) => ({ trace: runProgram(program, value, 1), values: [value] })));
  expect(() => predictDraws(replaysOf(single), options)).toThrow(/^drawing lengths needs runs of two parameters/);
});
