// The outcome of `weir replay` for the terminal: one line per allocator, then what streams and real memory had to say.
import { formatBytes } from '../../base/bytes.ts';
import { printable } from '../../base/printable.ts';
import type { TraceSummary } from '../../trace/summary.ts';
import type { Trace } from '../../trace/trace.ts';
import type { ReplayRow } from '../replay-row.ts';
import { formatCount, formatMs, formatTimes } from '../words/numbers.ts';
import { OVERHEAD_NOTE, WHAT_IF_COLUMNS } from '../words/what-if.ts';
import { type Column, formatTable } from './table.ts';

const COLUMNS: readonly Column[] = [
  { title: WHAT_IF_COLUMNS.allocator.title, align: 'left' },
  { title: WHAT_IF_COLUMNS.peakReserved.title, align: 'right' },
  { title: WHAT_IF_COLUMNS.overhead.title, align: 'right' },
  { title: 'failures', align: 'right' },
  { title: 'retries', align: 'right' },
  { title: WHAT_IF_COLUMNS.driverTime.title, align: 'right' },
  { title: 'modelled', align: 'right' },
  { title: 'last third', align: 'right' },
  { title: 'driver calls', align: 'right' },
  { title: 'replayed in', align: 'right' },
];

export function formatReplay(trace: Trace, summary: TraceSummary, rows: readonly ReplayRow[]): string {
  const cells = rows.map(({ allocator, result, modelled, floor, wallMs }) => [
    allocator,
    formatBytes(result.peakReserved),
    floor > 0 ? (result.peakReserved / floor).toFixed(3) : '',
    formatCount(result.ooms),
    formatCount(result.retries),
    formatMs(result.driver.timeUs),
    modelled ? formatMs(modelled.driver.timeUs) : '',
    formatMs(result.driver.steadyTimeUs),
    formatCount(Object.values(result.driver.calls).reduce((sum, calls) => sum + calls, 0)),
    `${wallMs.toFixed(0)} ms`,
  ]);
  return `${[
    recordingLine(trace, summary),
    ...trace.warnings.map((warning) => `warning: ${printable(warning.message)}`),
    ...formatTable(COLUMNS, cells),
    `${OVERHEAD_NOTE} Last third: driver time in the last third of the events.`,
    ...rows.filter((row) => row.result.streams.waits > 0).map(waitSentence),
    ...rows.filter((row) => row.description !== undefined).map(realRunSentence),
  ].join('\n')}\n`;
}

function recordingLine(trace: Trace, summary: TraceSummary): string {
  const recorded = summary.recordedPeakReserved === undefined ? 'unknown' : formatBytes(summary.recordedPeakReserved);
  return `GPU ${trace.device}: ${formatTimes(summary.events, 'event', 'events')}; peak live ${formatBytes(summary.peakLive)}; recorded peak reserved ${recorded} (${summary.recordedAllocator})`;
}

/** What lending between streams costs, if streams run a little behind the program. */
function waitSentence({ allocator, result: { streams } }: ReplayRow): string {
  return `${allocator}: ${formatTimes(streams.waits, 'stream wait', 'stream waits')} for borrowed memory, ${formatCount(streams.neededWaits)} of them needed; ${formatMs(streams.stallUs)} of stalls.`;
}

function realRunSentence({ allocator, description, verification }: ReplayRow): string {
  const checked = verification
    ? `Verified: ${formatTimes(verification.blocks, 'block', 'blocks')} (${formatBytes(verification.bytes)}) kept all data until the free.`
    : 'Data was not verified.';
  return `${allocator} ran on ${description}. ${checked}`;
}
