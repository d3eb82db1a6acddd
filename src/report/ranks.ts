// Several recordings of one job side by side: the figures of each rank, their spread, and the worst rank.
import type { Analysis } from './analysis.ts';
import { lostBytes } from './losses.ts';
import type { Breach, Rule } from './rules.ts';

/** Plain data, so that it can cross from a worker. */
export interface RankRow {
  readonly file: string;
  readonly gpu: number;
  readonly peakLive: number;
  readonly peakReserved: number;
  readonly lost: number;
  readonly ooms: number;
  /** Peak reserved with expandable segments. */
  readonly expandable: number | undefined;
  readonly replayExact: boolean;
  readonly warnings: readonly string[];
  readonly breaches: readonly Breach[];
  readonly analysis: Analysis;
}

export function rankRow(analysis: Analysis, file: string, rules: readonly Rule[]): RankRow {
  return {
    file,
    gpu: analysis.device,
    peakLive: analysis.summary.peakLive,
    peakReserved: analysis.replayError.recordedPeakReserved ?? analysis.peak.reserved,
    lost: lostBytes(analysis.peak),
    ooms: analysis.summary.ooms,
    expandable: analysis.whatIf.find((row) => row.kind === 'expandable')?.unlimited.peakReserved,
    replayExact: analysis.replayError.differing === 0,
    warnings: analysis.warnings.map((warning) => warning.code),
    breaches: rules.map((rule) => rule.breach(analysis)).filter((breach) => breach !== undefined),
    analysis,
  };
}

/** The rank to look at first: one that ran out of memory, else the one that reserved the most. */
export function worstRank(rows: readonly RankRow[]): RankRow {
  return rows.reduce((worst, row) => {
    if (row.ooms > 0 !== worst.ooms > 0) return row.ooms > 0 ? row : worst;
    return row.peakReserved > worst.peakReserved ? row : worst;
  });
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
