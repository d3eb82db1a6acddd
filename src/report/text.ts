// An analysis in words for a terminal: the verdict first, then the what-if table, then what to do.
import { formatBytes } from '../base/bytes.ts';
import type { Analysis, ReplayError } from './analysis.ts';
import type { Breakdown, OomFinding } from './moment.ts';
import { formatTable } from './table.ts';
import type { WhatIfRow } from './what-if.ts';

/** Marks up a piece of text; the terminal's colours, or nothing. */
export interface Paint {
  strong(text: string): string;
  good(text: string): string;
  bad(text: string): string;
  dim(text: string): string;
}

export const PLAIN: Paint = { strong: (text) => text, good: (text) => text, bad: (text) => text, dim: (text) => text };

export function formatAnalysis(analysis: Analysis, title: string, paint: Paint = PLAIN): string {
  const sections = [
    [paint.strong(title), paint.dim(describeRecording(analysis))],
    analysis.warnings.map((warning) => `${paint.bad('warning:')} ${warning.message}`),
    analysis.oom ? formatOom(analysis.oom, analysis.summary.ooms, paint) : [],
    formatPeak(analysis, paint),
    formatSites(analysis, paint),
    formatWhatIf(analysis, paint),
    formatAdvice(analysis, paint),
  ];
  return `${sections
    .filter((section) => section.length > 0)
    .map((section) => section.join('\n'))
    .join('\n\n')}\n`;
}

export function describeRecording({ summary, device }: Analysis): string {
  const parts = [`GPU ${device}`, `${count(summary.events)} events`, `${count(summary.allocs)} allocations`];
  if (summary.durationUs > 0) parts.push(`${(summary.durationUs / 1e6).toFixed(1)} s`);
  return parts.join(', ');
}

export function formatPeak({ peak, summary }: Analysis, paint: Paint): string[] {
  if (peak.reserved === 0) return ['No memory was reserved.'];
  const inUse = peak.requested;
  const lost = peak.reserved - inUse;
  const head = `${paint.strong(`Peak: ${formatBytes(peak.reserved)} reserved`)}, ${formatBytes(inUse)} of it in use; ${formatBytes(lost)} (${share(lost, peak.reserved)}) lost at that moment:`;
  const { peakLive, peakDemand } = summary;
  const floor =
    peakDemand > peakLive
      ? `Peak live memory over the whole run: ${formatBytes(peakLive)}; had every request been served, ${formatBytes(peakDemand)}: the floor for any allocator that does not swap.`
      : `Peak live memory over the whole run: ${formatBytes(peakLive)}, the floor for any allocator that does not swap.`;
  return [
    head,
    ...formatTable(LOSS_COLUMNS, losses(peak))
      .slice(1)
      .map((line) => `  ${line}`),
    floor,
  ];
}

const LOSS_COLUMNS = [
  { title: '', align: 'right' },
  { title: '', align: 'right' },
  { title: '', align: 'left' },
] as const;

export function losses(peak: Breakdown): string[][] {
  const parts: [number, string][] = [
    [peak.fragmented, `external fragmentation: free, in pieces of at most ${formatBytes(peak.largestFree)}`],
    [peak.otherStreams, 'free, but cached for other streams'],
    [peak.otherPools, 'free, but in private pools (CUDA graphs, MemPool)'],
    [peak.smallSegments, 'free, but in segments that serve only requests up to 1 MiB'],
    [peak.pending, 'freed by the program, still in use by other streams'],
    [peak.rounding, 'rounding of requests'],
  ];
  const rows = parts.filter(([bytes]) => bytes > 0).map(([bytes, what]) => [formatBytes(bytes), share(bytes, peak.reserved), what]);
  if (peak.heldSinceStart > 0) {
    rows.push([
      formatBytes(peak.heldSinceStart),
      share(peak.heldSinceStart, peak.reserved),
      'in use since before the recording began (not lost)',
    ]);
  }
  return rows;
}

const CAUSES: Record<OomFinding['cause'], string> = {
  fragmentation: 'Fragmentation stood in the way: enough was free, but not in one piece.',
  demand: 'There was not enough memory for what was in use and what was asked for, however it is laid out.',
  'other-streams': "Other streams' caches stood in the way: enough was free, but PyTorch keeps it for the stream that freed it.",
  'other-pools': 'Private pools stood in the way: enough was free, but kept for CUDA graphs or a MemPool.',
  pending: 'Frees that waited for other streams stood in the way (record_stream).',
};

/** `failures`: how many there were; the finding is about the last. */
export function formatOom(oom: OomFinding, failures: number, paint: Paint): string[] {
  const { breakdown } = oom;
  const free = breakdown.fragmented + breakdown.smallSegments + breakdown.otherStreams + breakdown.otherPools;
  const unreserved = oom.limit === undefined ? oom.deviceFree : Math.max(0, oom.limit - breakdown.reserved);
  const limit =
    oom.limit === undefined
      ? ''
      : ` of ${formatBytes(oom.limit)}${oom.limitOrigin === 'inferred' ? ' (the most that the job could have, as its failures show)' : ' allowed'}`;
  const lines = [
    `${paint.bad('Out of memory')} at event ${count(oom.event)}${failures > 1 ? `, the last of ${count(failures)} failures` : ''}: ${paint.strong(formatBytes(oom.asked))} was asked for.`,
    `  ${formatBytes(breakdown.requested + breakdown.rounding)} was in use, ${formatBytes(free)} free inside reserved memory (${count(breakdown.freePieces)} pieces, the largest ${formatBytes(breakdown.largestFree)}), ${formatBytes(unreserved)} not reserved${limit}.`,
    `  ${CAUSES[oom.cause]}`,
  ];
  if (oom.cause === 'fragmentation' && oom.pinning.segments > 0) {
    const { segments, freeBytes, liveBlocks, liveBytes } = oom.pinning;
    lines.push(
      `  ${count(segments)} partly used segments hold ${formatBytes(freeBytes)} free memory, kept there by ${count(liveBlocks)} live allocations (${formatBytes(liveBytes)}).`,
    );
  }
  return lines;
}

function formatSites({ sites, oom }: Analysis, paint: Paint): string[] {
  if (sites.length === 0) return [];
  const rows = sites.map((site) => [formatBytes(site.bytes), `${count(site.allocations)} x`, site.label]);
  const columns = LOSS_COLUMNS;
  return [
    `${paint.strong('Live memory by who asked for it')}, ${oom ? 'when it ran out' : 'at its peak'}:`,
    ...formatTable(columns, rows)
      .slice(1)
      .map((line) => `  ${line}`),
  ];
}

export function formatWhatIf(
  { summary, whatIf, capacity, capacityAtLeast, capacityOrigin, replayError }: Analysis,
  paint: Paint,
): string[] {
  if (whatIf.length === 0) return [];
  const recorded = whatIf.find((row) => row.isRecorded);
  const rows = whatIf.map((row) => [
    row.isRecorded ? `${row.choice.name} (as recorded)` : row.choice.name,
    formatBytes(row.unlimited.peakReserved),
    row.isRecorded || !recorded ? '' : change(row.unlimited.peakReserved, recorded.unlimited.peakReserved),
    row.reservedOverLive.toFixed(3),
    row.smallestGpu === undefined ? '' : formatBytes(row.smallestGpu),
    fitWord(row),
    `${(row.unlimited.driver.timeUs / 1e3).toFixed(1)} ms`,
  ]);
  const columns = [
    { title: 'allocator', align: 'left' },
    { title: 'peak reserved', align: 'right' },
    { title: 'change', align: 'right' },
    { title: '/ live', align: 'right' },
    { title: 'runs on', align: 'right' },
    { title: capacity === undefined ? '' : `in ${sizeWords(capacity, capacityAtLeast)}`, align: 'left' },
    { title: 'driver time', align: 'right' },
  ] as const;
  const [head, ...body] = formatTable(columns, rows);
  const notes = [formatReplayError(replayError)];
  if (recorded && replayError.recordedPeakReserved !== undefined && recorded.unlimited.peakReserved > replayError.recordedPeakReserved) {
    notes.push(
      'Peak reserved is what the run takes where memory is no limit and no request fails; "runs on" is the least it gets by with.',
    );
  }
  if (summary.peakDemand > summary.peakLive) notes.push('"/ live" is over what would have been live, had every request been served.');
  if (capacity !== undefined && capacityOrigin === 'inferred')
    notes.push(
      capacityAtLeast === undefined
        ? `${formatBytes(capacity)} is what this job could have, inferred from its failures; --capacity SIZE tries another GPU.`
        : `This job could have ${formatBytes(capacityAtLeast)}, which it was granted, and at most ${formatBytes(capacity)}, beyond which it was refused; "may fit" depends on that; --capacity SIZE says it exactly.`,
    );
  return [
    paint.strong('What each allocator would have needed for this run:'),
    `  ${paint.dim(head!)}`,
    ...body.map((line, index) => {
      const { limited } = whatIf[index]!;
      if (limited === undefined || whatIf[index]!.isSure === false) return `  ${line}`;
      return `  ${limited.ooms > 0 ? paint.bad(line) : paint.good(line)}`;
    }),
    ...notes.map((note) => paint.dim(note)),
  ];
}

/** A size, or the range in which it lies. */
export function sizeWords(capacity: number, atLeast: number | undefined): string {
  return atLeast === undefined ? formatBytes(capacity) : `${formatBytes(atLeast)} to ${formatBytes(capacity)}`;
}

export function formatReplayError(error: ReplayError): string {
  const modelled = formatBytes(error.modelledPeakReserved);
  if (error.recordedPeakReserved === undefined)
    return `Replay error unknown: the recording shows no segments; the model reserves ${modelled} at its peak.`;
  if (error.engine) {
    const apart = share(Math.abs(error.modelledPeakReserved - error.recordedPeakReserved), error.recordedPeakReserved);
    return `The run was made on ${error.engine}: ${formatBytes(error.recordedPeakReserved)} reserved at its peak; the same requests replayed reserve ${modelled} (${apart} apart: in a replay, streams finish at other moments).`;
  }
  const inferred = error.emptyCaches > 0 ? ` ${count(error.emptyCaches)} empty_cache() calls were inferred.` : '';
  if (error.differing === 0) {
    return `Replay error 0: the model of the recorded allocator reproduces all ${count(error.compared)} addresses, segments and failures; peak reserved ${modelled} in both.${inferred}`;
  }
  const bytes = error.modelledPeakReserved - error.recordedPeakReserved;
  return `Replay error ${share(Math.abs(bytes), error.recordedPeakReserved)}: peak reserved ${formatBytes(error.recordedPeakReserved)} recorded, ${modelled} modelled; ${count(error.differing)} of ${count(error.compared)} events differ, the first at event ${count(error.firstEvent)}.${inferred}`;
}

function formatAdvice({ advice, whatIf, peak }: Analysis, paint: Paint): string[] {
  if (advice.length === 0) {
    const recorded = whatIf.find((row) => row.isRecorded);
    if (!recorded || peak.reserved === 0) return [];
    return ["No setting of PyTorch's allocator would have saved 3 % or more."];
  }
  return [
    paint.strong('What to do:'),
    ...advice.flatMap((suggestion) => [`  ${paint.good(suggestion.line)}`, `      ${suggestion.effect}`]),
  ];
}

export function fitWord({ limited, isSure }: WhatIfRow): string {
  if (!limited) return '';
  const retries = limited.retries > 0 ? `, ${count(limited.retries)} ${limited.retries === 1 ? 'retry' : 'retries'}` : '';
  if (limited.ooms > 0) return `out of memory (${count(limited.ooms)} x)`;
  return `${isSure === false ? 'may fit' : 'fits'}${retries}`;
}

export function change(after: number, before: number): string {
  if (before === 0) return '';
  const percent = (100 * (after - before)) / before;
  return `${percent > 0 ? '+' : ''}${percent.toFixed(1)} %`;
}

function share(part: number, whole: number): string {
  return whole === 0 ? '0 %' : `${((100 * part) / whole).toFixed(1)} %`;
}

function count(value: number): string {
  return value.toLocaleString('en-US');
}
