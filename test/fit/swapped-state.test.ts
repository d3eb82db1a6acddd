// What `--swap auto` adds to the largest value: optimizer state that leaves if memory runs short.
import { describe, expect, test } from 'vitest';
import { chooseAllocators } from '../../src/allocator/registry.ts';
import { learnFit } from '../../src/fit/model.ts';
import { predictFit, replaysOf, SWAP_AUTO } from '../../src/fit/prediction.ts';
import { nextWords, swapSentences } from '../../src/report/words/fit.ts';
import { type Program, runProgram } from './program.ts';

const MIB = 2 ** 20;
const GPU = 1024 * MIB;

const program: Program = {
  layers: [
    { weight: 20 * MIB, saved: (batch) => 5 * MIB * batch!, workspace: () => MIB },
    { weight: 40 * MIB, saved: (batch) => 7 * MIB * batch!, workspace: () => MIB },
  ],
  steps: 4,
  hasStacks: true,
  hasMarks: true,
  hasState: true,
  tellsState: true,
};

function predicted(of: Program) {
  const model = learnFit([2, 4].map((value) => ({ trace: runProgram(of, value), values: [value] })));
  return predictFit(model, { gpuBytes: GPU, choices: chooseAllocators('pytorch,weir') });
}

describe('weir --swap auto', () => {
  test('fits as much more as its state takes, and needs it back in the optimizer', () => {
    const prediction = predicted(program);
    const [, weir, swap] = prediction.rows;
    expect(swap).toMatchObject({ allocator: SWAP_AUTO, sure: weir!.sure, swap: { bytes: 120 * MIB, largest: swap!.possible } });
    // Each of the batch takes 12 MiB at the peak, in which no optimizer runs. 120 MiB are ten more.
    expect(swap!.possible.value - weir!.sure.value).toBe(10);
    expect(swap!.onGpu!.peakReserved).toBeLessThanOrEqual(GPU);
    expect(swapSentences(prediction)[0]).toContain('120 MiB of optimizer state can be swapped out between steps, and');
  });

  test('swaps no more out than requests need', () => {
    const runs = replaysOf(learnFit([2, 4].map((value) => ({ trace: runProgram(program, value), values: [value] }))));
    const [weir] = chooseAllocators('weir');
    const { sure } = predicted(program).rows[1]!;
    // One more needs 12 MiB, so the first block of 40 MiB is enough.
    const { peakReserved, ooms } = runs.swapped!.replays.on(weir!, [sure.value + 1], 'upper', { capacity: GPU });
    expect(ooms).toBe(0);
    expect(peakReserved).toBeGreaterThan(GPU - 40 * MIB);
    expect(runs.replays.on(weir!, [sure.value + 1], 'upper', { capacity: GPU }).ooms).toBeGreaterThan(0);
  });

  test('tells no peak without a limit, since nothing is swapped out there', () => {
    const prediction = predicted(program);
    const [swap] = prediction.rows.filter((row) => row.swap);
    expect(swap).toMatchObject({ peak: undefined, nextPeak: undefined, asked: [] });
    expect(nextWords(swap!, 0)).toBe('');
  });

  test('is as Weir if the optimizer itself is the peak', () => {
    // Weights, gradients and state are 240 MiB, whatever the batch.
    const model = learnFit([1, 2].map((value) => ({ trace: runProgram(program, value), values: [value] })));
    const { rows } = predictFit(model, { gpuBytes: 200 * MIB, choices: chooseAllocators('weir') });
    expect(rows.map(({ sure }) => sure.value)).toEqual([0, 0]);
  });

  test('is as Weir without state, and not predicted if nothing is told', () => {
    const without = predicted({ ...program, hasState: false, tellsState: true });
    expect(without.rows.map(({ allocator }) => allocator)).toEqual(['pytorch', 'weir']);
    const untold = predicted({ ...program, tellsState: false });
    expect(untold.rows.map(({ allocator }) => allocator)).toEqual(['pytorch', 'weir']);
    expect(swapSentences(untold)).toEqual([
      'weir --swap auto: not predicted. The runs do not tell what is optimizer state; those of weir record do.',
    ]);
  });
});
