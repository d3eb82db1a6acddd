// A running job: one small chart per rank, fed by server-sent events.
import { signal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { formatBytes } from '../../src/base/bytes.ts';
import type { LiveSample } from '../../src/view/live-sample.ts';
import { formatTime } from '../../src/view/ticks.ts';
import { isDark, themeColour } from '../app/theme.ts';

interface Rank {
  readonly name: string;
  readonly samples: LiveSample[];
  peakAllocated: number;
  peakReserved: number;
}

export const ranks = signal<readonly Rank[]>([]);
export const feedState = signal<'off' | 'running' | 'over' | 'lost'>('off');
/** Counts samples, so that charts know when to draw. */
const turn = signal(0);

/** Samples kept per rank; beyond this, every second one is dropped. */
const MOST_SAMPLES = 4000;

export function followFeed(names: readonly string[]): void {
  ranks.value = names.map((name) => ({ name, samples: [], peakAllocated: 0, peakReserved: 0 }));
  feedState.value = 'running';
  const source = new EventSource('api/live');
  source.addEventListener('open', () => {
    // After a reconnection the server sends all samples again.
    for (const rank of ranks.value) rank.samples.length = 0;
  });
  source.addEventListener('sample', (event) => {
    const sample = JSON.parse((event as MessageEvent<string>).data) as LiveSample;
    // Processes can join a running job.
    if (sample.name !== undefined && sample.rank === ranks.value.length)
      ranks.value = [...ranks.value, { name: sample.name, samples: [], peakAllocated: 0, peakReserved: 0 }];
    const rank = ranks.value[sample.rank];
    if (!rank) return;
    rank.samples.push(sample);
    rank.peakAllocated = Math.max(rank.peakAllocated, sample.highAllocated);
    rank.peakReserved = Math.max(rank.peakReserved, sample.highReserved);
    if (rank.samples.length > MOST_SAMPLES)
      rank.samples.splice(0, rank.samples.length, ...rank.samples.filter((_, index) => index % 2 === 1));
    turn.value++;
  });
  source.addEventListener('over', () => {
    feedState.value = 'over';
    source.close();
  });
  source.addEventListener('error', () => {
    if (feedState.value === 'running' && source.readyState === EventSource.CLOSED) feedState.value = 'lost';
  });
}

export function LiveRanks({ onOpen, canOpen }: { onOpen: () => void; canOpen: boolean }) {
  if (feedState.value === 'off') return null;
  void turn.value;
  const most = Math.max(1, ...ranks.value.map((rank) => rank.peakReserved));
  const longest = Math.max(1, ...ranks.value.map((rank) => rank.samples.at(-1)?.timeUs ?? 0));
  const words = { running: 'running', over: 'finished', lost: 'the server no longer answers', off: '' }[feedState.value];
  return (
    <section id="ranks" class="card" tabIndex={-1} aria-labelledby="ranks-title">
      <div class="card-head">
        <h2 id="ranks-title">
          {ranks.value.length < 2 ? 'The job' : `${ranks.value.length} ranks`}, {words}
        </h2>
        {feedState.value === 'over' && canOpen && (
          <button type="button" class="primary" onClick={onOpen}>
            Analyse the recording
          </button>
        )}
      </div>
      <div class="rank-grid">
        {ranks.value.map((rank, index) => (
          <RankCard key={rank.name} rank={rank} index={index} most={most} longest={longest} />
        ))}
      </div>
    </section>
  );
}

function RankCard({ rank, index, most, longest }: { rank: Rank; index: number; most: number; longest: number }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const last = rank.samples.at(-1);
  useEffect(() => {
    if (canvas.current) draw(canvas.current, rank, most, longest, isDark.value);
  });
  return (
    <div class="rank" data-testid={`rank-${index}`}>
      <div class="rank-head">
        <strong>{rank.name}</strong>
        {last && last.ooms > 0 && <span class="bad">out of memory ({last.ooms} x)</span>}
        {last?.isOver && last.ooms === 0 && <span class="good">done</span>}
      </div>
      <canvas ref={canvas} role="img" aria-label={`Memory of ${rank.name} over time`} />
      <dl class="figure-list tight">
        <div>
          <dt>reserved</dt>
          <dd>{formatBytes(last?.reserved ?? 0)}</dd>
          <dd class="faint">peak {formatBytes(rank.peakReserved)}</dd>
        </div>
        <div>
          <dt>allocated</dt>
          <dd>{formatBytes(last?.allocated ?? 0)}</dd>
          <dd class="faint">peak {formatBytes(rank.peakAllocated)}</dd>
        </div>
        <div>
          <dt>time</dt>
          <dd>{formatTime(last?.timeUs ?? 0, 1e5)}</dd>
        </div>
      </dl>
    </div>
  );
}

/** All ranks share both scales, so that they can be compared. */
function draw(canvas: HTMLCanvasElement, rank: Rank, most: number, longest: number, _isDark: boolean): void {
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext('2d')!;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  const fill = (colour: string, alpha: number, pick: (sample: LiveSample) => number) => {
    context.fillStyle = colour;
    context.globalAlpha = alpha;
    context.beginPath();
    context.moveTo(0, height);
    let left = 0;
    for (const sample of rank.samples) {
      const y = height * (1 - pick(sample) / (most * 1.05));
      const x = (sample.timeUs / longest) * width;
      context.lineTo(left, y);
      context.lineTo(x, y);
      left = x;
    }
    context.lineTo(left, height);
    context.fill();
    context.globalAlpha = 1;
  };
  fill(themeColour('reserved'), 0.35, (sample) => sample.highReserved);
  fill(themeColour('allocated'), 0.55, (sample) => sample.highAllocated);
}
