// Plans as the page draws them: whole, without overlap, and only where there is something to plan.
import { describe, expect, it } from 'vitest';
import { MIB } from '../../src/base/bytes.ts';
import type { SwapStep } from '../../src/plan/swaps/accesses.ts';
import { planRows } from '../../src/report/words/plan.ts';
import { readRecording } from '../../src/trace/detect.ts';
import { type PlanLayout, planView, swapPlanView } from '../../src/view/plan-view.ts';
import { readSample } from '../support/samples.ts';

const traceOf = (name: string) => readRecording(readSample(name)).traces[0]!;

describe('the plan of a run that repeats', () => {
  const view = planView(traceOf('vgg16-b100.native.pickle.gz'))!;

  it('is laid out without overlap, within its height', () => {
    expectNoOverlap(view.layout);
    expect(view.layout.size).toHaveLength(159);
  });

  it('has the facts of `weir plan`', () => {
    expect(view.facts).toMatchObject({ kind: 'step', operations: 318, repeats: 5, blocks: 159, offsets: { plan: { optimal: true } } });
    const rows = planRows(view.facts);
    expect(rows.map(({ name }) => name)).toEqual(['total', 'layout', 'found by', 'kept', 'step']);
    expect(rows[3]!.words).toBe('1.09 GiB stay allocated from step to step');
    expect(view.swaps).toBeUndefined();
  });
});

it('is not there for a run that does not repeat', () => {
  expect(planView(traceOf('gpt2xl-oom.pickle.gz'))).toBeUndefined();
});

it('shows copies in both directions where accesses are known', () => {
  const block = (size: number, fromUs: number, toUs: number, uses: readonly number[]) => ({
    size,
    fromUs,
    toUs,
    wholeRun: false,
    accesses: uses.map((at) => ({ fromUs: at, toUs: at + 10, writes: false })),
  });
  // Activations: made on the way forward, used again on the way back.
  const blocks = Array.from({ length: 20 }, (_, layer) =>
    block(64 * MIB, layer * 5000, 200_000 - layer * 5000, [layer * 5000, 199_000 - layer * 5000]),
  );
  const step: SwapStep = { name: 'made up', periodUs: 200_000, blocks, untouchedBytes: 0, momentsUs: Float64Array.of(0, 100_000) };
  const view = swapPlanView(step);
  expect(view.swaps!.out.length).toBeGreaterThan(0);
  expect(view.swaps!.back.length).toBeGreaterThanOrEqual(view.swaps!.out.length - 1);
  for (const [from, to] of [...view.swaps!.out, ...view.swaps!.back]) {
    expect(from).toBeLessThan(to);
    expect(to).toBeLessThanOrEqual(step.periodUs);
  }
  if (view.facts.kind !== 'swaps') throw new Error(view.facts.kind);
  expect(view.facts.plan.curve.length).toBeGreaterThan(1);
  expect(planRows(view.facts)[0]!.name).toBe('zero stall');
  expectNoOverlap(view.layout);
});

function expectNoOverlap({ from, to, offset, size, height, length }: PlanLayout): void {
  for (let a = 0; a < size.length; a++) {
    expect(offset[a]! + size[a]!).toBeLessThanOrEqual(height);
    expect(to[a]!).toBeLessThanOrEqual(length + 1e-6);
    for (let b = 0; b < a; b++) {
      const isApart =
        to[a]! <= from[b]! || to[b]! <= from[a]! || offset[a]! + size[a]! <= offset[b]! || offset[b]! + size[b]! <= offset[a]!;
      expect(isApart).toBe(true);
    }
  }
}
