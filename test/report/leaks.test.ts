// Memory that grows from step to step is named by its line; what comes and goes is not.
import { readdirSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { PhaseMark } from '../../src/abi/events.ts';
import { analyzeTrace } from '../../src/report/analysis.ts';
import { diffTraces } from '../../src/report/diff.ts';
import { findLeaks, type LeakReport } from '../../src/report/leaks.ts';
import { stepsOf } from '../../src/report/run-steps.ts';
import { formatAnalysis } from '../../src/report/terminal/analysis.ts';
import { summarizeTrace } from '../../src/trace/summary.ts';
import type { Trace } from '../../src/trace/trace.ts';
import { scripted } from '../support/scripted.ts';
import { sampleTrace } from '../support/traces.ts';
import { MIB, type Row, type TrainingOptions, train } from '../support/training.ts';

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

  it('is named by the caller that forgets, where one line takes memory for all', () => {
    const take = (caller: Row): readonly Row[] => [['/p/pool.py', 5, 'Pool.take'], caller, ['/p/train.py', 40, '<module>']];
    const trace = scripted((script) => {
      for (let layer = 0; layer < 4; layer++) script.alloc(8 * MIB, take(['/p/model.py', 3, 'build']));
      for (let step = 0; step < 12; step++) {
        script.mark(PhaseMark.step);
        const batch = script.alloc(20 * MIB, take(['/p/train.py', 31, 'load']));
        script.alloc(MIB, take(['/p/train.py', 33, 'log']));
        script.free(batch);
      }
    });
    const [site, ...others] = leaksOf(trace).sites;
    expect(others).toEqual([]);
    expect(site).toMatchObject({ label: 'p/pool.py:5 Pool.take', callers: ['p/train.py:33 log', 'p/train.py:40 <module>'] });
  });

  it('is found if it happens now and then', () => {
    expect(leaksOf(train({ leak: (step) => (step % 4 === 0 ? MIB : 0), steps: 30 })).sites).toHaveLength(1);
  });

  it('of many steps is found, too', () => {
    expect(leaksOf(train({ leak: 64 * 1024, steps: 300, layers: 1 })).sites[0]).toMatchObject({ bytesPerStep: 64 * 1024 });
  });

  it('of losses that keep their graphs is named by the lines of the forward pass', () => {
    const trace = scripted((script) => {
      for (let step = 0; step < 30; step++) {
        script.mark(PhaseMark.step);
        for (const line of [20, 21]) script.alloc(3 * MIB, [['/p/model.py', line, 'forward']]);
        script.alloc(4, [['/p/train.py', 7, 'loss']]);
        script.mark(PhaseMark.backward);
        script.free(
          script.alloc(MIB, [
            ['', 0, 'backward of AddmmBackward0'],
            ['/p/model.py', 20, 'forward'],
          ]),
        );
      }
    });
    expect(leaksOf(trace).sites.map(({ label }) => label)).toEqual(['p/model.py:20 forward', 'p/model.py:21 forward']);
  });

  it('of one rank is named in that rank alone, and by the diff of both', () => {
    const [healthy, leaking] = [train({ steps: 30 }), train({ steps: 30, leak: MIB, device: 1 })];
    expect(leaksOf(healthy).sites).toEqual([]);
    const { newLeaks } = diffTraces({ trace: healthy, file: 'r0.weir' }, { trace: leaking, file: 'r1.weir' });
    expect(newLeaks?.map(({ label }) => label)).toEqual(['proj/train.py:33 log']);
  });

  it('is seen where addresses are reused although their frees were lost', () => {
    const trace = scripted((script) => {
      for (let step = 0; step < 30; step++) {
        script.mark(PhaseMark.step);
        script.alloc(3 * MIB, [['/p/model.py', 20, 'forward']], 2 ** 40);
        script.alloc(MIB, [['/p/train.py', 33, 'log']]);
      }
    });
    expect(leaksOf(trace).sites.map(({ label }) => label)).toEqual(['p/train.py:33 log']);
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

  it.each([0.2, 0.5, 0.8, 0.9])('is a cache that is full after %d of the run', (share) => {
    const options = { steps: 100, layers: 1, leak: (step: number) => (step < 100 * share ? MIB : 0) };
    expect(leaksOf(train(options)).sites).toEqual([]);
    expect(leaksOf(train({ ...options, leak: (step) => (step % 20 === 0 ? MIB : 0) })).sites).toHaveLength(1);
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
