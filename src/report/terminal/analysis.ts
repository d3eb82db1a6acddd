// An analysis for the terminal: the verdict first, then the what-if table, then what to do.
import { formatBytes } from '../../base/bytes.ts';
import type { Analysis } from '../analysis.ts';
import { lossesOf } from '../losses.ts';
import { fitOf, recordedRow } from '../what-if.ts';
import { adviceEffect, adviceLine, NO_ADVICE } from '../words/advice.ts';
import { formatCount, formatMs, formatShare } from '../words/numbers.ts';
import {
  floorSentence,
  HELD_SINCE_START,
  lossCause,
  NOTHING_RESERVED,
  oomCause,
  oomHeadline,
  oomPinning,
  oomState,
  peakHeadline,
  replayErrorSentence,
} from '../words/verdict.ts';
import { changeWords, fitTitle, fitWords, limitSentence, OVERHEAD_NOTE, WHAT_IF_COLUMNS, WHAT_IF_TITLE } from '../words/what-if.ts';
import { type Paint, PLAIN } from './paint.ts';
import { type Column, formatTable } from './table.ts';

export function formatAnalysis(analysis: Analysis, title: string, paint: Paint = PLAIN): string {
  const sections = [
    [paint.strong(title), paint.dim(recordingLine(analysis))],
    analysis.warnings.map((warning) => `${paint.bad('warning:')} ${warning.message}`),
    oomLines(analysis, paint),
    peakLines(analysis, paint),
    siteLines(analysis, paint),
    whatIfLines(analysis, paint),
    adviceLines(analysis, paint),
  ];
  return `${sections
    .filter((section) => section.length > 0)
    .map((section) => section.join('\n'))
    .join('\n\n')}\n`;
}

function recordingLine({ summary, device }: Analysis): string {
  const parts = [`GPU ${device}`, `${formatCount(summary.events)} events`, `${formatCount(summary.allocs)} allocations`];
  if (summary.durationUs > 0) parts.push(`${(summary.durationUs / 1e6).toFixed(1)} s`);
  return parts.join(', ');
}

function oomLines({ oom, summary }: Analysis, paint: Paint): string[] {
  if (!oom) return [];
  const { what, details } = oomHeadline(oom, summary.ooms);
  const reasons = [oomCause(oom), oomState(oom), oomPinning(oom)].filter((sentence) => sentence !== undefined);
  return [`${paint.bad(what)} ${details}`, ...reasons.map((sentence) => `  ${sentence}`)];
}

function peakLines({ peak, summary }: Analysis, paint: Paint): string[] {
  if (peak.reserved === 0) return [NOTHING_RESERVED];
  const { what, details } = peakHeadline(peak);
  const rows = lossesOf(peak).map((loss) => [formatBytes(loss.bytes), formatShare(loss.bytes, peak.reserved), lossCause(loss, peak)]);
  if (peak.heldSinceStart > 0)
    rows.push([formatBytes(peak.heldSinceStart), formatShare(peak.heldSinceStart, peak.reserved), HELD_SINCE_START]);
  return [`${paint.strong(what)}, ${details}:`, ...tableBody(rows), floorSentence(summary)];
}

function siteLines({ sites, oom }: Analysis, paint: Paint): string[] {
  if (sites.length === 0) return [];
  const rows = sites.map((site) => [formatBytes(site.bytes), `${formatCount(site.allocations)} x`, site.label]);
  return [`${paint.strong('Live memory by call site')}, ${oom ? 'when the request failed' : 'at its peak'}:`, ...tableBody(rows)];
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

function whatIfLines(analysis: Analysis, paint: Paint): string[] {
  const { whatIf } = analysis;
  if (whatIf.length === 0) return [];
  const recorded = recordedRow(whatIf);
  const fits = whatIf.map(fitOf);
  const rows = whatIf.map((row, index) => [
    row.isRecorded ? `${row.allocator} (as recorded)` : row.allocator,
    formatBytes(row.unlimited.peakReserved),
    changeWords(row, recorded),
    row.reservedOverLive.toFixed(3),
    row.smallestGpu === undefined ? '' : formatBytes(row.smallestGpu),
    fits[index] ? fitWords(fits[index]) : '',
    formatMs(row.unlimited.driver.timeUs),
  ]);
  const columns: Column[] = [
    { title: WHAT_IF_COLUMNS.allocator.title, align: 'left' },
    { title: WHAT_IF_COLUMNS.peakReserved.title, align: 'right' },
    { title: WHAT_IF_COLUMNS.change.title, align: 'right' },
    { title: WHAT_IF_COLUMNS.overhead.title, align: 'right' },
    { title: WHAT_IF_COLUMNS.smallestGpu.title, align: 'right' },
    { title: fitTitle(analysis) ?? '', align: 'left' },
    { title: WHAT_IF_COLUMNS.driverTime.title, align: 'right' },
  ];
  const [head, ...body] = formatTable(columns, rows);
  return [
    paint.strong(`${WHAT_IF_TITLE} for this run:`),
    `  ${paint.dim(head!)}`,
    ...body.map((line, index) => {
      const kind = fits[index]?.kind;
      return `  ${kind === 'fails' ? paint.bad(line) : kind === 'fits' ? paint.good(line) : line}`;
    }),
    ...footnotes(analysis).map((note) => paint.dim(note)),
  ];
}

function footnotes(analysis: Analysis): string[] {
  const { summary, whatIf, replayError } = analysis;
  const smallest = whatIf.some((row) => row.smallestGpu !== undefined) ? [`Smallest GPU: ${WHAT_IF_COLUMNS.smallestGpu.meaning}.`] : [];
  const failed = summary.peakDemand > summary.peakLive ? ['Requests that failed count as live.'] : [];
  return [
    replayErrorSentence(replayError),
    [`Peak reserved: ${WHAT_IF_COLUMNS.peakReserved.meaning}.`, ...smallest].join(' '),
    [OVERHEAD_NOTE, ...failed].join(' '),
    limitSentence(analysis),
  ].filter((note) => note !== undefined);
}

function adviceLines({ advice, whatIf, peak }: Analysis, paint: Paint): string[] {
  if (advice.length === 0) return recordedRow(whatIf) && peak.reserved > 0 ? [NO_ADVICE] : [];
  return [
    paint.strong('What to do:'),
    ...advice.flatMap((suggestion) => [`  ${paint.good(adviceLine(suggestion))}`, `      ${adviceEffect(suggestion)}`]),
  ];
}
