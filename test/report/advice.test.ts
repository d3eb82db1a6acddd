// Advice never makes a job worse: whether it fits, then the least memory it runs on, then the peak.
import { describe, expect, it } from 'vitest';
import { GIB, TIB } from '../../src/base/bytes.ts';
import { type AdviceContext, advise } from '../../src/report/advice.ts';
import { analyzeTrace } from '../../src/report/analysis.ts';
import { formatAnalysis } from '../../src/report/terminal/analysis.ts';
import type { WhatIfRow } from '../../src/report/what-if.ts';
import { adviceEffect, adviceLine, leadSentence, noAdvice } from '../../src/report/words/advice.ts';
import { readRecording } from '../../src/trace/detect.ts';
import { writePickle } from '../support/pickle-writer.ts';
import { sampleTrace } from '../support/traces.ts';

const CONTEXT: AdviceContext = {
  summary: { peakLive: 15 * GIB, peakDemand: 15 * GIB } as AdviceContext['summary'],
  capacity: 20 * GIB,
  warnings: [],
  source: 'x.pickle',
};

interface Figures {
  readonly peak: number;
  readonly smallest?: number | undefined;
  readonly ooms?: number | undefined;
  readonly isSure?: boolean | undefined;
}

/** Peaks and smallest GPUs in GiB. */
function row(allocator: string, { peak, smallest, ooms = 0, isSure }: Figures, isRecorded = false): WhatIfRow {
  const kind = /^[a-z]+/.exec(allocator)![0];
  const conf = { pytorch: /\[(.*)\]/.exec(allocator)?.[1] ?? '', expandable: 'expandable_segments:True' }[kind];
  return {
    allocator,
    kind,
    conf,
    isRecorded,
    unlimited: { peakReserved: peak * GIB },
    limited: { ooms },
    isSure,
    smallestGpu: smallest === undefined ? undefined : smallest * GIB,
  } as unknown as WhatIfRow;
}

const settingsOf = (rows: readonly WhatIfRow[], context = CONTEXT) =>
  advise(rows, context).flatMap((advice) => (advice.kind === 'setting' ? [advice.conf] : [advice.kind]));

describe('advice', () => {
  it('does not name a setting that needs more to a job that ran out', () => {
    const recorded = row('pytorch', { peak: 30, smallest: 21, ooms: 1 }, true);
    const larger = row('pytorch[max_split_size_mb:512]', { peak: 40, smallest: 25, ooms: 0, isSure: false });
    expect(settingsOf([recorded, larger])).toEqual([]);
  });

  it('names no second setting with a larger peak', () => {
    const recorded = row('pytorch', { peak: 30, smallest: 21, ooms: 1 }, true);
    const expandable = row('expandable', { peak: 21, smallest: 19 });
    const split = row('pytorch[max_split_size_mb:512]', { peak: 40, smallest: 20, isSure: false });
    expect(settingsOf([recorded, split, expandable])).toEqual(['expandable_segments:True']);
    const gentle = row('pytorch[max_split_size_mb:512]', { peak: 25, smallest: 19.9 });
    expect(settingsOf([recorded, gentle, expandable])).toEqual(['expandable_segments:True', 'max_split_size_mb:512']);
  });

  it('still names the only setting that fits, whatever its peak without a limit', () => {
    const recorded = row('pytorch', { peak: 30, smallest: 21, ooms: 1 }, true);
    const split = row('pytorch[max_split_size_mb:128]', { peak: 40, smallest: 19 });
    expect(settingsOf([recorded, split])).toEqual(['max_split_size_mb:128']);
  });

  it('takes differences within the precision of the search for ties, which the peak decides', () => {
    const recorded = row('pytorch', { peak: 30, smallest: 19.9 }, true);
    const split = row('pytorch[max_split_size_mb:128]', { peak: 28, smallest: 18.0 });
    const expandable = row('expandable', { peak: 20, smallest: 18.05 });
    expect(settingsOf([recorded, split, expandable])).toEqual(['expandable_segments:True', 'max_split_size_mb:128']);
    const worse = row('pytorch[max_split_size_mb:128]', { peak: 50.4, smallest: 18.0 });
    expect(settingsOf([recorded, worse, expandable])).toEqual(['expandable_segments:True']);
  });

  it('does not advise a lower peak that runs on more memory only', () => {
    const recorded = row('pytorch', { peak: 30, smallest: 18 }, true);
    expect(settingsOf([recorded, row('expandable', { peak: 25, smallest: 24 })])).toEqual([]);
  });

  it('advises Weir only where it beats every setting by the same measures', () => {
    const recorded = row('pytorch', { peak: 30, smallest: 21, ooms: 1 }, true);
    const expandable = row('expandable', { peak: 21, smallest: 18 });
    expect(settingsOf([recorded, expandable, row('weir', { peak: 19, smallest: 19 })])).toEqual(['expandable_segments:True']);
    expect(settingsOf([recorded, expandable, row('weir', { peak: 18, smallest: 18 })])).toEqual(['expandable_segments:True', 'engine']);
  });

  it('says first what no allocator can change', () => {
    const demanding = { ...CONTEXT, summary: { peakLive: 25 * GIB, peakDemand: 25 * GIB } as AdviceContext['summary'] };
    const rows = [row('pytorch', { peak: 40, smallest: 30, ooms: 3 }, true), row('expandable', { peak: 27, smallest: 26, ooms: 2 })];
    expect(settingsOf(rows, demanding)).toEqual(['less-demand', 'expandable_segments:True']);
  });
});

/** A run that holds 1 GiB and then asks for `asked` bytes, in vain. */
function runThatAsks(asked: number, withStack: boolean) {
  const frames = withStack ? [{ filename: '/home/me/project/loss.py', name: 'pairwise', line: 12 }] : [];
  const base = 2 ** 40;
  const entry = (action: string, addr: number, size: number) => ({ action, addr, size, stream: 0, time_us: 1, frames });
  const snapshot = {
    segments: [],
    device_traces: [
      [
        entry('segment_alloc', base, GIB),
        entry('alloc', base, GIB),
        { action: 'oom', addr: 20 * GIB, device_free: 20 * GIB, size: asked, stream: 0, time_us: 2, frames },
      ],
    ],
  };
  return readRecording(writePickle(snapshot)).traces[0]!;
}

describe('one request out of proportion', () => {
  it('is told as what it is, with its size and its call site', () => {
    const analysis = analyzeTrace(runThatAsks(TIB, true), { findSmallest: false, allocators: [] });
    const [first] = analysis.advice;
    expect(first!.kind).toBe('oversized');
    expect(adviceLine(first!)).toContain('at project/loss.py:12 pairwise');
    expect(adviceEffect(first!)).toMatch(/one request asks for 1\.00 TiB.*accidental broadcast/);
    expect(leadSentence(analysis)).toMatch(/^One request asks for 1\.00 TiB/);
    expect(JSON.stringify(analysis.advice)).not.toContain('less-demand');
    expect(formatAnalysis(analysis, 'x')).not.toContain('gradient_checkpointing');
  });

  it('needs no stack', () => {
    const [first] = analyzeTrace(runThatAsks(TIB, false), { findSmallest: false, allocators: [] }).advice;
    expect(adviceEffect(first!)).toMatch(/one request asks for 1\.00 TiB, more than the job can get \(21\.00 GiB\), 1,024 times/);
  });

  it('is compared with the GPU, not with what others left of it', () => {
    const asks = (bytes: number) => {
      const trace = { ...runThatAsks(bytes, true), limits: { deviceBytes: 80 * GIB } };
      return adviceEffect(analyzeTrace(trace, { findSmallest: false, allocators: [] }).advice[0]!);
    };
    expect(asks(100 * GIB)).toContain('more than the job can get (80.00 GiB)');
    expect(asks(30 * GIB)).toMatch(/one request asks for 30\.00 GiB, 30 times/);
  });

  it('is not seen in an ordinary request', () => {
    expect(analyzeTrace(sampleTrace('gpt2xl-oom.pickle.gz'), { findSmallest: false, allocators: [] }).oversized).toBeUndefined();
  });
});

describe('the first sentence', () => {
  it('is the setting and what it does', () => {
    const analysis = analyzeTrace(sampleTrace('gpt2xl-oom.pickle.gz'), { withHistory: false });
    expect(leadSentence(analysis)).toBe('Set expandable_segments:True: peak 33.42 -> 21.58 GiB without a limit, fits in 20.67 GiB.');
    expect(analysis.whatIf.map(({ kind }) => kind)).not.toContain('gmlake');
    expect(formatAnalysis(analysis, 'x').split('\n')[3]).toBe(leadSentence(analysis));
  });

  it('says of settings only what was tried', () => {
    const recorded = row('pytorch', { peak: 30 }, true);
    expect(noAdvice([recorded])).toBe("No other setting of PyTorch's allocator was tried.");
    expect(noAdvice([recorded, row('expandable', { peak: 30 })])).toBe(
      'None of the settings tried saves 3 % or more (expandable_segments:True).',
    );
  });
});
