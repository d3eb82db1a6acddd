// Synthesised runs against the real runs of the same values, event by event.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { PhaseMark } from '../../src/abi/events.ts';
import { chooseAllocators } from '../../src/allocator/registry.ts';
import { GIB, MIB, roundUp } from '../../src/base/bytes.ts';
import { growthAt } from '../../src/fit/growth.ts';
import { learnFit } from '../../src/fit/model.ts';
import { predictFit, predictPeak, replaysOf } from '../../src/fit/prediction.ts';
import { synthesise } from '../../src/fit/synthesis.ts';
import { whatIf } from '../../src/replay/what-if.ts';
import { fitJson } from '../../src/report/fit-json.ts';
import { formatFit } from '../../src/report/terminal/fit.ts';
import { learnedSentences } from '../../src/report/words/fit.ts';
import { summarizeTrace } from '../../src/trace/summary.ts';
import { behaviour, type Layer, type Program, RunRecorder, runProgram } from './program.ts';

type Shape = { readonly kind: string; readonly unit: number; readonly more: number };

/** Functions that two runs settle. */
const SIMPLE = ['constant', 'linear', 'quadratic'] as const;
/** Functions that a third run settles. */
const ALL = [...SIMPLE, 'affine', 'mixed', 'padded'] as const;

function sizeOf({ kind, unit, more }: Shape): (value: number) => number {
  switch (kind) {
    case 'constant':
      return () => unit;
    case 'linear':
      return (value) => unit * value;
    case 'quadratic':
      return (value) => unit * value * value;
    case 'affine':
      return (value) => more + unit * value;
    case 'mixed':
      return (value) => more * value + unit * value * value;
    default:
      return (value) => unit * roundUp(value, 8);
  }
}

function layers(kinds: readonly string[]): fc.Arbitrary<Layer[]> {
  const shape = fc.record({
    kind: fc.constantFrom(...kinds),
    unit: fc.integer({ min: 1, max: 4 * MIB }),
    more: fc.integer({ min: 1, max: MIB }),
  });
  const layer = fc
    .record({ weight: fc.integer({ min: 1, max: 64 * MIB }), saved: shape, workspace: shape })
    .map(({ weight, saved, workspace }) => ({ weight, saved: sizeOf(saved), workspace: sizeOf(workspace) }));
  return fc.array(layer, { minLength: 1, maxLength: 6 });
}

const surroundings = fc.record({
  hasStacks: fc.boolean(),
  hasMarks: fc.boolean(),
  hasState: fc.boolean(),
  steps: fc.integer({ min: 1, max: 4 }),
});

function learn(program: Program, values: readonly number[]) {
  return learnFit(values.map((value) => ({ trace: runProgram(program, value), values: [value] })));
}

describe('a synthesised run is the real run', () => {
  test('from two runs, if sizes are constant, linear or quadratic', () => {
    fc.assert(
      fc.property(layers(SIMPLE), surroundings, fc.integer({ min: 1, max: 200 }), (made, around, value) => {
        const program = { layers: made, ...around };
        const synthesis = synthesise(learn(program, [3, 5]), { repeats: 0 });
        for (const bound of ['lower', 'upper'] as const)
          expect(behaviour(synthesis.at([value], bound))).toEqual(behaviour(runProgram(program, value)));
      }),
      { numRuns: 60 },
    );
  });

  test('from three runs, if they have summands or are padded', () => {
    fc.assert(
      fc.property(layers(ALL), surroundings, fc.integer({ min: 1, max: 200 }), (made, around, value) => {
        const program = { layers: made, ...around };
        const synthesis = synthesise(learn(program, [3, 10, 18]), { repeats: 0 });
        const real = runProgram(program, value);
        const [lower, upper] = [synthesis.at([value], 'lower'), synthesis.at([value], 'upper')];
        expect([lower.events.count, upper.events.count]).toEqual([real.events.count, real.events.count]);
        // A few sums are padded lines too, and stay intervals.
        real.events.size.forEach((size, event) => {
          expect(lower.events.size[event]).toBeLessThanOrEqual(size);
          expect(upper.events.size[event]).toBeGreaterThanOrEqual(size);
        });
        if (lower.events.size.join() === upper.events.size.join()) expect(behaviour(upper)).toEqual(behaviour(real));
      }),
      { numRuns: 60 },
    );
  });

  test('with two parameters, from four runs', () => {
    const program: Program = {
      layers: [
        { weight: 1000, saved: (batch, length) => batch! * length! * length! * 2, workspace: (_, length) => 64 * length! },
        { weight: 5000, saved: (batch, length) => batch! * length! * 96, workspace: (batch, length) => 4096 + batch! * length! * 8 },
      ],
      steps: 3,
      hasStacks: false,
      hasMarks: true,
    };
    const points = [
      [2, 16],
      [4, 16],
      [2, 32],
      [4, 32],
    ] as const;
    const model = learnFit(points.map((values) => ({ trace: runProgram(program, ...values), values })));
    expect(behaviour(synthesise(model, { repeats: 0 }).at([9, 100], 'upper'))).toEqual(behaviour(runProgram(program, 9, 100)));
  });

  test('with two parameters, from runs of which neither is the larger one', () => {
    // 8 x 513 is more than 4 x 1025.
    const layer: Layer = {
      weight: 1000,
      saved: (batch, length) => batch! * (length! + 1) * 4096,
      workspace: () => 512,
    };
    const program: Program = { layers: [layer, layer], steps: 3, hasStacks: true, hasMarks: true };
    const points = [
      [4, 512],
      [8, 512],
      [4, 1024],
    ];
    const model = learnFit(points.map((values) => ({ trace: runProgram(program, ...values), values })));
    expect(behaviour(synthesise(model, { repeats: 0 }).at([9, 3000], 'upper'))).toEqual(behaviour(runProgram(program, 9, 3000)));
    // In the order of the runs they are still compared where they can be.
    const wrong = [[8, 1024], ...points.slice(0, 1)].map((values, index, all) => ({
      trace: runProgram(program, ...values),
      values: all[1 - index]!,
    }));
    expect(() => learnFit(wrong)).toThrow(/are the values in the order of the runs\?$/);
  });

  test('with steps repeated as often as the real run has them', () => {
    fc.assert(
      fc.property(layers(SIMPLE), surroundings, fc.boolean(), fc.boolean(), (made, { hasStacks, hasState }, freesLate, hasTail) => {
        const program = { layers: made, hasStacks, hasState, freesLate, hasTail, hasMarks: true, steps: 4 };
        const synthesis = synthesise(learn(program, [3, 5]), { repeats: 3 });
        expect(synthesis.repeats).toBe(3);
        expect(behaviour(synthesis.at([8], 'upper'))).toEqual(behaviour(runProgram({ ...program, steps: 7 }, 8)));
      }),
      { numRuns: 30 },
    );
  });
});

const growing: Layer = { weight: 40 * MIB, saved: (value) => 3 * MIB * value!, workspace: (value) => 5 * MIB * value! };

describe('a structure that changes', () => {
  const chunked: Program = {
    layers: [growing, growing, growing],
    steps: 3,
    hasStacks: false,
    hasMarks: true,
    chunks: (value) => (value! >= 8 ? 2 : 0),
  };

  test.each([true, false])('gives an interval that contains the truth (stacks: %s)', (hasStacks) => {
    const program = { ...chunked, hasStacks };
    const model = learn(program, [4, 8]);
    expect(model.learned.unpaired + model.learned.scratch).toBeGreaterThan(0);
    const runs = replaysOf(model, 0);
    for (const choice of chooseAllocators('pytorch,expandable,weir')) {
      for (const value of [16, 31]) {
        const real = whatIf(runProgram(program, value), choice, {}).peakReserved;
        const { lower, upper } = predictPeak(runs, choice, [value]);
        expect(lower).toBeLessThanOrEqual(real);
        expect(upper).toBeGreaterThanOrEqual(real);
      }
    }
  });

  test('gives an interval of values', () => {
    // Blocks of the larger run alone, kept for a while: they may stay as they are, or grow.
    const kept: Program = { ...chunked, layers: [growing, growing], hasStacks: true, extra: (value) => (value! >= 8 ? 60 * MIB : 0) };
    const [row] = predictFit(learn(kept, [4, 8]), { gpuBytes: 2 * GIB, choices: chooseAllocators('weir'), repeats: 0 }).rows;
    expect(row!.possible.value).toBeGreaterThan(row!.sure.value);
    expect(row!.peak!.lower).toBeLessThan(row!.peak!.upper);
  });

  describe('again beyond the runs', () => {
    // From 16 on everything that is saved takes half: another precision. Of this the runs of 4 and 8 show nothing.
    const halved: Layer = { ...growing, saved: (value) => (value! >= 16 ? 1.5 : 3) * MIB * value! };
    const little: Layer = { weight: MIB, saved: () => 512, workspace: (value) => 4096 * value! };
    const appears: Program = { ...chunked, layers: [halved, halved, little], hasStacks: true, chunks: () => 0 };

    test.each([
      ['appears', (value: number) => (value >= 8 ? 2 * MIB : 0)],
      ['is dropped', (value: number) => (value < 8 ? 2 * MIB + 512 : 0)],
    ])('is doubted if a little of it %s between them', (_, extra) => {
      const program = { ...appears, extra: (value?: number) => extra(value!) };
      const model = learn(program, [4, 8]);
      expect(model.learned.doubted).toBeGreaterThan(0);
      const runs = replaysOf(model, 0);
      for (const choice of chooseAllocators('pytorch,weir')) {
        const real = whatIf(runProgram(program, 16), choice, {}).peakReserved;
        const { lower, upper } = predictPeak(runs, choice, [16]);
        expect([lower <= real, upper >= real]).toEqual([true, true]);
      }
      const prediction = predictFit(model, { gpuBytes: 2 * GIB, choices: chooseAllocators('weir') });
      expect(learnedSentences(prediction).join('\n')).toMatch(
        /The runs are not the same program for \d\.\d % of the bytes, and \d+\.\d % are known from only two of them: try values nearer to the answer, or a third one\.$/m,
      );
    });

    test('is not doubted if the runs are the same, or a third run agrees', () => {
      expect(learn(appears, [4, 8]).learned).toMatchObject({ doubted: 0, unsettled: 0 });
      const program = { ...appears, extra: (value?: number) => (value! >= 8 ? 2 * MIB : 0) };
      expect(learn(program, [2, 4, 8]).learned).toMatchObject({ doubted: 0, unsettled: 0 });
    });
  });

  test('is doubted without stacks, where blocks of equal size can be different ones', () => {
    // At 12 there is a block more for each layer, and it is as large as what a layer saves at 4.
    const run = (value: number) => {
      const recorder = new RunRecorder(false);
      recorder.alloc(40 * MIB, ['weight', 0]);
      for (let step = 0; step < 3; step++) {
        const saved: number[] = [];
        for (let layer = 0; layer < 4; layer++) {
          recorder.free(recorder.alloc(Math.max(512, 2 * layer * MIB * value), ['work', layer]));
          saved.push(recorder.alloc(3 * MIB * value, ['saved', layer]));
          if (value > 8) saved.push(recorder.alloc(MIB * value, ['more', layer]));
        }
        for (const block of saved.reverse()) recorder.free(block);
        recorder.mark(PhaseMark.step);
      }
      return recorder.finish();
    };
    const model = learnFit([4, 12].map((value) => ({ trace: run(value), values: [value] })));
    const [choice] = chooseAllocators('weir');
    const { sure } = predictFit(model, { gpuBytes: 600 * MIB, choices: [choice!] }).rows[0]!;
    expect(whatIf(run(sure.value), choice!, { capacity: 600 * MIB }).ooms).toBe(0);
  });

  test('is learned by a third run beyond the change', () => {
    const program = { ...chunked, hasStacks: true };
    const model = learn(program, [4, 8, 16]);
    const synthesis = synthesise(model, { repeats: 0 });
    const real = runProgram(program, 40);
    expect(summarizeTrace(synthesis.at([40], 'lower')).peakLive).toBe(summarizeTrace(real).peakLive);
    expect(behaviour(synthesis.at([40], 'upper')).length).toBe(behaviour(real).length);
  });
});

describe('the largest value', () => {
  test('fits in the real run, and the next does not, on every allocator', () => {
    fc.assert(
      fc.property(layers(['linear']), fc.boolean(), (made, hasStacks) => {
        const program = { layers: [...made, growing], hasStacks, hasState: true, hasMarks: true, steps: 3 };
        const gpuBytes = 2 * GIB;
        const prediction = predictFit(learn(program, [2, 3]), {
          gpuBytes,
          choices: chooseAllocators('pytorch,expandable,weir'),
          repeats: 0,
        });
        for (const { allocator, sure, possible } of prediction.rows) {
          const [choice] = chooseAllocators(allocator);
          const fits = (value: number) => whatIf(runProgram(program, value), choice!, { capacity: gpuBytes }).ooms === 0;
          expect(possible).toEqual(sure);
          if (sure.value > 0) expect(fits(sure.value)).toBe(true);
          expect(fits(sure.value + 1)).toBe(false);
        }
      }),
      { numRuns: 15 },
    );
  });

  test('keeps to multiples', () => {
    const program = { layers: [growing], hasStacks: false, hasMarks: true, steps: 3 };
    const model = learn(program, [2, 4]);
    const [plain] = predictFit(model, { gpuBytes: GIB, choices: chooseAllocators('weir') }).rows;
    const line = { point: [4], parameter: 0, multiple: 8 };
    const [coarse] = predictFit(model, { gpuBytes: GIB, choices: chooseAllocators('weir'), line }).rows;
    expect(coarse!.sure.value).toBe(Math.floor(plain!.sure.value / 8) * 8);
  });

  test('is open above, in words and as JSON, if all that grows may stay as it is', () => {
    const program: Program = { layers: [growing, growing], hasStacks: true, hasMarks: true, steps: 3 };
    // Nothing of the larger run has a law: a jump, and what only it requests.
    const jumping: Program = {
      ...program,
      layers: program.layers.map((layer) => ({
        ...layer,
        saved: (value) => (value! < 8 ? 1 : 7777) * 1001 * value!,
        workspace: () => 512,
      })),
    };
    const model = learn(jumping, [4, 8]);
    const prediction = predictFit(model, { gpuBytes: 4 * GIB, choices: chooseAllocators('weir') });
    expect([prediction.rows[0]!.sure.isBounded, prediction.rows[0]!.possible.isBounded]).toEqual([true, false]);
    expect(fitJson(model, prediction)).toMatchObject({ results: [{ largest: prediction.rows[0]!.sure.value, largestPossible: null }] });
    const text = formatFit(model, prediction);
    expect(text).toMatch(/ or more .*\n(.*\n)*.*A or more: A fits/);
    expect(text).not.toContain('A to B');
  });

  test('is 0 if not even the smallest fits', () => {
    const program = { layers: [growing], hasStacks: false, hasMarks: true, steps: 3 };
    const [row] = predictFit(learn(program, [2, 4]), { gpuBytes: MIB, choices: chooseAllocators('pytorch') }).rows;
    expect(row!.sure.value).toBe(0);
    expect(row!.peak).toBeUndefined();
  });

  test('names the lines that grow', () => {
    const program = { layers: [growing], hasStacks: true, hasMarks: true, steps: 3 };
    const { growth } = predictFit(learn(program, [2, 4]), { gpuBytes: GIB, choices: chooseAllocators('weir') });
    expect(growth.sites[0]!.growth).toBe(8 * MIB);
    expect(growth.constantBytes).toBe(40 * MIB);
    const model = learn(program, [2, 4]);
    const { synthesis } = replaysOf(model);
    const at = growthAt(model, synthesis, [10], [11]);
    expect(at.bytes).toBe(summarizeTrace(synthesis.at([10], 'upper')).peakLive);
    expect(at.growth).toBe(summarizeTrace(synthesis.at([11], 'upper')).peakLive - at.bytes);
  });
});

describe('wrong use', () => {
  const program = { layers: [growing], hasStacks: true, hasMarks: true, steps: 2 };
  const other: Program = {
    layers: Array.from({ length: 5 }, (_, index) => ({ weight: 777, saved: () => (index + 1) * 99 * MIB + 3, workspace: () => 12345 })),
    hasStacks: true,
    hasMarks: true,
    steps: 2,
  };

  test('one value only', () => {
    expect(() => learn(program, [4])).toThrow(/^one value shows no growth; give runs of two values or more$/);
    expect(() => learn(program, [4, 4])).toThrow(/^all runs have the value 4/);
    expect(() => learn(program, [4, 8, 8])).toThrow(/^two runs have the value 8; give each value once$/);
    expect(() =>
      learnFit([
        { trace: runProgram(program, 4), values: [0.5] },
        { trace: runProgram(program, 4), values: [4] },
      ]),
    ).toThrow(/^0.5 is no value of a run; values are whole numbers above 0$/);
  });

  test('a value that memory does not depend on', () => {
    const runs = [4, 8].map((value) => ({ trace: runProgram(program, 4), values: [value] }));
    expect(() => learnFit(runs)).toThrow(/^every block has the same size in the runs of 4 and 8: memory does not depend on the value$/);
  });

  test('runs that are not the same program', () => {
    const runs = [
      { trace: runProgram(program, 4), values: [4] },
      { trace: runProgram(other, 8), values: [8] },
    ];
    expect(() => learnFit(runs)).toThrow(/^the runs of 4 and 8 are not the same program: they share \d+ % of .* requested$/);
  });
});
