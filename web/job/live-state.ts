// A running job, as far as its server tells: samples of each rank, whether it runs, how it ended, or that nobody answers any more.
import { computed, type ReadonlySignal, signal } from '@preact/signals';
import { formatTimes } from '../../src/report/words/numbers.ts';
import { endWords } from '../../src/view/job-words.ts';
import type { JobOver, LiveSample } from '../../src/view/live-sample.ts';

export interface LiveRank {
  readonly name: string;
  readonly samples: readonly LiveSample[];
  readonly peakLive: number;
  readonly peakReserved: number;
}

/** `lost`: since when nobody answers. What the job does then is unknown. */
export type FeedState =
  | { readonly kind: 'off' }
  | { readonly kind: 'running' }
  | { readonly kind: 'over'; readonly over: JobOver }
  | { readonly kind: 'lost'; readonly since: Date };

export const liveRanks = signal<readonly LiveRank[]>([]);
export const feedState = signal<FeedState>({ kind: 'off' });
/** Whether the job is a recording that is played back. */
export const isPlayback = signal(false);
export const isLive: ReadonlySignal<boolean> = computed(() => feedState.value.kind !== 'off');

/** Samples kept per rank; beyond this, every second one is dropped. */
const MOST_SAMPLES = 4000;
/** Samples come in bursts: all that come within this time are shown together. */
const SHOW_EVERY_MS = 100;

/** Follows the job until its end. `onOver` is called once. */
export function followFeed(names: readonly string[], playback: boolean, onOver: (over: JobOver) => void): void {
  const empty = (name: string): LiveRank => ({ name, samples: [], peakLive: 0, peakReserved: 0 });
  let ranks = names.map(empty);
  liveRanks.value = ranks;
  isPlayback.value = playback;
  feedState.value = { kind: 'running' };
  let timer: ReturnType<typeof setTimeout> | undefined;
  const show = () => {
    timer = undefined;
    liveRanks.value = ranks;
  };
  const feed = new EventSource('api/live');
  feed.addEventListener('open', () => {
    // After a reconnection the server sends all samples again.
    ranks = ranks.map(({ name }) => empty(name));
    feedState.value = { kind: 'running' };
  });
  feed.addEventListener('sample', (event) => {
    const sample = JSON.parse((event as MessageEvent<string>).data) as LiveSample;
    // Processes can join a running job.
    if (sample.name !== undefined && sample.rank === ranks.length) ranks = [...ranks, empty(sample.name)];
    const rank = ranks[sample.rank];
    if (!rank) return;
    ranks = ranks.with(sample.rank, withSample(rank, sample));
    timer ??= setTimeout(show, SHOW_EVERY_MS);
  });
  feed.addEventListener('over', (event) => {
    feed.close();
    clearTimeout(timer);
    show();
    const over = JSON.parse((event as MessageEvent<string>).data) as JobOver;
    feedState.value = { kind: 'over', over };
    onOver(over);
  });
  feed.addEventListener('error', () => {
    // The browser tries again by itself, unless the server refused.
    if (feedState.value.kind === 'running') feedState.value = { kind: 'lost', since: new Date() };
  });
}

function withSample({ name, samples, peakLive, peakReserved }: LiveRank, sample: LiveSample): LiveRank {
  const kept = samples.length < MOST_SAMPLES ? samples : samples.filter((_, index) => index % 2 === 1);
  return {
    name,
    samples: [...kept, sample],
    peakLive: Math.max(peakLive, sample.highLive),
    peakReserved: Math.max(peakReserved, sample.highReserved),
  };
}

export function hasFailed({ samples }: LiveRank): boolean {
  return (samples.at(-1)?.ooms ?? 0) > 0;
}

/** Whether the job runs, how it ended, or that nobody knows. */
export const liveTitle: ReadonlySignal<string> = computed(() => titleOf(feedState.value, liveRanks.value));

function titleOf(state: FeedState, ranks: readonly LiveRank[]): string {
  const who = ranks.length < 2 ? 'The job' : formatTimes(ranks.length, 'rank', 'ranks');
  const failed = ranks.filter(hasFailed).length;
  const ooms = failed === 0 ? '' : ranks.length < 2 ? ', out of memory' : `, ${failed} out of memory`;
  switch (state.kind) {
    case 'running':
      return `${who}${ranks.length < 2 ? ' is' : ''} ${isPlayback.value ? 'played back' : 'running'}${ooms}`;
    case 'over':
      return `${who}${ranks.length < 2 ? ' ' : ': the job '}${endWords(state.over.end)}${ooms}`;
    case 'lost':
      return `${who}: the connection is lost`;
    case 'off':
      return '';
  }
}
