// From a file to a plan and back: detecting the kind of an input, traces with accesses, and checking plans against
// files.
import { describe, expect, test } from 'vitest';
import { PhaseMark } from '../../src/abi/events.ts';
import { InputError } from '../../src/base/errors.ts';
import { readPlan, swapPlanFile, writePlan } from '../../src/plan/files/plan-file.ts';
import { planInputOf, readPlanText, swapStepFrom, verifyPlanOn } from '../../src/plan/files/plan-input.ts';
import { planOffsets } from '../../src/plan/offsets/planner.ts';
import { findStep, planStep } from '../../src/plan/steps/step-plan.ts';
import { H200_COPIES } from '../../src/plan/swaps/copy-costs.ts';
import { planSwapStep } from '../../src/plan/swaps/planner.ts';
import { offsetsFacts, stepFacts, swapFacts } from '../../src/report/plan.ts';
import { formatPlan, formatVerification } from '../../src/report/terminal/plan.ts';
import { EventStore } from '../../src/trace/event-store.ts';
import { Symbols } from '../../src/trace/symbols.ts';
import { EventKind, type Trace } from '../../src/trace/trace.ts';
import { oneStreamTrace } from '../support/one-stream.ts';

const MIB = 2 ** 20;
const CSV = 'id,lower,upper,size\na,0,4,10\nb,2,6,20\nc,5,9,10\n';

/** Six steps of a four-layer network with operators, reads and writes in some of them, as `weir record` writes them. */
function trainingTrace(observed: readonly number[] = [0, 1, 2, 3, 4, 5], marks = false): Trace {
  const store = new EventStore();
  const symbols = new Symbols();
  const name = symbols.internString('matmul');
  let now = 1000;
  let isObserved = true;
  const add = (kind: EventKind, address: number, size: number) => store.append(kind, address, size, now, 0, 0, -1, 0);
  const operator = (reads: number[], writes: number[]) => {
    now += 10;
    if (!isObserved) return;
    store.setOptional(add(EventKind.Operator, 0, 3000), 'detail', name);
    for (const address of reads) add(EventKind.Read, address, 0);
    for (const address of writes) add(EventKind.Write, address, 0);
    now += 3000;
  };
  const weight = (layer: number) => 512 * (layer + 1) * 1000;
  const activation = (layer: number) => 2 ** 32 + layer * 2 ** 28;
  for (let layer = 0; layer < 4; layer++) add(EventKind.Alloc, weight(layer), 8 * MIB + layer * 512);
  for (let step = 0; step < 6; step++) {
    if (marks) store.setOptional(add(EventKind.Mark, 0, 0), 'detail', symbols.internString(PhaseMark.step));
    isObserved = observed.includes(step);
    for (let layer = 0; layer < 4; layer++) {
      add(EventKind.Alloc, activation(layer), (16 + layer) * MIB);
      operator([weight(layer)], [activation(layer)]);
    }
    for (let layer = 3; layer >= 0; layer--) {
      operator([activation(layer)], [weight(layer)]);
      add(EventKind.FreeRequested, activation(layer), (16 + layer) * MIB);
      add(EventKind.FreeCompleted, activation(layer), (16 + layer) * MIB);
    }
  }
  return oneStreamTrace(store.view(), symbols);
}

describe('inputs', () => {
  test('are told apart by their first line', () => {
    expect(readPlanText(CSV)?.kind).toBe('buffers');
    expect(readPlanText('Malloc 0x10 5 1\nFree 0x10 2\n')?.kind).toBe('operations');
    expect(readPlanText('{"weir":"plan"}')).toBeUndefined();
    expect(readPlanText('')).toBeUndefined();
  });

  test.each([true, false])('only steps whose operators were recorded are planned (with marks: %s)', (marks) => {
    const stepOf = (trace: Trace) => {
      const input = planInputOf(trace, true);
      if (input.kind !== 'accesses') throw new Error(input.kind);
      return swapStepFrom(input.recording);
    };
    const some = stepOf(trainingTrace([1, 2, 3], marks));
    const usesOf = ({ blocks }: typeof some) => blocks.map(({ accesses }) => accesses.length).sort((a, b) => a - b);
    expect(usesOf(some)).toEqual(usesOf(stepOf(trainingTrace())));
    expect(some.periodUs).toBeGreaterThan(8 * 3000);
  });

  test('a trace without accesses cannot be planned for swaps, and says so', () => {
    const trace = trainingTrace();
    const { events } = trace;
    const bare = {
      ...trace,
      events: { ...events, kind: events.kind.map((kind) => (kind === EventKind.Operator ? EventKind.Snapshot : kind)) },
    };
    expect(() => planInputOf(bare, true)).toThrow(InputError);
  });
});

describe('plans against the files they were made from', () => {
  test('buffers', () => {
    const input = readPlanText(CSV)!;
    if (input.kind !== 'buffers') throw new Error(input.kind);
    const layout = planOffsets(input.buffers);
    const plan = readPlan(
      writePlan({ kind: 'offsets', buffers: input.buffers, layout: { offsets: layout.offsets, footprint: layout.footprint } }),
    );
    expect(verifyPlanOn(plan, input).faults).toEqual([]);
    const longer = readPlanText(CSV.replace('a,0,4', 'a,0,9'))!;
    expect(verifyPlanOn(plan, longer).faults.length).toBeGreaterThan(0);
    const renamed = readPlanText(CSV.replace('a,', 'x,'))!;
    expect(verifyPlanOn(plan, renamed).faults[0]!.message).toMatch(/buffer x/);
    expect(formatPlan(offsetsFacts(input.buffers.length, layout), [])).toMatch(/exactly the lower bound/);
    // Each fault by itself; the layout is right for both.
    const messages = (text: string) => verifyPlanOn(plan, readPlanText(text)!).faults.map((fault) => fault.message);
    expect(messages(CSV.replace('a,0,4,10', 'a,0,4,9'))).toEqual(['buffer a has 10 bytes in the plan and 9 in the list']);
    expect(messages(CSV.replace('a,0,4', 'a,0,3'))).toEqual(['buffer a lives from 0 to 4 in the plan and from 0 to 3 in the list']);
    expect(messages(CSV.replace('c,5,9,10\n', ''))).toEqual(['the plan has 3 buffers, and the list only 2']);
    expect(messages(`${CSV}d,20,21,5\n`)).toEqual(['the plan lacks buffer d']);
    const lines = CSV.split('\n');
    expect(messages([lines[0], lines[3], lines[1], lines[2]].join('\n'))).toEqual([]);
  });

  test('the step of a trace', () => {
    const input = planInputOf(trainingTrace(), false);
    if (input.kind !== 'operations') throw new Error(input.kind);
    const found = findStep(input.ops);
    if (!found.periodic) throw new Error(found.reason);
    expect(found.step.period).toBe(8);
    const plan = planStep(found.step);
    const file = readPlan(writePlan({ kind: 'step', plan }));
    const verified = verifyPlanOn(file, input);
    expect(verified.faults).toEqual([]);
    expect(formatVerification('plan', verified.faults, verified.followed)).toMatch(/^correct/);
    const text = formatPlan(stepFacts(found, planOffsets([{ id: 'a', size: 1, spans: [{ from: 0, to: 1 }], alignment: 1 }])), []);
    expect(text).toMatch(/SmartPool/);
  });

  test('swaps of a trace with accesses', () => {
    const input = planInputOf(trainingTrace(), true);
    if (input.kind !== 'accesses') throw new Error(input.kind);
    const step = swapStepFrom(input.recording);
    expect(step.blocks.filter((block) => block.wholeRun)).toHaveLength(4);
    const plan = planSwapStep(step, { costs: H200_COPIES, budgetMs: 100, offsetsBudgetMs: 100 });
    expect(plan.reduction).toBeGreaterThan(0.3);
    const file = readPlan(writePlan(swapPlanFile(step, plan, H200_COPIES)));
    expect(verifyPlanOn(file, input).faults).toEqual([]);
    if (file.kind !== 'swaps') throw new Error(file.kind);
    expect(verifyPlanOn({ ...file, limit: file.limit - 1 }, input).faults.length).toBeGreaterThan(0);
    expect(verifyPlanOn({ ...file, offsets: file.offsets.map(() => 0) }, input).faults.length).toBeGreaterThan(0);
    expect(verifyPlanOn({ ...file, peak: file.peak - 1 }, input).faults[0]!.message).toMatch(/^the plan is for a peak of \d+ bytes, but/);
    expect(verifyPlanOn({ ...file, offsets: [] }, input).faults[0]!.message).toMatch(/has 0 offsets/);
    expect(verifyPlanOn({ ...file, periodUs: 5 }, input).faults[0]!.message).toMatch(/step of 5 us/);
    expect(formatPlan(swapFacts(step, plan), [])).toMatch(/zero stall/);
  });

  test('a plan of the wrong kind is refused', () => {
    const input = readPlanText(CSV)!;
    const plan = planInputOf(trainingTrace(), false);
    if (plan.kind !== 'operations') throw new Error(plan.kind);
    const found = findStep(plan.ops);
    if (!found.periodic) throw new Error(found.reason);
    expect(() => verifyPlanOn({ kind: 'step', plan: planStep(found.step) }, input)).toThrow(/cannot be checked/);
  });
});
