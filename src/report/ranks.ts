// Several recordings of one job side by side: a line per rank, how far they are apart, and which one is worst.
import { formatBytes } from '../base/bytes.ts';
import type { Analysis } from './analysis.ts';
import { analysisJson } from './json.ts';
import type { Rule } from './rules.ts';
import { formatTable } from './table.ts';
import type { Paint } from './text.ts';

/** One rank in plain data, so that it can cross from a worker. */
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
  /** One sentence per broken rule. */
  readonly breaches: readonly string[];
  readonly json: ReturnType<typeof analysisJson>;
}

export function rankRow(analysis: Analysis, file: string, rules: readonly Rule[]): RankRow {
  return {
    file,
    gpu: analysis.device,
    peakLive: analysis.summary.peakLive,
    peakReserved: analysis.replayError.recordedPeakReserved ?? analysis.peak.reserved,
    lost: analysis.peak.reserved - analysis.peak.requested,
    ooms: analysis.summary.ooms,
    expandable: analysis.whatIf.find((row) => row.choice.kind === 'expandable')?.unlimited.peakReserved,
    replayExact: analysis.replayError.differing === 0,
    warnings: analysis.warnings.map((warning) => warning.code),
    breaches: rules.map((rule) => rule.breach(analysis)).filter((sentence) => sentence !== undefined),
    json: analysisJson(analysis, file),
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

export function formatRanks(rows: readonly RankRow[], paint: Paint): string {
  const worst = worstRank(rows);
  const columns = [
    { title: 'rank', align: 'left' },
    { title: 'GPU', align: 'right' },
    { title: 'peak live', align: 'right' },
    { title: 'peak reserved', align: 'right' },
    { title: 'lost at peak', align: 'right' },
    { title: 'ran out', align: 'right' },
    { title: 'with expandable', align: 'right' },
    { title: 'notes', align: 'left' },
  ] as const;
  const cells = rows.map((row) => [
    row.file,
    String(row.gpu),
    formatBytes(row.peakLive),
    formatBytes(row.peakReserved),
    formatBytes(row.lost),
    row.ooms === 0 ? '' : `${row.ooms} x`,
    row.expandable === undefined ? '' : formatBytes(row.expandable),
    [row === worst ? 'worst' : '', row.replayExact ? '' : 'replay differs', ...row.warnings].filter((note) => note !== '').join(', '),
  ]);
  const [head, ...body] = formatTable(columns, cells);
  const spread = (name: string, { least, median, most }: Spread) =>
    `${name}: ${formatBytes(least)} to ${formatBytes(most)}, median ${formatBytes(median)}${least > 0 ? `; the largest is ${(most / least).toFixed(2)} times the smallest` : ''}`;
  return `${[
    paint.strong(`${rows.length} ranks`),
    paint.dim(head!),
    ...body.map((line, index) => (rows[index]!.ooms > 0 ? paint.bad(line) : line)),
    spread('Peak reserved', spreadOf(rows.map((row) => row.peakReserved))),
    spread('Peak live', spreadOf(rows.map((row) => row.peakLive))),
  ].join('\n')}\n`;
}
