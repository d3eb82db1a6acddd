// An analysis for the terminal: the answer in one sentence, the verdict, the what-if table, and what to do.
import { formatBytes } from '../../base/bytes.ts';
import { printable } from '../../base/printable.ts';
import { noteWords } from '../../trace/notes.ts';
import type { Analysis } from '../analysis.ts';
import { lossesOf } from '../losses.ts';
import type { OomFinding } from '../moment.ts';
import { fitOf, recordedRow } from '../what-if.ts';
import { adviceEffect, adviceLine, leadSentence, noAdvice } from '../words/advice.ts';
import { categoryRows, waysSentence } from '../words/categories.ts';
import { categoryWords, otherMemorySentence } from '../words/failure.ts';
import { leakHeadline, leakRow } from '../words/leaks.ts';
import { formatCount, formatMs, formatShare, formatTimes } from '../words/numbers.ts';
import {
  floorSentence,
  HELD_SINCE_START,
  holdersSentence,
  hostMemorySentence,
  lossCause,
  NOTHING_RESERVED,
  oomCause,
  oomHeadline,
  oomPinning,
  oomState,
  peakHeadline,
  privatePoolsSentence,
  replayErrorSentence,
} from '../words/verdict.ts';
import {
  changeWords,
  FIT_MEANING,
  fitTitle,
  fitWords,
  limitSentence,
  RECORDED_MARK,
  shortName,
  WHAT_IF_COLUMNS,
  WHAT_IF_TITLE,
} from '../words/what-if.ts';
import { type Paint, PLAIN } from './paint.ts';
import { type Column, columnsWithin, formatTable, GAP, tableWidth } from './table.ts';

export interface AnalysisStyle {
  readonly paint?: Paint | undefined;
  /** Lines of a picture of memory over the run, to stand above the table. */
  readonly timeline?: readonly string[] | undefined;
  /** All columns, however wide the table gets. */
  readonly isWide?: boolean | undefined;
}

/** The table is this wide at most, unless all columns are asked for. */
const TABLE_WIDTH = 100;
const INDENT = '  ';

export function formatAnalysis(analysis: Analysis, title: string, style: AnalysisStyle = {}): string {
  const { paint = PLAIN, timeline = [], isWide = false } = style;
  const lead = leadSentence(analysis);
  const sections = [
    [paint.strong(title), paint.dim(recordingLine(analysis))],
    lead === undefined ? [] : [paint.strong(printable(lead))],
    analysis.warnings.map((warning) => `${paint.bad('warning:')} ${printable(warning.message)}`),
    oomLines(analysis, paint),
    known(holdersSentence(analysis)).map(printable),
    peakLines(analysis, paint),
    categoryLines(analysis, paint),
    siteLines(analysis, paint),
    leakLines(analysis, paint),
    timeline,
    whatIfLines(analysis, paint, isWide ? Number.POSITIVE_INFINITY : TABLE_WIDTH - INDENT.length),
    adviceLines(analysis, paint),
  ];
  return `${sections
    .filter((section) => section.length > 0)
    .map((section) => section.join('\n'))
    .join('\n\n')}\n`;
}

function recordingLine({ summary, device }: Analysis): string {
  const parts = [`GPU ${device}`, formatTimes(summary.events, 'event', 'events'), formatTimes(summary.allocs, 'allocation', 'allocations')];
  if (summary.durationUs > 0) parts.push(`${(summary.durationUs / 1e6).toFixed(1)} s`);
  return parts.join(', ');
}

function oomLines({ oom, summary }: Analysis, paint: Paint): string[] {
  if (!oom) return [];
  const { what, details } = oomHeadline(oom, summary.ooms);
  const reasons = [oomCause(oom), oomState(oom), oomPinning(oom)].filter((sentence) => sentence !== undefined);
  return [`${paint.bad(what)} ${details}`, ...reasons.map((sentence) => `  ${sentence}`), ...requestLines(oom)];
}

/** Frames of the failed request that are shown. */
const SHOWN_FRAMES = 12;

/** Where the request came from, and what held memory then by category. */
function requestLines({ site, stack, categories }: OomFinding): string[] {
  const lines: string[] = [];
  if (site !== undefined) {
    lines.push(`  Requested at ${printable(site)}:`);
    for (const { name, filename, line } of stack.slice(0, SHOWN_FRAMES))
      lines.push(`    ${printable(filename === '' ? name : `${filename}:${line} ${name}`)}`);
    if (stack.length > SHOWN_FRAMES) lines.push(`    (${formatTimes(stack.length - SHOWN_FRAMES, 'more frame', 'more frames')})`);
  }
  const words = categoryWords(categories);
  if (words !== 'unknown') lines.push(`  In use by category: ${words}.`);
  return lines;
}

function peakLines({ peak, summary, hostMemory, otherMemory }: Analysis, paint: Paint): string[] {
  const host = [...known(otherMemorySentence(otherMemory)), ...known(hostMemorySentence(hostMemory))];
  if (peak.reserved === 0) return [NOTHING_RESERVED, ...host];
  const { what, details } = peakHeadline(peak);
  const rows = lossesOf(peak).map((loss) => [formatBytes(loss.bytes), formatShare(loss.bytes, peak.reserved), lossCause(loss, peak)]);
  if (peak.heldSinceStart > 0)
    rows.push([formatBytes(peak.heldSinceStart), formatShare(peak.heldSinceStart, peak.reserved), HELD_SINCE_START]);
  return [`${paint.strong(what)}, ${details}:`, ...tableBody(rows), ...known(privatePoolsSentence(peak)), floorSentence(summary), ...host];
}

function known(sentence: string | undefined): string[] {
  return sentence === undefined ? [] : [sentence];
}

function categoryLines({ categories }: Analysis, paint: Paint): string[] {
  const rows = categoryRows(categories);
  if (rows.length === 0) return [];
  return [`${paint.strong('Live memory by category')}, at its peak:`, ...tableBody(rows), paint.dim(waysSentence(categories))];
}

function siteLines({ sites, oom }: Analysis, paint: Paint): string[] {
  if (sites.length === 0) return [];
  const rows = sites.map((site) => [
    formatBytes(site.bytes),
    `${formatCount(site.allocations)} x`,
    printable(site.label + noteWords(site.notes ?? [])),
  ]);
  return [`${paint.strong('Live memory by call site')}, ${oom ? 'when the request failed' : 'at its peak'}:`, ...tableBody(rows)];
}

const MOST_LEAKS = 10;

function leakLines({ leaks }: Analysis, paint: Paint): string[] {
  if (!('sites' in leaks) || leaks.sites.length === 0) return [];
  const { what, details } = leakHeadline(leaks);
  return [`${paint.bad(what)} ${details}:`, ...tableBody(leaks.sites.slice(0, MOST_LEAKS).map((site) => leakRow(site).map(printable)))];
}

/** Two figures and what they are, without a header. */
function tableBody(rows: readonly (readonly string[])[]): string[] {
  const columns: Column[] = [
    { title: '', align: 'right' },
    { title: '', align: 'right' },
    { title: '', align: 'left' },
  ];
  return formatTable(columns, rows)
    .slice(1)
    .map((line) => `  ${line}`);
}

function whatIfLines(analysis: Analysis, paint: Paint, width: number): string[] {
  const { whatIf } = analysis;
  if (whatIf.length === 0) return [];
  const recorded = recordedRow(whatIf);
  const fits = whatIf.map(fitOf);
  const title = fitTitle(analysis);
  const { allocator, peakReserved, change, overhead, smallestGpu, driverTime } = WHAT_IF_COLUMNS;
  const columns: (Column & { readonly meaning: string })[] = [
    { ...allocator, align: 'left' },
    { ...peakReserved, align: 'right' },
    { ...change, align: 'right', worth: 2 },
    { ...overhead, align: 'right', worth: 3 },
    { ...smallestGpu, align: 'right' },
    { title: title ?? '', meaning: FIT_MEANING, align: 'left' },
    { ...driverTime, align: 'right', worth: 1 },
  ];
  const rows = whatIf.map((row, index) => [
    shortName(row),
    formatBytes(row.unlimited.peakReserved),
    changeWords(row, recorded),
    row.reservedOverLive.toFixed(3),
    row.smallestGpu === undefined ? '' : formatBytes(row.smallestGpu),
    fits[index] ? fitWords(fits[index]) : '',
    formatMs(row.unlimited.driver.timeUs),
  ]);
  const kept = columnsWithin(columns, rows, width);
  const cut = cutNames(columns, rows, kept, width);
  const shown = kept.map((index) => columns[index]!);
  const [head, ...body] = formatTable(
    shown,
    rows.map((row) => kept.map((index) => row[index]!)),
  );
  const hasSettings = whatIf.some((row) => shortName(row) !== row.allocator && !row.isRecorded);
  const explained = shown.filter((column) => column.title !== allocator.title || hasSettings);
  return [
    paint.strong(`${WHAT_IF_TITLE} for this run:`),
    `${INDENT}${paint.dim(head!)}`,
    ...body.map((line, index) => {
      const kind = fits[index]?.kind;
      return `${INDENT}${kind === 'fails' ? paint.bad(line) : kind === 'fits' ? paint.good(line) : line}`;
    }),
    ...explained.map((column) => paint.dim(`${INDENT}${column.title}: ${column.meaning}.`)),
    ...cut.map(({ shown: name, whole }) => paint.dim(`${INDENT}${name}: ${whole}.`)),
    ...footnotes(analysis).map((note) => paint.dim(note)),
  ];
}

const LEAST_NAME = 24;

/** Cuts the names of allocators in place, if the table is still too wide, and returns what was cut. */
function cutNames(
  columns: readonly Column[],
  rows: string[][],
  kept: readonly number[],
  width: number,
): { readonly shown: string; readonly whole: string }[] {
  const others = kept.filter((index) => index !== 0);
  const room = Math.max(LEAST_NAME, width - tableWidth(columns, rows, others) - GAP.length);
  return rows.flatMap((row) => {
    const whole = row[0]!;
    if (whole.length <= room) return [];
    const end = whole.endsWith(RECORDED_MARK) ? RECORDED_MARK : '';
    row[0] = `${whole.slice(0, room - end.length - 1)}…${end}`;
    return [{ shown: row[0], whole: whole.slice(0, whole.length - end.length) }];
  });
}

function footnotes(analysis: Analysis): string[] {
  const { summary, replayError } = analysis;
  const failed = summary.peakDemand > summary.peakLive ? 'Requests that failed count as live.' : undefined;
  return [failed, replayErrorSentence(replayError), limitSentence(analysis)].filter((note) => note !== undefined);
}

function adviceLines({ advice, whatIf, peak }: Analysis, paint: Paint): string[] {
  if (advice.length === 0) return recordedRow(whatIf) && peak.reserved > 0 ? [noAdvice(whatIf)] : [];
  return [
    paint.strong('What to do:'),
    ...advice.flatMap((suggestion) => [`  ${paint.good(adviceLine(suggestion))}`, `      ${adviceEffect(suggestion)}`]),
  ];
}
