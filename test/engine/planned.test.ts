// Plans in the engine: requests that follow one are served at their places without a driver call, and others are never harmed.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { createWeir, type EngineAllocator } from '../../src/allocator/engine/allocator.ts';
import { GMLAKE_SETTINGS } from '../../src/allocator/engine/settings.ts';
import { SimulatedBackend } from '../../src/backend/simulated.ts';
import { MIB } from '../../src/base/bytes.ts';
import { opsOfTrace } from '../../src/plan/steps/memory-ops.ts';
import { plannedChoice } from '../../src/plan/steps/planned-choice.ts';
import { replay } from '../../src/replay/replay.ts';
import { sampleTrace } from '../support/traces.ts';
import { StrictBackend } from './strict-backend.ts';
import { type Deviation, type Shape, shapeFrom, Training } from './training.ts';

const SHAPE = shapeFrom(3, 30);
const OTHER = shapeFrom(8, 44);

function planned(backend: StrictBackend = new StrictBackend(), shapes: readonly Shape[] = [SHAPE]): Training {
  const training = new Training(backend);
  for (const shape of shapes) expect(training.allocator.installPlan(shape.plan)).toBeGreaterThan(0);
  return training;
}

function steps(training: Training, count: number, shape: Shape = SHAPE): void {
  for (let step = 0; step < count; step++) training.step(shape);
}

/** How many requests are served at their places while something runs. */
function hitsOf({ allocator }: Training, run: () => void): number {
  const before = allocator.planStatistics.hits;
  run();
  return allocator.planStatistics.hits - before;
}

const callsOf = ({ ledger }: SimulatedBackend) => Object.values(ledger.calls).reduce((sum, calls) => sum + calls, 0);

describe('a plan that is followed', () => {
  test('is used after a step that followed it, and then makes no driver call and holds what is live', () => {
    const training = planned();
    steps(training, 1);
    expect(training.allocator.planStatistics.hits).toBe(0);
    steps(training, 5);
    const calls = training.backend.callsMade;
    expect(hitsOf(training, () => steps(training, 5))).toBe(5 * SHAPE.sizes.length);
    expect(training.backend.callsMade).toBe(calls);
    expect(training.allocator.reservedBytes).toBeLessThan(SHAPE.plan.footprint + 8 * MIB);
    expect(training.end()).toBe(true);
  });

  test('gives back the memory of a surprise, and more rarely the more often it is needed again', () => {
    const training = planned();
    steps(training, 6);
    const least = training.allocator.reservedBytes;
    const surprise = () => training.step(SHAPE, { extra: new Map([[12, 150 * MIB]]) });
    /** Followed steps until the memory of a surprise is given back. */
    const stepsUntilBack = () => {
      surprise();
      expect(training.allocator.reservedBytes).toBeGreaterThan(least + 100 * MIB);
      let count = 0;
      while (training.allocator.reservedBytes > least && count < 100) {
        steps(training, 1);
        count++;
      }
      return count;
    };
    const waits = Array.from({ length: 5 }, stepsUntilBack);
    for (let index = 1; index < waits.length; index++) expect(waits[index]).toBeGreaterThan(waits[index - 1]!);
    expect(waits.at(-1)).toBeLessThan(100);
    expect(training.end()).toBe(true);
  });

  test('a surprise in every step costs driver calls in ever fewer steps', () => {
    const training = planned();
    steps(training, 6);
    const busy: number[] = [];
    for (let step = 0; step < 130; step++) {
      const calls = training.backend.callsMade;
      training.step(SHAPE, { extra: new Map([[12, 150 * MIB]]) });
      if (training.backend.callsMade > calls) busy.push(step);
    }
    expect(busy.length).toBeLessThan(20);
    expect(busy.filter((step) => step > 65).length).toBeLessThan(4);
    expect(training.end()).toBe(true);
  });

  test('gives each request its place in every step', () => {
    const training = planned();
    steps(training, 5);
    const first = training.malloc(SHAPE.sizes[0]!)!;
    const address = training.allocator.addressOf(first);
    training.free(first);
    steps(training, SHAPE.plan.turns);
    expect(training.allocator.planStatistics.occupied).toBe(0);
    expect(address).toBeGreaterThan(0);
  });

  test.each([
    ['vgg16-b100.native.pickle.gz', 1.003],
    ['resnet50-b100.native.pickle.gz', 1.01],
  ])('%s: at most %f times what is live, and in the end no driver call', (sample, most) => {
    const trace = sampleTrace(sample);
    const ops = opsOfTrace(trace);
    const choice = plannedChoice(trace);
    if ('periodic' in choice) throw new Error(choice.reason);
    const backend = new SimulatedBackend();
    let calls = 0;
    // In the last step, from its beginning on, there is no driver call.
    const lastStep = Math.floor(trace.events.count * 0.86);
    const result = replay(trace, choice.create, {
      backend,
      checkEvery: 50,
      observer: {
        placed: () => {},
        after: (event) => {
          if (event === lastStep) calls = callsOf(backend);
        },
      },
    });
    expect(callsOf(backend)).toBe(calls);
    expect(result.ooms).toBe(0);
    expect(result.peakReserved / ops.peak).toBeLessThan(most);
    const { planStatistics, statistics } = result.allocator as EngineAllocator;
    expect(planStatistics.hits).toBeGreaterThan(600);
    expect(planStatistics.active).toBe(1);
    expect(statistics.retries).toBe(0);
  });
});

describe('a run that leaves its plan', () => {
  test('an extra request costs itself, not the rest of the run', () => {
    const training = planned();
    steps(training, 4);
    expect(hitsOf(training, () => training.step(SHAPE, { extra: new Map([[9, 77 * MIB]]) }))).toBe(SHAPE.sizes.length);
    expect(hitsOf(training, () => steps(training, 1))).toBe(SHAPE.sizes.length);
  });

  test('a missing request costs a few, not the rest of the run', () => {
    const training = planned();
    steps(training, 4);
    expect(hitsOf(training, () => training.step(SHAPE, { without: new Set([9]) }))).toBeGreaterThan(SHAPE.sizes.length - 8);
    expect(hitsOf(training, () => steps(training, 2))).toBeGreaterThan(2 * SHAPE.sizes.length - 8);
  });

  test('a layer that is left out costs nothing, if what follows tells where the run is', () => {
    const layer = [1, 2, 3, 4, 5, 6];
    const end = [1, 2, 3, 4, 5, 7, ...Array.from({ length: 20 }, (_, index) => 8 + index)];
    const sizes = (layers: number) => [...Array.from({ length: layers }, () => layer).flat(), ...end].map((size) => (size * MIB) / 4);
    const whole = sizes(3);
    const offsets = whole.map((_, index) => whole.slice(0, index).reduce((sum, size) => sum + size, 0));
    const requests = whole.map((size) => ({ size, stream: 0 }));
    const training = new Training(new StrictBackend());
    const footprint = offsets.at(-1)! + whole.at(-1)!;
    training.allocator.installPlan({ requests, turns: 1, offsets: Float64Array.from(offsets), footprint });
    const step = (layers: number) => {
      for (const block of sizes(layers).map((size) => training.malloc(size))) training.free(block);
    };
    for (let round = 0; round < 4; round++) step(3);
    expect(hitsOf(training, () => step(2))).toBe(sizes(2).length);
    expect(hitsOf(training, () => step(3))).toBe(whole.length);
    expect(training.end()).toBe(true);
  });

  test('a block that outlives its plan keeps its bytes', () => {
    const training = planned();
    steps(training, 4);
    training.step(SHAPE, { kept: new Set([0, 5, 20]) });
    steps(training, 4);
    expect(training.allocator.planStatistics.occupied).toBeGreaterThan(0);
    expect(training.end()).toBe(true);
  });

  test('a block that another stream uses keeps its place until that stream has passed', () => {
    const training = planned();
    steps(training, 4);
    const recorded = new Set(SHAPE.sizes.keys());
    for (let step = 0; step < 4; step++) training.step(SHAPE, { recorded });
    expect(training.allocator.planStatistics.occupied).toBeGreaterThan(0);
    steps(training, 3);
    expect(hitsOf(training, () => steps(training, 1))).toBe(SHAPE.sizes.length);
    expect(training.end()).toBe(true);
  });

  test('stands down, lends its memory to whatever comes instead, and resumes', () => {
    const training = planned();
    steps(training, 4);
    const before = training.backend.usedBytes;
    for (let request = 0; request < 1500; request++) training.free(training.malloc(512 * (1000 + (request % 700))));
    expect(training.allocator.planStatistics).toMatchObject({ active: 0, plans: 1 });
    expect(training.allocator.planStatistics.arenaBytes).toBeLessThan(SHAPE.plan.footprint);
    expect(training.backend.usedBytes).toBeLessThanOrEqual(before);
    steps(training, 3);
    expect(hitsOf(training, () => steps(training, 1))).toBe(SHAPE.sizes.length);
    expect(training.end()).toBe(true);
  });

  test.each([[0], [63], [64], [65], [130], [191, 192], [258], [299]])(
    'a large block over places of which %i outlived its plan',
    (...kept) => {
      const sizes = [...Array.from({ length: 300 }, () => 512 * 1024), 150 * MIB];
      const offsets = sizes.map((size, index) => (size < MIB ? index * size : 0));
      const requests = sizes.map((size) => ({ size, stream: 0 }));
      const training = new Training(new StrictBackend());
      training.allocator.installPlan({ requests, turns: 1, offsets: Float64Array.from(offsets), footprint: 150 * MIB });
      const step = (kept: readonly number[]) => {
        const small = sizes.slice(0, -1).map((size) => training.malloc(size));
        for (const [index, block] of small.entries()) if (!kept.includes(index)) training.free(block);
        training.free(training.malloc(sizes.at(-1)!));
        return small.filter((_, index) => kept.includes(index));
      };
      for (let round = 0; round < 3; round++) step([]);
      const { occupied } = training.allocator.planStatistics;
      const blocks = hitsOf(training, () => step([])) === sizes.length ? step(kept) : [];
      expect(blocks).toHaveLength(kept.length);
      expect(training.allocator.planStatistics.occupied).toBe(occupied + 1);
      // The other places are as free as before.
      expect(hitsOf(training, () => step([]))).toBe(sizes.length - 1 - kept.length);
      for (const block of blocks) training.free(block);
      expect(hitsOf(training, () => step([]))).toBe(sizes.length);
      expect(training.end()).toBe(true);
    },
  );

  test.each([0, 1, 2, 3, 4, 5])('stands down at a request that it has just served, after %i others', (others) => {
    const sizes = Array.from({ length: 12 }, (_, index) => (3 + index) * MIB);
    const offsets = sizes.map((_, index) => sizes.slice(0, index).reduce((sum, size) => sum + size, 0));
    const requests = sizes.map((size) => ({ size, stream: 0 }));
    const training = new Training(new StrictBackend());
    const footprint = offsets.at(-1)! + sizes.at(-1)!;
    training.allocator.installPlan({ requests, turns: 1, offsets: Float64Array.from(offsets), footprint });
    for (let step = 0; step < 6; step++) for (const block of sizes.map((size) => training.malloc(size))) training.free(block);
    for (let other = 0; other < others; other++) training.free(training.malloc(1.25 * MIB));
    // Five of six requests are not planned, so one of the planned ones is the last before the plan is judged.
    for (let step = 0; step < 20; step++) {
      const blocks = sizes.map((size) => {
        const block = training.malloc(size);
        const more = [40, 41, 42, 43, 44].map((unit) => training.malloc((unit * MIB) / 16));
        for (const one of more) training.free(one);
        return block;
      });
      for (const block of blocks) training.free(block);
    }
    expect(training.end()).toBe(true);
  });

  test('another phase takes the memory of an empty plan at once', () => {
    const shape = shapeFrom(5, 20, 24 * MIB, 0);
    const training = planned(new StrictBackend(), [shape]);
    steps(training, 4, shape);
    const before = training.backend.usedBytes;
    const blocks = Array.from({ length: 40 }, () => training.malloc(2 * MIB));
    expect(training.backend.usedBytes).toBeLessThan(Math.max(before + 40 * MIB, 90 * MIB));
    for (const block of blocks) training.free(block);
    steps(training, 2, shape);
    expect(hitsOf(training, () => steps(training, 1, shape))).toBe(shape.sizes.length);
  });
});

describe('several plans', () => {
  test('the second of two shapes keeps its plan, and changing between them makes no driver call', () => {
    const shapes = [shapeFrom(3, 30, 24 * MIB, 0), shapeFrom(8, 44, 24 * MIB, 0)];
    const training = planned(new StrictBackend(), shapes);
    const round = () => {
      for (const shape of shapes) training.step(shape);
    };
    for (let warm = 0; warm < 4; warm++) round();
    const calls = training.backend.callsMade;
    expect(hitsOf(training, round)).toBe(shapes[0]!.sizes.length + shapes[1]!.sizes.length);
    expect(training.backend.callsMade).toBe(calls);
    // Blocks of one plan that live while the other runs take its places, and do nothing else.
    steps(training, 3, SHAPE);
    for (let mixed = 0; mixed < 3; mixed++) round();
    expect(training.allocator.planStatistics.plans).toBe(2);
    expect(training.end()).toBe(true);
  });

  test('more than four: the one used longest ago goes', () => {
    const shapes = [11, 12, 13, 14, 15].map((seed) => shapeFrom(seed, 12));
    const training = planned(new StrictBackend(), shapes.slice(0, 4));
    for (const shape of shapes.slice(1, 4)) steps(training, 3, shape);
    expect(training.allocator.installPlan(shapes[4]!.plan)).toBe(5);
    expect(training.allocator.planStatistics.plans).toBe(4);
    expect(training.allocator.forgetPlan(1)).toBe(false);
    expect(training.allocator.forgetPlan(5)).toBe(true);
    steps(training, 2, shapes[2]!);
    expect(training.end()).toBe(true);
  });

  test('a plan installed or forgotten while its blocks live', () => {
    const training = planned();
    steps(training, 3);
    const held = SHAPE.sizes.slice(0, 12).map((size) => training.malloc(size));
    expect(training.allocator.planStatistics.blocks).toBeGreaterThan(5);
    training.allocator.installPlan(OTHER.plan);
    training.check();
    training.allocator.forgetPlan(1);
    training.check();
    steps(training, 3, OTHER);
    for (const block of held) training.free(block);
    training.allocator.forgetPlan();
    training.check();
    steps(training, 2);
    expect(training.end()).toBe(true);
  });

  test('what cannot be a plan is refused', () => {
    const { allocator } = new Training(new StrictBackend());
    const plan = SHAPE.plan;
    const offsets = (change: (list: Float64Array) => void) => {
      const list = plan.offsets.slice();
      change(list);
      return list;
    };
    expect(allocator.installPlan({ ...plan, requests: [], offsets: new Float64Array() })).toBe(0);
    expect(allocator.installPlan({ ...plan, turns: 17, offsets: new Float64Array(17 * plan.requests.length) })).toBe(0);
    expect(allocator.installPlan({ ...plan, footprint: plan.footprint - 512 })).toBe(0);
    expect(allocator.installPlan({ ...plan, footprint: 2 ** 41 })).toBe(0);
    expect(allocator.installPlan({ ...plan, offsets: offsets((list) => (list[3] = 100)) })).toBe(0);
    expect(allocator.installPlan({ ...plan, offsets: offsets((list) => (list[3] = plan.footprint)) })).toBe(0);
    expect(allocator.installPlan({ ...plan, requests: plan.requests.map((request) => ({ ...request, size: 511 })) })).toBe(0);
    expect(allocator.installPlan({ ...plan, requests: plan.requests.map((request, stream) => ({ ...request, stream })) })).toBe(0);
    const gmlake = new Training(new StrictBackend(), GMLAKE_SETTINGS).allocator;
    expect(gmlake.installPlan(plan)).toBe(0);
    expect(allocator.installPlan(plan)).toBe(1);
    expect(allocator.installPlan({ ...plan, requests: plan.requests.map((request) => ({ ...request, stream: 1 })) })).toBe(0);
    allocator.check();
  });
});

describe('memory', () => {
  test('a plan that is nonsense does no harm', () => {
    const training = new Training(new StrictBackend());
    training.allocator.installPlan({ ...SHAPE.plan, offsets: new Float64Array(SHAPE.plan.offsets.length) });
    steps(training, 5);
    expect(training.allocator.planStatistics.occupied).toBeGreaterThan(10);
    expect(training.end()).toBe(true);
  });

  test('the cache emptied after every step: all is given back, and taken again', () => {
    const shape = shapeFrom(5, 20, 24 * MIB, 0);
    const training = planned(new StrictBackend(), [shape]);
    for (let step = 0; step < 5; step++) {
      steps(training, 1, shape);
      training.allocator.emptyCache();
      training.check();
      expect(training.backend.usedBytes).toBe(0);
    }
    expect(hitsOf(training, () => steps(training, 1, shape))).toBe(shape.sizes.length);
  });

  test('on a backend that holds little more than is live nothing fails that did not fail before', () => {
    for (const extra of [0, 2, 6, 16, 40]) {
      const capacity = 2 * MIB * Math.ceil(SHAPE.plan.footprint / (2 * MIB)) + extra * MIB;
      const without = new Training(new StrictBackend(capacity));
      steps(without, 6);
      const training = planned(new StrictBackend(capacity));
      steps(training, 6);
      expect(training.failures).toBeLessThanOrEqual(without.failures);
      expect(training.end()).toBe(true);
    }
  });

  test('a request that finds no memory gets what plans do not use', () => {
    const training = planned(new StrictBackend(SHAPE.plan.footprint + 40 * MIB));
    steps(training, 4);
    const large = training.malloc(0.8 * SHAPE.plan.footprint);
    expect(large).toBeDefined();
    training.free(large);
    steps(training, 3);
    expect(training.failures).toBe(0);
    expect(training.end()).toBe(true);
  });

  test('every driver call fails once', () => {
    const run = (training: Training) => {
      steps(training, 3);
      training.step(SHAPE, { extra: new Map([[4, 30 * MIB]]), kept: new Set([7]) });
      training.allocator.installPlan(OTHER.plan);
      steps(training, 3, OTHER);
      training.allocator.emptyCache();
      training.check();
      steps(training, 3);
      training.allocator.forgetPlan();
      steps(training, 1);
      return training.end();
    };
    const clean = planned();
    expect(run(clean)).toBe(true);
    expect(clean.allocator.planStatistics.hits).toBeGreaterThan(60);
    for (let failing = 0; failing < clean.backend.callsMade; failing++) {
      const training = planned(new StrictBackend(Number.POSITIVE_INFINITY, (call) => call === failing));
      expect(run(training), `call ${failing}: ${training.backend.calls[failing]}; left: ${training.backend.describe()}`).toBe(true);
      expect(training.failures).toBe(0);
    }
    for (let failing = 0; failing < clean.backend.callsMade; failing += 3) {
      const training = planned(new StrictBackend(Number.POSITIVE_INFINITY, (call) => call >= failing && call < failing + 5));
      expect(run(training), `calls from ${failing}: ${training.backend.calls[failing]}; left: ${training.backend.describe()}`).toBe(true);
    }
  });
});

describe('whatever a program does', () => {
  const numbers = fc.uniqueArray(fc.nat(29), { maxLength: 4 });
  const deviation: fc.Arbitrary<Deviation> = fc.record({
    without: numbers.map((list) => new Set(list)),
    extra: fc.array(fc.tuple(fc.nat(29), fc.integer({ min: 1, max: 40 * MIB })), { maxLength: 3 }).map((list) => new Map(list)),
    kept: fc.uniqueArray(fc.nat(29), { maxLength: 2 }).map((list) => new Set(list)),
    resized: fc.array(fc.tuple(fc.nat(29), fc.integer({ min: 1, max: 20 * MIB })), { maxLength: 3 }).map((list) => new Map(list)),
    recorded: numbers.map((list) => new Set(list)),
  });
  const act = fc.oneof(
    { weight: 6, arbitrary: fc.constant({ kind: 'step' as const }) },
    { weight: 4, arbitrary: deviation.map((how) => ({ kind: 'other' as const, how })) },
    { weight: 2, arbitrary: fc.constant({ kind: 'second' as const }) },
    { weight: 1, arbitrary: fc.constantFrom({ kind: 'empty' as const }, { kind: 'install' as const }, { kind: 'forget' as const }) },
  );

  test('invariants hold, no byte has two owners, and in the end the backend holds nothing', () => {
    fc.assert(
      fc.property(fc.array(act, { minLength: 4, maxLength: 14 }), fc.constantFrom(0, 250, 400), (acts, capacity) => {
        const training = planned(new StrictBackend(capacity === 0 ? Number.POSITIVE_INFINITY : capacity * MIB));
        steps(training, 2);
        for (const one of acts) {
          if (one.kind === 'step') steps(training, 1);
          else if (one.kind === 'other') training.step(SHAPE, one.how);
          else if (one.kind === 'second') steps(training, 2, OTHER);
          else if (one.kind === 'empty') training.allocator.emptyCache();
          else if (one.kind === 'install') training.allocator.installPlan(OTHER.plan);
          else training.allocator.forgetPlan(1);
          training.check();
        }
        return training.end();
      }),
      { numRuns: 60 },
    );
  });

  test('census and snapshot add up', () => {
    const backend = new SimulatedBackend();
    const allocator = createWeir({ backend, streams: [0] });
    allocator.installPlan(SHAPE.plan);
    const run = () => {
      const blocks = SHAPE.sizes.map((size) => allocator.malloc(size, 0, 0));
      for (const block of blocks) allocator.free(block);
      for (const block of blocks) allocator.complete(block);
    };
    for (let step = 0; step < 4; step++) run();
    const blocks = SHAPE.sizes.map((size) => allocator.malloc(size - 100, 0, 0));
    expect(allocator.planStatistics.blocks).toBeGreaterThan(3);
    allocator.free(blocks[2]!);
    const sum = (pick: (group: ReturnType<EngineAllocator['census']>[number]) => number) =>
      allocator.census().reduce((total, group) => total + pick(group), 0);
    expect(sum((group) => group.reserved)).toBe(allocator.reservedBytes);
    expect(sum((group) => group.requested + group.rounding)).toBe(allocator.allocatedBytes);
    const rows = allocator.snapshot();
    expect(rows.filter(({ state, given }) => state === 'live' && given !== 0)).toHaveLength(SHAPE.sizes.length - 1);
    expect(rows.filter(({ state }) => state === 'planned').reduce((total, { size }) => total + size, 0)).toBe(
      allocator.planStatistics.arenaBytes,
    );
  });
});
