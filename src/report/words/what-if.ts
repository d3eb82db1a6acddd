// Words for the what-if table: its columns, its cells and its footnotes. The terminal and the page show the same ones.
import { formatBytes } from '../../base/bytes.ts';
import type { Analysis } from '../analysis.ts';
import { type Fit, recordedRow, type WhatIfRow } from '../what-if.ts';
import { formatChange, formatCount, formatSizeRange, formatTimes } from './numbers.ts';

export const WHAT_IF_TITLE = 'What each allocator would have needed';

/** What each column is called, and what its figures mean. */
export const WHAT_IF_COLUMNS = {
  allocator: { title: 'allocator', meaning: "a setting alone, like max_split_size_mb:128, is PyTorch's allocator with that setting" },
  peakReserved: { title: 'peak reserved', meaning: 'most memory held from the driver, without a memory limit' },
  change: { title: 'change', meaning: 'peak reserved against the recorded allocator' },
  overhead: { title: 'overhead', meaning: 'peak reserved / peak live; 1 is the least possible' },
  smallestGpu: { title: 'smallest GPU', meaning: 'least memory on which no request fails, to 0.4 % of the peak' },
  driverTime: { title: 'driver time', meaning: "modelled time in the driver's memory calls" },
} as const;

/** The column about the GPU in question; undefined: its size is unknown. */
export function fitTitle({ capacity, capacityAtLeast }: Analysis): string | undefined {
  return capacity === undefined ? undefined : `in ${formatSizeRange(capacity, capacityAtLeast)}`;
}

export function fitWords(fit: Fit): string {
  if (fit.kind === 'fails') return `out of memory (${formatCount(fit.ooms)} x)`;
  const retries = fit.retries > 0 ? `, ${formatTimes(fit.retries, 'retry', 'retries')}` : '';
  return `${fit.kind === 'may-fit' ? 'may fit' : 'fits'}${retries}`;
}

/** Empty for the recorded allocator itself. */
export function changeWords(row: WhatIfRow, recorded: WhatIfRow | undefined): string {
  return row.isRecorded || !recorded ? '' : formatChange(row.unlimited.peakReserved, recorded.unlimited.peakReserved);
}

/** Titles in the page, whose table begins with the answer: does it fit, and what does it need? */
export const PAGE_TITLES = {
  fits: 'fits',
  smallestGpu: 'runs on at least',
  peakReserved: 'peak with unlimited memory',
} as const;

/** Why the peak of the recorded allocator is not that of the verdict; undefined: it is. */
export function unlimitedSentence({ whatIf, peak, summary }: Analysis): string | undefined {
  const recorded = recordedRow(whatIf)?.unlimited.peakReserved;
  if (recorded === undefined || recorded === peak.reserved || summary.ooms === 0) return undefined;
  return `The run itself reserved at most ${formatBytes(peak.reserved)}. With unlimited memory, the requests that failed are served too, so ${formatBytes(recorded)} are reserved.`;
}

/** The footnote about the overhead. */
export const OVERHEAD_NOTE = 'Overhead = peak reserved / peak live.';

/** What the column about the GPU in question says. */
export const FIT_MEANING = 'whether every request is served there; a retry flushes the cache first';

/** Behind the name of the recorded allocator. */
export const RECORDED_MARK = ' (as recorded)';

/** The allocator's name for a narrow table: settings of PyTorch's allocator stand alone. */
export function shortName({ allocator, kind, isRecorded }: WhatIfRow): string {
  const settings = kind === 'pytorch' ? /^pytorch\[(.+)\]$/.exec(allocator)?.[1] : undefined;
  return `${settings ?? allocator}${isRecorded ? RECORDED_MARK : ''}`;
}

/** How the memory limit of the job is known; undefined if it was given or recorded. */
export function limitSentence({ capacity, capacityAtLeast, capacityOrigin }: Analysis): string | undefined {
  if (capacity === undefined || capacityOrigin !== 'inferred') return undefined;
  if (capacityAtLeast === undefined)
    return `The job's memory limit was ${formatBytes(capacity)}, as its failures show. --capacity SIZE tries another one.`;
  return `The job's memory limit was between ${formatBytes(capacityAtLeast)} and ${formatBytes(capacity)}. "may fit": the answer depends on where exactly. --capacity SIZE tries one size.`;
}
