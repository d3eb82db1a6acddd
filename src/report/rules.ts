// Rules for CI: a figure, a comparison and a bound, like `peak>70GiB`, `fragmentation>15%` or `ooms>0`.
import { formatBytes, parseBytes } from '../base/bytes.ts';
import { UsageError } from '../base/errors.ts';
import type { Analysis } from './analysis.ts';
import { lostBytes } from './losses.ts';

type Unit = 'bytes' | 'share' | 'count';

interface Metric {
  readonly unit: Unit;
  readonly meaning: string;
  of(analysis: Analysis): number;
}

const METRICS: Readonly<Record<string, Metric>> = {
  peak: {
    unit: 'bytes',
    meaning: 'peak reserved memory, as recorded',
    of: ({ replayError, peak }) => replayError.recordedPeakReserved ?? peak.reserved,
  },
  live: { unit: 'bytes', meaning: 'peak live memory', of: ({ summary }) => summary.peakLive },
  lost: { unit: 'bytes', meaning: 'bytes reserved but not in use at the peak', of: ({ peak }) => lostBytes(peak) },
  fragmentation: {
    unit: 'share',
    meaning: 'lost / reserved at the peak',
    of: ({ peak }) => ratio(lostBytes(peak), peak.reserved),
  },
  ooms: { unit: 'count', meaning: 'requests that failed', of: ({ summary }) => summary.ooms },
  retries: { unit: 'count', meaning: 'requests served only after a flush of the cache', of: ({ replayError }) => replayError.retries },
  'replay-error': {
    unit: 'share',
    meaning: 'how far the modelled peak reserved is from the recorded one',
    of: ({ replayError: { recordedPeakReserved: recorded, modelledPeakReserved: modelled } }) =>
      recorded ? ratio(Math.abs(modelled - recorded), recorded) : 0,
  },
};

export interface Rule {
  readonly text: string;
  /** Undefined if the analysis keeps the rule. */
  breach(analysis: Analysis): Breach | undefined;
}

/** A broken rule: which figure has which value. Plain data, so that it can cross from a worker. */
export interface Breach {
  readonly figure: string;
  readonly value: number;
  readonly unit: Unit;
  readonly rule: string;
}

export function parseRule(text: string): Rule {
  const match = /^\s*([a-z-]+)\s*(>=|<=|>|<)\s*(.+?)\s*$/.exec(text);
  const metric = match ? METRICS[match[1]!] : undefined;
  if (!match || !metric)
    throw new UsageError(
      `'${text}' is not a rule; write it like 'peak>70GiB' or 'fragmentation>15%', with one of ${Object.keys(METRICS).join(', ')}`,
    );
  const bound = parseBound(match[3]!, metric.unit, text);
  const holds = COMPARISONS[match[2]!]!;
  return {
    text,
    breach: (analysis) => {
      const value = metric.of(analysis);
      return holds(value, bound) ? { figure: match[1]!, value, unit: metric.unit, rule: text } : undefined;
    },
  };
}

export function formatBreach({ figure, value, unit, rule }: Breach): string {
  return `${figure} is ${format(value, unit)} (rule: ${rule})`;
}

/** One line per figure, for help texts. */
export function describeMetrics(): string {
  const width = Math.max(...Object.keys(METRICS).map((name) => name.length));
  return Object.entries(METRICS)
    .map(([name, metric]) => `  ${name.padEnd(width)}  ${metric.meaning}`)
    .join('\n');
}

const COMPARISONS: Readonly<Record<string, (value: number, bound: number) => boolean>> = {
  '>': (value, bound) => value > bound,
  '<': (value, bound) => value < bound,
  '>=': (value, bound) => value >= bound,
  '<=': (value, bound) => value <= bound,
};

function parseBound(text: string, unit: Unit, rule: string): number {
  if (unit === 'bytes') return parseBytes(text);
  const match = /^(\d+(?:\.\d+)?)(%?)$/.exec(text.replace(/\s+/g, ''));
  if (!match || (match[2] === '%' && unit === 'count'))
    throw new UsageError(`'${rule}': the bound must be a ${unit === 'share' ? 'percentage like 15%' : 'number'}`);
  return match[2] === '%' ? Number(match[1]) / 100 : Number(match[1]);
}

function format(value: number, unit: Unit): string {
  if (unit === 'bytes') return formatBytes(value);
  return unit === 'share' ? `${(100 * value).toFixed(1)} %` : String(value);
}

function ratio(part: number, whole: number): number {
  return whole === 0 ? 0 : part / whole;
}
