// Swap plans: what the planner says, the simulator sees and the verifier accepts must be the same thing.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { UsageError } from '../../src/base/errors.ts';
import { readAccessJson } from '../../src/plan/files/access-inputs.ts';
import { swapPlanFile } from '../../src/plan/files/plan-file.ts';
import { verifyOffsets } from '../../src/plan/offsets/verifier.ts';
import { type SwapStep, swapStepOf } from '../../src/plan/swaps/accesses.ts';
import { AUTOSWAP_COPIES, copyCosts, plannedUs } from '../../src/plan/swaps/copy-costs.ts';
import { findGaps, loadCurve, swapBounds } from '../../src/plan/swaps/gaps.ts';
import { gappedBuffers, planSwapStep } from '../../src/plan/swaps/planner.ts';
import { AutoSwap } from '../../src/plan/swaps/published/autoswap.ts';
import { planSwaps } from '../../src/plan/swaps/search.ts';
import { simulateSwaps } from '../../src/plan/swaps/simulator.ts';
import { verifySwaps } from '../../src/plan/swaps/verifier.ts';

const MIB = 2 ** 20;
/** 1 MiB takes 10 us each way. */
const COSTS = copyCosts('test', (MIB / 10) * 1e6, (MIB / 12) * 1e6, 1);

const access = (fromUs: number, writes = false) => ({ fromUs, toUs: fromUs + 5, writes });

/** Forward and backward of a small network: activations idle in the middle, parameters idle across the end of the step. */
function network(layers: number, layerUs: number, activation: number): SwapStep {
  const periodUs = 2 * layers * layerUs;
  const blocks = Array.from({ length: layers }, (_, layer) => {
    const forward = layer * layerUs;
    const backward = periodUs - (layer + 1) * layerUs;
    return [
      {
        size: activation,
        fromUs: forward,
        toUs: backward + layerUs - 1,
        wholeRun: false,
        accesses: [access(forward, true), access(backward)],
      },
      { size: 4 * MIB, fromUs: 0, toUs: periodUs, wholeRun: true, accesses: [access(forward + 10), access(backward + 10, true)] },
    ];
  }).flat();
  return {
    name: 'network',
    periodUs,
    blocks,
    untouchedBytes: MIB,
    momentsUs: Float64Array.from({ length: 2 * layers }, (_, op) => op * layerUs),
  };
}

const randomStep: fc.Arbitrary<SwapStep> = fc
  .record({
    blocks: fc.array(
      fc.record({
        size: fc.integer({ min: 1, max: 30 }),
        wholeRun: fc.boolean(),
        from: fc.nat(900),
        life: fc.integer({ min: 60, max: 1400 }),
        touches: fc.array(fc.nat(1000), { minLength: 1, maxLength: 4 }),
      }),
      { minLength: 2, maxLength: 25 },
    ),
  })
  .map(({ blocks }) => {
    const periodUs = 1000;
    return {
      name: 'random',
      periodUs,
      untouchedBytes: 0,
      momentsUs: Float64Array.from({ length: 100 }, (_, op) => op * 10),
      blocks: blocks.map(({ size, wholeRun, from, life, touches }) => {
        const fromUs = wholeRun ? 0 : from;
        const toUs = wholeRun ? periodUs : from + life;
        const times = [...new Set(touches.map((touch) => fromUs + Math.floor((touch / 1001) * (toUs - fromUs - 10)) + 1))].sort(
          (a, b) => a - b,
        );
        return { size: size * MIB, fromUs, toUs, wholeRun, accesses: times.map((time) => access(time)) };
      }),
    };
  });

describe('gaps', () => {
  test('parameters have one across the end of the step', () => {
    const gaps = findGaps(network(4, 1000, 8 * MIB));
    expect(gaps.some((gap) => gap.toUs > 8000)).toBe(true);
    expect(gaps.every((gap) => gap.toUs > gap.fromUs)).toBe(true);
  });

  test('the load curve counts what lives longer than a step more than once', () => {
    const step: SwapStep = {
      name: '',
      periodUs: 100,
      untouchedBytes: 0,
      momentsUs: Float64Array.of(0),
      blocks: [{ size: 10, fromUs: 20, toUs: 250, wholeRun: false, accesses: [] }],
    };
    expect(loadCurve(step).peak).toBe(30);
    expect(Math.min(...loadCurve(step).bytes)).toBe(20);
  });
});

describe('swap plans', () => {
  test('a network whose copies fit loses most of its activations at no cost', () => {
    const step = network(8, 1000, 16 * MIB);
    const plan = planSwapStep(step, { costs: COSTS, budgetMs: 300, offsetsBudgetMs: 200 });
    expect(plan.reduction).toBeGreaterThan(0.4);
    expect(plan.overhead).toBe(0);
    expect(plan.simulation.peak).toBe(plan.zeroStallLimit);
    expect(plan.zeroStallLimit).toBeGreaterThanOrEqual(plan.bounds.bandwidth);
    expect(plan.footprint).toBeGreaterThanOrEqual(plan.zeroStallLimit);
    expect(plan.footprint).toBeLessThan(plan.peak);
    expect(verifySwaps(step, plan.swaps, plan.zeroStallLimit, COSTS)).toEqual([]);
  });

  test('a limit above the lowest needs fewer copies, one below it costs time', () => {
    const step = network(8, 1000, 16 * MIB);
    const lowest = planSwapStep(step, { costs: COSTS, budgetMs: 300, offsetsBudgetMs: 50 });
    const relaxed = planSwapStep(step, {
      costs: COSTS,
      budgetMs: 300,
      offsetsBudgetMs: 50,
      limit: Math.round((lowest.peak + lowest.zeroStallLimit) / 2),
    });
    expect(relaxed.bytesMoved).toBeLessThan(lowest.bytesMoved);
    expect(relaxed.overhead).toBe(0);
    const tight = planSwapStep(step, { costs: COSTS, budgetMs: 300, offsetsBudgetMs: 50, limit: Math.round(lowest.zeroStallLimit * 0.9) });
    expect(tight.verified).toBe(false);
    expect(tight.overhead + tight.simulation.overruns).toBeGreaterThan(0);
    expect(() => swapPlanFile(step, tight, COSTS)).toThrow(UsageError);
    for (let point = 1; point < lowest.curve.length; point++)
      expect(lowest.curve[point]!.limit).toBeLessThan(lowest.curve[point - 1]!.limit);
  });

  test('on random steps planner, simulator and verifier agree, and no bound is broken', () => {
    fc.assert(
      fc.property(randomStep, (step) => {
        const choice = planSwaps(step, { costs: COSTS, budgetMs: 15 });
        expect(choice.limit).toBeLessThanOrEqual(choice.peak);
        expect(choice.limit).toBeGreaterThanOrEqual(swapBounds(step, findGaps(step), COSTS).bandwidth - 1);
        expect(verifySwaps(step, choice.swaps, choice.limit, COSTS)).toEqual([]);
        const simulation = simulateSwaps(step, choice.swaps, { costs: COSTS, limit: choice.limit });
        expect(simulation).toMatchObject({ stallUs: 0, overruns: 0, faults: 0 });
        expect(simulation.peak).toBeLessThanOrEqual(choice.limit);
        expect(simulation.bytesMoved).toBeCloseTo(choice.bytesMoved, -3);
      }),
      { numRuns: 60 },
    );
  });

  test('without swaps the simulator sees the peak of the load curve', () => {
    fc.assert(
      fc.property(randomStep, (step) => {
        expect(simulateSwaps(step, [], { costs: COSTS }).peak).toBe(loadCurve(step).peak);
      }),
    );
  });

  test('gapped lifetimes hold as many bytes as the schedule says', () => {
    fc.assert(
      fc.property(randomStep, (step) => {
        const choice = planSwaps(step, { costs: COSTS, budgetMs: 10 });
        const buffers = gappedBuffers(step, choice.swaps, 2, 1);
        for (let time = 0.5; time < 2000; time += 13.7) {
          const live = buffers
            .filter((buffer) => buffer.spans.some((span) => span.from <= time && time < span.to))
            .reduce((sum, buffer) => sum + buffer.size, 0);
          expect(live).toBeLessThanOrEqual(choice.limit);
        }
        const stacked = Float64Array.from(buffers, (_, index) => buffers.slice(0, index).reduce((sum, buffer) => sum + buffer.size, 0));
        expect(verifyOffsets(buffers, { offsets: stacked, footprint: Number.MAX_SAFE_INTEGER })).toEqual([]);
      }),
      { numRuns: 30 },
    );
  });
});

describe('swap verifier', () => {
  const step = network(4, 1000, 16 * MIB);
  const good = planSwaps(step, { costs: COSTS, budgetMs: 100 });
  const [first, ...others] = good.swaps;
  const faultsOf = (change: object, limit = good.limit) =>
    verifySwaps(step, [{ ...first!, ...change }, ...others], limit, COSTS).map((fault) => fault.message);

  test('accepts the plan', () => expect(faultsOf({})).toEqual([]));
  test('sees a limit that is not kept', () => expect(faultsOf({}, good.limit - 1)[0]).toMatch(/above the limit/));
  test('sees a block that does not exist', () => expect(faultsOf({ block: 99 })[0]).toMatch(/block 99/));
  test('sees a copy faster than the link', () => expect(faultsOf({ outEndUs: first!.outStartUs + 1 })[0]).toMatch(/faster than the link/));
  test('sees a use while away', () => expect(faultsOf({ outStartUs: first!.outStartUs - 20 })[0]).toMatch(/is used at|not live/));
  test('sees a return that is late', () =>
    expect(faultsOf({ inEndUs: first!.inEndUs + 3000, inStartUs: first!.inStartUs + 3000 })[0]).toMatch(/is used at|not live/));
  test('sees times out of order', () => expect(faultsOf({ inStartUs: first!.outEndUs - 500 })[0]).toMatch(/out of order/));
  test('sees two copies at a time', () => {
    const twice = { ...others[0]!, outStartUs: first!.outStartUs, outEndUs: first!.outStartUs + plannedUs(COSTS.out, others[0]!.size) };
    expect(verifySwaps(step, [first!, twice, ...others.slice(1)], Number.MAX_SAFE_INTEGER, COSTS).length).toBeGreaterThan(0);
  });
});

describe('simulator', () => {
  test('a copy that comes back late makes the program wait, and no longer than the copy takes', () => {
    const step = network(4, 1000, 16 * MIB);
    const { swaps } = planSwaps(step, { costs: COSTS, budgetMs: 50 });
    const late = swaps.map((swap) => ({ ...swap, inStartUs: swap.inEndUs, inEndUs: swap.inEndUs + (swap.inEndUs - swap.inStartUs) }));
    const simulation = simulateSwaps(step, late, { costs: COSTS });
    expect(simulation.stallUs).toBeGreaterThan(0);
    expect(simulation.faults).toBe(0);
    expect(simulation.overhead * step.periodUs).toBeLessThan(swaps.reduce((sum, swap) => sum + plannedUs(COSTS.in, swap.size), 0) + 1);
  });

  test('a limit that cannot be kept is told, not kept quiet', () => {
    const step = network(4, 1000, 16 * MIB);
    expect(simulateSwaps(step, [], { costs: COSTS, limit: MIB }).overruns).toBeGreaterThan(0);
  });
});

describe('AutoSwap', () => {
  const swap = new AutoSwap(network(12, 3000, 16 * MIB), AUTOSWAP_COPIES);

  test('takes gaps across the peak only', () => {
    expect(swap.candidates.length).toBeGreaterThan(10);
  });

  test('costs nothing at the peak and something far below', () => {
    expect(swap.at(swap.peak).overhead).toBe(0);
    expect(swap.at(swap.peak * 0.4).overhead).toBeGreaterThan(0);
    const lowest = swap.zeroOverheadLimit(MIB);
    expect(lowest).toBeLessThan(swap.peak);
    expect(swap.at(lowest).overhead).toBe(0);
  });

  test('the weighted search is no worse than any single score', () => {
    for (const share of [0.6, 0.7, 0.8]) {
      const weighted = swap.at(swap.peak * share).overhead;
      for (const score of ['DOA', 'AOA', 'WDOA', 'SWDOA'] as const)
        expect(weighted).toBeLessThanOrEqual(swap.at(swap.peak * share, score).overhead);
    }
  });
});

describe('access JSON', () => {
  const recording = {
    workload: 'tiny',
    steps: [
      [0, 100],
      [100, 200],
      [200, 300],
    ],
    trace: [
      [-5, 'alloc', 512, 1000, 0],
      ...[0, 100, 200].flatMap((at) => [
        [at + 10, 'alloc', 4096, 700, 0],
        [at + 90, 'free_completed', 4096, 700, 0],
      ]),
    ],
    ops: [0, 100, 200].flatMap((at) => [
      [at + 5, at + 20, 'forward', [512], [4096]],
      [at + 60, at + 80, 'backward', [512, 4096], [512]],
    ]),
  };

  test('is read into the steady state of the middle step', () => {
    const step = swapStepOf(readAccessJson(JSON.stringify(recording)), 1);
    expect(step.periodUs).toBe(100);
    expect(step.blocks).toEqual([
      {
        size: 1024,
        fromUs: 0,
        toUs: 100,
        wholeRun: true,
        accesses: [
          { fromUs: 5, toUs: 20, writes: false },
          { fromUs: 60, toUs: 80, writes: true },
        ],
      },
      { size: 1024, fromUs: 10, toUs: 90, wholeRun: false, accesses: [{ fromUs: 60, toUs: 80, writes: false }] },
    ]);
  });

  test.each(['[]', '{}', '{"steps":[[0,1]],"ops":[],"trace":[]}', '{"steps":[["a",1],[1,2]],"ops":[],"trace":[]}', '{'])(
    'refuses %s',
    (text) => {
      expect(() => readAccessJson(text)).toThrow(/recording|JSON/);
    },
  );
});
