// The overview of a job: every rank as a small track on one clock. The ranks to look at come first; a click opens one below.
import { formatBytes } from '../../src/base/bytes.ts';
import { formatTimes } from '../../src/report/words/numbers.ts';
import { failureAt, type JobClock, orderRanks, placeOf } from '../../src/view/job-order.ts';
import type { RankSummary } from '../../src/view/job-rank.ts';
import { clockSentence, flagOf } from '../../src/view/job-words.ts';
import { Progress } from '../app/progress.tsx';
import { main, sources } from '../app/state.ts';
import { canCompare, goToDifference } from './difference-state.ts';
import { isJob, type JobRank, jobClock, jobRanks, knownRanks, openRank } from './job-state.ts';
import { type ListedRank, RankList } from './rank-list.tsx';
import type { TrackShape } from './track.ts';

const TITLES = ['peak reserved', 'peak live', 'lost at peak'] as const;

export function Overview() {
  if (!isJob.value) return null;
  const ranks = jobRanks.value;
  const clock = jobClock.value;
  const done = sources.value.filter((source) => knownRanks.value.has(source)).length;
  const failed = ranks.filter(({ summary }) => summary?.failure).length;
  const broken = ranks.filter(({ problem }) => problem !== undefined).length;
  const words = [
    formatTimes(ranks.length, 'rank', 'ranks'),
    failed > 0 ? `${failed} ran out of memory` : undefined,
    broken > 0 ? `${broken} cannot be read` : undefined,
  ].filter((part) => part !== undefined);
  return (
    <div class="page job">
      <section id="job" class="card" tabIndex={-1} aria-labelledby="job-title">
        <div class="card-head">
          <h2 id="job-title">{words.join(', ')}</h2>
          {canCompare.value && (
            <button type="button" class="small" onClick={goToDifference}>
              Compare two
            </button>
          )}
        </div>
        <div class="job-note faint">
          {done === sources.value.length ? (
            clockSentence(clock)
          ) : (
            <Progress note={{ doing: `read ${done} of ${sources.value.length} recordings`, fraction: done / sources.value.length }} />
          )}
        </div>
        {sources.value.some(({ isKept }) => isKept === false) && (
          <p class="faint">Only the ranks that were shown when this page was saved can be opened here.</p>
        )}
        <RankList
          ranks={orderRanks(ranks, clock).map((rank) => listed(rank, ranks, clock))}
          titles={TITLES}
          axis={clock.kind === 'events' ? 'event' : 'time'}
          span={clock.span}
        />
      </section>
    </div>
  );
}

/** A track is the same object as long as its summary and clock are, so that it is drawn once. */
const shapes = new WeakMap<RankSummary, { readonly clock: JobClock; readonly shape: TrackShape }>();

function shapeOf(summary: RankSummary, clock: JobClock): TrackShape {
  const known = shapes.get(summary);
  if (known?.clock === clock) return known.shape;
  const failure = failureAt(summary, clock);
  const shape = {
    ...placeOf(summary, clock),
    live: summary.live,
    reserved: summary.reserved,
    limit: summary.limit,
    isLimitInferred: summary.isLimitInferred,
    failures: failure === undefined ? [] : [failure],
  };
  shapes.set(summary, { clock, shape });
  return shape;
}

function listed(rank: JobRank, ranks: readonly JobRank[], clock: JobClock): ListedRank {
  const { source, summary, problem } = rank;
  const size = (bytes: number | undefined) => (summary ? (bytes === undefined ? 'unknown' : formatBytes(bytes)) : '');
  return {
    key: `${source.name}\0${summary?.gpu ?? ''}`,
    name: rank.name,
    title: source.isKept === false ? `${source.name}: this page holds only its track` : source.name,
    flag: flagOf(rank, ranks, clock),
    shape: summary && shapeOf(summary, clock),
    figures: [size(summary?.peakReserved), size(summary?.peakLive), size(summary?.lost)],
    isOpen: main.value?.source === source && (summary === undefined || main.value.gpu.device === summary.gpu),
    open: problem === undefined && source.isKept !== false ? () => openRank(rank) : undefined,
  };
}
