// Two runs that differ in something known: the difference is named, at the line where it is, and nothing else is.

import { describe, expect, it } from 'vitest';
import type { Category } from '../../src/report/categories.ts';
import { type Diff, diffTraces } from '../../src/report/diff.ts';
import { parseDiffRule } from '../../src/report/diff-rules.ts';
import { formatDiff } from '../../src/report/terminal/diff.ts';
import type { Trace } from '../../src/trace/trace.ts';
import { sampleTrace } from '../support/traces.ts';
import { FORWARD, MIB, train } from '../support/training.ts';

function diff(before: Trace, after: Trace, by?: 'step' | 'peak' | 'end'): Diff {
  return diffTraces({ trace: before, file: 'a.weir' }, { trace: after, file: 'b.weir' }, { by });
}

/** Changes in MiB. The gradient that is live at the peak is less than one, and that of another line. */
const changes = ({ sites }: Diff) =>
  sites
    .filter(({ before, after }) => Math.abs(after - before) >= MIB)
    .map(({ label, before, after }) => [label, before / MIB, after / MIB]);

describe('one added activation', () => {
  const added = { line: 11, calls: 'relu', size: 5 * MIB } as const;

  it('is named where lines did not move', () => {
    const found = diff(train(), train({ forward: [...FORWARD, { ...added, line: 13 }] }));
    expect(changes(found)).toEqual([['proj/model.py:13 forward', 0, 15]]);
    expect(found.sites[0]).toMatchObject({
      isOnly: true,
      callers: ['proj/train.py:31 step', 'proj/train.py:50 <module>'],
      allocationsAfter: 3,
    });
    expect(found.alignment).toMatchObject({ by: 'step', step: { isCounted: false, common: 7 } });
  });

  // The lines behind it are now one further down, and their old numbers belong to others.
  it.each([
    ['another function', added],
    ['the same function as its neighbours', { ...added, calls: 'linear' }],
    ['no function', { ...added, calls: 'none' }],
  ] as const)('is named where it pushes other lines down, calling %s', (_, line) => {
    const edited = [FORWARD[0]!, line, { ...FORWARD[1]!, line: 12 }, { ...FORWARD[2]!, line: 13 }];
    const found = diff(train(), train({ forward: edited }));
    expect(changes(found)).toEqual([['proj/model.py:11 forward', 0, 15]]);
    expect(found.editedFiles).toEqual(['/home/me/proj/model.py']);
  });

  it('is named where all lines call the same function: their sizes tell them apart', () => {
    const alike = FORWARD.map((line) => ({ ...line, calls: 'linear' as const }));
    const edited = [alike[0]!, { ...added, calls: 'linear' as const }, { ...alike[1]!, line: 12 }, { ...alike[2]!, line: 13 }];
    expect(changes(diff(train({ forward: alike }), train({ forward: edited })))).toEqual([['proj/model.py:11 forward', 0, 15]]);
  });

  it('is named as gone in the other direction', () => {
    const edited = [FORWARD[0]!, added, { ...FORWARD[1]!, line: 12 }, { ...FORWARD[2]!, line: 13 }];
    expect(changes(diff(train({ forward: edited }), train()))).toEqual([['proj/model.py:11 forward', 15, 0]]);
  });

  it('is named in another checkout and another environment', () => {
    const edited = [FORWARD[0]!, added, { ...FORWARD[1]!, line: 12 }, { ...FORWARD[2]!, line: 13 }];
    const other = { project: '/ci/builds/77/proj', packages: '/opt/venv/lib/python3.13/site-packages' };
    const found = diff(train(), train({ forward: edited, ...other }));
    expect(changes(found)).toEqual([['proj/model.py:11 forward', 0, 15]]);
    expect(found.movedFiles).toEqual([
      ['/home/me/proj/model.py', '/ci/builds/77/proj/model.py'],
      ['/home/me/proj/train.py', '/ci/builds/77/proj/train.py'],
    ]);
    expect(formatDiff(found)).toContain(
      'Files taken for the same by the end of their paths: /home/me/proj/model.py = /ci/builds/77/proj/model.py',
    );
  });

  it('is named where one recording has the names of classes', () => {
    const edited = [FORWARD[0]!, added, { ...FORWARD[1]!, line: 12 }, { ...FORWARD[2]!, line: 13 }];
    expect(changes(diff(train(), train({ forward: edited, qualified: true })))).toEqual([['proj/model.py:11 Model.forward', 0, 15]]);
  });

  it('is named without stacks by its size', () => {
    const found = diff(train({ stacks: false }), train({ stacks: false, forward: [...FORWARD, { ...added, line: 13 }] }));
    expect(changes(found)).toEqual([['requests of 5 MiB (no stack recorded)', 0, 15]]);
    expect(formatDiff(found)).toContain('Most of the memory has no call stack');
  });

  it('is named where nothing marks the steps', () => {
    const options = { marks: 'none', steps: 10 } as const;
    const found = diff(train(options), train({ ...options, forward: [...FORWARD, { ...added, line: 13 }] }));
    expect(found.alignment).toMatchObject({ by: 'step', step: { isCounted: false } });
    expect(changes(found)).toEqual([['proj/model.py:13 forward', 0, 15]]);
  });

  it('stands in the first sentences', () => {
    const text = formatDiff(diff(train(), train({ forward: [...FORWARD, { ...added, line: 13 }] })));
    expect(text).toContain('Live memory grew by 15 MiB (+20.4 %): 73.5 -> 88.5 MiB at the peak of the 7th step found.');
    expect(text).toContain('What grew most: proj/model.py:13 forward (+15 MiB, new).');
    expect(text).toContain(
      'Compared at the step in which B needs most, of 7 steps that both have. Steps come from marks "weir:step", and are paired in their order.',
    );
  });
});

describe('categories', () => {
  const found = diff(train(), train({ forward: [...FORWARD, { line: 13, calls: 'none', size: 5 * MIB }] }));
  const change = (category: Category, before: number, after: number) => ({ category, before: before * MIB, after: after * MIB });

  it('are shown if they are known, and named if one has most of the growth', () => {
    const text = formatDiff({ ...found, categories: [change('activation', 54, 69), change('parameter', 6, 6)] });
    expect(text).toContain('Most of the change is activations: +15 MiB.');
    expect(text).toMatch(
      /By category:\n.*\n +54 MiB +69 MiB +\+15 MiB +\+27\.8 % {2}activations\n +6 MiB +6 MiB +0 B +0\.0 % {2}parameters\n/,
    );
  });

  it('are not named if the growth is spread', () => {
    const text = formatDiff({ ...found, categories: [change('activation', 54, 61), change('parameter', 6, 10), change('buffer', 0, 4)] });
    expect(text).not.toContain('Most of the change is');
  });
});

describe('the same program', () => {
  it('does not differ from itself', () => {
    const found = diff(train(), train());
    expect(found.sites).toEqual([]);
    expect(formatDiff(found)).toContain('Live memory is the same to the byte');
  });

  it('with other sizes differs at every line, and at the right one', () => {
    const doubled = FORWARD.map((line) => ({ ...line, size: 2 * line.size }));
    expect(changes(diff(train(), train({ forward: doubled })))).toEqual([
      ['proj/model.py:11 forward', 24, 48],
      ['proj/model.py:12 forward', 18, 36],
      ['proj/model.py:10 forward', 12, 24],
    ]);
  });

  it('with sizes that other lines had before is matched by line', () => {
    const sizes = [1, 2, 4, 8, 16, 32, 64];
    const lines = (scale: number) => sizes.map((size, at) => ({ line: 10 + at, calls: 'linear' as const, size: size * scale * MIB }));
    const found = diff(train({ forward: lines(1), layers: 1 }), train({ forward: lines(2), layers: 1 }));
    const forward = found.sites.filter(({ label }) => label.startsWith('proj/model.py'));
    expect(forward.map(({ before, after }) => after / before)).toEqual(sizes.map(() => 2));
  });

  it('on another allocator does not differ', () => {
    const found = diff(sampleTrace('vgg16-b100.native.pickle.gz'), sampleTrace('vgg16-b100.expandable.pickle.gz'));
    expect(found.alignment).toMatchObject({ by: 'step', step: { isCounted: false } });
    expect(found.sites).toEqual([]);
  });
});

describe('a long run', () => {
  it('is compared, too', () => {
    const trace = train({ steps: 150_000, layers: 0 });
    expect(diff(trace, trace).alignment.step).toMatchObject({ common: 149_999 });
  });
});

describe('two files of one name', () => {
  it('are not mixed up', () => {
    const root = { project: '/ci/proj' };
    const found = diff(train(), train({ ...root, forward: [...FORWARD, { line: 13, calls: 'none', size: 5 * MIB }] }));
    expect(found.movedFiles.map(([a]) => a)).toEqual(['/home/me/proj/model.py', '/home/me/proj/train.py']);
    const other = diff(train(), train({ project: '/somewhere/else' }));
    expect(other.movedFiles.map(([, b]) => b)).toEqual(['/somewhere/else/model.py', '/somewhere/else/train.py']);
    expect(other.sites).toEqual([]);
  });
});

describe('the moment compared', () => {
  it('is the step in which the second run needs most', () => {
    const batch = (step: number) => (step === 3 ? 9 * MIB : MIB);
    expect(diff(train({ batch }), train({ batch })).alignment.step).toMatchObject({ number: 4 });
  });

  it('has the number that the program counts', () => {
    const batch = (step: number) => (step === 3 ? 9 * MIB : MIB);
    const options = { batch, marks: 'counted' } as const;
    expect(diff(train(options), train(options)).alignment.step).toMatchObject({ number: 3, isCounted: true });
  });

  it('is the peak if one of the runs has no steps', () => {
    const found = diff(train({ steps: 1, marks: 'none' }), train());
    expect(found.alignment).toMatchObject({ by: 'peak', step: undefined });
    expect(formatDiff(found)).toContain('Compared at the peaks of both runs, because the first run has no steps that can be told apart');
  });

  it('is what was asked for', () => {
    expect(diff(train(), train(), 'peak').alignment).toMatchObject({ by: 'peak', reason: undefined });
    expect(changes(diff(train(), train({ leak: MIB }), 'end'))).toEqual([['proj/train.py:33 log', 0, 8]]);
  });

  it('is at another line: sites live at one of both are not called new', () => {
    const flipped = FORWARD.map((line) => ({ ...line, size: 18 * MIB - line.size }));
    for (const site of diff(train({ layers: 1 }), train({ layers: 1, forward: flipped }), 'peak').sites) expect(site.isOnly).toBe(false);
  });
});

describe('a leak', () => {
  it('is new in the second run', () => {
    const found = diff(train(), train({ leak: MIB }));
    expect(found.newLeaks?.map(({ label }) => label)).toEqual(['proj/train.py:33 log']);
    expect(formatDiff(found)).toMatch(
      /B: Memory grows from step to step by 1 MiB per step at one call site.*\n.*train\.py:33 log.*not in A/,
    );
  });

  it('that both have is not new', () => {
    expect(diff(train({ leak: MIB }), train({ leak: MIB })).newLeaks).toEqual([]);
  });

  it('is unknown without steps', () => {
    expect(diff(train(), train({ steps: 1, marks: 'none' })).newLeaks).toBeUndefined();
  });
});

describe('a rule', () => {
  const grown = diff(train(), train({ forward: [...FORWARD, { line: 13, calls: 'none', size: 5 * MIB }], leak: MIB }));
  it.each(['growth>2%', 'grown>10MiB', 'peak-growth>2%', 'site-growth>=15MiB', 'leaks>0', 'leaked>=1MiB'])('%s is broken', (text) => {
    expect(parseDiffRule(text).breach(grown)).toMatchObject({ rule: text });
  });

  it.each(['growth>60%', 'grown>30MiB', 'site-growth>15MiB', 'leaks>1'])('%s is kept', (text) => {
    expect(parseDiffRule(text).breach(grown)).toBeUndefined();
    expect(parseDiffRule(text).isKnown(grown)).toBe(true);
  });

  it('about an unknown figure says so', () => {
    expect(parseDiffRule('reserved-growth>2%').isKnown(grown)).toBe(false);
  });

  it.each(['growth>2', 'peak>70GiB', 'constructor>1', 'nonsense'])('%s is refused', (text) => {
    expect(() => parseDiffRule(text)).toThrow(/growth>2%/);
  });
});
