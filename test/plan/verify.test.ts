// `weir verify`: a plan of a step is correct only if it is the step of the recording, block by block.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { parsePlan, readPlan, type StepPlanFile, writePlan } from '../../src/plan/files/plan-file.ts';
import { verifyPlanOn } from '../../src/plan/files/plan-input.ts';
import { type MemoryOps, OpsBuilder, opsOfTrace } from '../../src/plan/steps/memory-ops.ts';
import type { StepBlock } from '../../src/plan/steps/step.ts';
import { findStep, planStep, type StepPlan } from '../../src/plan/steps/step-plan.ts';
import { readRecording } from '../../src/trace/detect.ts';
import { readSample } from '../support/samples.ts';

function planOf(ops: MemoryOps): StepPlanFile {
  const found = findStep(ops);
  if (!found.periodic) throw new Error(found.reason);
  return { kind: 'step', plan: planStep(found.step, { budgetMs: 100 }) };
}

const OPS = opsOfTrace(readRecording(readSample('vgg16-b100.native.pickle.gz')).traces[0]!);
const GOOD = planOf(OPS);

function messages(file: StepPlanFile, ops: MemoryOps = OPS): string[] {
  return verifyPlanOn(parsePlan(writePlan(file)), { kind: 'operations', ops }).faults.map((fault) => fault.message);
}

/** The plan with other blocks; by default each keeps its offset. */
function withBlocks(change: (block: StepBlock, index: number) => StepBlock | undefined, offset?: number): StepPlanFile {
  const { step, layout, lowerBound } = GOOD.plan;
  const blocks: StepBlock[] = [];
  const offsets: number[] = [];
  step.blocks.forEach((block, index) => {
    const changed = change(block, index);
    if (!changed) return;
    blocks.push(changed);
    offsets.push(offset ?? layout.offsets[index]!);
  });
  return { kind: 'step', plan: { step: { ...step, blocks }, layout: { ...layout, offsets: Float64Array.from(offsets) }, lowerBound } };
}

function withStep(change: Partial<StepPlan['step']>): StepPlanFile {
  return { kind: 'step', plan: { ...GOOD.plan, step: { ...GOOD.plan.step, ...change } } };
}

describe('the plan of a step', () => {
  test('is correct as it was made', () => {
    expect(messages(GOOD)).toEqual([]);
    const { followed } = verifyPlanOn(GOOD, { kind: 'operations', ops: OPS });
    expect(followed).toMatchObject({ repetitions: 5, planned: 5 * 159, followed: 5 * 159 });
  });

  test('is wrong if all blocks lie at offset 0 and die one operation after birth', () => {
    const destructive = withBlocks((block) => ({ ...block, death: block.birth + 1 }), 0);
    // By itself such a plan is without fault: no two of its blocks live at once.
    expect(() => readPlan(writePlan(destructive))).not.toThrow();
    expect(messages(destructive)[0]).toMatch(/^the block born at operation \d+ dies at \d+ in the plan and at \d+ in the recording$/);
  });

  test('is wrong if it is empty', () => {
    expect(messages(withBlocks(() => undefined))[0]).toMatch(/^the plan lacks 159 of the 159 blocks of the step/);
  });

  test('is wrong if one block is missing', () => {
    expect(messages(withBlocks((block, index) => (index === 70 ? undefined : block)))).toEqual([
      expect.stringMatching(/^the plan lacks 1 of the 159 blocks of the step; the first is born at operation \d+ and has \d+ bytes$/),
    ]);
  });

  test('is wrong if two blocks share bytes, which is found and not refused on load', () => {
    const overlapping = withBlocks((block) => block, 0);
    expect(messages(overlapping)[0]).toMatch(/share bytes/);
    expect(() => readPlan(writePlan(overlapping))).toThrow(/the plan is invalid: .* share bytes/);
  });

  test('is wrong if it is for a part of the recording that does not repeat', () => {
    expect(messages(withStep({ start: GOOD.plan.step.start + 1 }))).not.toEqual([]);
    expect(messages(withStep({ start: 0 }))[0]).toMatch(/not the step of the recording: the recording does not repeat it/);
    expect(messages(withStep({ start: OPS.count }))[0]).toMatch(/from another run/);
  });

  test('is wrong if it is for a small loop inside the recording', () => {
    // Two operations that come again, and nothing else of the run.
    const ops = new OpsBuilder(500);
    for (let step = 0; step < 100; step++) {
      ops.free(ops.alloc(512 * (step + 1), 0), 512 * (step + 1), 0);
      if (step < 10) ops.free(ops.alloc(2 ** 20, 0), 2 ** 20, 0);
    }
    const blocks = [{ birth: 0, death: 2, size: 2 ** 20, stream: 0 }];
    const step = { period: 2, start: 2, turns: 1, blocks, wholeRunBytes: 0, wholeRunBlocks: 0 };
    const layout = { offsets: Float64Array.of(0), footprint: 2 ** 20 };
    expect(messages({ kind: 'step', plan: { step, layout, lowerBound: 2 ** 20 } }, ops.finish(0))).toEqual([
      'operations 2 to 4 are not the step of the recording: its 10 repetitions are only 9 % of the recording',
    ]);
  });

  test('is wrong if a block meets another of the next step', () => {
    // The first block lives into the next step, where the second one has its place.
    const ops = new OpsBuilder(100);
    let last = -1;
    for (let step = 0; step < 10; step++) {
      const early = ops.alloc(1024, 0);
      if (last >= 0) ops.free(last, 512, 0);
      last = ops.alloc(512, 0);
      ops.free(early, 1024, 0);
    }
    const recording = ops.finish(0);
    const blocks = [
      { birth: 0, death: 4, size: 1024, stream: 0 },
      { birth: 2, death: 6, size: 512, stream: 0 },
    ];
    const step = { period: 4, start: 3, turns: 1, blocks, wholeRunBytes: 0, wholeRunBlocks: 0 };
    const planAt = (offsets: number[]): StepPlanFile => ({
      kind: 'step',
      plan: { step, layout: { offsets: Float64Array.from(offsets), footprint: 4096 }, lowerBound: 1536 },
    });
    expect(messages(planAt([0, 1024]), recording)).toEqual([]);
    const apart = { ...step, blocks: [{ birth: 0, death: 2, size: 1024, stream: 0 }, blocks[1]!] };
    const across: StepPlanFile = { kind: 'step', plan: { ...planAt([0, 512]).plan, step: apart } };
    expect(messages(across, recording)[0]).toMatch(/share bytes/);
  });

  test('is wrong if blocks are out of order, twice there or outside the step', () => {
    expect(messages(withBlocks((block) => ({ ...block, birth: 0 })))[0]).toMatch(/out of order/);
    expect(messages(withBlocks((block, index) => (index === 158 ? { ...block, birth: 999, death: 1000 } : block)))[0]).toMatch(
      /of a step of 318/,
    );
    expect(messages(withBlocks((block) => ({ ...block, death: block.birth })))[0]).toMatch(/not later/);
  });

  test('any change to one field of one block is noticed', () => {
    const changes = fc.oneof(
      fc.record({ field: fc.constantFrom('death' as const, 'birth' as const, 'stream' as const), by: fc.constantFrom(-7, -1, 1, 7) }),
      fc.record({ field: fc.constant('size' as const), by: fc.constantFrom(-512, 512, 2 ** 20) }),
    );
    fc.assert(
      fc.property(fc.nat(158), changes, (at, { field, by }) => {
        fc.pre(GOOD.plan.step.blocks[at]![field] + by >= (field === 'size' ? 1 : 0));
        expect(messages(withBlocks((block, index) => (index === at ? { ...block, [field]: block[field] + by } : block)))).not.toEqual([]);
      }),
      { numRuns: 200 },
    );
  });
});

describe('blocks that do not belong to the step', () => {
  test('a block that is kept for the rest of the run is not missed', () => {
    const ops = new OpsBuilder(400);
    for (let step = 0; step < 20; step++) {
      const block = ops.alloc(4096, 0);
      ops.alloc(512, 0);
      ops.free(block, 4096, 0);
    }
    const blocks = [{ birth: 0, death: 3, size: 4096, stream: 0 }];
    const step = { period: 3, start: 3, turns: 1, blocks, wholeRunBytes: 0, wholeRunBlocks: 0 };
    const plan = { step, layout: { offsets: Float64Array.of(0), footprint: 4096 }, lowerBound: 4096 };
    expect(messages({ kind: 'step', plan }, ops.finish(0))).toEqual([]);
  });

  test('a block that once lives far longer may be planned for its usual lifetime', () => {
    const ops = new OpsBuilder(400);
    let spare = ops.alloc(4096, 0);
    for (let step = 0; step < 20; step++) {
      const [first, second] = [ops.alloc(4096, 0), ops.alloc(4096, 0)];
      ops.free(second, 4096, 0);
      // In steps 7 and 9 another block of that size is freed instead, so that operations stay the same.
      const instead = step === 7 || step === 9 ? spare : first;
      ops.free(instead, 4096, 0);
      if (step === 7) spare = first;
    }
    const recording = ops.finish(0);
    const planFor = (death: number): StepPlanFile => {
      const blocks = [
        { birth: 0, death, size: 4096, stream: 0 },
        { birth: 1, death: 3, size: 4096, stream: 0 },
      ];
      const step = { period: 4, start: 5, turns: 1, blocks, wholeRunBytes: 0, wholeRunBlocks: 0 };
      return { kind: 'step', plan: { step, layout: { offsets: Float64Array.of(0, 4096), footprint: 8192 }, lowerBound: 8192 } };
    };
    expect(messages(planFor(4), recording)).toEqual([]);
    expect(messages(planFor(3), recording)).not.toEqual([]);
  });
});

describe('recordings with noise', () => {
  /** A step of 24 blocks; `extra` steps have one request more, `evaluations` have other sizes. */
  function run(steps: number, options: { extra?: number[]; evaluations?: number[]; late?: number[] } = {}): MemoryOps {
    const ops = new OpsBuilder(200 * steps);
    let last = -1;
    for (let step = 0; step < steps; step++) {
      const scale = options.evaluations?.includes(step) ? 3 : 1;
      const blocks = Array.from({ length: 24 }, (_, layer) => ops.alloc(512 * scale * (100 + layer), 0));
      if (options.extra?.includes(step)) ops.free(ops.alloc(512, 0), 512, 0);
      // The loss of a step is freed in the next one, now and then later in it.
      const loss = ops.alloc(1024, 0);
      const free = () => {
        if (last >= 0) ops.free(last, 1024, 0);
        last = loss;
      };
      if (!options.late?.includes(step)) free();
      for (let layer = 23; layer >= 0; layer--) ops.free(blocks[layer]!, 512 * scale * (100 + layer), 0);
      if (options.late?.includes(step)) free();
    }
    return ops.finish(0);
  }

  test.each([
    ['an extra request now and then', run(30, { extra: [4, 13, 22] })],
    ['evaluations between the steps', run(40, { evaluations: [9, 17, 32] })],
    ['a block that is freed later in some steps', run(30, { late: [5, 6, 20] })],
    ['a block that is freed later in evaluations', run(40, { late: [9, 17, 32], evaluations: [9, 17, 32] })],
  ])('%s: the plan that was made is correct, and wrong if a lifetime is cut', (_, ops) => {
    const file = planOf(ops);
    expect(messages(file, ops)).toEqual([]);
    const { step } = file.plan;
    for (const at of [0, 12, step.blocks.length - 1]) {
      const blocks = step.blocks.map((block, index) => (index === at ? { ...block, death: block.death - 1 } : block));
      expect(messages({ kind: 'step', plan: { ...file.plan, step: { ...step, blocks } } }, ops)).not.toEqual([]);
    }
  });
});
