// Memory that grows from step to step is named by its line; what comes and goes is not.
import { readdirSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { analyzeTrace } from '../../src/report/analysis.ts';
import { findLeaks, type LeakReport } from '../../src/report/leaks.ts';
import { stepsOf } from '../../src/report/run-steps.ts';
import { formatAnalysis } from '../../src/report/terminal/analysis.ts';
import { summarizeTrace } from '../../src/trace/summary.ts';
import type { Trace } from '../../src/trace/trace.ts';
import { sampleTrace } from '../support/traces.ts';
import { MIB, type TrainingOptions, train } from '../support/training.ts';

function leaksOf(trace: Trace): LeakReport {
  const leaks = findLeaks(trace, stepsOf(trace), summarizeTrace(trace).peakLive);
  if (!('sites' in leaks)) throw new Error(leaks.reason);
  return leaks;
}

describe('a leak planted in a loop', () => {
  const ways: [string, TrainingOptions][] = [
    ['marks', {}],
    ['annotations', { marks: 'annotations' }],
    ['repetition', { marks: 'none', steps: 12 }],
  ];
  it.each(ways)('is named by its line, with steps from %s', (by, options) => {
    const leaks = leaksOf(train({ leak: MIB, ...options }));
    expect(leaks.by).toBe(by);
    expect(leaks.sites.map(({ label, callers }) => [label, callers[0]])).toEqual([['proj/train.py:33 log', 'proj/train.py:32 step']]);
    expect(leaks.sites[0]!.bytesPerStep).toBe(MIB);
  });

  it('is found in steps that repeat nothing', () => {
    const leaks = leaksOf(train({ leak: MIB, batch: (step) => MIB + 4096 * ((step * 7) % 5) }));
    expect(leaks.sites.map(({ label }) => label)).toEqual(['proj/train.py:33 log']);
  });

  it('is found without stacks, too, if not its line', () => {
    const leaks = leaksOf(train({ leak: MIB, stacks: false }));
    expect(leaks.sites.map(({ label, bytesPerStep }) => [label, bytesPerStep])).toEqual([['(no stack recorded)', MIB]]);
  });

  it('is found if it happens now and then', () => {
    expect(leaksOf(train({ leak: (step) => (step % 4 === 0 ? MIB : 0), steps: 30 })).sites).toHaveLength(1);
  });

  it('of many steps is found, too', () => {
    expect(leaksOf(train({ leak: 64 * 1024, steps: 300, layers: 1 })).sites[0]).toMatchObject({ bytesPerStep: 64 * 1024 });
  });

  it('is in the verdict', () => {
    const trace = train({ leak: MIB });
    const text = formatAnalysis(analyzeTrace(trace, { allocators: [], findSmallest: false }), 'x');
    expect(text).toContain('Memory grows from step to step by 1 MiB per step at one call site');
    expect(text).toMatch(/\+1 MiB per step .*proj\/train\.py:33 log \(called from proj\/train\.py:32 step/);
  });
});

describe('no leak', () => {
  it('is in a run that forgets nothing', () => {
    expect(leaksOf(train()).sites).toEqual([]);
    expect(leaksOf(train({ marks: 'none', steps: 12 })).sites).toEqual([]);
  });

  it('is memory that is set up once', () => {
    expect(leaksOf(train({ leak: (step) => (step < 5 ? 0 : step === 5 ? 8 * MIB : 0) })).sites).toEqual([]);
    expect(leaksOf(train({ leak: (step) => (step < 2 ? 8 * MIB : 0) })).sites).toEqual([]);
  });

  it('is memory that shrinks as well', () => {
    const sizes = [5, 5, 1, 1, 9, 9, 4, 4, 13, 13, 8, 8, 17, 17, 20, 20];
    expect(leaksOf(train({ steps: sizes.length, cache: (step) => sizes[step]! * MIB })).sites).toEqual([]);
    expect(leaksOf(train({ steps: 12, cache: (step) => step * MIB + MIB })).sites.map(({ label }) => label)).toEqual([
      'proj/train.py:36 cache',
    ]);
  });

  const names = readdirSync(new URL('../../samples/', import.meta.url), { recursive: true, encoding: 'utf8' }).filter((name) =>
    /\.(pickle|pkl)(\.gz)?$/.test(name),
  );
  it.each(names)('is in %s', (name) => {
    const trace = sampleTrace(name);
    const leaks = findLeaks(trace, stepsOf(trace), summarizeTrace(trace).peakLive);
    if ('sites' in leaks) expect(leaks.sites).toEqual([]);
    else expect(leaks.reason).not.toBe('');
  });
});
