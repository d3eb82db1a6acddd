// Steps found while a job runs: from its requests one by one, soon, without the first step's peculiarities, and only where there are any.
import { existsSync, readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { PROCESS_PLAN_HEADER_BYTES } from '../../src/abi/ring.ts';
import { encodePlan } from '../../src/plan/files/process-plan.ts';
import { markKind, opsOfTrace } from '../../src/plan/steps/memory-ops.ts';
import { type HeldLevels, type NotPlanned, StepWatch, type WatchedPlan } from '../../src/plan/steps/step-watch.ts';
import { verifyStepPlan, verifyStepPlanOn } from '../../src/plan/steps/verifier.ts';
import { readRecording } from '../../src/trace/detect.ts';
import { EventKind, type Trace } from '../../src/trace/trace.ts';
import { ROOT } from '../support/command.ts';
import { sampleTrace } from '../support/traces.ts';

const MIB = 2 ** 20;
const UNKNOWN: HeldLevels = { reserved: 0, outside: 0 };

/** Gives rows to the watch until it plans or they end; the last answer that was not "wait" decides. */
function feed(watch: StepWatch, trace: Trace, from = 0, levels = UNKNOWN): WatchedPlan | NotPlanned {
  const { events } = trace;
  let latest: WatchedPlan | NotPlanned = { kind: 'watching', reason: 'nothing yet' };
  for (let event = from; event < events.count; event++) {
    const address = events.address[event]!;
    const kind = events.kind[event]!;
    if (kind === EventKind.Alloc) watch.alloc(address, events.size[event]!, events.stream[event]!);
    else if (kind === EventKind.FreeRequested) watch.freeRequested(address, events.size[event]!, events.stream[event]!);
    else if (kind === EventKind.FreeCompleted) watch.freeCompleted(address);
    if (!watch.isDue) continue;
    latest = watch.look(levels);
    if (latest.kind !== 'watching') return latest;
  }
  return latest;
}

function planned(answer: WatchedPlan | NotPlanned): WatchedPlan {
  if (answer.kind !== 'planned') throw new Error(answer.reason);
  return answer;
}

/** A program by hand: blocks under names, each at an address of its own. */
class Program {
  readonly watch: StepWatch;
  answers: (WatchedPlan | NotPlanned)[] = [];
  /** Steps that have ended; the watch is told every so many operations, or by the test. */
  ended = 0;
  countEvery = Number.POSITIVE_INFINITY;
  private readonly live = new Map<string, [number, number, number]>();
  private next = 1;
  private readonly levels: HeldLevels;

  constructor(watch: StepWatch = new StepWatch(), levels: HeldLevels = UNKNOWN) {
    this.watch = watch;
    this.levels = levels;
  }

  take(name: string, size: number, stream = 0): void {
    const address = this.next++ * 2 ** 30;
    this.live.set(name, [address, size, stream]);
    this.watch.alloc(address, size, stream);
    this.look();
  }

  free(name: string): void {
    const [address, size, stream] = this.live.get(name)!;
    this.live.delete(name);
    this.watch.freeRequested(address, size, stream);
    this.watch.freeCompleted(address);
    this.look();
  }

  get plans(): WatchedPlan[] {
    return this.answers.filter((answer) => answer.kind === 'planned');
  }

  private look(): void {
    if (this.watch.operations % this.countEvery === 0) this.watch.stepsEnded(this.ended);
    if (this.watch.isDue) this.answers.push(this.watch.look(this.levels));
  }
}

/** A step of layers: activations pile up and are used up. */
function trainStep(program: Program, layers: number, unit: number, step: number): void {
  for (let layer = 0; layer < layers; layer++) {
    program.take(`scratch ${layer}`, (layer + 3) * unit);
    program.take(`activation ${layer}`, (layers - layer) * unit + 512 * layer);
    program.free(`scratch ${layer}`);
    // Has lived into this step.
    if (layer === 1 && step > 0) program.free(`loss ${step - 1}`);
  }
  for (let layer = layers - 1; layer >= 0; layer--) {
    program.take(`gradient ${layer}`, (layer + 1) * unit + 512);
    if (layer === 0) program.take(`loss ${step}`, unit);
    program.free(`activation ${layer}`);
    program.free(`gradient ${layer}`);
  }
}

describe('recorded training', () => {
  it.each([
    ['resnet50-b100.native.pickle.gz', 1384, 692],
    ['resnet50-b100.expandable.pickle.gz', 1384, 692],
    ['vgg16-b100.native.pickle.gz', 318, 159],
    ['vgg16-b100.expandable.pickle.gz', 318, 159],
  ])('%s: the step of %d operations is planned within a few steps', (name, period, requests) => {
    const trace = sampleTrace(name);
    const ops = opsOfTrace(trace);
    const found = planned(feed(new StepWatch(), trace));
    expect(found.period).toBe(period);
    expect(found.plan.step.blocks).toHaveLength(requests);
    expect(found.steps).toBeLessThanOrEqual(6);
    expect(found.plan.layout.footprint).toBe(found.plan.lowerBound);
    expect(verifyStepPlan(found.plan)).toEqual([]);
    const { faults, followed, planned: named } = verifyStepPlanOn(ops, found.plan);
    expect([faults, followed === named]).toEqual([[], true]);
    // What it would hold is what is live at most, and the rounding of what the driver gives.
    expect(found.expected).toBeGreaterThan(0.97 * ops.peak);
    expect(found.expected).toBeLessThan(1.002 * ops.peak + 2 * MIB);
  });

  it('finds the step again when it begins to watch in the middle of one', () => {
    const trace = sampleTrace('resnet50-b100.native.pickle.gz');
    const watch = new StepWatch();
    watch.restart(9e9);
    expect(planned(feed(watch, trace, Math.floor(trace.events.count * 0.35))).period).toBe(1384);
  });

  it('finds a second shape after the first', () => {
    const watch = new StepWatch();
    const first = planned(feed(watch, sampleTrace('vgg16-b100.native.pickle.gz')));
    watch.restart(1e9);
    const second = planned(feed(watch, sampleTrace('resnet50-b100.native.pickle.gz')));
    expect([first.period, second.period]).toEqual([318, 1384]);
  });

  it('does not plan what would need more than there is', () => {
    const trace = sampleTrace('vgg16-b100.native.pickle.gz');
    const { expected } = planned(feed(new StepWatch(), trace));
    const answer = feed(new StepWatch(), trace, 0, { reserved: 0.99 * expected, outside: 0 });
    expect(answer).toMatchObject({
      kind: 'declined',
      reason: expect.stringMatching(/^a plan would need .* and the job holds .* without one$/),
    });
    expect(planned(feed(new StepWatch(), trace, 0, { reserved: expected, outside: 0 })).expected).toBe(expected);
    const gaining = feed(new StepWatch(), trace, 0, { reserved: 1.1 * expected, outside: 10 * MIB });
    expect(planned(gaining).expected).toBe(expected + 10 * MIB);
  });

  const far = new URL('../shared/traces/train/', ROOT);
  const there = (name: string) => existsSync(new URL(name, far));
  const read = (name: string) => readRecording(gunzipSync(readFileSync(new URL(name, far)))).traces[0]!;

  it.skipIf(!there('opt1b3-R.native.pickle.gz'))('a language model: its layers are not taken for steps', () => {
    const found = planned(feed(new StepWatch(), read('opt1b3-R.native.pickle.gz')));
    expect([found.period, found.plan.step.blocks.length]).toEqual([5512, 2756]);
    expect(found.steps).toBeLessThanOrEqual(6);
  });

  it.skipIf(!there('bert-wavelet.native.pickle.gz'))('two busy streams are left to lending', () => {
    const answer = feed(new StepWatch(), read('bert-wavelet.native.pickle.gz'));
    expect(answer).toMatchObject({ kind: 'declined', reason: expect.stringContaining('several streams share') });
  });

  it
    .skipIf(!there('opt1b3-N-var.native.pickle.gz'))
    .each([
      'gpt2xl-R-var.native.pickle.gz',
      'llama7b-LRO-var.native.pickle.gz',
      'opt13b-LR-var.native.pickle.gz',
      'opt1b3-N-var.native.pickle.gz',
    ])('%s: lengths vary, and there is no plan', (name) => {
    expect(feed(new StepWatch(), read(name)).kind).toBe('watching');
  });
});

describe('a step watch', () => {
  it('plans a step whatever came before it, with blocks that live into the next one', () => {
    const shape = fc.record({
      layers: fc.integer({ min: 6, max: 24 }),
      before: fc.array(fc.integer({ min: 1, max: 50 }), { maxLength: 300 }),
    });
    fc.assert(
      fc.property(shape, ({ layers, before }) => {
        const program = new Program(new StepWatch({ budgetMs: 50 }));
        before.forEach((size, index) => {
          program.take(`weight ${index}`, size * 4096);
        });
        for (let step = 0; step < 60 && program.plans.length === 0; step++) trainStep(program, layers, MIB, step);
        const [found] = program.plans;
        expect(found!.period).toBe(6 * layers + 2);
        expect(found!.plan.step.blocks).toHaveLength(3 * layers + 1);
        expect(found!.plan.step.blocks.some(({ death }) => death > found!.period)).toBe(true);
        expect(verifyStepPlan(found!.plan)).toEqual([]);
        // It begins where least is live: with the first layer, or what is freed before it.
        expect(found!.plan.step.blocks[0]!.size).toBeLessThanOrEqual(3 * MIB);
      }),
      { numRuns: 15 },
    );
  });

  /** As backward does it where activations are computed anew: layer after layer takes the same and gives it back. */
  function recomputedStep(program: Program, layers: number, from = 0, counts = true): void {
    for (let layer = from; layer < layers; layer++) {
      for (let part = 0; part < 10; part++) program.take(`part ${part}`, (part + 1) * 8 * MIB);
      for (let part = 0; part < 10; part++) program.free(`part ${part}`);
    }
    for (let part = 0; part < UPDATES; part++) program.take(`update ${part}`, (part + 1) * MIB);
    for (let part = 0; part < UPDATES; part++) program.free(`update ${part}`);
    if (counts) program.watch.stepsEnded(++program.ended);
  }
  const LAYERS = 48;
  const UPDATES = 300;
  const PERIOD = LAYERS * 20 + 2 * UPDATES;

  it('does not take layers for steps where the process counts its steps, even if it begins among them', () => {
    const program = new Program(new StepWatch({ budgetMs: 50, countsSteps: true }));
    program.watch.restart(100 * MIB);
    for (let step = 0; step < 12 && program.plans.length === 0; step++) recomputedStep(program, LAYERS, step === 0 ? 8 : 0);
    expect(program.plans.map(({ period }) => period)).toEqual([PERIOD]);
  });

  it('does not take parts of a step for it, whenever steps are counted: often in each, or once in many', () => {
    fc.assert(
      fc.property(fc.integer({ min: 5, max: 12 * PERIOD }), fc.integer({ min: 2, max: 48 }), (every, layers) => {
        const program = new Program(new StepWatch({ budgetMs: 20, countsSteps: true }));
        program.watch.restart(100 * MIB);
        program.countEvery = every;
        for (let step = 0; step < 80 && program.plans.length === 0; step++) {
          // Two equal halves, as with gradient accumulation: each of them begins and ends with the same memory.
          recomputedStep(program, layers, step === 0 ? 1 : 0, false);
          recomputedStep(program, layers, 0, false);
          program.take('state', 8 * MIB);
          program.free('state');
          program.ended++;
        }
        expect(program.plans.map(({ period }) => period)).toEqual([2 * (layers * 20 + 2 * UPDATES) + 2]);
      }),
      { numRuns: 40 },
    );
  });

  it('does not take layers for steps after a step of many operations', () => {
    const program = new Program(new StepWatch({ budgetMs: 50 }));
    const train = (least: number) => {
      program.answers = [];
      program.watch.restart(100 * MIB, least);
      for (let step = 0; step < 12 && program.plans.length === 0; step++) recomputedStep(program, LAYERS, step === 0 ? 2 : 0);
      return program.plans[0]?.period;
    };
    expect([train(0), train(PERIOD)]).toEqual([20, PERIOD]);
  });

  it('finds steps by their repetition where the process was to count and does not', () => {
    const program = new Program(new StepWatch({ budgetMs: 50, countsSteps: true }));
    for (let step = 0; step < 4000 && program.plans.length === 0; step++) trainStep(program, 40, MIB, step);
    expect(program.plans).toHaveLength(1);
    expect(program.watch.operations).toBeGreaterThan(100_000);
  });

  it('finds shorter steps after the process has stopped counting', () => {
    const program = new Program(new StepWatch({ budgetMs: 50, countsSteps: true }));
    for (let step = 0; step < 4; step++) recomputedStep(program, LAYERS);
    for (let step = 0; step < 400 && program.plans.length === 0; step++) {
      trainStep(program, 40, 40 * MIB, step);
      program.watch.stepsEnded(program.ended);
    }
    expect(program.plans[0]?.period).toBe(6 * 40 + 2);
  });

  it('remembers a bounded past', () => {
    const program = new Program(new StepWatch({ window: 2000, budgetMs: 50 }));
    let size = 1;
    const draw = () => {
      size = (size * 48271) % 0x7fffffff;
      return size;
    };
    for (let index = 0; index < 9000; index++) {
      program.take(`x ${index}`, 512 * (1 + (draw() % 4000)));
      if (index >= 40) program.free(`x ${index - 40}`);
    }
    expect(program.plans).toEqual([]);
    for (let step = 0; step < 200 && program.plans.length === 0; step++) trainStep(program, 10, MIB, step);
    const [found] = program.plans;
    expect(found!.period).toBe(62);
    expect(verifyStepPlan(found!.plan)).toEqual([]);
  });

  it('says that nothing is repeated where sizes never come again', () => {
    const program = new Program();
    for (let index = 0; index < 20_000; index++) {
      program.take(`x ${index}`, 512 * (1 + ((index * 7919) % 65_521)));
      if (index >= 9) program.free(`x ${index - 9}`);
    }
    expect(program.answers.length).toBeGreaterThan(5);
    expect(program.answers.length).toBeLessThan(40);
    expect(new Set(program.answers.map(({ kind }) => kind))).toEqual(new Set(['watching']));
  });

  it('does not take a loop inside the first step for the step', () => {
    const program = new Program();
    program.take('weights', 400 * MIB);
    for (let layer = 0; layer < 40; layer++) program.take(`forward ${layer}`, 10 * MIB);
    for (let parameter = 0; parameter < 300; parameter++) {
      for (let part = 0; part < 4; part++) program.take(`p ${part}`, 512 * (part + 1));
      for (let part = 0; part < 4; part++) program.free(`p ${part}`);
    }
    expect(program.plans).toEqual([]);
  });

  it('believes marks sooner', () => {
    const count = (marked: boolean) => {
      const program = new Program(new StepWatch({ budgetMs: 50 }));
      for (let index = 0; index < 1000; index++) program.take(`weight ${index}`, 4096);
      for (let step = 0; step < 100 && program.plans.length === 0; step++) {
        if (marked) program.watch.mark('step');
        trainStep(program, 10, MIB, step);
      }
      expect(program.plans[0]!.period).toBe(62);
      return program.watch.operations;
    };
    expect(count(true)).toBeLessThan(count(false));
  });

  it('plans one stream, beside others that do little', () => {
    const program = new Program(new StepWatch({ budgetMs: 50 }));
    for (let step = 0; step < 60 && program.plans.length === 0; step++) {
      trainStep(program, 10, MIB, step);
      program.take('copy', 4 * MIB, 3);
      program.free('copy');
    }
    const [found] = program.plans;
    expect(found!.stream).toBe(0);
    expect(new Set(found!.plan.step.blocks.map(({ stream }) => stream))).toEqual(new Set([0]));
    expect(found!.period).toBe(64);
    expect(found!.expected).toBeGreaterThanOrEqual(found!.plan.layout.footprint + 4 * MIB);
  });
});

describe('a plan file', () => {
  it('has a fixed layout', () => {
    const bytes = encodePlan({
      device: 2,
      stream: 0x1122334455667788n,
      sizes: [512, 2 ** 33],
      turns: 2,
      offsets: [0, 512, 1024, 2 ** 34],
      footprint: 2 ** 35 + 1,
    });
    expect(bytes).toHaveLength(PROCESS_PLAN_HEADER_BYTES + 8 * 6);
    const view = new DataView(bytes.buffer);
    expect(new TextDecoder().decode(bytes.subarray(0, 8))).toBe('WEIRPLAN');
    expect([8, 12, 24, 28].map((at) => view.getUint32(at, true))).toEqual([1, 2, 2, 2]);
    expect(view.getBigUint64(16, true)).toBe(0x1122334455667788n);
    expect([32, 40, 48, 56, 64, 72, 80].map((at) => Number(view.getBigUint64(at, true)))).toEqual([
      2 ** 35 + 512,
      512,
      2 ** 33,
      0,
      512,
      1024,
      2 ** 34,
    ]);
  });
});

describe('marks', () => {
  it('that differ in a number alone are of one kind, and those about plans are of none', () => {
    expect([markKind('step 7'), markKind('step 1234'), markKind('weir plan 2 in use')]).toEqual(['step #', 'step #', undefined]);
  });
});
