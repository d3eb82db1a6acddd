// The planned allocator in replay: what a plan saves on a whole run, and that a run which leaves its plan is never harmed.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { OUT_OF_MEMORY } from '../../src/allocator/allocator.ts';
import { PyTorchAllocator } from '../../src/allocator/pytorch/allocator.ts';
import { DEFAULT_SETTINGS } from '../../src/allocator/pytorch/settings.ts';
import { SimulatedDevice } from '../../src/device/simulated.ts';
import { opsOfTrace } from '../../src/plan/memory-ops.ts';
import { PlannedAllocator } from '../../src/plan/planned-allocator.ts';
import type { Step } from '../../src/plan/step.ts';
import { findStep, planStep, type StepPlan } from '../../src/plan/step-plan.ts';
import { replay } from '../../src/replay/replay.ts';
import { readRecording } from '../../src/trace/detect.ts';
import { readSample } from '../support/samples.ts';

const createDynamic = (context: ConstructorParameters<typeof PyTorchAllocator>[0]) =>
  new PyTorchAllocator(context, { ...DEFAULT_SETTINGS, expandableSegments: true });

const MIB = 2 ** 20;

/** Ten requests of different sizes, freed in reverse: a plan of one step. */
function toyPlan(): StepPlan {
  const count = 10;
  const step: Step = {
    period: 2 * count,
    start: 0,
    turns: 1,
    blocks: Array.from({ length: count }, (_, index) => ({ birth: index, death: 2 * count - index, size: (index + 1) * MIB, stream: 0 })),
    wholeRunBytes: 0,
    wholeRunBlocks: 0,
  };
  return planStep(step);
}

function toyAllocator(): PlannedAllocator {
  return new PlannedAllocator({ device: new SimulatedDevice(), streams: [0] }, toyPlan(), createDynamic);
}

function runStep(allocator: PlannedAllocator, keep: (index: number) => boolean = () => true, extra = -1): void {
  const blocks: number[] = [];
  for (let index = 0; index < 10; index++) {
    if (index === extra) blocks.push(allocator.malloc(77 * MIB, 0, 0));
    if (keep(index)) blocks.push(allocator.malloc((index + 1) * MIB, 0, 0));
  }
  allocator.check();
  for (const block of blocks.reverse()) {
    allocator.free(block);
    allocator.complete(block);
  }
}

describe('planned allocator', () => {
  test.each([
    ['vgg16-b100.native.pickle.gz', 1.02],
    ['resnet50-b100.native.pickle.gz', 1.02],
  ])('%s runs on its plan within 2 %% of what is live', (name, most) => {
    const trace = readRecording(readSample(name)).traces[0]!;
    const ops = opsOfTrace(trace);
    const found = findStep(ops);
    if (!found.periodic) throw new Error(found.reason);
    const plan = planStep(found.step);
    const result = replay(trace, (context) => new PlannedAllocator(context, plan, createDynamic), {
      device: new SimulatedDevice(),
      checkEvery: 50,
    });
    expect(result.ooms).toBe(0);
    expect(result.peakReserved / ops.peak).toBeLessThan(most);
    const { use } = result.allocator as PlannedAllocator;
    expect(use.stoodDown).toBe(false);
    expect(use.hits).toBeGreaterThan(3 * plan.step.blocks.length);
  });

  test('takes the arena only after a step has followed the plan', () => {
    const allocator = toyAllocator();
    runStep(allocator);
    expect(allocator.use.hits).toBe(0);
    runStep(allocator);
    runStep(allocator);
    expect(allocator.use.hits).toBe(20);
    expect(allocator.reservedBytes).toBeLessThan(60 * MIB);
  });

  test('an extra or a missing request costs itself, not the rest of the run', () => {
    const allocator = toyAllocator();
    for (let step = 0; step < 3; step++) runStep(allocator);
    const before = allocator.use;
    runStep(allocator, () => true, 4);
    expect(allocator.use.hits - before.hits).toBe(10);
    expect(allocator.use.misses - before.misses).toBe(1);
    runStep(allocator, (index) => index !== 3);
    runStep(allocator);
    const settled = allocator.use;
    runStep(allocator);
    expect(allocator.use.hits - settled.hits).toBe(10);
  });

  test('a block that outlives its plan keeps its bytes', () => {
    const allocator = toyAllocator();
    for (let step = 0; step < 3; step++) runStep(allocator);
    const kept = allocator.malloc(MIB, 0, 0);
    const address = allocator.addressOf(kept);
    for (let step = 0; step < 3; step++) {
      runStep(allocator);
      allocator.check();
    }
    expect(allocator.addressOf(kept)).toBe(address);
    expect(allocator.use.occupied).toBeGreaterThan(0);
  });

  test('stands down when the run does something else, and gives the arena back', () => {
    const allocator = toyAllocator();
    for (let step = 0; step < 3; step++) runStep(allocator);
    for (let request = 0; request < 3000; request++) {
      const block = allocator.malloc(512 * (1000 + (request % 700)), 0, 0);
      allocator.free(block);
      allocator.complete(block);
    }
    expect(allocator.use.stoodDown).toBe(true);
    allocator.emptyCache();
    expect(allocator.reservedBytes).toBe(0);
  });

  test('no device memory for the arena: everything is dynamic', () => {
    const allocator = new PlannedAllocator({ device: new SimulatedDevice({ capacity: 20 * MIB }), streams: [0] }, toyPlan(), createDynamic);
    for (let step = 0; step < 4; step++) {
      const block = allocator.malloc(MIB, 0, 0);
      expect(block).not.toBe(OUT_OF_MEMORY);
      allocator.free(block);
      allocator.complete(block);
    }
    allocator.check();
  });

  test('random requests never share bytes', () => {
    const request = fc.record({ index: fc.nat(12), free: fc.boolean(), which: fc.nat(100), inOrder: fc.boolean() });
    fc.assert(
      fc.property(fc.array(request, { minLength: 50, maxLength: 300 }), (requests) => {
        const allocator = toyAllocator();
        const live: number[] = [];
        let next = 0;
        for (let step = 0; step < 2; step++) runStep(allocator);
        for (const { index, free, which, inOrder } of requests) {
          if (free && live.length > 0) {
            const [block] = live.splice(which % live.length, 1);
            allocator.free(block!);
            allocator.complete(block!);
          } else {
            const size = (inOrder ? next++ % 10 : index) + 1;
            live.push(allocator.malloc(size * MIB, 0, 0));
          }
        }
        allocator.check();
        const ranges = live
          .map((block) => [allocator.addressOf(block), allocator.addressOf(block) + allocator.sizeOf(block)] as const)
          .sort((a, b) => a[0] - b[0]);
        for (let at = 1; at < ranges.length; at++) expect(ranges[at]![0]).toBeGreaterThanOrEqual(ranges[at - 1]![1]);
        expect(allocator.allocatedBytes).toBe(live.reduce((sum, block) => sum + allocator.sizeOf(block), 0));
        const census = allocator.census();
        expect(census.reduce((sum, group) => sum + group.reserved, 0)).toBe(allocator.reservedBytes);
      }),
      { numRuns: 60 },
    );
  });
});
