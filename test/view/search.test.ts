// What people type into the search field, and what it finds.
import { describe, expect, it } from 'vitest';
import { MIB } from '../../src/base/bytes.ts';
import { readRecording } from '../../src/trace/detect.ts';
import type { Trace } from '../../src/trace/trace.ts';
import { watchRecorded } from '../../src/view/history.ts';
import { parseQuery, search } from '../../src/view/search.ts';
import { readSample } from '../support/samples.ts';

describe('parseQuery', () => {
  it.each([
    ['0x7f00', { kind: 'address', address: 0x7f00 }],
    ['#54,894', { kind: 'event', event: 54894 }],
    ['event 12', { kind: 'event', event: 12 }],
    ['>=1GiB', { kind: 'size', atLeast: 1024 * MIB, atMost: Number.POSITIVE_INFINITY }],
    ['<2MiB', { kind: 'size', atLeast: 0, atMost: 2 * MIB - 1 }],
    ['512', { kind: 'size', atLeast: 512, atMost: 512 }],
    ['forward', { kind: 'frame', text: 'forward' }],
    ['train.py:65', { kind: 'frame', text: 'train.py:65' }],
  ])('understands %s', (text, query) => {
    expect(parseQuery(text)).toEqual(query);
  });

  it('takes a size for everything that is written the same', () => {
    const query = parseQuery('2.76 GiB');
    expect(query).toMatchObject({ kind: 'size' });
    if (query?.kind === 'size') expect(2961702912 >= query.atLeast && 2961702912 <= query.atMost).toBe(true);
  });

  it('takes nothing for nothing', () => {
    expect(parseQuery('   ')).toBeUndefined();
  });
});

describe('search', () => {
  const [trace] = readRecording(readSample('gpt2xl-oom.pickle.gz')).traces as [Trace];
  const { history } = watchRecorded(trace);

  it('finds the block at an address', () => {
    const address = history.address[500]!;
    const { hits } = search(trace, history, parseQuery(`0x${address.toString(16)}`)!);
    expect(hits).toContain(500);
    for (const hit of hits) expect(history.address[hit]! <= address && address < history.address[hit]! + history.size[hit]!).toBe(true);
  });

  it('finds frames anywhere in a stack', () => {
    const { total } = search(trace, history, parseQuery('fixed_cross_entropy')!);
    expect(total).toBeGreaterThan(0);
    expect(search(trace, history, parseQuery('no_such_function')!).total).toBe(0);
  });

  it('finds sizes', () => {
    const { total, hits } = search(trace, history, parseQuery('>1GiB')!);
    expect(total).toBe(hits.length);
    for (const hit of hits) expect(trace.allocations.requested[hit]!).toBeGreaterThan(1024 * MIB);
  });
});
