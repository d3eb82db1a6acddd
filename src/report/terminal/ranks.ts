// The ranks of a job for the terminal: a line each, and how far they are apart.
import { formatBytes } from '../../base/bytes.ts';
import { type RankRow, type Spread, spreadOf, worstRank } from '../ranks.ts';
import type { Paint } from './paint.ts';
import { formatTable } from './table.ts';

export function formatRanks(rows: readonly RankRow[], paint: Paint): string {
  const worst = worstRank(rows);
  const columns = [
    { title: 'rank', align: 'left' },
    { title: 'GPU', align: 'right' },
    { title: 'peak live', align: 'right' },
    { title: 'peak reserved', align: 'right' },
    { title: 'lost at peak', align: 'right' },
    { title: 'failures', align: 'right' },
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
