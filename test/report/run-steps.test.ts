// Steps are found by what the recording offers, the surest first; layers are not taken for steps.
import { describe, expect, it } from 'vitest';
import { hasSteps, stepsOf } from '../../src/report/run-steps.ts';
import { EventKind } from '../../src/trace/trace.ts';
import { type ForgedEvent, forgeTrace } from '../support/forged.ts';
import { sampleTrace } from '../support/traces.ts';
import { MIB, train } from '../support/training.ts';

function found(trace: Parameters<typeof stepsOf>[0]) {
  const steps = stepsOf(trace);
  if (!hasSteps(steps)) throw new Error(steps.reason);
  return steps;
}

describe('steps', () => {
  it('come from the marks of the recorder, which have no numbers', () => {
    const { by, name, steps } = found(train({ steps: 5 }));
    expect([by, name, steps.map(({ number }) => number)]).toEqual(['marks', 'weir:step', Array(5).fill(undefined)]);
    expect(steps.map(({ isComplete }) => isComplete)).toEqual([true, true, true, true, false]);
  });

  it('come from marks of the program, with their numbers', () => {
    const { by, name, steps } = found(train({ steps: 5, marks: 'counted' }));
    expect([by, name, steps.map(({ number }) => number)]).toEqual(['marks', 'step #', [0, 1, 2, 3, 4]]);
    expect(steps.map(({ isComplete }) => isComplete)).toEqual([true, true, true, true, false]);
  });

  it('come from marks about steps, not from the more frequent ones about parts of them', () => {
    const trace = train({ steps: 4 });
    const part = trace.symbols.internString('weir:forward');
    const { events } = trace;
    const kind = events.kind.slice();
    const detail = events.detail!.slice();
    for (let event = 0; event < events.count; event += 3)
      if (kind[event] === EventKind.FreeCompleted) {
        kind[event] = EventKind.Mark;
        detail[event] = part;
      }
    expect(found({ ...trace, events: { ...events, kind, detail } }).steps).toHaveLength(4);
  });

  it('come from annotations of the optimizer', () => {
    expect(found(sampleTrace('vgg16-b100.native.pickle.gz'))).toMatchObject({ by: 'annotations', name: 'Optimizer.step#SGD.step' });
  });

  it('come from user metadata that counts, before annotations that do not', () => {
    const { by, steps } = found(sampleTrace('gpt2xl-oom.pickle.gz'));
    expect([by, steps.map(({ number }) => number)]).toEqual(['metadata', [0, 1, 2, 3]]);
  });

  it('come from repetition, if nothing marks them', () => {
    const { by, steps } = found(train({ marks: 'none', steps: 10 }));
    expect(by).toBe('repetition');
    expect(steps.length).toBeGreaterThanOrEqual(8);
  });

  it('are not the loop of an optimizer over its parameters', () => {
    const rows: ForgedEvent[] = [];
    let address = 0;
    const alloc = (size: number) => {
      address += size;
      rows.push({ kind: EventKind.Alloc, address, size });
      return { address, size };
    };
    const free = (block: { address: number; size: number }) =>
      rows.push({ kind: EventKind.FreeRequested, ...block }, { kind: EventKind.FreeCompleted, ...block });
    const activations = Array.from({ length: 40 }, (_, at) => alloc(10 * MIB + 512 * at));
    for (const block of activations.reverse()) free(block);
    for (let parameter = 0; parameter < 60; parameter++) for (const block of [1, 2, 3, 4].map((size) => alloc(size * MIB))) free(block);
    expect(stepsOf(forgeTrace(rows))).toEqual({ reason: 'only parts of a step repeat' });
  });

  it('are not the layers of a single step', () => {
    expect(hasSteps(stepsOf(train({ marks: 'none', steps: 1, layers: 24 })))).toBe(false);
  });
});
