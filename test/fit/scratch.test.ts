// Scratch memory of kernels: levels off, is padded, or changes with the algorithm that a library chooses.
import { describe, expect, test } from 'vitest';
import { PhaseMark } from '../../src/abi/events.ts';
import { chooseAllocators } from '../../src/allocator/registry.ts';
import { GIB, MIB, roundUp } from '../../src/base/bytes.ts';
import { learnFit } from '../../src/fit/model.ts';
import { predictFit, predictPeak, replaysOf } from '../../src/fit/prediction.ts';
import { fittingFrom, fittingUpTo } from '../../src/fit/search.ts';
import { synthesise } from '../../src/fit/synthesis.ts';
import { whatIf } from '../../src/replay/what-if.ts';
import { learnedSentences } from '../../src/report/words/fit.ts';
import type { Trace } from '../../src/trace/trace.ts';
import { RunRecorder } from './program.ts';

interface Layer {
  /** Partial results, with counters behind them. */
  partial?(value: number): number;
  workspace?(value: number): number;
}

const OPERATION = 'convolution';

/** Layers with a tensor each that outlives its operation, and scratch memory within the operation. */
function run(layers: readonly Layer[], value: number, hasStacks = true): Trace {
  const into = new RunRecorder(hasStacks);
  into.alloc(40 * MIB, ['weight', 0]);
  for (let step = 0; step < 4; step++) {
    const kept = layers.map(({ partial, workspace }, index) => {
      const place = [OPERATION, 548, `/home/user/layer${index}.py`] as const;
      const output = into.alloc((2 * index + 11) * MIB * value, place);
      if (workspace) into.free(into.alloc(workspace(value), place));
      if (partial) {
        const buffer = into.alloc(partial(value), place);
        into.free(into.alloc(192, place));
        into.free(buffer);
      }
      return output;
    });
    kept.push(into.alloc(4, ['loss', 9]), into.alloc(4, ['loss', 9]));
    for (const block of kept.reverse()) into.free(block);
    into.mark(PhaseMark.step);
  }
  return into.finish();
}

function learn(layers: readonly Layer[], values: readonly number[], hasStacks = true) {
  return learnFit(values.map((value) => ({ trace: run(layers, value, hasStacks), values: [value] })));
}

/** The range of each block of so many bytes in the largest run. */
function rangesOf(model: ReturnType<typeof learn>, bytes: number, at: number): Set<string> {
  const { requested } = model.template.trace.allocations;
  return new Set(
    model.functions.flatMap((size, allocation) => (requested[allocation] === bytes ? [`${size.lower([at])} ${size.upper([at])}`] : [])),
  );
}

function expectInside(layers: readonly Layer[], values: readonly number[], at: readonly number[], hasStacks = true): void {
  const runs = replaysOf(learn(layers, values, hasStacks), 0);
  for (const choice of chooseAllocators('pytorch,expandable,weir')) {
    for (const value of at) {
      const real = whatIf(run(layers, value, hasStacks), choice, {}).peakReserved;
      const { lower, upper } = predictPeak(runs, choice, [value]);
      expect([lower <= real, upper >= real]).toEqual([true, true]);
    }
  }
}

describe('partial results', () => {
  const most = 132 * MIB;
  const levelling: Layer = { partial: (value) => Math.min(most, 25 * MIB * value) };
  const smaller: Layer = { partial: (value) => Math.min(most, 5 * MIB * value) };

  test.each([true, false])('stop growing beyond the runs (stacks: %s)', (hasStacks) => {
    const model = learn([levelling, smaller], [2, 3, 4], hasStacks);
    expect(rangesOf(model, 100 * MIB, 16)).toEqual(new Set([`${100 * MIB} ${400 * MIB}`]));
    // A buffer as large as the largest that was seen is not full.
    expect(rangesOf(model, 20 * MIB, 16)).toEqual(new Set([`${80 * MIB} ${80 * MIB}`]));
    expect(model.learned).toMatchObject({ unsettled: 0, unpaired: 0, scratch: 4 * 100 * MIB });
    expectInside([levelling, levelling, levelling, smaller], [2, 3, 4], [8, 16, 32], hasStacks);
  });

  test('may be padded where their law looks like a line', () => {
    const unit = 393_216;
    const padded: Layer = { partial: (value) => roundUp(3.0625 * unit * value, unit) };
    expect([8, 12, 16].map((value) => padded.partial!(value) / unit)).toEqual([25, 37, 49]);
    const [range] = rangesOf(learn([padded], [8, 12, 16]), 49 * unit, 64);
    expect(range).toBe(`${49 * unit} ${196 * unit}`);
  });

  test('that are small follow their law', () => {
    const tiny: Layer = { partial: (value) => 1000 * value };
    expect(learn([tiny], [2, 3, 4]).learned).toMatchObject({ scratch: 0, unsettled: 0 });
    expect(rangesOf(learn([tiny], [2, 3, 4]), 4000, 100)).toEqual(new Set(['100000 100000']));
  });
});

describe('workspaces', () => {
  const steady: Layer = { workspace: (value) => 7 * MIB * value + 512 };
  /** Another algorithm at 12 needs twice as much. */
  const changing: Layer = { workspace: (value) => (value === 12 ? 8 : 4) * MIB * value + 16 };
  /** The same law in all runs, and another algorithm beyond them. */
  const later: Layer = { workspace: (value) => (value > 20 ? 10 : 5) * MIB * value };

  test('follow the law that three runs support', () => {
    expect(learn([steady, later], [8, 12, 16]).learned).toMatchObject({ scratch: 0, unsettled: 0 });
  });

  test('are doubted where the same operation was seen to change its algorithm', () => {
    const model = learn([steady, changing, later], [8, 12, 16]);
    expect(model.learned.unsettled + model.learned.unpaired).toBe(0);
    const drawn = model.functions.filter((size) => size.drawn);
    expect(drawn.length).toBe(3 * 4);
    expect(rangesOf(model, 80 * MIB, 64)).toEqual(new Set([`1 ${320 * MIB}`]));
    const [doubled] = drawn.map((size) => size.drawn!([64], 1)).filter((size) => size > 600 * MIB && size < 700 * MIB);
    expect(doubled! / MIB).toBeCloseTo(640, 0);
    expectInside([steady, changing, later, changing, later], [8, 12, 16], [32, 64, 128]);
  });

  test('of other operations, or without stacks, keep their law', () => {
    const other = (value: number, hasStacks: boolean) => {
      const into = new RunRecorder(hasStacks);
      for (let step = 0; step < 4; step++) {
        const output = into.alloc(9 * MIB * value, [OPERATION, 0]);
        into.free(into.alloc(changing.workspace!(value), [OPERATION, 0]));
        into.free(into.alloc(2 * MIB * value, ['matmul', 0]));
        const loss = into.alloc(4, ['loss', 9]);
        into.free(output);
        into.free(loss);
        into.mark(PhaseMark.step);
      }
      return into.finish();
    };
    for (const hasStacks of [true, false]) {
      const model = learnFit([8, 12, 16].map((value) => ({ trace: other(value, hasStacks), values: [value] })));
      expect(rangesOf(model, 32 * MIB, 64)).toEqual(new Set([`${128 * MIB} ${128 * MIB}`]));
      expect(model.functions.filter((size) => size.drawn).length).toBe(4);
    }
  });

  test('are drawn once for each call, the same in every step', () => {
    const synthesis = synthesise(learn([steady, changing, later], [8, 12, 16]), { repeats: 2 });
    const sizes = (bound: `draw ${number}`) => {
      const { requested } = synthesis.at([64], bound).allocations;
      // The weight, then four recorded steps and two repeated ones of eight requests each.
      return Array.from({ length: 6 }, (_, step) => requested.slice(1 + 8 * step, 9 + 8 * step).join());
    };
    const [first, second] = [sizes('draw 0'), sizes('draw 1')];
    expect(new Set(first).size).toBe(1);
    expect(new Set([...first, ...second]).size).toBe(2);
  });

  test('give an interval of values, and a sentence', () => {
    const prediction = predictFit(learn([steady, changing, later], [8, 12, 16]), { gpuBytes: 4 * GIB, choices: chooseAllocators('weir') });
    const [row] = prediction.rows;
    expect(row!.possible.value).toBeGreaterThan(row!.sure.value);
    const layers = [steady, changing, later];
    expect(whatIf(run(layers, row!.sure.value), chooseAllocators('weir')[0]!, { capacity: 4 * GIB }).ooms).toBe(0);
    const said = learnedSentences(prediction).join('\n');
    expect(said).toMatch(/\(\d+\.\d %\) are scratch memory, requested and freed within one operation/);
    expect(said).toMatch(/For a narrower answer, add a run nearer to it\.$/);
  });
});

describe('no scratch', () => {
  test.each([true, false])('a temporary tensor during whose life a longer one is requested (stacks: %s)', (hasStacks) => {
    const chained = (value: number) => {
      const into = new RunRecorder(hasStacks);
      for (let step = 0; step < 4; step++) {
        const temporary = into.alloc(20 * MIB * value, ['sum of squares', 0]);
        const output = into.alloc(MIB, ['sum of squares', 0]);
        into.free(temporary);
        into.free(output);
        into.mark(PhaseMark.step);
      }
      return into.finish();
    };
    const model = learnFit([2, 3, 4].map((value) => ({ trace: chained(value), values: [value] })));
    expect(model.learned.scratch).toBe(0);
    expect(rangesOf(model, 80 * MIB, 16)).toEqual(new Set([`${320 * MIB} ${320 * MIB}`]));
  });
});

test('blocks that are freed in reverse order are no scratch', () => {
  const nested = (value: number) => {
    const into = new RunRecorder(false);
    for (let step = 0; step < 4; step++) {
      const saved = [3, 4, 5].map((unit) => into.alloc(unit * MIB * value, ['forward', 0]));
      for (const block of saved.reverse()) into.free(block);
      into.mark(PhaseMark.step);
    }
    return into.finish();
  };
  const model = learnFit([2, 3, 4].map((value) => ({ trace: nested(value), values: [value] })));
  expect(model.learned).toMatchObject({ scratch: 0, unsettled: 0 });
});

test('the search goes on in growing steps from a value that is nearly right', () => {
  for (const most of [0, 1, 7, 8, 39, 40]) {
    const tried: number[] = [];
    const fits = (value: number) => tried.push(value) > 0 && value <= most * 4;
    expect(fittingFrom(160, 4, fits)).toBe(most * 4);
    expect(fittingUpTo(0, 4, fits)).toBe(most * 4);
    expect(tried.every((value) => value % 4 === 0)).toBe(true);
  }
});
