// Swap plans: what the planner says, the simulator sees and the verifier accepts must be the same thing.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { UsageError } from '../../src/base/errors.ts';
import { readAccessJson } from '../../src/plan/files/access-inputs.ts';
import { swapPlanFile } from '../../src/plan/files/plan-file.ts';
import { planOffsets } from '../../src/plan/offsets/planner.ts';
import { verifyOffsets } from '../../src/plan/offsets/verifier.ts';
import { type SwapStep, swapStepOf } from '../../src/plan/swaps/accesses.ts';
import { AUTOSWAP_COPIES, copyCosts, plannedUs } from '../../src/plan/swaps/copy-costs.ts';
import { findGaps, loadCurve, swapBounds } from '../../src/plan/swaps/gaps.ts';
import { gappedBuffers, planSwapStep } from '../../src/plan/swaps/planner.ts';
import { AutoSwap } from '../../src/plan/swaps/published/autoswap.ts';
import type { Swap } from '../../src/plan/swaps/schedule.ts';
import { planSwaps } from '../../src/plan/swaps/search.ts';
import { simulateSwaps } from '../../src/plan/swaps/simulator.ts';
import { peakWithoutSwaps, verifySwapLayout, verifySwaps } from '../../src/plan/swaps/verifier.ts';
import { meet } from './plan-support.ts';

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
});

/** Two activations of 16 MiB and a parameter, idle for most of a step of 10 ms; written out so that single times can be changed. */
describe('swap verifier, time by time', () => {
  const size = 16 * MIB;
  const step: SwapStep = {
    name: 'by hand',
    periodUs: 10_000,
    untouchedBytes: MIB,
    momentsUs: Float64Array.of(0),
    blocks: [
      { size, fromUs: 0, toUs: 9000, wholeRun: false, accesses: [access(0, true), access(8900)] },
      { size, fromUs: 0, toUs: 9000, wholeRun: false, accesses: [access(0, true), access(8900)] },
      { size, fromUs: 0, toUs: 10_000, wholeRun: true, accesses: [access(5000)] },
    ],
  };
  // At 10 us for each MiB and 1 us for each copy, 16 MiB take 161 us.
  const COPY = 161;
  const swap = (block: number, out: number, back: number): Swap => ({
    block,
    size,
    outStartUs: out,
    outEndUs: out + COPY,
    inStartUs: back,
    inEndUs: back + COPY,
  });
  const good = [swap(0, 100, 8000), swap(1, 300, 8300)];
  const faultsOf = (swaps: readonly Swap[], limit = Number.MAX_SAFE_INTEGER) =>
    verifySwaps(step, swaps, limit, COSTS).map((fault) => fault.message);
  const changed = (change: Partial<Swap>) => [good[0]!, { ...good[1]!, ...change }];

  test("the plan as written is accepted, at exactly the link's speed", () => {
    expect(faultsOf(good, 3 * size + MIB)).toEqual([]);
    expect(faultsOf(good, 3 * size + MIB - 1)[0]).toMatch(/above the limit/);
  });

  test('a copy out 1 us too fast', () => {
    expect(faultsOf(changed({ outEndUs: 300 + COPY - 1 }))).toEqual(['swap 1 copies out faster than the link can']);
  });

  test('a copy in 1 us too fast', () => {
    expect(faultsOf(changed({ inEndUs: 8300 + COPY - 1 }))).toEqual(['swap 1 copies in faster than the link can']);
  });

  test('a copy in that is as slow as the link out, where the way in is slower', () => {
    const slowIn = { ...COSTS, in: { ...COSTS.in, alone: COSTS.in.alone / 2 } };
    expect(verifySwaps(step, good, Number.MAX_SAFE_INTEGER, slowIn).map((fault) => fault.message)).toEqual([
      'swap 0 copies in faster than the link can',
      'swap 1 copies in faster than the link can',
    ]);
  });

  test('two copies out at a time', () => {
    expect(faultsOf([good[0]!, swap(1, 100 + COPY - 1, 8300)])).toEqual([`two copies out run at ${100 + COPY - 1} us`]);
    expect(faultsOf([good[0]!, swap(1, 100 + COPY, 8300)])).toEqual([]);
  });

  test('two copies in at a time', () => {
    expect(faultsOf([good[0]!, swap(1, 300, 8000 + COPY - 1)])).toEqual([`two copies in run at ${8000 + COPY - 1} us`]);
    expect(faultsOf([good[0]!, swap(1, 300, 8000 + COPY)])).toEqual([]);
  });

  test('copies of one step that run into those of the next', () => {
    // The parameter leaves at the end of the step, while the copy out of the next step has begun.
    const across = swap(2, 10_000 + 100 - 80, 14_000);
    expect(faultsOf([...good, across])).toEqual(['two copies out run at 10100 us']);
    expect(faultsOf([...good, swap(2, 10_000 + 100 - COPY, 14_000)])).toEqual([]);
    const backAcross = swap(2, 5100, 18_000 - 80);
    expect(faultsOf([...good, backAcross])).toEqual(expect.arrayContaining([expect.stringMatching(/^two copies in|is used at/)]));
  });

  test('a block that leaves again before it is back', () => {
    // Each trip by itself is in order, and the copies do not meet.
    expect(faultsOf([swap(0, 100, 8000), swap(0, 4000, 6000)])).toEqual(['block 0 leaves at 4000 us, before it is back']);
    expect(faultsOf([swap(0, 100, 2000), swap(0, 2000 + COPY, 8000)])).toEqual([]);
    expect(faultsOf([swap(0, 100, 2000), swap(0, 2000 + COPY - 1, 8000)])).toEqual([
      `block 0 leaves at ${2000 + COPY - 1} us, before it is back`,
    ]);
  });

  test('a parameter whose trip is longer than a step', () => {
    const idle: SwapStep = { ...step, blocks: step.blocks.map((block) => (block.wholeRun ? { ...block, accesses: [] } : block)) };
    const trip = swap(2, 6000, 6000 + 10_000 - COPY + 1);
    expect(verifySwaps(idle, [trip], Number.MAX_SAFE_INTEGER, COSTS).map((fault) => fault.message)).toEqual([
      'block 2 leaves at 16000 us, before it is back',
    ]);
    expect(verifySwaps(idle, [swap(2, 6000, 6000 + 10_000 - COPY)], Number.MAX_SAFE_INTEGER, COSTS)).toEqual([]);
  });

  test('a use of a parameter in the next step, before it is back', () => {
    expect(faultsOf([swap(2, 5100, 15_000 - COPY + 1)])).toEqual([expect.stringMatching(/^swap 0: block 2 is used at 15000 us/)]);
    expect(faultsOf([swap(2, 5100, 15_000 - COPY)])).toEqual([]);
  });

  test('copies before a block is born or after it has died', () => {
    const late: SwapStep = { ...step, blocks: [{ ...step.blocks[0]!, fromUs: 150, accesses: [access(8000)] }, ...step.blocks.slice(1)] };
    expect(verifySwaps(late, [swap(0, 149, 7000)], Number.MAX_SAFE_INTEGER, COSTS).map((fault) => fault.message)).toEqual([
      'swap 0 goes on when its block is not live',
    ]);
    expect(verifySwaps(late, [swap(0, 150, 7000)], Number.MAX_SAFE_INTEGER, COSTS)).toEqual([]);
    expect(faultsOf([swap(0, 8905, 8905 + COPY)])[0]).toMatch(/not live/);
  });

  test('a size that is not that of the block', () => {
    expect(faultsOf(changed({ size: size - 512 }))[0]).toMatch(/copies \d+ bytes of a block of/);
  });

  test('memory is free from the end of the copy out to the start of the copy in, and not longer', () => {
    // Most is held while both activations and the parameter are there.
    const peak: SwapStep = {
      ...step,
      blocks: [...step.blocks, { size, fromUs: 300 + COPY, toUs: 8000, wholeRun: false, accesses: [access(1000)] }],
    };
    const held = (block: Partial<SwapStep['blocks'][number]>) =>
      verifySwaps({ ...peak, blocks: [...step.blocks, { ...peak.blocks[3]!, ...block }] }, good, 3 * size + MIB, COSTS);
    expect(held({})).toEqual([]);
    expect(held({ fromUs: 100 + COPY - 1 })[0]!.message).toMatch(/^at 260 us \d+ bytes are held, above the limit/);
    // Both copies in have begun, and the block is still there.
    expect(held({ toUs: 8301 })[0]!.message).toMatch(/^at 8300 us \d+ bytes are held/);
  });
});

describe('swap layouts', () => {
  const step = network(4, 1000, 16 * MIB);
  const plan = planSwapStep(step, { costs: COSTS, budgetMs: 100, offsetsBudgetMs: 100 });
  const layout = { offsets: Array.from(plan.layout.offsets), footprint: plan.layout.footprint };
  const verify = (offsets: readonly number[], swaps = plan.swaps, footprint = layout.footprint) =>
    verifySwapLayout(step, swaps, plan.turns, { offsets, footprint }).map((fault) => fault.message);

  test('of a plan are accepted', () => expect(verify(layout.offsets)).toEqual([]));
  test('need every block', () => {
    expect(verify(layout.offsets.slice(1))[0]).toMatch(/has \d+ offsets, but the blocks of the step need \d+/);
    expect(verify([])[0]).toMatch(/0 offsets/);
  });
  test('may not end above the footprint', () =>
    expect(verify(layout.offsets, plan.swaps, layout.footprint - 1)[0]).toMatch(/above the footprint/));
  test('may not share bytes', () => expect(verify(layout.offsets.map(() => 0))[0]).toMatch(/share bytes/));
  test('count a block that is not swapped out as present', () => {
    expect(plan.swaps.length).toBeGreaterThan(0);
    expect(verify(layout.offsets, [])[0]).toMatch(/share bytes/);
  });

  test('of random steps are accepted, unless two blocks that meet are put together', () => {
    fc.assert(
      fc.property(randomStep, fc.nat(), fc.nat(), (random, a, b) => {
        const { swaps } = planSwaps(random, { costs: COSTS, budgetMs: 5 });
        const turns = 2;
        const buffers = gappedBuffers(random, swaps, turns, 512);
        const { offsets, footprint } = planOffsets(buffers, { budgetMs: 0 });
        const list = Array.from(offsets);
        expect(verifySwapLayout(random, swaps, turns, { offsets: list, footprint })).toEqual([]);
        const first = a % list.length;
        const second = b % list.length;
        if (first === second || !meet(buffers[first]!, buffers[second]!)) return;
        list[first] = list[second]!;
        expect(verifySwapLayout(random, swaps, turns, { offsets: list, footprint: Number.MAX_SAFE_INTEGER })).not.toEqual([]);
      }),
      { numRuns: 40 },
    );
  });

  test('the peak without swaps is that of the load curve', () => {
    fc.assert(
      fc.property(randomStep, (random) => {
        expect(peakWithoutSwaps(random)).toBe(loadCurve(random).peak);
      }),
    );
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
