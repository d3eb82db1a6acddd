// A recording without the folders of its machine: nothing of them is left, and every answer is the same.
import { describe, expect, it } from 'vitest';
import { analyzeTrace } from '../../src/report/analysis.ts';
import { stripRecording, stripText } from '../../src/report/strip.ts';
import type { Recording } from '../../src/trace/trace.ts';
import { atHome, sampleRecording } from '../support/ranks.ts';

describe('a stripped recording', () => {
  const home = atHome(sampleRecording('gpt2xl-oom.pickle.gz'), '/home/ann/secret');
  const stripped = stripRecording(home);

  it('names no folder of the machine', () => {
    expect(home.traces[0]!.symbols.strings.join('\n')).toContain('/home/ann/secret');
    const texts = stripped.traces[0]!.symbols.strings.join('\n');
    expect(texts).not.toMatch(/ann|secret|\/home\//);
  });

  it('keeps files apart, and libraries known as such', () => {
    const files = (recording: Recording) => {
      const { frames, strings } = recording.traces[0]!.symbols;
      return new Set(Array.from({ length: frames.count }, (_, frame) => strings[frames.filename(frame)]));
    };
    expect(files(stripped).size).toBe(files(home).size);
    const [before, after] = [home, stripped].map((recording) =>
      analyzeTrace(recording.traces[0]!, { allocators: [], findSmallest: false, findRecordedSmallest: false }),
    );
    expect(after!.sites.map(({ bytes, allocations }) => [bytes, allocations])).toEqual(
      before!.sites.map(({ bytes, allocations }) => [bytes, allocations]),
    );
    expect(after!.peak).toEqual(before!.peak);
    expect(after!.categories).toEqual(before!.categories);
    expect(after!.sites[0]!.label).toMatch(/^[\w.]+\.py:\d+ \w+/);
  });

  it.each([
    ['saved to /home/ann/run/x.pickle at 3', 'saved to x.pickle at 3'],
    ['~ann/run/x.pickle', 'x.pickle'],
    ['C:\\Users\\ann\\x.py:3', 'x.py:3'],
    ['forward/backward and 3/4', 'forward/backward and 3/4'],
    ['http://example.org/a/b', 'http://example.org/a/b'],
    ['/step', '/step'],
  ])('%s becomes %s', (text, expected) => {
    expect(stripText(text)).toBe(expected);
  });
});
