// Several recordings of one job side by side: the figures of each rank, their spread, and the worst rank.
import { MIB } from '../base/bytes.ts';
import { EventKind, type Trace } from '../trace/trace.ts';
import type { Analysis } from './analysis.ts';
import { lostBytes } from './losses.ts';
import type { Breach, Rule, Unjudged } from './rules.ts';
import { type Fit, fitOf, recordedRow } from './what-if.ts';

/** Plain data, so that it can cross from a worker. */
export interface RankRow {
  readonly file: string;
  readonly gpu: number;
  readonly peakLive: number;
  readonly peakReserved: number;
  readonly lost: number;
  readonly ooms: number;
  /** Whether the run fits the GPU that was given; undefined: none was given. */
  readonly fit: Fit | undefined;
  /** The allocator and settings of the recording. */
  readonly allocator: string | undefined;
  readonly events: number;
  /** Sizes of large requests, each once, ascending; shows whether two ranks ran the same program. */
  readonly largeSizes: readonly number[];
  /** Peak reserved of the recorded allocator without a limit. */
  readonly unlimited: number | undefined;
  /** Peak reserved with expandable segments, without a limit too. */
  readonly expandable: number | undefined;
  readonly replayExact: boolean;
  readonly warnings: readonly string[];
  readonly breaches: readonly Breach[];
  readonly unjudged: readonly Unjudged[];
  readonly analysis: Analysis;
}

export function rankRow(analysis: Analysis, file: string, rules: readonly Rule[], trace?: Trace): RankRow {
  const recorded = recordedRow(analysis.whatIf);
  return {
    file,
    gpu: analysis.device,
    peakLive: analysis.summary.peakLive,
    peakReserved: analysis.replayError.recordedPeakReserved ?? analysis.peak.reserved,
    lost: lostBytes(analysis.peak),
    ooms: analysis.summary.ooms,
    fit: analysis.onGivenGpu && recorded ? fitOf(recorded) : undefined,
    allocator: recorded?.allocator,
    events: analysis.summary.events,
    largeSizes: trace ? largeSizes(trace) : [],
    unlimited: recorded?.unlimited.peakReserved,
    expandable: analysis.whatIf.find((row) => row.kind === 'expandable')?.unlimited.peakReserved,
    replayExact: analysis.replayError.differing === 0,
    warnings: analysis.warnings.map((warning) => warning.code),
    breaches: rules.map((rule) => rule.breach(analysis)).filter((breach) => breach !== undefined),
    unjudged: rules.filter((rule) => !rule.isKnown(analysis)).map(({ figure, text }) => ({ figure, rule: text })),
    analysis,
  };
}

/** What tells how bad a rank is. */
export type RankOutcome = Pick<RankRow, 'ooms' | 'fit' | 'peakReserved'>;

/** The rank to look at first: one that ran out of memory, else the one that reserved the most. */
export function worstRank<Row extends RankOutcome>(rows: readonly Row[]): Row {
  return rows.reduce((worst, row) => {
    if (runsOut(row) !== runsOut(worst)) return runsOut(row) ? row : worst;
    return row.peakReserved > worst.peakReserved ? row : worst;
  });
}

/** On the GPU that was given, if one was. */
export function runsOut({ fit, ooms }: Pick<RankOutcome, 'fit' | 'ooms'>): boolean {
  return fit ? fit.kind === 'fails' : ooms > 0;
}

const LARGE = 1 * MIB;
/** The sizes kept of a rank; programs that differ do so long before. */
const MOST_SIZES = 4096;

function largeSizes({ events }: Trace): number[] {
  const sizes = new Set<number>();
  for (let event = 0; event < events.count && sizes.size < MOST_SIZES; event++)
    if (events.kind[event] === EventKind.Alloc && events.size[event]! >= LARGE) sizes.add(events.size[event]!);
  return [...sizes].sort((a, b) => a - b);
}

/** Why two recordings are hardly ranks of one job. */
export interface Misfit {
  readonly row: RankRow;
  readonly other: RankRow;
  readonly reason: 'allocator' | 'events' | 'sizes';
}

/** Ranks of one job record about as many events as each other. */
const EVENTS_APART = 4;
/** The part of its large request sizes that a rank shares with another, at least. Ranks share their parameters' sizes. */
const SHARED_SIZES = 0.05;

/** Rows that do not look like ranks of the first one's job, with the first sign of it. The GPUs of one file are of one job. */
export function misfits(rows: readonly RankRow[]): Misfit[] {
  const [first] = rows;
  return rows.flatMap((row) => {
    if (!first || row.file === first.file) return [];
    const reason = misfitReason(row, first);
    return reason ? [{ row, other: first, reason }] : [];
  });
}

function misfitReason(row: RankRow, other: RankRow): Misfit['reason'] | undefined {
  if (row.allocator !== other.allocator) return 'allocator';
  const [fewer, more] = row.events < other.events ? [row.events, other.events] : [other.events, row.events];
  if (more > EVENTS_APART * fewer) return 'events';
  const [small, large] = row.largeSizes.length < other.largeSizes.length ? [row, other] : [other, row];
  const among = new Set(large.largeSizes);
  const shared = small.largeSizes.filter((size) => among.has(size)).length;
  return small.largeSizes.length > 0 && shared < SHARED_SIZES * small.largeSizes.length ? 'sizes' : undefined;
}

export interface Spread {
  readonly least: number;
  readonly median: number;
  readonly most: number;
}

export function spreadOf(values: readonly number[]): Spread {
  const sorted = [...values].sort((a, b) => a - b);
  return { least: sorted[0] ?? 0, median: sorted[Math.floor((sorted.length - 1) / 2)] ?? 0, most: sorted.at(-1) ?? 0 };
}
