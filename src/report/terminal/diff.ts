// The difference between two runs for the terminal: the answer in sentences, then what grew, by category and by call site.

import { formatBytes } from '../../base/bytes.ts';
import { printable } from '../../base/printable.ts';
import type { Change, Diff } from '../diff.ts';
import { growthOf } from '../diff.ts';
import { CATEGORY_TITLES } from '../words/categories.ts';
import {
  alignmentSentence,
  categorySentence,
  diffCautions,
  diffHeadline,
  formatGrowth,
  growthSentence,
  matchNotes,
  novelty,
  peaksSentence,
  placesSentence,
  siteWords,
} from '../words/diff.ts';
import { leakHeadline, leakRow } from '../words/leaks.ts';
import { formatChange, formatTimes } from '../words/numbers.ts';
import { type Paint, PLAIN } from './paint.ts';
import { type Column, formatTable } from './table.ts';

/** Call sites shown, unless all are asked for. */
const MOST_SITES = 10;
/** Smaller changes are left out, as a share of the memory compared, unless all are asked for. */
const LEAST_SHARE = 0.0005;

export interface DiffStyle {
  readonly paint?: Paint | undefined;
  /** Every call site that changed. */
  readonly isWhole?: boolean | undefined;
}

export function formatDiff(diff: Diff, style: DiffStyle = {}): string {
  const { paint = PLAIN, isWhole = false } = style;
  const answer = [diffHeadline(diff), growthSentence(diff), categorySentence(diff)].filter((sentence) => sentence !== undefined);
  const sections = [
    [paint.dim(`A: ${nameOf(diff.before)}`), paint.dim(`B: ${nameOf(diff.after)}`)],
    answer.map((sentence) => paint.strong(printable(sentence))),
    [alignmentSentence(diff), placesSentence(diff), peaksSentence(diff)].filter((sentence) => sentence !== undefined).map(printable),
    diffCautions(diff).map((caution) => `${paint.bad('warning:')} ${printable(caution)}`),
    categoryLines(diff, paint),
    siteLines(diff, paint, isWhole),
    leakLines(diff, paint),
    matchNotes(diff).map((note) => paint.dim(printable(note))),
  ];
  return `${sections
    .filter((section) => section.length > 0)
    .map((section) => section.join('\n'))
    .join('\n\n')}\n`;
}

/** One line per pair of ranks. */
export function formatRankDiffs(diffs: readonly Diff[], worst: Diff, paint: Paint): string {
  const columns: Column[] = [
    { title: 'A', align: 'left' },
    { title: 'B', align: 'left' },
    { title: 'GPU', align: 'right' },
    { title: 'before', align: 'right' },
    { title: 'after', align: 'right' },
    { title: 'change', align: 'right' },
    { title: '', align: 'right' },
    { title: 'what grew most', align: 'left' },
  ];
  const rows = diffs.map((diff) => {
    const { before, after } = diff.alignment;
    const top = diff.sites.find((site) => site.after > site.before);
    return [
      printable(diff.before.file),
      printable(diff.after.file),
      diff.before.gpu === diff.after.gpu ? String(diff.after.gpu) : `${diff.before.gpu}, ${diff.after.gpu}`,
      formatBytes(before.bytes),
      formatBytes(after.bytes),
      formatGrowth(growthOf(diff)),
      formatChange(after.bytes, before.bytes),
      printable(`${top?.label ?? ''}${diff === worst ? ' (worst)' : ''}`.trim()),
    ];
  });
  const [head, ...body] = formatTable(columns, rows);
  return `${[paint.strong(formatTimes(diffs.length, 'rank', 'ranks')), paint.dim(head!), ...body, paint.dim(BEFORE_AFTER)].join('\n')}\n`;
}

const BEFORE_AFTER = 'before, after: live memory of A and B at the moment compared.';

function nameOf({ file, gpu, summary }: Diff['before']): string {
  return `${printable(file)}, GPU ${gpu}, ${formatTimes(summary.events, 'event', 'events')}, ${summary.recordedAllocator}`;
}

function changeCells({ before, after }: Change, note = ''): string[] {
  const percent = before === 0 || after === 0 ? note : formatChange(after, before);
  return [before === 0 ? '-' : formatBytes(before), after === 0 ? '-' : formatBytes(after), formatGrowth(after - before), percent];
}

const CHANGE_COLUMNS: readonly Column[] = [
  { title: 'A', align: 'right' },
  { title: 'B', align: 'right' },
  { title: 'change', align: 'right' },
  { title: '', align: 'right' },
];

function categoryLines({ categories }: Diff, paint: Paint): string[] {
  if (!categories || categories.length === 0) return [];
  const rows = categories.map((change) => [...changeCells(change), CATEGORY_TITLES[change.category]]);
  const [head, ...body] = formatTable([...CHANGE_COLUMNS, { title: 'category', align: 'left' }], rows);
  return [paint.strong('By category:'), paint.dim(`  ${head}`), ...body.map((line) => `  ${line}`)];
}

function siteLines({ sites, alignment }: Diff, paint: Paint, isWhole: boolean): string[] {
  if (sites.length === 0) return ['No call site holds more or less memory than before.'];
  const least = isWhole ? 0 : LEAST_SHARE * Math.max(alignment.before.bytes, alignment.after.bytes);
  const shown = sites.filter((site) => Math.abs(site.after - site.before) >= least).slice(0, isWhole ? undefined : MOST_SITES);
  const others = sites.slice(shown.length);
  const rows = shown.map((site) => [
    ...changeCells(site, novelty(site)),
    site.allocationsBefore === site.allocationsAfter
      ? `${site.allocationsAfter} x`
      : `${site.allocationsBefore} -> ${site.allocationsAfter} x`,
    printable(siteWords(site)),
  ]);
  const [head, ...body] = formatTable(
    [...CHANGE_COLUMNS, { title: 'blocks', align: 'right' }, { title: 'call site', align: 'left' }],
    rows,
  );
  const rest = others.reduce((sum, site) => sum + site.after - site.before, 0);
  const restLine = `  ${formatTimes(others.length, 'other call site', 'other call sites')}: ${formatGrowth(rest)} in total (--all shows them).`;
  return [
    paint.strong('By call site:'),
    ...(shown.length > 0 ? [paint.dim(`  ${head}`)] : []),
    ...body.map((line) => `  ${line}`),
    ...(others.length > 0 ? [restLine] : []),
  ];
}

function leakLines({ before, after, newLeaks }: Diff, paint: Paint): string[] {
  return [before, after].flatMap(({ leaks }, index) => {
    if (!('sites' in leaks) || leaks.sites.length === 0) return [];
    const { what, details } = leakHeadline(leaks);
    const rows = leaks.sites
      .slice(0, MOST_SITES)
      .map((site) => [...leakRow(site).map(printable), index === 1 && newLeaks?.includes(site) ? 'not in A' : '']);
    const columns: Column[] = [
      { title: '', align: 'right' },
      { title: '', align: 'right' },
      { title: '', align: 'left' },
      { title: '', align: 'left' },
    ];
    return [
      `${paint.bad(`${index === 0 ? 'A' : 'B'}: ${what}`)} ${details}:`,
      ...formatTable(columns, rows)
        .slice(1)
        .map((line) => `  ${line}`),
    ];
  });
}
