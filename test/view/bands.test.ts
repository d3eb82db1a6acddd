// Bands of live memory: they add up to what is live after every event, and each is what an independent count finds.
import { describe, expect, it } from 'vitest';
import { categoriesAt } from '../../src/report/categories.ts';
import { LiveCurve } from '../../src/report/live-curve.ts';
import { labelOf } from '../../src/report/sites.ts';
import { readRecording } from '../../src/trace/detect.ts';
import { isOlder, stackOf } from '../../src/trace/stacks.ts';
import { liveSize } from '../../src/trace/summary.ts';
import { NO_STACK } from '../../src/trace/symbols.ts';
import { EventKind, type Trace } from '../../src/trace/trace.ts';
import { BandSums } from '../../src/view/band-sums.ts';
import { BlockClasses, CATEGORY_ORDER } from '../../src/view/block-classes.ts';
import { Clock } from '../../src/view/clock.ts';
import { Lifetimes } from '../../src/view/lifetimes.ts';
import { MinMax } from '../../src/view/min-max.ts';
import { type StackColumns, stackColumns, stackHit } from '../../src/view/stack-columns.ts';
import { StackView } from '../../src/view/stack-view.ts';
import { liveBytes } from '../../src/view/timeline.ts';
import { readSample } from '../support/samples.ts';
import { MIB, train } from '../support/training.ts';

const SAMPLES = [
  'gpt2xl-oom.pickle.gz',
  'resnet50-b100.native.pickle.gz',
  'vgg16-b100.expandable.pickle.gz',
  'exact/s1.pickle',
  'exact/late.pkl.gz',
];

interface Parts {
  readonly trace: Trace;
  readonly clock: Clock;
  readonly lifetimes: Lifetimes;
  readonly live: MinMax;
  readonly classes: BlockClasses;
  readonly view: StackView;
}

function partsOf(trace: Trace): Parts {
  const clock = new Clock(trace);
  const lifetimes = new Lifetimes(trace);
  const live = new MinMax(liveBytes(trace));
  const classes = new BlockClasses(trace, clock, lifetimes);
  return { trace, clock, lifetimes, live, classes, view: new StackView(trace, clock, lifetimes, live, classes) };
}

function sampleOf(name: string): Trace {
  return readRecording(readSample(name)).traces[0]!;
}

/** Live bytes by band after every event, from addresses alone: a block ends when its address is freed or given out again. */
function* countByAddress(trace: Trace, bandOf: Uint8Array, bands: number): Generator<Float64Array> {
  const { events, allocations } = trace;
  const sums = new Float64Array(bands);
  const live = new Map<number, { band: number; bytes: number }>();
  const begin = (address: number, allocation: number) => {
    end(address);
    const bytes = liveSize(allocations.requested[allocation]!);
    live.set(address, { band: bandOf[allocation]!, bytes });
    sums[bandOf[allocation]!]! += bytes;
  };
  const end = (address: number) => {
    const block = live.get(address);
    if (!block) return;
    live.delete(address);
    sums[block.band]! -= block.bytes;
  };
  for (let allocation = 0; allocation < allocations.liveAtStart; allocation++) begin(allocations.address[allocation]!, allocation);
  // Allocations come in the order of their events.
  let next = allocations.liveAtStart;
  for (let event = 0; event < events.count; event++) {
    const kind = events.kind[event];
    if (kind === EventKind.Alloc) begin(events.address[event]!, next++);
    else if (kind === EventKind.FreeRequested || kind === EventKind.FreeCompleted) end(events.address[event]!);
    yield sums;
  }
}

describe.each(SAMPLES)('bands of %s', (name) => {
  const parts = partsOf(sampleOf(name));
  const { trace, classes } = parts;

  it.each(['category', 'stack'] as const)('by %s add up to what is live after every event, band by band', (mode) => {
    const { classes: bandOf } = classes.of(mode);
    const sums = new BandSums(trace, bandOf, CATEGORY_ORDER.length);
    const live = new LiveCurve(trace).after;
    const found = new Float64Array(CATEGORY_ORDER.length);
    let event = 0;
    for (const counted of countByAddress(trace, bandOf, CATEGORY_ORDER.length)) {
      sums.after(event, found);
      if (found.some((bytes, band) => bytes !== counted[band]) || found.reduce((sum, bytes) => sum + bytes) !== live[event])
        expect({ event, live: live[event], bands: [...found] }).toEqual({ event, live: live[event], bands: [...counted] });
      event++;
    }
    expect(event).toBe(trace.events.count);
  });

  it('have the categories of the report at any moment', () => {
    const { bands } = parts.view.bands('category');
    for (const share of [0, 0.2, 0.5, 0.77, 1]) {
      const event = Math.floor(share * (trace.events.count - 1));
      const expected = categoriesAt(trace, event).bytes;
      const { bytes, live } = parts.view.at('category', event);
      expect(bytes).toEqual(bands.map(({ kind }) => expected[CATEGORY_ORDER[kind]!]));
      expect(live).toBe(Object.values(expected).reduce((sum, part) => sum + part));
    }
  });

  it('name their call sites as the report does', () => {
    const { bands } = parts.view.bands('site');
    const { classes: kinds } = classes.of('stack');
    for (let allocation = 0; allocation < trace.allocations.count; allocation += 97) {
      const band = bands.find(({ kind }) => kind === kinds[allocation])!;
      if (/^\d+ others$/.test(band.label)) continue;
      const older = isOlder(trace, allocation);
      expect(band.label).toBe(labelOf(trace, older ? NO_STACK : stackOf(trace, allocation), older));
    }
  });
});

describe('columns', () => {
  const parts = partsOf(sampleOf('gpt2xl-oom.pickle.gz'));
  const { trace, clock, lifetimes, live } = parts;
  const { classes: bandOf } = parts.classes.of('category');
  const sums = new BandSums(trace, bandOf, CATEGORY_ORDER.length);
  const after = new LiveCurve(trace).after;
  const columnsOf = (axis: 'event' | 'time', from: number, to: number, columns: number, least: number): StackColumns =>
    stackColumns({ trace, clock, lifetimes, live, bandOf, sums }, { axis, from, to, columns, least });
  const windows = [
    columnsOf('event', 0, clock.count, 700, 64 * MIB),
    columnsOf('event', 20_000, 20_400, 800, MIB),
    columnsOf('time', 2e6, 2.5e6, 512, 16 * MIB),
    // Beyond the end of the recording, as beside a longer one.
    columnsOf('time', 0, 2 * clock.durationUs, 300, 64 * MIB),
  ];

  it.each(windows)('from $from to $to show the moment of most live memory in each, and bands that add up to it', (stack) => {
    const width = (stack.to - stack.from) / stack.columns;
    for (let column = 0; column < stack.columns; column++) {
      const first = clock.firstFrom(stack.axis, stack.from + column * width);
      const until = clock.firstFrom(stack.axis, stack.from + (column + 1) * width);
      const begin = Math.max(0, Math.min(first - 1, clock.count - 1));
      const highest = after.subarray(begin, Math.max(begin + 1, until)).reduce((most, bytes) => Math.max(most, bytes));
      expect(after[stack.instant[column]!]).toBe(highest);
      const bytes = stack.bytes.subarray(column * stack.bands, (column + 1) * stack.bands);
      expect(bytes.reduce((sum, part) => sum + part)).toBe(highest);
    }
  });

  it.each(windows)('from $from to $to list every large tensor in just the columns that show it live', (stack) => {
    const listed = new Map(Array.from(stack.tensor, (allocation, index) => [allocation, index]));
    let count = 0;
    const { allocations } = trace;
    for (let allocation = 0; allocation < allocations.count; allocation++) {
      const bytes = liveSize(allocations.requested[allocation]!);
      if (bytes < stack.least) continue;
      const begins = allocations.allocEvent[allocation]!;
      const freed = [allocations.freeRequestedEvent[allocation]!, allocations.freeCompletedEvent[allocation]!].find((at) => at >= 0);
      const columns = [...stack.instant.keys()].filter((column) => {
        const event = stack.instant[column]!;
        return begins <= event && (freed === undefined || freed > event);
      });
      const index = listed.get(allocation);
      if (columns.length === 0) {
        expect(index).toBeUndefined();
        continue;
      }
      count++;
      expect([stack.tensorFrom[index!], stack.tensorTo[index!], stack.tensorBytes[index!], stack.tensorBand[index!]]).toEqual([
        columns[0],
        columns.at(-1)! + 1,
        bytes,
        bandOf[allocation],
      ]);
    }
    expect(count).toBe(stack.tensor.length);
    expect(count).toBeGreaterThan(10);
  });

  it('find the tensor at a height: the sum of what lies below it', () => {
    const [stack] = windows as [StackColumns];
    const column = 600;
    let level = 0;
    for (let band = 0; band < stack.bands; band++) {
      let rest = stack.bytes[column * stack.bands + band]!;
      for (let index = 0; index < stack.tensor.length; index++) {
        if (stack.tensorBand[index] !== band || column < stack.tensorFrom[index]! || column >= stack.tensorTo[index]!) continue;
        const size = stack.tensorBytes[index]!;
        const hit = { event: stack.instant[column], band, allocation: stack.tensor[index] };
        expect([stackHit(stack, column, level), stackHit(stack, column, level + size - 1)]).toEqual([hit, hit]);
        level += size;
        rest -= size;
      }
      expect(rest).toBeGreaterThanOrEqual(0);
      if (rest > 0) expect(stackHit(stack, column, level)).toEqual({ event: stack.instant[column], band, allocation: -1 });
      level += rest;
    }
    expect(stackHit(stack, column, level).band).toBe(-1);
  });
});

describe('growth since the step before', () => {
  const STEPS = 6;
  const leak = (step: number) => (step + 1) * 3 * MIB;

  it.each(['weir', 'counted'] as const)('is what each step forgets, at the same place of steps with %s marks', (marks) => {
    const trace = train({ steps: STEPS, marks, leak });
    const { view, clock } = partsOf(trace);
    const { bands } = view.bands('site');
    const leaked = bands.findIndex(({ label }) => label.includes('train.py:33 log'));
    const { stepEvent, stepNumber } = view.ruler();
    const first = marks === 'counted' ? 0 : 1;
    expect([...stepNumber].filter((number) => number >= 0)).toEqual(Array.from({ length: STEPS }, (_, step) => step + first));
    const starts = [...stepEvent].filter((_, index) => stepNumber[index]! >= 0);
    // The first step makes the optimizer's state, and is longer.
    for (let step = 3; step < STEPS; step++) {
      const length = (starts[step + 1] ?? clock.count) - starts[step]!;
      for (const into of [0, 5, Math.floor(length / 2), length - 1]) {
        const { before, bytes, ...now } = view.at('site', starts[step]! + into);
        expect([now.step, before!.step, before!.event]).toEqual([step + first, step + first - 1, starts[step - 1]! + into]);
        const hasForgotten = bytes[leaked]! - before!.bytes[leaked]!;
        expect([leak(step - 1), leak(step)]).toContain(hasForgotten);
        expect(now.live - before!.live).toBe(hasForgotten);
      }
    }
    expect(view.at('site', starts[0]! + 1).before).toBeUndefined();
    expect(view.at('site', -1).before).toBeUndefined();
  });

  it('compares the same phase, also where phases have other lengths', () => {
    const { view, clock } = partsOf(sampleOf('gpt2xl-oom.pickle.gz'));
    const compared = new Set<string>();
    for (let event = 0; event < clock.count; event += 7) {
      const { before, phase, step } = view.at('category', event);
      if (!before) continue;
      expect([before.phase, before.step]).toEqual([phase, step! - 1]);
      compared.add(`${step} ${phase}`);
    }
    expect([...compared]).toEqual([
      '1 forward',
      '1 backward',
      '1 optimizer',
      '2 forward',
      '2 backward',
      '2 optimizer',
      '3 forward',
      '3 backward',
    ]);
  });
});

describe('the scale of sizes', () => {
  it('begins where sizes begin to hold memory, and ends with the largest', () => {
    const { classes, trace, lifetimes } = partsOf(sampleOf('gpt2xl-oom.pickle.gz'));
    const { classes: steps, legend } = classes.of('size');
    const { requested, count } = trace.allocations;
    const heldBy = (wanted: (step: number) => boolean) => {
      let held = 0;
      for (let index = 0; index < count; index++)
        if (wanted(steps[index]!)) held += requested[index]! * (lifetimes.end[index]! - lifetimes.start[index]!);
      return held;
    };
    const all = heldBy(() => true);
    // Without that, one step had nearly all of it.
    for (let step = 0; step < 32; step++) expect(heldBy((each) => each === step) / all).toBeLessThan(0.6);
    expect(legend.map(({ kind }) => kind)).toEqual([0, 8, 16, 23, 31]);
    expect(legend[0]!.label).toMatch(/^up to \d/);
    expect(legend.at(-1)!.label).toBe('2.76 GiB');
    expect(steps[requested.subarray(0, count).indexOf(Math.max(...requested.subarray(0, count)))]).toBe(31);
  });
});

describe('words about bands', () => {
  it('say what is not known and how to record it', () => {
    const plain = partsOf(train({ steps: 1, stacks: false, marks: 'none' }));
    expect(plain.view.bands('category')).toMatchObject({ isUnknown: true, hint: expect.stringContaining('weir record') });
    expect(plain.view.bands('site')).toMatchObject({ isUnknown: true, hint: expect.stringContaining('--stacks') });
    const known = partsOf(sampleOf('gpt2xl-oom.pickle.gz')).view.bands('category');
    expect(known).toMatchObject({ isUnknown: false, hint: '', found: expect.stringContaining('found by call stacks') });
  });
});
