// Plan files: a written plan is read back, and an invalid one is refused with one sentence.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { InputError } from '../../src/base/errors.ts';
import { type PlanFile, readPlan, writePlan } from '../../src/plan/files/plan-file.ts';
import { planOffsets } from '../../src/plan/offsets/planner.ts';
import { opsOfTrace } from '../../src/plan/steps/memory-ops.ts';
import { findStep, planStep } from '../../src/plan/steps/step-plan.ts';
import { H200_COPIES } from '../../src/plan/swaps/copy-costs.ts';
import { readRecording } from '../../src/trace/detect.ts';
import { readSample } from '../support/samples.ts';
import { oddBuffers } from './plan-support.ts';

function vggPlan(): PlanFile {
  const found = findStep(opsOfTrace(readRecording(readSample('vgg16-b100.native.pickle.gz')).traces[0]!));
  if (!found.periodic) throw new Error(found.reason);
  return { kind: 'step', plan: planStep(found.step) };
}

const SWAPS: PlanFile = {
  kind: 'swaps',
  periodUs: 1000.5,
  peak: 300,
  limit: 200,
  costs: H200_COPIES,
  swaps: [{ block: 3, size: 100, outStartUs: 1.5, outEndUs: 2, inStartUs: 900, inEndUs: 901 }],
  footprint: 220,
  turns: 1,
  offsets: [0, 512],
};

describe('plan files', () => {
  test('plans for buffers come back', () => {
    fc.assert(
      fc.property(oddBuffers, (buffers) => {
        const { offsets, footprint } = planOffsets(buffers, { budgetMs: 0 });
        const file: PlanFile = { kind: 'offsets', buffers, layout: { offsets, footprint } };
        const text = writePlan(file);
        expect(readPlan(text)).toEqual(file);
      }),
      { numRuns: 40 },
    );
  });

  test('plans for steps and swaps come back', () => {
    const step = vggPlan();
    expect(readPlan(writePlan(step))).toEqual(step);
    expect(readPlan(writePlan(SWAPS))).toEqual(SWAPS);
  });

  test.each([
    ['', /not valid JSON/],
    ['null', /object/],
    ['[]', /object/],
    ['{}', /not a plan of Weir/],
    ['{"weir":"plan"}', /version/],
    ['{"weir":"plan","version":2,"kind":"step"}', /version 2/],
    ['{"weir":"plan","version":1,"kind":"magic"}', /magic/],
    ['{"weir":"plan","version":1,"kind":"offsets","footprint":1,"buffers":{}}', /buffers/],
    [
      '{"weir":"plan","version":1,"kind":"offsets","footprint":4,"buffers":[{"id":"a","size":5,"alignment":1,"spans":[[0,1]],"offset":0}]}',
      /above the footprint/,
    ],
    [
      '{"weir":"plan","version":1,"kind":"offsets","footprint":4,"buffers":[{"id":"a","size":4,"alignment":1,"spans":[[1,0]],"offset":0}]}',
      /end must be after the start/,
    ],
    [
      '{"weir":"plan","version":1,"kind":"offsets","footprint":4,"buffers":[{"id":"a","size":4,"alignment":1,"spans":[[0,null]],"offset":0}]}',
      /span/,
    ],
    ['{"weir":"plan","version":1,"kind":"step","period":0}', /period/],
    ['{"weir":"plan","version":1,"kind":"step","period":5,"turns":1e9}', /turns/],
    ['{"weir":"plan","version":1,"kind":"swaps","swaps":[{"block":-1}]}', /block/],
  ])('refuses %s', (text, message) => {
    expect(() => readPlan(text)).toThrow(message);
    expect(() => readPlan(text)).toThrow(InputError);
  });

  test('refuses a step whose blocks share bytes', () => {
    const text = writePlan(vggPlan());
    const data = JSON.parse(text);
    data.blocks[1].offsets = data.blocks[0].offsets;
    expect(() => readPlan(JSON.stringify(data))).toThrow(/plan is invalid/);
  });

  test('any field of a plan replaced by anything is refused or harmless, never a crash', () => {
    const texts = [writePlan(vggPlan()), writePlan(SWAPS)];
    const junk = fc.constantFrom<unknown>(null, -1, 0.5, 1e300, '', 'x', [], {}, true, '__proto__', Number.MAX_SAFE_INTEGER);
    fc.assert(
      fc.property(fc.constantFrom(...texts), fc.array(fc.nat(1000), { minLength: 1, maxLength: 4 }), junk, (text, path, value) => {
        const data = JSON.parse(text);
        let at = data;
        for (const [depth, step] of path.entries()) {
          const keys = Object.keys(at);
          const key = keys[step % keys.length];
          if (key === undefined) break;
          if (depth === path.length - 1 || typeof at[key] !== 'object' || at[key] === null) {
            at[key] = value;
            break;
          }
          at = at[key];
        }
        try {
          readPlan(JSON.stringify(data));
        } catch (error) {
          expect(error).toBeInstanceOf(InputError);
        }
      }),
      { numRuns: 300 },
    );
  });
});
