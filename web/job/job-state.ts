// The ranks of the open job: one per GPU of each recording, with what is known of it so far.
import { computed, type ReadonlySignal, signal } from '@preact/signals';
import { jobName, shortNames } from '../../src/view/job-names.ts';
import { clockOf, type JobClock, rankToOpen } from '../../src/view/job-order.ts';
import type { RankNote } from '../../src/view/job-protocol.ts';
import type { RankSummary } from '../../src/view/job-rank.ts';
import { openSource } from '../app/opening.ts';
import { loading, main, type OpenSource, sources, wordsOf } from '../app/state.ts';

/** One rank, or one recording whose ranks are not known yet. */
export interface JobRank {
  readonly source: OpenSource;
  readonly name: string;
  readonly summary: RankSummary | undefined;
  readonly problem: string | undefined;
}

export type KnownRanks = { readonly ranks: readonly RankSummary[] } | { readonly problem: string };

/** By recording: its summaries, or why there are none. */
export const knownRanks = signal<ReadonlyMap<OpenSource, KnownRanks>>(new Map());

export const jobRanks: ReadonlySignal<readonly JobRank[]> = computed(() => {
  const names = shortNames(sources.value.map(({ name }) => name));
  return sources.value.flatMap((source, index): JobRank[] => {
    const known = knownRanks.value.get(source);
    const rank = { source, name: names[index]!, summary: undefined, problem: undefined };
    if (!known) return [rank];
    if ('problem' in known) return [{ ...rank, problem: known.problem }];
    const isAlone = known.ranks.length === 1;
    return known.ranks.map((summary) => ({ ...rank, summary, name: isAlone ? rank.name : `${rank.name}, GPU ${summary.gpu}` }));
  });
});

export const jobClock: ReadonlySignal<JobClock> = computed(() => clockOf(jobRanks.value.flatMap(({ summary }) => summary ?? [])));

/** A single recording of one GPU is no job. */
export const isJob: ReadonlySignal<boolean> = computed(() => sources.value.length > 1 || jobRanks.value.length > 1);

/** What the open recordings are called together. */
export const openName: ReadonlySignal<string | undefined> = computed(() => {
  const names = sources.value.map(({ name }) => name);
  if (names.length === 0) return undefined;
  return jobName(names) ?? `${names.length} recordings`;
});

export function noteRank(source: OpenSource, known: KnownRanks): void {
  knownRanks.value = new Map(knownRanks.value).set(source, known);
}

export function openRank({ source, summary }: JobRank): void {
  void openSource(source, { gpu: summary?.gpu });
}

/** Opens the rank that failed first, else the worst, unless the user has opened one meanwhile. */
export function openFirstRank(): void {
  if (main.value || loading.value) return;
  const kept = jobRanks.value.filter(({ source }) => source.isKept !== false);
  const rank = rankToOpen(kept, jobClock.value);
  if (rank) openRank(rank);
}

/** Takes the server's summaries as they come. Resolves when all are there. */
export function followRanks(known: readonly OpenSource[]): Promise<void> {
  return new Promise((resolve) => {
    const feed = new EventSource('api/ranks');
    feed.addEventListener('rank', (event) => {
      const note = JSON.parse((event as MessageEvent<string>).data) as RankNote;
      const source = known[note.source];
      if (source) noteRank(source, note);
    });
    feed.addEventListener('over', () => {
      feed.close();
      resolve();
    });
    feed.addEventListener('error', () => {
      // The browser tries again by itself; what has come stays.
      if (feed.readyState !== EventSource.CLOSED) return;
      for (const source of known)
        if (!knownRanks.value.has(source)) noteRank(source, { problem: 'the server does not answer; start weir serve again' });
      resolve();
    });
  });
}

/** Files that are read at a time in the browser. */
const MOST_AT_ONCE = 2;

/** Summarises files that only the browser has. Those that are not shown give their memory back. */
export async function summariseHere(opened: readonly OpenSource[]): Promise<void> {
  const waiting = opened.filter((source) => !knownRanks.value.has(source));
  const work = async () => {
    for (let source = waiting.shift(); source; source = waiting.shift()) {
      try {
        noteRank(source, { ranks: await source.connection.ask('ranks', 0, {}) });
      } catch (error) {
        noteRank(source, { problem: wordsOf(error) });
      }
      if (main.value?.source !== source) source.connection.rest();
    }
  };
  await Promise.all(Array.from({ length: MOST_AT_ONCE }, work));
}
