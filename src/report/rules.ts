// Rules for CI: a figure, a comparison and a bound, like `peak>70GiB`, `fragmentation>15%` or `ooms>0`.
// If a GPU size is given, the figures are those of the recorded allocator on that GPU.
import { formatBytes, parseBytes } from '../base/bytes.ts';
import { UsageError } from '../base/errors.ts';
import type { Analysis } from './analysis.ts';
import { lostBytes } from './losses.ts';
import { recordedRow } from './what-if.ts';

type Unit = 'bytes' | 'share' | 'count';

/** A figure that rules are about; NaN: unknown. */
interface Metric<Subject> {
  readonly unit: Unit;
  readonly meaning: string;
  of(subject: Subject): number;
}

export type Metrics<Subject> = Readonly<Record<string, Metric<Subject>>>;

const METRICS: Metrics<Analysis> = {
  peak: {
    unit: 'bytes',
    meaning: 'peak reserved memory, as recorded or with --capacity',
    of: ({ onGivenGpu, replayError, peak }) => onGivenGpu?.peak.reserved ?? replayError.recordedPeakReserved ?? peak.reserved,
  },
  live: { unit: 'bytes', meaning: 'peak live memory, as recorded', of: ({ summary }) => summary.peakLive },
  lost: {
    unit: 'bytes',
    meaning: 'bytes reserved but not in use at the peak',
    of: ({ onGivenGpu, peak }) => lostBytes(onGivenGpu?.peak ?? peak),
  },
  fragmentation: {
    unit: 'share',
    meaning: 'lost / reserved at the peak, like 15%',
    of: ({ onGivenGpu, peak: recorded }) => {
      const peak = onGivenGpu?.peak ?? recorded;
      return ratio(lostBytes(peak), peak.reserved);
    },
  },
  fits: {
    unit: 'bytes',
    meaning: 'smallest GPU on which the recorded allocator serves every request',
    of: ({ whatIf }) => recordedRow(whatIf)?.smallestGpu ?? Number.NaN,
  },
  ooms: {
    unit: 'count',
    meaning: 'requests that failed, as recorded or with --capacity',
    of: ({ onGivenGpu, summary }) => onGivenGpu?.ooms ?? summary.ooms,
  },
  retries: {
    unit: 'count',
    meaning: 'requests served only after a flush of the cache',
    of: ({ onGivenGpu, replayError }) => onGivenGpu?.retries ?? replayError.retries,
  },
  'replay-error': {
    unit: 'share',
    meaning: 'how far the modelled peak reserved is from the recorded one',
    of: ({ replayError: { recordedPeakReserved: recorded, modelledPeakReserved: modelled } }) =>
      recorded === undefined ? Number.NaN : ratio(Math.abs(modelled - recorded), recorded),
  },
};

/** A rule whose figure is unknown. Plain data, too. */
export interface Unjudged {
  readonly figure: string;
  readonly rule: string;
}

/** A rule that cannot be judged must not look like one that holds. */
export function formatUnjudged({ figure, rule }: Unjudged): string {
  return `${figure} is unknown, so the rule ${rule} cannot be judged`;
}

/** A rule about the figures of a subject. */
export interface RuleAbout<Subject> {
  readonly text: string;
  readonly figure: string;
  /** Undefined if the subject keeps the rule, or the figure is unknown. */
  breach(subject: Subject): Breach | undefined;
  isKnown(subject: Subject): boolean;
}

/** A rule about one recording. */
export interface Rule extends RuleAbout<Analysis> {
  /** The rule needs the search for the smallest GPU of the recorded allocator. */
  readonly needsSmallest: boolean;
}

/** A broken rule: which figure has which value. Plain data, so that it can cross from a worker. */
export interface Breach {
  readonly figure: string;
  readonly value: number;
  readonly unit: Unit;
  readonly rule: string;
}

export function parseRule(text: string): Rule {
  const rule = parseRuleAbout(METRICS, text, "'peak>70GiB' or 'fragmentation>15%'");
  return { ...rule, needsSmallest: rule.figure === 'fits' };
}

/** `examples` says how rules about these figures are written. */
export function parseRuleAbout<Subject>(metrics: Metrics<Subject>, text: string, examples: string): RuleAbout<Subject> {
  const match = /^\s*([a-z-]+)\s*(>=|<=|>|<)\s*(.+?)\s*$/.exec(text);
  const metric = match && Object.hasOwn(metrics, match[1]!) ? metrics[match[1]!] : undefined;
  if (!match || !metric)
    throw new UsageError(`'${text}' is not a rule; write it like ${examples}, with one of ${Object.keys(metrics).join(', ')}`);
  const [, figure, comparison, written] = match as unknown as [string, string, string, string];
  const bound = parseBound(written, metric.unit, { rule: text, start: `${figure}${comparison}` });
  const holds = COMPARISONS[comparison]!;
  return {
    text,
    figure,
    breach: (subject) => {
      const value = metric.of(subject);
      return holds(value, bound) ? { figure, value, unit: metric.unit, rule: text } : undefined;
    },
    isKnown: (subject) => !Number.isNaN(metric.of(subject)),
  };
}

export function formatBreach({ figure, value, unit, rule }: Breach): string {
  return `${figure} is ${format(value, unit)} (rule: ${rule})`;
}

/** One line per figure, for help texts. */
export function describeMetrics<Subject>(metrics: Metrics<Subject> | Metrics<Analysis> = METRICS): string {
  const width = Math.max(...Object.keys(metrics).map((name) => name.length));
  return Object.entries(metrics)
    .map(([name, metric]) => `  ${name.padEnd(width)}  ${metric.meaning}`)
    .join('\n');
}

const COMPARISONS: Readonly<Record<string, (value: number, bound: number) => boolean>> = {
  '>': (value, bound) => value > bound,
  '<': (value, bound) => value < bound,
  '>=': (value, bound) => value >= bound,
  '<=': (value, bound) => value <= bound,
};

/** A number without its unit is refused: 15 may mean 15 % or 1500 %, and 60 hardly means 60 bytes. Zero needs no unit. */
function parseBound(text: string, unit: Unit, { rule, start }: { rule: string; start: string }): number {
  const bare = /^\d+(?:\.\d+)?$/.test(text) ? Number(text) : undefined;
  if (bare === 0 || (bare !== undefined && unit === 'count')) return bare;
  if (bare !== undefined) {
    const fraction = unit === 'share' && bare < 1 ? `, or ${start}${Number((100 * bare).toPrecision(12))}% for the share ${text}` : '';
    throw new UsageError(`'${rule}' has no unit; write ${start}${text}${unit === 'share' ? '%' : 'GiB'}${fraction}`);
  }
  if (unit === 'bytes') return parseBytes(text);
  const percent = /^(\d+(?:\.\d+)?)\s*%$/.exec(text);
  if (!percent || unit === 'count')
    throw new UsageError(`'${rule}': the bound must be a ${unit === 'share' ? 'percentage like 15%' : 'number'}`);
  return Number(percent[1]) / 100;
}

function format(value: number, unit: Unit): string {
  if (unit === 'bytes') return formatBytes(value);
  return unit === 'share' ? `${(100 * value).toFixed(1)} %` : String(value);
}

function ratio(part: number, whole: number): number {
  return whole === 0 ? 0 : part / whole;
}
