// What the terminal shows: a table of at most 100 columns whose columns are explained, ranks side by side, a timeline.
import { describe, expect, it } from 'vitest';
import { chooseAllocators } from '../../src/allocator/registry.ts';
import { analyzeTrace } from '../../src/report/analysis.ts';
import type { Breakdown, OomFinding } from '../../src/report/moment.ts';
import { misfits, type RankRow, rankRow, worstRank } from '../../src/report/ranks.ts';
import { formatAnalysis } from '../../src/report/terminal/analysis.ts';
import { PLAIN } from '../../src/report/terminal/paint.ts';
import { formatRanks } from '../../src/report/terminal/ranks.ts';
import { timelinePicture } from '../../src/report/terminal/timeline-picture.ts';
import { oomState } from '../../src/report/words/verdict.ts';
import { sampleTrace } from '../support/traces.ts';

const LIGHT = { allocators: chooseAllocators('expandable'), findSmallest: false };
const OOM = 'gpt2xl-oom.pickle.gz';

const tableOf = (text: string) => {
  const lines = text.split('\n');
  const start = lines.findIndex((line) => line.startsWith('What each allocator'));
  return lines.slice(start + 1, lines.indexOf('', start));
};

describe('the what-if table', () => {
  const long = `pytorch[max_split_size_mb:128,roundup_power2_divisions:8,garbage_collection_threshold:0.8]`;
  const allocators = chooseAllocators(`expandable,${long}`);

  it('is at most 100 columns wide, and keeps the answer', () => {
    const analysis = analyzeTrace(sampleTrace(OOM), { withHistory: false });
    const table = tableOf(formatAnalysis(analysis, 'x')).slice(0, analysis.whatIf.length + 1);
    expect(Math.max(...table.map((line) => line.length))).toBeLessThanOrEqual(100);
    expect(table[0]).toMatch(/allocator .*peak reserved .*smallest GPU .*in 20\.67 to 21\.22 GiB/);
  });

  it('drops columns and cuts names for very long settings', () => {
    const lines = tableOf(formatAnalysis(analyzeTrace(sampleTrace(OOM), { allocators, findSmallest: false }), 'x'));
    expect(lines[0]!.trim().split(/ {2,}/)).toEqual(['allocator', 'peak reserved', 'in 20.67 to 21.22 GiB']);
    expect(Math.max(...lines.slice(0, 4).map((line) => line.length))).toBeLessThanOrEqual(100);
    const cut = /^ {2}(max_split_size_mb:128.*…) /.exec(lines[3]!)![1]!;
    expect(lines.some((line) => line.startsWith(`  ${cut}: max_split_size_mb:128,`))).toBe(true);
  });

  it('explains every column that it shows', () => {
    for (const isWide of [false, true]) {
      const text = tableOf(formatAnalysis(analyzeTrace(sampleTrace(OOM)), 'x', { isWide }));
      const titles = text[0]!.trim().split(/ {2,}/);
      expect(titles).toHaveLength(isWide ? 7 : 6);
      for (const title of titles) expect(text.some((line) => line.startsWith(`  ${title}: `))).toBe(true);
    }
  });
});

describe('free memory', () => {
  const state = (freePieces: number, fragmented: number, largestFree: number) =>
    oomState({
      breakdown: {
        requested: 1,
        rounding: 0,
        reserved: 1024,
        fragmented,
        smallSegments: 0,
        otherStreams: 512,
        otherPools: 0,
        freePieces,
        largestFree,
      } as Breakdown,
      limit: 2048,
      limitOrigin: 'recorded',
      deviceFree: 0,
    } as OomFinding);

  it('is counted in words that fit the number', () => {
    expect(state(1, 0, 0)).toContain('512 B in 1 piece, none of which this request can use.');
    expect(state(1, 512, 512)).toContain('in 1 piece, the largest 512 B.');
    expect(state(2, 512, 256)).toContain('in 2 pieces, the largest 256 B.');
  });
});

describe('ranks', () => {
  const row = (name: string, file = name): RankRow => rankRow(analyzeTrace(sampleTrace(name), LIGHT), file, [], sampleTrace(name));
  const vgg = row('vgg16-b100.native.pickle.gz');

  it('are counted in words that fit the number', () => {
    expect(formatRanks([vgg], PLAIN)).toMatch(/^1 rank\n/);
    expect(formatRanks([vgg, vgg], PLAIN)).toMatch(/^2 ranks\n/);
  });

  it('are compared without a limit on both sides', () => {
    const oom = row(OOM);
    expect(oom.peakReserved).toBeLessThan(oom.unlimited!);
    const line = formatRanks([oom], PLAIN)
      .split('\n')
      .find((each) => each.startsWith(OOM))!;
    expect(line).toMatch(/20\.67 GiB .* 33\.42 GiB +21\.58 GiB/);
  });

  it('are judged on the GPU that is given', () => {
    const small = { ...LIGHT, capacity: 9 * 2 ** 30 };
    const [one, other] = ['vgg16-b100.native.pickle.gz', 'resnet50-b100.native.pickle.gz'].map((name) =>
      rankRow(analyzeTrace(sampleTrace(name), small), name, []),
    );
    expect(worstRank([other!, one!])).toBe(one);
    const text = formatRanks([one!, other!], PLAIN);
    expect(text).toMatch(/in 9\.00 GiB[\s\S]*vgg16.*out of memory[\s\S]*resnet50.*fits/);
  });

  it('are noticed when they are not of one job', () => {
    expect(misfits([vgg, { ...vgg, file: 'again' }])).toEqual([]);
    const reasons = (other: RankRow) => misfits([vgg, other]).map(({ reason }) => reason);
    expect(reasons(row('vgg16-b100.expandable.pickle.gz'))).toEqual(['allocator']);
    expect(reasons(row(OOM))).toEqual(['events']);
    expect(reasons({ ...vgg, file: 'other', largeSizes: vgg.largeSizes.map((size) => size + 512) })).toEqual(['sizes']);
    expect(formatRanks([vgg, row(OOM)], PLAIN)).toContain(
      `warning: ${OOM} does not look like a rank of the same job as ${vgg.file}: it has 55,013 events, not 2,956.`,
    );
  });
});

describe('the timeline', () => {
  it('shows live and reserved memory and the failure, in ten lines at most', () => {
    const lines = timelinePicture(sampleTrace(OOM), 80);
    expect(lines.length).toBeLessThanOrEqual(10);
    expect(Math.max(...lines.map((line) => line.length))).toBeLessThanOrEqual(80);
    expect(lines[0]).toContain('20.67 GiB │');
    expect(lines.at(-2)).toMatch(/^ +0 └─+×$/);
    expect(lines.at(-1)).toContain('× a request failed');
    expect(lines.join('')).toMatch(/█.*░/);
  });

  it('says nothing of failures where there were none', () => {
    expect(timelinePicture(sampleTrace('vgg16-b100.native.pickle.gz'), 200).join('\n')).not.toContain('×');
  });
});
