// Steps found in runs: real recordings, runs that only look periodic, and lifetimes around the end of a step.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { readMallocText } from '../../src/plan/files/malloc-text.ts';
import { type MemoryOps, OpsBuilder, opsOfTrace } from '../../src/plan/steps/memory-ops.ts';
import { findPeriod, isPeriodic } from '../../src/plan/steps/period.ts';
import { planSmartPool } from '../../src/plan/steps/smartpool.ts';
import { buffersOfStep, type Step } from '../../src/plan/steps/step.ts';
import { findStep, planStep } from '../../src/plan/steps/step-plan.ts';
import { verifyStepPlan, verifyStepPlanOn } from '../../src/plan/steps/verifier.ts';
import { readRecording } from '../../src/trace/detect.ts';
import { readSample } from '../support/samples.ts';

function sample(name: string): MemoryOps {
  return opsOfTrace(readRecording(readSample(name)).traces[0]!);
}

/** A toy training run: parameters, then steps of `layers` activations each, freed in reverse, with a gradient that outlives its step. */
function toyRun(
  steps: number,
  sizeOf: (step: number, layer: number) => number,
  options: { extra?: (step: number) => boolean } = {},
): MemoryOps {
  const ops = new OpsBuilder(100_000);
  for (let parameter = 0; parameter < 10; parameter++) ops.alloc(4096 + 512 * parameter, 0);
  let gradients: { op: number; size: number }[] = [];
  for (let step = 0; step < steps; step++) {
    const layers = Array.from({ length: 12 }, (_, layer) => {
      const size = sizeOf(step, layer);
      return { op: ops.alloc(size, 0), size };
    });
    if (options.extra?.(step)) ops.free(ops.alloc(77_824, 0), 77_824, 0);
    for (const { op, size } of gradients) ops.free(op, size, 0);
    gradients = [];
    for (const [index, { op, size }] of layers.entries()) {
      const gradient = 512 * (40 + index);
      gradients.push({ op: ops.alloc(gradient, 0), size: gradient });
      ops.free(op, size, 0);
    }
  }
  return ops.finish(0);
}

describe('period', () => {
  test.each([
    ['vgg16-b100.native.pickle.gz', 318, 159],
    ['resnet50-b100.native.pickle.gz', 1384, 692],
  ])('%s repeats every %i operations', (name, length, blocks) => {
    const found = findStep(sample(name));
    expect(found.periodic && found.period.length).toBe(length);
    expect(found.periodic && found.step.blocks.length).toBe(blocks);
    expect(found.periodic && found.step.turns).toBe(1);
  });

  test('a run with sequences of many lengths is not periodic, although its layers are', () => {
    const found = findPeriod(sample('gpt2xl-oom.pickle.gz'));
    expect(isPeriodic(found)).toBe(false);
  });

  test('a toy run is found, first step and all', () => {
    const found = findPeriod(toyRun(10, (_, layer) => 512 * (100 + layer)));
    expect(isPeriodic(found) && found.length).toBe(48);
  });

  test('a step with an extra request now and then stays the same step', () => {
    const found = findPeriod(toyRun(30, (_, layer) => 512 * (100 + layer), { extra: (step) => step % 9 === 4 }));
    expect(isPeriodic(found) && found.length).toBe(48);
  });

  test('evaluations now and then between training steps do not hide them', () => {
    const found = findPeriod(toyRun(40, (step, layer) => 512 * (([9, 17, 32].includes(step) ? 300 : 100) + layer)));
    expect(isPeriodic(found) && found.length).toBe(48);
  });

  test('a first step that differs is left out of the plan', () => {
    const found = findStep(toyRun(10, (step, layer) => 512 * ((step === 0 ? 900 : 100) + layer)));
    expect(found.periodic && found.step.start).toBeGreaterThanOrEqual(58);
  });

  test('sizes that change from step to step are not periodic', () => {
    const found = findPeriod(toyRun(20, (step, layer) => 512 * (100 + layer + ((step * 7919) % 1000))));
    expect(isPeriodic(found)).toBe(false);
  });

  test('marks give the step', () => {
    const ops = toyRun(6, (_, layer) => 512 * (100 + layer));
    const marks = Array.from({ length: 6 }, (_, step) => 10 + 48 * step);
    const found = findPeriod({ ...ops, marks });
    expect(isPeriodic(found) && found.by).toBe('marks');
  });

  test('nothing is no period', () => {
    expect(findPeriod(new OpsBuilder(0).finish(0))).toHaveProperty('reason');
  });
});

describe('step plans', () => {
  test.each(['vgg16-b100.native.pickle.gz', 'resnet50-b100.native.pickle.gz'])('%s fits exactly into its peak', (name) => {
    const ops = sample(name);
    const found = findStep(ops);
    if (!found.periodic) throw new Error(found.reason);
    const plan = planStep(found.step);
    expect(plan.layout.footprint).toBe(plan.lowerBound);
    expect(plan.layout.footprint + found.step.wholeRunBytes).toBe(ops.peak);
    expect(found.smartPoolTotal).toBeGreaterThan(ops.peak);
    expect(verifyStepPlan(plan)).toEqual([]);
    const followed = verifyStepPlanOn(ops, plan);
    expect(followed.faults).toEqual([]);
    expect(followed.followed).toBe(followed.planned);
  });

  test('what lives into the next step gets its own place there', () => {
    const ops = toyRun(10, (_, layer) => 512 * (100 + layer));
    const found = findStep(ops);
    if (!found.periodic) throw new Error(found.reason);
    expect(found.step.blocks.some((block) => block.death > found.step.period)).toBe(true);
    expect(found.step.wholeRunBlocks).toBe(10);
    const plan = planStep(found.step, { budgetMs: 300 });
    expect(verifyStepPlan(plan)).toEqual([]);
    expect(verifyStepPlanOn(ops, plan).faults).toEqual([]);
    expect(plan.layout.footprint + found.step.wholeRunBytes).toBeLessThanOrEqual(found.smartPoolTotal);
  });

  test('plans of random circular steps pass the unrolled verifier', () => {
    const blocks = fc.array(fc.record({ life: fc.integer({ min: 1, max: 45 }), size: fc.integer({ min: 1, max: 20 }) }), {
      minLength: 1,
      maxLength: 20,
    });
    fc.assert(
      fc.property(blocks, (items) => {
        const period = 20;
        const turns = Math.max(1, Math.ceil(Math.max(...items.map((item) => item.life)) / period));
        const step: Step = {
          period,
          start: 0,
          turns,
          blocks: items.map(({ life, size }, birth) => ({ birth, death: birth + life, size: 512 * size, stream: 0 })),
          wholeRunBytes: 0,
          wholeRunBlocks: 0,
        };
        expect(buffersOfStep(step, 1)).toHaveLength(items.length * turns);
        expect(verifyStepPlan(planStep(step, { budgetMs: 20 }))).toEqual([]);
      }),
      { numRuns: 50 },
    );
  });
});

describe('SmartPool', () => {
  test('gives room twice to what crosses the end of the step', () => {
    const blocks = [
      { birth: 0, death: 4, size: 100, stream: 0 },
      { birth: 2, death: 6, size: 50, stream: 0 },
      { birth: 7, death: 12, size: 30, stream: 0 },
    ];
    const plan = planSmartPool({ period: 10, start: 0, blocks, turns: 1, wholeRunBytes: 7, wholeRunBlocks: 1 });
    expect(plan).toEqual({ pool: 210, crossing: 30, normal: 150, total: 217 });
  });
});

describe('malloc text', () => {
  test('pairs frees with the latest malloc of their pointer', () => {
    const ops = readMallocText('Malloc 0x1 10 5\nFree 0x1 6\nMalloc 0x1 20 7\nMalloc 0x2 5 7\nFree 0x2 8\nFree 0x1 9\n');
    expect([...ops.partner]).toEqual([1, 0, 5, 4, 3, 2]);
    expect(ops.peak).toBe(25);
  });

  test('refuses what it does not know', () => {
    expect(() => readMallocText('Free 0x1 6\n')).toThrow(/not allocated/);
    expect(() => readMallocText('Malloc 0x1\n')).toThrow(/line 1/);
  });
});
