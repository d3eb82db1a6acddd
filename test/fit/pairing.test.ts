// Which request of one run is which of another, where the runs differ in more than their sizes.
import { describe, expect, test } from 'vitest';
import { PhaseMark } from '../../src/abi/events.ts';
import { learnFit } from '../../src/fit/model.ts';
import { synthesise } from '../../src/fit/synthesis.ts';
import type { Trace } from '../../src/trace/trace.ts';
import { RunRecorder } from './program.ts';

const MIB = 1024 * 1024;

/** A run of so many steps. `step` makes the requests of one. */
function record(steps: number, hasStacks: boolean, step: (run: RunRecorder, index: number) => void, hasMarks = true): Trace {
  const run = new RunRecorder(hasStacks);
  for (let index = 0; index < steps; index++) {
    step(run, index);
    if (hasMarks) run.mark(PhaseMark.step);
  }
  return run.finish();
}

function learn(...runs: [value: number, trace: Trace][]) {
  return learnFit(runs.map(([value, trace]) => ({ trace, values: [value] })));
}

/** Sizes of all requests at a value, if they are settled. */
function sizesAt(model: ReturnType<typeof learn>, value: number): number[] {
  return model.functions.map((size) => {
    expect(size.lower([value])).toBe(size.upper([value]));
    return size.upper([value]);
  });
}

describe('blocks older than the recordings', () => {
  const late = (value: number, hasWorkspace: boolean) => {
    const run = new RunRecorder(false);
    const weights = [30, 20, 10].map((size) => run.older(size * MIB));
    const growing = [1, 2].map((unit) => run.older(unit * 1024 * value));
    const workspace = hasWorkspace ? run.older(32 * MIB) : run.alloc(32 * MIB, ['matmul', 1]);
    for (let step = 0; step < 3; step++) run.free(run.alloc(5 * MIB * value, ['forward', 1]));
    for (const block of [...weights, ...growing, workspace]) run.free(block);
    return run.finish();
  };

  test('are paired by size, and what grows by order of size', () => {
    const model = learn([4, late(4, true)], [8, late(8, true)]);
    expect(model.learned.unpaired).toBe(0);
    expect(sizesAt(model, 100).sort((a, b) => a - b)).toEqual(
      [100 * 1024, 200 * 1024, 10 * MIB, 20 * MIB, 30 * MIB, 32 * MIB, 500 * MIB, 500 * MIB, 500 * MIB].sort((a, b) => a - b),
    );
  });

  test('are paired by order of size if they are never freed', () => {
    const run = (value: number) => {
      const into = new RunRecorder(false);
      for (const size of [512 * value, 3 * MIB, 7000 * value]) into.keptOlder(size);
      for (let step = 0; step < 3; step++) into.free(into.alloc(5 * MIB * value, ['forward', 1]));
      return into.finish();
    };
    const model = learn([4, run(4)], [9, run(9)]);
    expect(
      sizesAt(model, 100)
        .slice(0, 3)
        .sort((a, b) => a - b),
    ).toEqual([51_200, 700_000, 3 * MIB]);
  });

  test.each([
    [false, true],
    [true, false],
  ])('can be requests of the other recording (%s, %s)', (first, second) => {
    const model = learn([4, late(4, first)], [8, late(8, second)]);
    expect(model.learned).toMatchObject({ unpaired: 0, vanished: 0, unsettled: 0 });
  });
});

describe.each([true, false])('requests (stacks: %s)', (hasStacks) => {
  const layer = (run: RunRecorder, value: number, index: number) => {
    const kept = run.alloc((index + 1) * MIB * value, ['forward', index]);
    run.free(run.alloc(300_000 * value, ['temporary', index]));
    return kept;
  };
  const step = (run: RunRecorder, value: number, layers = 5) => {
    const kept = Array.from({ length: layers }, (_, index) => layer(run, value, index));
    for (const block of kept.reverse()) run.free(block);
  };

  test('that come sooner in one run are found', () => {
    const run = (value: number, first: number) =>
      record(3, hasStacks, (into, index) => {
        if (index === first) into.alloc(64 * MIB, ['workspace', 0]);
        step(into, value);
      });
    expect(learn([4, run(4, 0)], [8, run(8, 2)]).learned).toMatchObject({ unpaired: 0, vanished: 0, unsettled: 0 });
  });

  test('of runs with different numbers of steps are paired step by step', () => {
    const run = (value: number, steps: number) =>
      record(steps, hasStacks, (into, index) => {
        if (index === 0) into.alloc(10 * MIB * value, ['first', 0]);
        step(into, value);
      });
    for (const [a, b] of [
      [3, 6],
      [6, 3],
    ] as const) {
      const model = learn([4, run(4, a)], [8, run(8, b)]);
      expect(model.learned).toMatchObject({ unpaired: 0, unsettled: 0 });
    }
  });

  test('without marks are paired as a whole', () => {
    const run = (value: number, steps: number) => record(steps, hasStacks, (into) => step(into, value, 9), false);
    const model = learn([4, run(4, 6)], [8, run(8, 5)]);
    expect(model.learned).toMatchObject({ unpaired: 0, unsettled: 0 });
  });

  test('that only one run makes stay alone', () => {
    const run = (value: number) =>
      record(3, hasStacks, (into) => {
        for (let index = 0; index < 5; index++) {
          if (value > 4) into.free(into.alloc(777_777, ['forward', index]));
          into.free(layer(into, value, index));
        }
      });
    const model = learn([4, run(4)], [8, run(8)]);
    expect(model.learned.unpaired).toBe(3 * 5 * 777_777);
    expect(model.learned.vanished).toBe(0);
    // All others are settled.
    expect(model.learned.unsettled - model.learned.doubted).toBe(0);
  });

  test('of steps that leave memory behind are not repeated', () => {
    const leaking = (value: number) =>
      record(4, hasStacks, (into) => {
        step(into, value);
        into.alloc(MIB, ['log', 0]);
      });
    expect(synthesise(learn([4, leaking(4)], [8, leaking(8)])).repeats).toBe(0);
  });
});

describe('stacks', () => {
  const run = (value: number, ...outer: string[]) =>
    record(3, true, (into) => {
      const kept = Array.from({ length: 4 }, (_, index) => into.alloc((index + 3) * MIB * value, ['forward', index, ...outer]));
      for (const block of kept) into.free(block);
    });

  /** Two requests whose order changes. By order alone, they look like a square and a constant. */
  const reordered = (value: number, outer: readonly string[], isReversed: boolean) =>
    record(3, true, (into) => {
      const requests = [2, 4].map((unit) => () => into.alloc(unit * MIB * value, [`unit${unit}`, unit, ...outer]));
      const kept = (isReversed ? requests.reverse() : requests).map((request) => request());
      for (const block of kept) into.free(block);
    });
  const inner = Array.from({ length: 14 }, (_, index) => `/lib/layer${index}.py`);

  test.each([
    { what: 'the same', before: inner, after: inner },
    { what: 'edited outer code', before: [...inner, '/home/user/old.py'], after: [...inner, '/home/user/new.py'] },
    { what: 'generated code', before: ['/tmp/torchinductor_me/ab/ab.py'], after: ['/tmp/torchinductor_me/cd/cd.py'] },
  ])('find requests in another order: $what', ({ before, after }) => {
    const model = learn([4, reordered(4, before, false)], [8, reordered(8, after, true)]);
    expect(model.learned).toMatchObject({ unpaired: 0, unsettled: 0 });
    expect(new Set(sizesAt(model, 100))).toEqual(new Set([200 * MIB, 400 * MIB]));
  });

  test('that have nothing in common are ignored', () => {
    const model = learn([4, run(4, '/a.py')], [8, run(8, '/b.py')]);
    expect(model.learned).toMatchObject({ unpaired: 0, unsettled: 0 });
  });
});
