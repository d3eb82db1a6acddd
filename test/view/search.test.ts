// What people type into the search field, and what it finds.
import { describe, expect, it } from 'vitest';
import { GIB, MIB } from '../../src/base/bytes.ts';
import { categoriesOf } from '../../src/report/categories.ts';
import { readRecording } from '../../src/trace/detect.ts';
import { Notes } from '../../src/trace/notes.ts';
import type { Trace } from '../../src/trace/trace.ts';
import { describeEvent } from '../../src/view/event-words.ts';
import { watchRecorded } from '../../src/view/history.ts';
import { parseQuery, type Searched, search } from '../../src/view/search.ts';
import { SiteNames } from '../../src/view/site-names.ts';
import { readSample } from '../support/samples.ts';

describe('parseQuery', () => {
  it.each([
    ['0x7f00', { address: 0x7f00 }],
    ['#54,894', { event: 54894 }],
    ['event 12', { event: 12 }],
    ['>=1GiB', { size: { atLeast: 1024 * MIB, atMost: Number.POSITIVE_INFINITY } }],
    ['<2MiB', { size: { atLeast: 0, atMost: 2 * MIB - 1 } }],
    ['512 B', { size: { atLeast: 512, atMost: 512 } }],
    // A number alone: GiB, as in the rest of the page, or an event, or a line of code.
    ['24', { size: { atLeast: 23.5 * GIB, atMost: 24.5 * GIB }, event: 24, text: '24' }],
    ['>2', { size: { atLeast: 2 * GIB + 1, atMost: Number.POSITIVE_INFINITY } }],
    ['forward', { text: 'forward' }],
    ['train.py:65', { text: 'train.py:65' }],
  ])('understands %s', (text, query) => {
    expect(parseQuery(text)).toEqual(query);
  });

  it('takes a size for everything that is written the same', () => {
    for (const text of ['2.76 GiB', '2.76']) {
      const { atLeast, atMost } = parseQuery(text)!.size!;
      expect(2961702912 >= atLeast && 2961702912 <= atMost).toBe(true);
    }
  });

  it('takes nothing for nothing', () => {
    expect(parseQuery('   ')).toBeUndefined();
  });
});

describe('search', () => {
  const [trace] = readRecording(readSample('gpt2xl-oom.pickle.gz')).traces as [Trace];
  const { history } = watchRecorded(trace);
  const sites = new SiteNames(trace);
  const searched: Searched = {
    trace,
    history,
    notes: new Notes(trace),
    siteOf: (allocation) => sites.of(allocation),
    describe: (event) => describeEvent(trace, event),
    momentOf: (event) => ({ event, timeUs: 1 }),
    momentAt: () => ({ event: 7, timeUs: 2 }),
  };

  it('finds the block at an address', () => {
    const address = history.address[500]!;
    const { hits } = search(searched, parseQuery(`0x${address.toString(16)}`)!);
    expect(hits).toContain(500);
    for (const hit of hits) expect(history.address[hit]! <= address && address < history.address[hit]! + history.size[hit]!).toBe(true);
  });

  it('finds frames anywhere in a stack', () => {
    const { total } = search(searched, parseQuery('fixed_cross_entropy')!);
    expect(total).toBeGreaterThan(0);
    expect(search(searched, parseQuery('no_such_function')!).total).toBe(0);
  });

  it('finds sizes', () => {
    const { total, hits } = search(searched, parseQuery('>1GiB')!);
    expect(total).toBe(hits.length);
    for (const hit of hits) expect(trace.allocations.requested[hit]!).toBeGreaterThan(1024 * MIB);
  });

  it('finds an event that is no allocation: a request that failed', () => {
    const found = search(searched, parseQuery('#54894')!);
    expect(found.moments).toEqual([{ event: 54_894, timeUs: 1, what: 'out of memory: a request for 2.76 GiB failed' }]);
    expect(found.total).toBe(0);
    expect(search(searched, parseQuery('#999999999')!)).toMatchObject({ moments: [], searched: 'events (0 to 55,012)' });
  });

  it('finds annotations and categories', () => {
    const [first] = search(searched, parseQuery('Optimizer.step')!).moments;
    expect(first).toEqual({ event: 7, timeUs: 2, what: expect.stringMatching(/^annotation Optimizer\.step#AdamW/) });
    const { hits } = search(searched, parseQuery('optimizer state')!);
    expect(hits.length).toBeGreaterThan(0);
    for (const hit of hits) expect(categoriesOf(trace).of(hit).category).toBe('optimizerState');
  });
});
