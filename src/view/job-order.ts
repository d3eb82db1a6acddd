// The ranks of a job beside each other: on which clock, in which order, and which one to open first.
import { runsOut, worstRank } from '../report/ranks.ts';
import type { RankSummary } from './job-rank.ts';

/** A rank of the overview. Its summary comes later than its name. */
export interface OrderedRank {
  readonly summary: RankSummary | undefined;
  /** Why the recording cannot be used. */
  readonly problem?: string | undefined;
}

/**
 * One axis for all ranks. `common`: the moments are those of one clock. `own`: the recordings were not made at the same time, so
 * each begins at 0. `events`: not all of them have times.
 */
export interface JobClock {
  readonly kind: 'common' | 'own' | 'events';
  /** Microseconds since 1970 at which a common clock begins. */
  readonly startUs: number;
  /** Length of the axis: microseconds or events. */
  readonly span: number;
}

export function clockOf(summaries: readonly RankSummary[]): JobClock {
  if (summaries.some(({ durationUs, events }) => durationUs === 0 && events > 1))
    return { kind: 'events', startUs: 0, span: longest(summaries, ({ events }) => events) };
  const timed = summaries.filter(({ events }) => events > 0);
  const startUs = timed.reduce((least, summary) => Math.min(least, summary.startUs), Number.POSITIVE_INFINITY);
  if (timed.length > 0 && ranTogether(timed))
    return { kind: 'common', startUs, span: longest(timed, (summary) => summary.startUs + summary.durationUs - startUs) };
  return { kind: 'own', startUs: 0, span: longest(timed, ({ durationUs }) => durationUs) };
}

/** Where a rank begins and ends on the axis. */
export function placeOf(summary: RankSummary, clock: JobClock): { readonly from: number; readonly to: number } {
  if (clock.kind === 'events') return { from: 0, to: summary.events };
  const from = clock.kind === 'common' ? summary.startUs - clock.startUs : 0;
  return { from, to: from + summary.durationUs };
}

/** Where the first request of a rank failed, on the axis; undefined: none failed. */
export function failureAt(summary: RankSummary, clock: JobClock): number | undefined {
  if (!summary.failure) return undefined;
  return clock.kind === 'events' ? summary.failure.event : placeOf(summary, clock).from + summary.failure.timeUs;
}

/** Ranks that failed come first, in the order of their failures, then the worst of the others, then the rest as given. */
export function orderRanks<Rank extends OrderedRank>(ranks: readonly Rank[], clock: JobClock): Rank[] {
  const failed = ranks
    .filter(({ summary }) => summary && runsOut(outcomeOf(summary)))
    .sort((a, b) => failureAt(a.summary!, clock)! - failureAt(b.summary!, clock)!);
  // Without one clock nobody failed first. Then the worst comes first.
  const judged = clock.kind === 'common' ? undefined : worstOf(failed);
  const unreadable = ranks.filter(({ problem }) => problem !== undefined);
  const worst = failed.length === 0 ? worstOf(ranks) : undefined;
  const first = new Set<Rank>([...(judged ? [judged] : []), ...failed, ...(worst ? [worst] : []), ...unreadable]);
  return [...first, ...ranks.filter((rank) => !first.has(rank))];
}

/** The rank that failed first, else the worst; undefined: none can be read. Without one clock nobody failed first. */
export function rankToOpen<Rank extends OrderedRank>(ranks: readonly Rank[], clock: JobClock): Rank | undefined {
  const [first] = orderRanks(ranks, clock);
  return first && clock.kind === 'common' && first.summary?.failure ? first : worstOf(ranks);
}

/** The rank that a job is judged by; undefined: there is no summary. */
export function worstOf<Rank extends OrderedRank>(ranks: readonly Rank[]): Rank | undefined {
  const known = ranks.filter(({ summary }) => summary !== undefined).map((rank) => ({ ...outcomeOf(rank.summary!), rank }));
  return known.length === 0 ? undefined : worstRank(known).rank;
}

function outcomeOf({ ooms, peakReserved, peakLive }: RankSummary) {
  return { ooms, fit: undefined, peakReserved: peakReserved ?? peakLive };
}

/** Ranks of one job overlap in time, directly or through others. Runs of different days do not. */
export function ranTogether(summaries: readonly Pick<RankSummary, 'startUs' | 'durationUs'>[]): boolean {
  const byStart = [...summaries].sort((a, b) => a.startUs - b.startUs);
  let end = byStart[0]!.startUs + byStart[0]!.durationUs;
  for (const { startUs, durationUs } of byStart) {
    if (startUs > end) return false;
    end = Math.max(end, startUs + durationUs);
  }
  return true;
}

function longest(summaries: readonly RankSummary[], of: (summary: RankSummary) => number): number {
  return summaries.reduce((most, summary) => Math.max(most, of(summary)), 1);
}
