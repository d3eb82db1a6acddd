// Sentences about a job: what is special about a rank, how a job ended, what a verdict is in short.
import { formatBytes } from '../base/bytes.ts';
import type { Analysis } from '../report/analysis.ts';
import { lostBytes } from '../report/losses.ts';
import { formatShare, formatTimes } from '../report/words/numbers.ts';
import { NOTHING_RESERVED, oomCause, oomHeadline, peakHeadline } from '../report/words/verdict.ts';
import { failureAt, type JobClock, type OrderedRank, worstOf } from './job-order.ts';
import type { JobEnd } from './live-sample.ts';
import { formatTime } from './ticks.ts';

/** What sets a rank apart; undefined: nothing. */
export interface RankFlag {
  readonly text: string;
  readonly isBad: boolean;
}

export function flagOf(rank: OrderedRank, ranks: readonly OrderedRank[], clock: JobClock): RankFlag | undefined {
  const { summary, problem } = rank;
  if (problem !== undefined) return { text: problem, isBad: true };
  if (!summary) return undefined;
  if (summary.failure) return { text: failureWords(rank, ranks, clock), isBad: true };
  const hasFailures = ranks.some((other) => other.summary?.failure);
  if (hasFailures || worstOf(ranks) !== rank || ranks.filter((other) => other.summary).length < 2) return undefined;
  return { text: summary.peakReserved === undefined ? 'needs the most memory' : 'reserved the most', isBad: false };
}

function failureWords({ summary }: OrderedRank, ranks: readonly OrderedRank[], clock: JobClock): string {
  const { failure, ooms } = summary!;
  const what = `a request for ${formatBytes(failure!.asked)}${ooms > 1 ? ` and ${formatTimes(ooms - 1, 'other', 'others')}` : ''}`;
  if (clock.kind !== 'common') return `out of memory: ${what}`;
  const times = ranks.flatMap((other) => (other.summary?.failure ? [failureAt(other.summary, clock)!] : []));
  const at = failureAt(summary!, clock)!;
  const first = Math.min(...times);
  if (times.length === 1) return `out of memory at ${formatTime(at, clock.span / 1000)}: ${what}`;
  if (at === first) return `out of memory first, at ${formatTime(at, clock.span / 1000)}: ${what}`;
  return `out of memory ${formatTime(at - first, (at - first) / 10)} later: ${what}`;
}

/** The axis of an overview in words. */
export function clockSentence({ kind }: JobClock): string {
  switch (kind) {
    case 'common':
      return 'All ranks are on one clock.';
    case 'own':
      return 'These recordings were not made at the same time: each begins at 0.';
    case 'events':
      return 'Not all recordings have times: the axis counts events.';
  }
}

/** How a job ended, after its name. */
export function endWords(end: JobEnd): string {
  if (end.kind === 'played') return 'was played to its end';
  if (end.signal !== null) return `was killed by ${end.signal}${end.signalNumber === undefined ? '' : ` (signal ${end.signalNumber})`}`;
  if (end.code === null) return 'ended';
  return end.code === 0 ? 'ended with exit code 0' : `failed with exit code ${end.code}`;
}

/** What else is to be known of that end; undefined: nothing. */
export function endHint(end: JobEnd): string | undefined {
  if (end.signal !== 'SIGKILL') return undefined;
  return 'SIGKILL comes from kill -9, from a scheduler, or from Linux when the machine runs out of host memory (dmesg tells).';
}

/** A verdict in two or three sentences, the answer first. */
export function verdictSentences({ oom, summary, peak }: Pick<Analysis, 'oom' | 'summary' | 'peak'>): string[] {
  const level = peak.reserved > 0 ? `${peakHeadline(peak).what}, ${peakHeadline(peak).details}.` : NOTHING_RESERVED;
  if (!oom) return [level];
  const { what, details } = oomHeadline(oom, summary.ooms);
  return [`${what} ${details}`, oomCause(oom), level];
}

/** A verdict for the title of a tab. */
export function shortVerdict({ oom, peak }: Pick<Analysis, 'oom' | 'peak'>): string {
  if (oom) return `out of memory: ${formatBytes(oom.asked)} failed`;
  if (peak.reserved === 0) return 'nothing reserved';
  return `peak ${formatBytes(peak.reserved)}, ${formatShare(lostBytes(peak), peak.reserved)} lost`;
}
