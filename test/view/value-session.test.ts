// Runs of other values behind the page's questions: a synthesised run answers as the real run of that value does.
import { describe, expect, test } from 'vitest';
import { chooseAllocators } from '../../src/allocator/registry.ts';
import { UsageError } from '../../src/base/errors.ts';
import { whatIf } from '../../src/replay/what-if.ts';
import { type Calls, type Method, type Question, RECORDED } from '../../src/view/protocol.ts';
import { checkQuestion } from '../../src/view/questions.ts';
import { Session } from '../../src/view/session.ts';
import { ValueSession } from '../../src/view/value-session.ts';
import { type Program, runProgram } from '../fit/program.ts';

const MIB = 2 ** 20;
const GIB = 2 ** 30;
const PROGRAM: Program = {
  layers: Array.from({ length: 4 }, (_, index) => ({
    weight: (index + 1) * 3 * MIB,
    saved: (batch: number) => batch * (index + 2) * 256 * 1024,
    workspace: (batch: number) => batch * batch * 4096,
  })),
  steps: 6,
  hasStacks: true,
  hasMarks: true,
};

function session(): ValueSession {
  const runs = [2, 4].map((value) => ({ trace: runProgram(PROGRAM, value), values: [value] }));
  return new ValueSession({ runs, names: ['batch'], gpuBytes: GIB, multiple: 1 }, 'train', 'pytorch,weir');
}

function ask<Name extends Method>(
  answers: Pick<ValueSession, 'steps'>,
  question: { method: Name } & Record<string, unknown>,
): Calls[Name]['answer'] {
  const steps = answers.steps(checkQuestion({ gpu: 0, ...question }) as Question, () => {});
  for (;;) {
    const step = steps.next();
    if (step.done) return step.value as Calls[Name]['answer'];
  }
}

describe('runs of other values', () => {
  test('answer as the real run of that value does', () => {
    const values = session();
    const real = new Session({ format: 'weir', traces: [runProgram({ ...PROGRAM, steps: 9 }, 32)] }, 'real');
    for (const run of ['weir', 'expandable']) {
      const [made, measured] = [ask(values, { method: 'run', run, point: [32] }), ask(real, { method: 'run', run })];
      expect(made.peakReserved).toBe(measured.peakReserved);
      expect(made.peakReserved).toBeGreaterThan(32 * 14 * 256 * 1024);
    }
  });

  test('say which parameters there are, and start with the largest run', () => {
    const { values, name } = ask(session(), { method: 'describe' });
    expect(values).toEqual({ names: ['batch'], point: [4], tried: [[2], [4]], gpuBytes: GIB, multiple: 1, most: [16] });
    expect(name).toBe('train at batch 4');
    expect(ask(session(), { method: 'describe', point: [7] })).toMatchObject({ name: 'train at batch 7', values: { point: [7] } });
  });

  test('tell the largest value that fits, and the peak at the chosen one', () => {
    const values = session();
    const table = ask(values, { method: 'values', gpuBytes: GIB, point: [8] });
    const weir = table.rows.find(({ allocator }) => allocator === 'weir')!;
    expect(weir.peak!.point).toEqual([8]);
    expect(weir.peak!.upper).toBe(ask(values, { method: 'run', run: 'weir', point: [8] }).peakReserved);
    const largest = weir.sure.value;
    const [allocator] = chooseAllocators('weir');
    const failures = (value: number) => whatIf(runProgram({ ...PROGRAM, steps: 9 }, value), allocator!, { capacity: GIB }).ooms;
    expect(failures(largest)).toBe(0);
    expect(failures(largest + 1)).toBeGreaterThan(0);
    expect(table.most).toBeGreaterThan(largest);
    expect(table.growthTitle).toContain('each further batch adds');
    expect(table.sites[0]!.grows).toMatch(/batch/);
    // A smaller GPU has a smaller answer.
    const small = ask(values, { method: 'values', gpuBytes: GIB / 4, point: [8] }).rows.find(({ allocator }) => allocator === 'weir')!;
    expect(small.sure.value).toBeLessThan(largest);
  });

  test('refuse what is no value', () => {
    const values = session();
    expect(() => ask(values, { method: 'describe', point: [4, 512] })).toThrow(UsageError);
    for (const point of [[], [0], [1.5], ['8'], [2 ** 30], 8, Array.from({ length: 9 }, () => 1)])
      expect(() => ask(values, { method: 'describe', point })).toThrow(/^point is a/);
    const plain = new Session({ format: 'weir', traces: [runProgram(PROGRAM, 2)] }, 'plain');
    expect(() => ask(plain, { method: 'values', gpuBytes: GIB })).toThrow(/weir fit --serve/);
    expect(ask(plain, { method: 'run', run: RECORDED }).peakReserved).toBeGreaterThan(0);
  });
});
