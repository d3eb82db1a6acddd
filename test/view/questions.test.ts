// Every field of every question is checked: kind, range, and what a map may ask for in all.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { UsageError } from '../../src/base/errors.ts';
import { checkQuestion, MOST_CELLS, MOST_COLUMNS, MOST_ROWS } from '../../src/view/questions.ts';
import { detailGrid } from '../../src/view/viewport.ts';

const window = { axis: 'time', from: 0, to: 10, columns: 100, low: 0, high: 1e9, rows: 50 };
const RIGHT = [
  { method: 'describe', gpu: 0 },
  { method: 'run', gpu: 0, run: 'recorded' },
  { method: 'timeline', gpu: 1, run: 'weir', axis: 'event', from: 0, to: 10.5, columns: MOST_COLUMNS },
  {
    method: 'map',
    gpu: 0,
    run: 'recorded',
    window,
    colour: 'stack',
    selection: { node: -3, site: undefined, category: 'gradient', search: undefined },
  },
  { method: 'legend', gpu: 0, colour: 'age' },
  { method: 'moment', gpu: 0, run: 'recorded', axis: 'time', position: -1.5, since: 0 },
  { method: 'blockAt', gpu: 0, run: 'recorded', axis: 'time', position: 3, offset: 0.5 },
  { method: 'block', gpu: 0, run: 'recorded', allocation: -1 },
  { method: 'ruler', gpu: 0 },
  { method: 'bands', gpu: 0, by: 'site' },
  { method: 'stack', gpu: 0, by: 'category', window: { axis: 'time', from: 0, to: 10, columns: 100, least: 2 ** 20 } },
  { method: 'stackAt', gpu: 0, run: 'recorded', by: 'none', event: -1, allocation: undefined },
  { method: 'search', gpu: 0, run: 'recorded', text: '> 2 GiB' },
  { method: 'plan', gpu: 0 },
  { method: 'analyze', gpu: 0, capacity: 80 * 2 ** 30 },
  { method: 'misfits', gpu: 0 },
  { method: 'strip', gpu: 0, run: 'recorded', event: -1, request: 7, limit: undefined, isGiven: undefined, order: 'hole' },
  { method: 'besideHole', gpu: 0, run: 'weir', event: 9, request: undefined, limit: 2 ** 34, isGiven: true, address: 2 ** 40 },
];
const STRIP = { method: 'strip', gpu: 0, run: 'recorded', event: 0, order: 'address' };
const FIELDS = [...new Set(RIGHT.flatMap((question) => Object.keys(question)))];
const [, , timeline, map, , moment] = RIGHT;

describe('a question', () => {
  it.each(RIGHT)('passes unchanged if it is right: $method', (question) => {
    expect(checkQuestion(question)).toEqual(question);
    expect(checkQuestion(JSON.parse(JSON.stringify(question)))).toEqual(question);
  });

  it('loses fields that nobody knows', () => {
    expect(checkQuestion({ method: 'plan', gpu: 0, budget: 1e9 })).toEqual({ method: 'plan', gpu: 0 });
  });

  it.each<[unknown, string]>([
    [null, 'a question is an object'],
    [[], 'a question is an object'],
    [{ gpu: 0 }, 'a question has a method'],
    [{ method: 'steal', gpu: 0 }, "there is no question 'steal'"],
    [{ method: '__proto__', gpu: 0 }, "there is no question '__proto__'"],
    [{ method: 'describe' }, 'gpu is a number'],
    [{ method: 'describe', gpu: '0' }, 'gpu is a number'],
    [{ method: 'run', gpu: 0 }, 'run is a text'],
    [{ method: 'run', gpu: 0, run: 'x'.repeat(5000) }, 'run is a text of at most 4096 characters'],
    [{ ...timeline, columns: 1e9 }, 'columns is a whole number from 1 to 16384, not 1000000000'],
    [{ ...timeline, columns: 0 }, 'columns is a whole number'],
    [{ ...timeline, columns: 1.5 }, 'columns is a whole number'],
    [{ ...timeline, columns: '5' }, 'columns is a whole number from 1 to 16384, not a value of type string'],
    [{ ...timeline, columns: [5] }, 'not a list'],
    [{ ...timeline, from: Number.NaN }, 'from is a number'],
    [{ ...timeline, to: Number.POSITIVE_INFINITY }, 'to is a number'],
    [{ ...timeline, from: 11 }, 'from is not above to'],
    [{ ...timeline, axis: 'sideways' }, 'axis is one of event, time'],
    [{ ...map, window: { ...window, rows: MOST_ROWS + 1 } }, 'window.rows is a whole number from 1 to 4096'],
    [{ ...map, window: { ...window, columns: MOST_COLUMNS, rows: MOST_ROWS } }, `window has at most ${MOST_CELLS} cells`],
    [{ method: 'bands', gpu: 0, by: 'colour' }, 'by is one of category, site, none'],
    [{ method: 'stack', gpu: 0, by: 'site', window: { ...window, least: 1, from: 11 } }, 'window.from is not above window.to'],
    [{ ...map, selection: { category: 'cats' } }, 'selection.category is one of parameter'],
    [{ ...map, window: { ...window, low: 2, high: 1 } }, 'window.low is not above window.high'],
    [{ ...map, window: 5 }, 'window is an object'],
    [{ ...map, colour: 'beige' }, 'colour is one of'],
    [{ ...map, selection: { node: 0.5 } }, 'selection.node is a whole number'],
    [{ ...map, selection: 'all' }, 'selection is an object'],
    [{ ...moment, since: 1.5 }, 'since is a whole number'],
    [{ method: 'flame', gpu: 0, event: 1, under: { node: 1.5 } }, 'under.node is a whole number'],
    [{ method: 'block', gpu: 0, run: 'recorded', allocation: 1e99 }, 'allocation is a whole number'],
    [{ method: 'search', gpu: 0, run: 'recorded', text: 7 }, 'text is a text'],
    [{ method: 'analyze', gpu: 0, capacity: 0 }, 'capacity is a whole number from 1'],
    [{ method: 'analyze', gpu: 0, capacity: -1 }, 'capacity is a whole number'],
    [{ ...STRIP, order: 'random' }, 'order is one of hole, address'],
    [{ ...STRIP, event: 0.5 }, 'event is a whole number from -1'],
    [{ ...STRIP, request: -1 }, 'request is a whole number from 0'],
    [{ ...STRIP, limit: 0 }, 'limit is a whole number from 1'],
    [{ ...STRIP, isGiven: 'yes' }, 'isGiven is true or false'],
    [{ ...STRIP, method: 'hole', address: 'top' }, 'address is a number'],
  ])('%j is refused', (question, words) => {
    expect(() => checkQuestion(question)).toThrow(words);
  });

  it('is either right or refused in words, whatever it is', () => {
    const anything = fc.oneof(
      fc.anything(),
      fc
        .constantFrom(...RIGHT)
        .chain((question) => fc.dictionary(fc.constantFrom(...FIELDS), fc.anything()).map((odd) => ({ ...question, ...odd }))),
    );
    fc.assert(
      fc.property(anything, (value) => {
        try {
          const question = checkQuestion(value);
          if (question.method === 'timeline') expect(question.columns).toBeLessThanOrEqual(MOST_COLUMNS);
          if (question.method === 'map') expect(question.window.columns * question.window.rows).toBeLessThanOrEqual(MOST_CELLS);
        } catch (error) {
          expect(error).toBeInstanceOf(UsageError);
        }
      }),
      { numRuns: 3000 },
    );
  });

  it('of the page stays within the limits on the widest screens', () => {
    const whole = 3e6;
    for (let zoom = 1; zoom > 1e-9; zoom *= 0.77) {
      for (const pixels of [300, 1920, 7680, 20_000]) {
        const columns = detailGrid({ from: whole / 3, to: whole / 3 + whole * zoom * 0.6 }, whole, pixels).cells;
        const rows = detailGrid({ from: 0, to: whole * zoom }, whole, 236).cells;
        expect(columns).toBeLessThanOrEqual(MOST_COLUMNS);
        expect(columns * rows).toBeLessThanOrEqual(MOST_CELLS);
      }
    }
  });
});
