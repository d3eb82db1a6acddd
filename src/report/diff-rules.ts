// Rules for CI about two runs: how much the second needs beyond the first, like `growth>2%` or `leaks>0`.
import { type Diff, growthOf } from './diff.ts';
import { describeMetrics, type Metrics, parseRuleAbout, type RuleAbout } from './rules.ts';

export type DiffRule = RuleAbout<Diff>;

const DIFF_METRICS: Metrics<Diff> = {
  growth: {
    unit: 'share',
    meaning: 'growth of live memory at the moment compared, like 2%',
    of: (diff) => share(diff.alignment.before.bytes, diff.alignment.after.bytes),
  },
  grown: { unit: 'bytes', meaning: 'the same in bytes, like 100MiB', of: growthOf },
  'peak-growth': {
    unit: 'share',
    meaning: 'growth of peak live memory over the whole runs',
    of: ({ before, after }) => share(before.summary.peakLive, after.summary.peakLive),
  },
  'reserved-growth': {
    unit: 'share',
    meaning: 'growth of peak reserved memory, as recorded',
    of: ({ before, after }) => share(before.summary.recordedPeakReserved, after.summary.recordedPeakReserved),
  },
  'site-growth': {
    unit: 'bytes',
    meaning: 'growth of the call site that grew most',
    of: ({ sites }) => sites.reduce((most, site) => Math.max(most, site.after - site.before), 0),
  },
  leaks: {
    unit: 'count',
    meaning: 'call sites that grow from step to step in B, but not in A',
    of: ({ newLeaks }) => newLeaks?.length ?? Number.NaN,
  },
  leaked: {
    unit: 'bytes',
    meaning: 'bytes per step by which those grow',
    of: ({ newLeaks }) => newLeaks?.reduce((sum, site) => sum + site.bytesPerStep, 0) ?? Number.NaN,
  },
};

export function parseDiffRule(text: string): DiffRule {
  return parseRuleAbout(DIFF_METRICS, text, "'growth>2%' or 'site-growth>100MiB'");
}

export function describeDiffMetrics(): string {
  return describeMetrics(DIFF_METRICS);
}

function share(before: number | undefined, after: number | undefined): number {
  if (before === undefined || after === undefined) return Number.NaN;
  if (before === 0) return after === 0 ? 0 : Number.POSITIVE_INFINITY;
  return (after - before) / before;
}
