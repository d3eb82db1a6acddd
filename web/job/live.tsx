// A running job: every rank as a small track that grows, and in words whether the job runs, how it ended, or that nobody knows.
import { formatBytes } from '../../src/base/bytes.ts';
import { endHint, type RankFlag } from '../../src/view/job-words.ts';
import { formatTime } from '../../src/view/ticks.ts';
import { main } from '../app/state.ts';
import { type FeedState, feedState, hasFailed, isLive, isPlayback, type LiveRank, liveRanks, liveTitle } from './live-state.ts';
import { type ListedRank, RankList } from './rank-list.tsx';

const TITLES = ['reserved now', 'peak reserved', 'live now', 'peak live'] as const;

export function Live() {
  if (!isLive.value) return null;
  const state = feedState.value;
  const ranks = liveRanks.value;
  const starts = ranks.flatMap(({ samples }) => samples[0]?.startUs ?? []);
  const start = Math.min(...starts);
  const span = Math.max(1, ...ranks.map((rank) => endOf(rank) - start));
  const opened = state.kind === 'over' ? state.over.opens : undefined;
  return (
    <div class="page job">
      <section id="job" class="card" tabIndex={-1} aria-labelledby="job-title">
        <div class="card-head">
          <h2 id="job-title" class={isBad(state) ? 'bad' : ''} aria-live="polite">
            {liveTitle.value}
          </h2>
          {ranks.length > 0 && <span class="faint">{formatTime(span, 1e5)} since the first process started</span>}
        </div>
        {detailsOf(state).map((sentence) => (
          <p key={sentence}>{sentence}</p>
        ))}
        {ranks.length === 0 ? (
          state.kind === 'running' && <p class="faint">No process has used GPU memory yet.</p>
        ) : (
          <RankList
            ranks={[...ranks.keys()]
              .sort((a, b) => Number(hasFailed(ranks[b]!)) - Number(hasFailed(ranks[a]!)))
              .map((index) => listed(ranks[index]!, state, start, opened?.rank === index && main.value !== undefined))}
            titles={TITLES}
            axis="time"
            span={span}
          />
        )}
      </section>
    </div>
  );
}

function isBad(state: FeedState): boolean {
  if (state.kind === 'lost') return true;
  return state.kind === 'over' && state.over.end.kind === 'ended' && (state.over.end.signal !== null || (state.over.end.code ?? 0) !== 0);
}

function detailsOf(state: FeedState): string[] {
  if (state.kind === 'lost')
    return [
      `Weir has not answered since ${state.since.toLocaleTimeString()}. It has ended or was killed, or the connection is cut. Whether the job still runs is unknown; the tracks show the last that was heard.`,
    ];
  if (state.kind !== 'over') return [];
  return [endHint(state.over.end), state.over.reason].filter((sentence) => sentence !== undefined);
}

function endOf({ samples }: LiveRank): number {
  const last = samples.at(-1);
  return last ? last.startUs + last.timeUs : 0;
}

function flagOf(rank: LiveRank, state: FeedState): RankFlag | undefined {
  const last = rank.samples.at(-1);
  if (!last) return undefined;
  const words = [];
  if (last.ooms > 0) words.push(`out of memory (${last.ooms} x)`);
  if (last.state === 'gone') words.push('gone without closing its recording: killed or crashed');
  else if (last.state === 'ended') words.push(isPlayback.value ? 'at its end' : 'ended');
  else if (state.kind === 'running') words.push('running');
  else words.push('state unknown');
  return { text: words.join(', '), isBad: last.ooms > 0 || last.state === 'gone' || state.kind === 'lost' };
}

function listed(rank: LiveRank, state: FeedState, start: number, isOpen: boolean): ListedRank {
  const last = rank.samples.at(-1);
  const from = (last?.startUs ?? start) - start;
  const failed = rank.samples.find(({ ooms }) => ooms > 0);
  return {
    key: rank.name,
    name: rank.name,
    title: rank.name,
    flag: flagOf(rank, state),
    shape: last && {
      from,
      to: from + last.timeUs,
      ends: rank.samples.map(({ timeUs }) => from + timeUs),
      live: rank.samples.map(({ highLive }) => highLive),
      reserved: rank.samples.map(({ highReserved }) => highReserved),
      limit: last.limit,
      failures: failed ? [from + failed.timeUs] : [],
    },
    figures: [last?.reserved ?? 0, rank.peakReserved, last?.live ?? 0, rank.peakLive].map(formatBytes),
    isOpen,
    open: undefined,
  };
}
