// Inputs of `weir plan` and `weir verify` that are damaged or hostile: each is refused with a sentence, none crashes a reader.
import { describe, expect, test } from 'vitest';
import { InputError } from '../../src/base/errors.ts';
import { parsePlan } from '../../src/plan/files/plan-file.ts';
import { readPlanText, swapStepFrom } from '../../src/plan/files/plan-input.ts';
import { withoutGaps } from '../../src/plan/offsets/buffers.ts';
import { swapStepOf } from '../../src/plan/swaps/accesses.ts';
import { readSwapProfile } from '../../src/plan/swaps/live/profile.ts';
import { corpusText } from '../fuzz/corpus.ts';

/** Nested deeper than the stack of `JSON.stringify`. */
const DEEP = '['.repeat(20_000) + ']'.repeat(20_000);
/** An object that has no text: `String` and `Number` throw a TypeError. */
const WITHOUT_TEXT = '{"toString":1,"valueOf":1}';

function refusal(read: () => unknown): string {
  try {
    read();
  } catch (error) {
    expect(error).toBeInstanceOf(InputError);
    return (error as InputError).message;
  }
  throw new Error('it was not refused');
}

describe('recorded accesses', () => {
  const good = JSON.parse(corpusText('accesses', 'training.bin')) as { steps: unknown[]; ops: unknown[][]; trace: unknown[][] };
  const read = (change: (data: typeof good) => void) => {
    const data = structuredClone(good);
    change(data);
    return readPlanText(JSON.stringify(data));
  };

  test('the unchanged recording is read', () => {
    expect(read(() => {})?.kind).toBe('accesses');
  });

  test.each([
    ['a time without a text', JSON.parse(WITHOUT_TEXT), 0],
    ['a time that is missing', null, 0],
    ['an address without a text', JSON.parse(WITHOUT_TEXT), 2],
    ['an address that is missing', null, 2],
    ['a size without a text', JSON.parse(WITHOUT_TEXT), 3],
    ['a size below 0', -1, 3],
    ['a size that is not whole', 1.5, 3],
    ['a size above what a number holds', 2 ** 53, 3],
  ])('%s', (_, value, field) => {
    expect(refusal(() => read(({ trace }) => trace[1]!.splice(field, 1, value)))).toBe(
      'trace row 1 of the recording is not [time, action, address, size]',
    );
  });

  test('a list that is nested deeper than any stack', () => {
    const text = corpusText('accesses', 'training.bin').replace('"alloc",4096', `"alloc",${DEEP}`);
    expect(refusal(() => readPlanText(text))).toMatch(/^trace row 0 /);
    expect(refusal(() => readPlanText(corpusText('accesses', 'training.bin').replace('[[1,20001]', `[[1,${DEEP}]`)))).toMatch(
      /two numbers/,
    );
  });

  test('times that go back', () => {
    expect(refusal(() => read(({ trace }) => trace.reverse()))).toBe('the trace rows of the recording go back in time');
    expect(refusal(() => read(({ ops }) => ops.reverse()))).toBe('the operators of the recording go back in time');
    expect(refusal(() => read(({ steps }) => steps.reverse()))).toBe('the steps of the recording go back in time');
    expect(refusal(() => read(({ ops }) => ops[0]!.splice(1, 1, 0)))).toMatch(/the second not below the first/);
  });

  test('sizes that add up to more than a number holds', () => {
    const huge = (trace: unknown[][]) => {
      for (const row of trace.slice(1, 3)) row.splice(3, 1, 2 ** 53 - 1024);
    };
    expect(refusal(() => read(({ trace }) => huge(trace)))).toMatch(/more than any memory holds/);
  });

  test('a step that takes no time, or forever', () => {
    const step = (change: (data: typeof good) => void) => {
      const input = read(change);
      if (input?.kind !== 'accesses') throw new Error(input?.kind);
      return swapStepFrom(input.recording);
    };
    expect(refusal(() => step((data) => data.steps.fill([1, 1])))).toMatch(/takes 0 us/);
    expect(refusal(() => step((data) => data.steps.splice(0, 4, [-1e308, 1], [2, 3])))).toMatch(/takes 1e\+308 us/);
  });

  test('a block that lives through millions of steps counts as one without an end', () => {
    const block = (deathUs: number) => ({ size: 512, birthUs: 5, deathUs, accesses: [] });
    const recording = (deathUs: number) => ({
      name: 'x',
      blocks: [block(deathUs)],
      steps: [[0, 10] as const, [10, 20] as const],
      untouchedBytes: 0,
      momentsUs: new Float64Array(),
    });
    const life = (deathUs: number) => swapStepOf(recording(deathUs), 0).blocks[0]!.toUs;
    expect(life(25)).toBe(25);
    expect(life(165)).toBe(165);
    expect(life(166)).toBe(15);
    expect(life(2 ** 40)).toBe(life(Number.POSITIVE_INFINITY));
  });
});

describe('traces of the AutoSwap study', () => {
  const good = corpusText('autoswap', 'csv.bin');
  const at = (line: number, text: string) => {
    const lines = good.split('\n');
    lines[line] = text;
    return readPlanText(lines.join('\n'));
  };

  test('the unchanged traces are read', () => {
    for (const name of ['csv.bin', 'text.bin', 'numbered.bin']) expect(readPlanText(corpusText('autoswap', name))?.kind).toBe('accesses');
  });

  // Operation and size stay, so that the step still repeats.
  test.each([
    ['a time that is no number', '4,0x2,1024,x'],
    ['a time that is missing', '4,0x2,1024'],
    ['a time of a million digits', `4,0x2,1024,${'9'.repeat(1_000_000)}`],
    ['a time below 0', '4,0x2,1024,-5'],
  ])('%s', (_, line) => {
    expect(refusal(() => at(3, line))).toBe('line 4 is not an event of an AutoSwap trace');
  });

  test('a time that goes back', () => {
    expect(refusal(() => at(3, '4,0x2,1024,1'))).toBe('line 4 is earlier than the line before');
  });

  test.each(['constructor', '__proto__', 'toString'])('an operation called %s', (name) => {
    const text = corpusText('autoswap', 'text.bin').replaceAll('Mutable', name);
    expect(refusal(() => readPlanText(text))).toBe('line 2 is not an event of an AutoSwap trace');
  });

  test('sizes beyond what a number holds', () => {
    expect(refusal(() => readPlanText(good.replaceAll(',512,', `,${'9'.repeat(400)},`)))).toMatch(/^line 1 is not/);
  });
});

test('mallocs whose sizes add up to more than a number holds', () => {
  const half = 2 ** 52;
  expect(refusal(() => readPlanText(`Malloc 0x1 ${half} 0\nMalloc 0x2 ${half} 1\n`))).toMatch(/^line 2: the sizes add up/);
  expect(refusal(() => readPlanText(`Malloc 0x1 ${'9'.repeat(400)} 0\n`))).toMatch(/^line 1: the sizes add up/);
  expect(readPlanText(`Malloc 0x1 ${half} 0\nFree 0x1 1\nMalloc 0x2 ${half} 2\n`)?.kind).toBe('operations');
});

describe('plan files', () => {
  const swaps = corpusText('plan', 'swaps.bin');

  test('fields that are nested deeper than any stack', () => {
    expect(refusal(() => parsePlan(`{"weir":"plan","version":1,"kind":${DEEP}}`))).toMatch(/unknown kind a list of 1 entries/);
    expect(refusal(() => parsePlan(swaps.replace(/"periodUs":[\d.]+/, `"periodUs":${DEEP}`)))).toMatch(/not a list of 1 entries/);
    expect(refusal(() => parsePlan(swaps.replace(/"periodUs":[\d.]+/, `"periodUs":${'{"a":'.repeat(9000)}1${'}'.repeat(9000)}`)))).toMatch(
      /not an object/,
    );
  });

  test('a name without a text', () => {
    expect(parsePlan(swaps).kind).toBe('swaps');
    expect(refusal(() => parsePlan(swaps.replace(/"name":"[^"]*"/, `"name":${WITHOUT_TEXT}`)))).toBe(
      'name of the costs must be a text, not an object',
    );
  });
});

test('a hundred thousand gaps of one buffer are cut out in one pass', () => {
  const gaps = Array.from({ length: 200_000 }, (_, index) => ({ from: 2 * index + 1, to: 2 * index + 2 }));
  const left = withoutGaps([{ from: 0, to: 400_001 }], gaps);
  expect(left).toHaveLength(200_001);
  expect(left[1]).toEqual({ from: 2, to: 3 });
  expect(
    withoutGaps(
      [
        { from: 0, to: 10 },
        { from: 20, to: 30 },
      ],
      [{ from: 5, to: 25 }],
    ),
  ).toEqual([
    { from: 0, to: 5 },
    { from: 25, to: 30 },
  ]);
  expect(
    withoutGaps(
      [{ from: 0, to: 10 }],
      [
        { from: -5, to: 2 },
        { from: 8, to: 50 },
      ],
    ),
  ).toEqual([{ from: 2, to: 8 }]);
});

describe('profiles for swapping', () => {
  const read = (change: (data: Record<string, Record<string, unknown>>) => void) => {
    const data = JSON.parse(corpusText('profile', 'limit.bin')) as Record<string, Record<string, unknown>>;
    change(data);
    return readSwapProfile(data);
  };

  test('times, sizes and rates that no process has', () => {
    expect(read(() => {}).key).toBe('small');
    expect(refusal(() => read((data) => Object.assign(data['copies']!, { fixedUs: 1e308 })))).toMatch(/a time of 1e\+308/);
    expect(refusal(() => read((data) => Object.assign(data['copies']!, { inAlone: 1e-300 })))).toMatch(/a bandwidth of 1e-300/);
    expect(refusal(() => read((data) => Object.assign(data, { periodUs: 1e300 })))).toMatch(/a time of 1e\+300/);
    expect(refusal(() => read((data) => Object.assign(data, { hostLimit: -1 })))).toMatch(/sizes below 0/);
    expect(refusal(() => read((data) => Object.assign(data, { passages: [{ size: -5, left: 1, needed: 4 }] })))).toMatch(/sizes below 0/);
  });
});
