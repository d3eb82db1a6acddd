// The ranks of a job for the terminal: a line each, and how far they are apart.
import { formatBytes } from '../../base/bytes.ts';
import { printable } from '../../base/printable.ts';
import { type Misfit, misfits, type RankRow, runsOut, type Spread, spreadOf, worstRank } from '../ranks.ts';
import { formatCount, formatTimes } from '../words/numbers.ts';
import { FIT_MEANING, fitTitle, fitWords } from '../words/what-if.ts';
import type { Paint } from './paint.ts';
import { formatTable } from './table.ts';

export function formatRanks(rows: readonly RankRow[], paint: Paint): string {
  const worst = worstRank(rows);
  const columns = [
    { title: 'rank', align: 'left' },
    { title: 'GPU', align: 'right' },
    { title: 'peak live', align: 'right' },
    { title: 'peak reserved', align: 'right' },
    { title: 'lost', align: 'right' },
    { title: 'failures', align: 'right' },
    { title: fitTitle(worst.analysis) ?? '', align: 'left' },
    { title: 'no limit', align: 'right' },
    { title: 'expandable', align: 'right' },
    { title: 'notes', align: 'left' },
  ] as const;
  const cells = rows.map((row) => [
    printable(row.file),
    String(row.gpu),
    formatBytes(row.peakLive),
    formatBytes(row.peakReserved),
    formatBytes(row.lost),
    row.ooms === 0 ? '' : `${row.ooms} x`,
    row.fit ? fitWords(row.fit) : '',
    row.unlimited === undefined ? '' : formatBytes(row.unlimited),
    row.expandable === undefined ? '' : formatBytes(row.expandable),
    [row === worst ? 'worst' : '', row.replayExact ? '' : 'replay differs', ...row.warnings.map(printable)]
      .filter((note) => note !== '')
      .join(', '),
  ]);
  const [head, ...body] = formatTable(columns, cells);
  const spread = (name: string, { least, median, most }: Spread) =>
    `${name}: ${formatBytes(least)} to ${formatBytes(most)}, median ${formatBytes(median)}${least > 0 ? `; the largest is ${(most / least).toFixed(2)} times the smallest` : ''}`;
  return `${[
    paint.strong(formatTimes(rows.length, 'rank', 'ranks')),
    ...misfits(rows).map((misfit) => `${paint.bad('warning:')} ${misfitSentence(misfit)}`),
    paint.dim(head!),
    ...body.map((line, index) => (runsOut(rows[index]!) ? paint.bad(line) : line)),
    ...COLUMN_NOTES.map((note) => paint.dim(note)),
    ...(worst.fit ? [paint.dim(`${fitTitle(worst.analysis)}: ${FIT_MEANING}.`)] : []),
    spread('Peak reserved', spreadOf(rows.map((row) => row.peakReserved))),
    spread('Peak live', spreadOf(rows.map((row) => row.peakLive))),
  ].join('\n')}\n`;
}

const COLUMN_NOTES = [
  'peak live: most memory that the program needed at once. peak reserved: most memory held from the driver, as recorded.',
  'lost: reserved but not in use, when reserved memory peaked. failures: requests that failed, as recorded.',
  'no limit: peak reserved of the same allocator, replayed without a memory limit. expandable: the same with expandable segments.',
];

function misfitSentence({ row, other, reason }: Misfit): string {
  return `${row.file} does not look like a rank of the same job as ${other.file}: ${misfitWords(row, other, reason)}.`;
}

function misfitWords(row: RankRow, other: RankRow, reason: Misfit['reason']): string {
  switch (reason) {
    case 'allocator':
      return `it ran on ${row.allocator}, not on ${other.allocator}`;
    case 'events':
      return `it has ${formatTimes(row.events, 'event', 'events')}, not ${formatCount(other.events)}`;
    case 'sizes':
      return 'its large requests have other sizes';
  }
}
