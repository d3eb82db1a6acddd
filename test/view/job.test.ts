// The ranks of a job without a browser: their figures are those of the analysis, and the order, clock and names are right.
import { describe, expect, it } from 'vitest';
import { analyzeTrace } from '../../src/report/analysis.ts';
import { diffTraces } from '../../src/report/diff.ts';
import { lostBytes } from '../../src/report/losses.ts';
import { jobName, plainNames, shortNames } from '../../src/view/job-names.ts';
import { clockOf, orderRanks, placeOf, rankToOpen } from '../../src/view/job-order.ts';
import { checkDifference, differenceView } from '../../src/view/job-protocol.ts';
import { type RankSummary, rankSummary, TRACK_COLUMNS } from '../../src/view/job-rank.ts';
import { endWords, flagOf } from '../../src/view/job-words.ts';
import { sampleRecording } from '../support/ranks.ts';

describe('the summary of a rank', () => {
  it.each([
    'gpt2xl-oom.pickle.gz',
    'vgg16-b100.native.pickle.gz',
    'vgg16-b100.expandable.pickle.gz',
    'exact/full.pkl.gz',
    'exact/pools.pkl.gz',
    'exact/ring-exp.pkl.gz',
    'exact/late.pkl.gz',
    'exact/async.pkl.gz',
  ])('of %s has the figures of the analysis, to the byte', (name) => {
    const [trace] = sampleRecording(name).traces;
    const summary = rankSummary(trace!);
    const {
      summary: facts,
      peak,
      replayError,
    } = analyzeTrace(trace!, { allocators: [], findSmallest: false, findRecordedSmallest: false });
    expect(summary).toMatchObject({
      events: facts.events,
      durationUs: facts.durationUs,
      peakLive: facts.peakLive,
      peakReserved: replayError.recordedPeakReserved,
      lost: lostBytes(peak),
      ooms: facts.ooms,
    });
    // Each column holds its highest level, so the highest column is the peak.
    expect(Math.max(...summary.live)).toBe(facts.peakLive);
    expect(Math.max(...summary.reserved!)).toBe(replayError.recordedPeakReserved);
    expect(summary.live).toHaveLength(TRACK_COLUMNS);
  });

  it('says where the first request failed', () => {
    const [trace] = sampleRecording('gpt2xl-oom.pickle.gz').traces;
    const { failure, startUs } = rankSummary(trace!);
    expect(failure).toEqual({ event: 54_894, asked: trace!.events.size[54_894], timeUs: trace!.events.timeUs[54_894]! - startUs });
  });
});

const rank = (startUs: number, durationUs: number, peakReserved: number, failedAfterUs?: number): { summary: RankSummary } => ({
  summary: {
    gpu: 0,
    events: 100,
    startUs,
    durationUs,
    peakLive: peakReserved / 2,
    peakReserved,
    lost: 0,
    ooms: failedAfterUs === undefined ? 0 : 1,
    failure: failedAfterUs === undefined ? undefined : { event: 99, timeUs: failedAfterUs, asked: 2 ** 30 },
    limit: undefined,
    isLimitInferred: false,
    live: [],
    reserved: [],
  },
});

describe('ranks beside each other', () => {
  it('are on one clock if they ran together, and those that failed come first, in that order', () => {
    const ranks = [rank(1000, 5000, 70), rank(1500, 5000, 80, 4000), rank(1200, 5000, 60, 4200), rank(1100, 5000, 90)];
    const clock = clockOf(ranks.map(({ summary }) => summary));
    expect(clock).toEqual({ kind: 'common', startUs: 1000, span: 5500 });
    expect(placeOf(ranks[1]!.summary, clock)).toEqual({ from: 500, to: 5500 });
    // 1200 + 4200 is before 1500 + 4000, though the rank itself ran longer until then.
    expect(orderRanks(ranks, clock)).toEqual([ranks[2], ranks[1], ranks[0], ranks[3]]);
    expect(rankToOpen(ranks, clock)).toBe(ranks[2]);
    expect(flagOf(ranks[2]!, ranks, clock)).toEqual({ text: 'out of memory first, at 4.400 ms: a request for 1.00 GiB', isBad: true });
    expect(flagOf(ranks[1]!, ranks, clock)!.text).toBe('out of memory 100 µs later: a request for 1.00 GiB');
    expect(flagOf(ranks[3]!, ranks, clock)).toBeUndefined();
  });

  it('are led by the one that reserved the most if none failed', () => {
    const ranks = [rank(0, 5000, 70), rank(10, 5000, 90), rank(20, 5000, 80)];
    const clock = clockOf(ranks.map(({ summary }) => summary));
    expect(orderRanks(ranks, clock)).toEqual([ranks[1], ranks[0], ranks[2]]);
    expect(flagOf(ranks[1]!, ranks, clock)).toEqual({ text: 'reserved the most', isBad: false });
  });

  it('begin at 0 each if they are runs of different times, and count events if times are missing', () => {
    const runs = [rank(0, 5000, 70), rank(9000, 4000, 90)];
    const clock = clockOf(runs.map(({ summary }) => summary));
    expect(clock).toEqual({ kind: 'own', startUs: 0, span: 5000 });
    expect(placeOf(runs[1]!.summary, clock)).toEqual({ from: 0, to: 4000 });
    expect(clockOf([rank(0, 0, 70).summary, runs[0]!.summary])).toMatchObject({ kind: 'events', span: 100 });
  });

  it('that cannot be read are named and never opened', () => {
    const ranks = [{ summary: undefined, problem: 'r0.weir: the file is empty' }, rank(0, 5000, 70)];
    const clock = clockOf([rank(0, 5000, 70).summary]);
    expect(flagOf(ranks[0]!, ranks, clock)).toEqual({ text: 'r0.weir: the file is empty', isBad: true });
    expect(rankToOpen(ranks, clock)).toBe(ranks[1]);
    expect(rankToOpen([ranks[0]!], clock)).toBeUndefined();
  });
});

describe('names', () => {
  it('lose the folders that all are in', () => {
    expect(shortNames(['/runs/1/r0.weir', '/runs/1/r1.weir'])).toEqual(['r0.weir', 'r1.weir']);
    expect(shortNames(['/runs/1/r0.weir', '/runs/2/r0.weir'])).toEqual(['1/r0.weir', '2/r0.weir']);
    expect(shortNames(['/runs/1/r0.weir'])).toEqual(['r0.weir']);
    expect(shortNames([])).toEqual([]);
  });

  it('for others have no folder, and stay apart', () => {
    expect(plainNames(['/home/ann/r0.weir', '/home/bob/r0.weir', 'C:\\Users\\ann\\r1.weir'])).toEqual([
      'r0.weir',
      'r0.weir (2)',
      'r1.weir',
    ]);
    expect(jobName(['/runs/4711/r0.weir', '/runs/4711/r1.weir'])).toBe('4711');
    expect(jobName(['a/r0.weir', 'b/r0.weir'])).toBeUndefined();
  });
});

describe('the end of a job', () => {
  it.each([
    [{ kind: 'ended', code: 0, signal: null }, 'ended with exit code 0'],
    [{ kind: 'ended', code: 3, signal: null }, 'failed with exit code 3'],
    [{ kind: 'ended', code: null, signal: 'SIGKILL', signalNumber: 9 }, 'was killed by SIGKILL (signal 9)'],
    [{ kind: 'ended', code: null, signal: null }, 'ended'],
  ] as const)('%j: %s', (end, words) => {
    expect(endWords(end)).toBe(words);
  });
});

describe('the difference of two ranks', () => {
  it('is that of weir diff', () => {
    const [before] = sampleRecording('vgg16-b100.native.pickle.gz').traces;
    const [after] = sampleRecording('resnet50-b100.native.pickle.gz').traces;
    const whole = diffTraces({ trace: before!, file: 'a' }, { trace: after!, file: 'b' });
    const { diff, others } = differenceView({ trace: before!, name: 'a' }, { trace: after!, name: 'b' }, undefined);
    expect(diff).toEqual({ ...whole, sites: whole.sites.slice(0, 200) });
    const rest = whole.sites.slice(200);
    expect(others).toEqual({ count: rest.length, bytes: rest.reduce((sum, site) => sum + site.after - site.before, 0) });
  });

  it.each([
    [null, 'a.source'],
    [{ a: { source: 0, gpu: 0 } }, 'b.source'],
    [{ a: { source: 2, gpu: 0 }, b: { source: 0, gpu: 0 } }, 'a.source'],
    [{ a: { source: '../x', gpu: 0 }, b: { source: 0, gpu: 0 } }, 'a.source'],
    [{ a: { source: 0, gpu: -1 }, b: { source: 0, gpu: 0 } }, 'a.gpu'],
    [{ a: { source: 0, gpu: 0 }, b: { source: 1, gpu: 0 }, by: 'magic' }, 'by is one of'],
  ])('refuses %j', (value, words) => {
    expect(() => checkDifference(value, 2)).toThrow(words);
  });
});
