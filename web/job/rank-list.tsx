// The ranks of a job as a list of small tracks on one axis. The overview of recordings and the live page both show it.
import { useEffect, useRef, useState } from 'preact/hooks';
import { formatBytes } from '../../src/base/bytes.ts';
import type { RankFlag } from '../../src/view/job-words.ts';
import { axisTicks } from '../../src/view/ticks.ts';
import { isDark, isPrinting } from '../app/theme.ts';
import { drawTrack, scaleOf, type TrackScale, type TrackShape } from './track.ts';

export interface ListedRank {
  readonly key: string;
  readonly name: string;
  readonly title: string;
  readonly flag: RankFlag | undefined;
  /** Undefined: nothing is known yet. */
  readonly shape: TrackShape | undefined;
  /** One for each column title, as words. */
  readonly figures: readonly string[];
  readonly isOpen: boolean;
  /** Undefined: it cannot be opened. */
  readonly open: (() => void) | undefined;
}

interface Props {
  readonly ranks: readonly ListedRank[];
  readonly titles: readonly string[];
  readonly axis: 'time' | 'event';
  readonly span: number;
}

export function RankList({ ranks, titles, axis, span }: Props) {
  const list = useRef<HTMLDivElement>(null);
  // Tracks are drawn anew when their width changes.
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const observer = new ResizeObserver(() => setWidth(list.current?.clientWidth ?? 0));
    if (list.current) observer.observe(list.current);
    return () => observer.disconnect();
  }, []);
  const shapes = ranks.flatMap(({ shape }) => shape ?? []);
  const scale = scaleOf(shapes, span);
  return (
    <div class="ranks" ref={list} style={{ '--figures': titles.length }}>
      <Legend shapes={shapes} scale={scale} />
      <div class="rank-box">
        <div class="rank-line rank-titles" aria-hidden="true">
          <span>rank</span>
          <span class="rank-scale">0 to {formatBytes(Math.round(scale.top))} in each track</span>
          {titles.map((title) => (
            <span class="right" key={title}>
              {title}
            </span>
          ))}
        </div>
        <ul class="rank-rows" onKeyDown={moveFocus}>
          {ranks.map((rank, index) => (
            <Row key={rank.key} rank={rank} index={index} titles={titles} scale={scale} width={width} />
          ))}
        </ul>
        <div class="rank-line rank-axis" aria-hidden="true">
          <span class="faint">{axis === 'time' ? 'time' : 'events'}</span>
          <span class="rank-ticks">
            {axisTicks(axis, 0, span, isPrinting.value || width < 700 ? 3 : 8).map(({ at, label }) => (
              <span key={at} style={{ left: `${(at / span) * 100}%` }} class={at / span > 0.94 ? 'last' : ''}>
                {label}
              </span>
            ))}
          </span>
        </div>
      </div>
    </div>
  );
}

function Legend({ shapes, scale }: { shapes: readonly TrackShape[]; scale: TrackScale }) {
  const limits = [...new Set(shapes.flatMap(({ limit }) => limit ?? []))].sort((a, b) => a - b);
  const names = limits.length > 2 ? `${formatBytes(limits[0]!)} to ${formatBytes(limits.at(-1)!)}` : limits.map(formatBytes).join(' and ');
  const most = shapes.some(({ isLimitInferred, limit }) => isLimitInferred && limit !== undefined) ? 'at most ' : '';
  const isDrawn = limits.some((limit) => limit <= scale.top);
  return (
    <p class="rank-legend faint">
      <span class="key key-live">live</span>
      <span class="key key-reserved">reserved</span>
      {limits.length > 0 && isDrawn && (
        <span class="key key-limit">
          limit {most}
          {names}
        </span>
      )}
      {limits.length > 0 && !isDrawn && (
        <span>
          limit {most}
          {names}, far above the tracks
        </span>
      )}
      {shapes.some(({ failures }) => failures.length > 0) && <span class="key key-failure">a request failed</span>}
    </p>
  );
}

function Row({
  rank,
  index,
  titles,
  scale,
  width,
}: {
  rank: ListedRank;
  index: number;
  titles: readonly string[];
  scale: TrackScale;
  width: number;
}) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const theme = isDark.value;
  useEffect(() => {
    if (canvas.current && rank.shape) drawTrack(canvas.current, rank.shape, scale);
  }, [rank.shape, scale.top, scale.span, width, theme]);
  return (
    <li data-testid={`rank-${index}`}>
      <button
        type="button"
        class={`rank-line rank-row${rank.isOpen ? ' chosen' : ''}`}
        aria-current={rank.isOpen ? 'true' : undefined}
        disabled={!rank.open}
        title={rank.title}
        onClick={rank.open}
      >
        <span class="rank-name">
          <strong>{rank.name}</strong>
          {rank.isOpen && <span class="tag">open below</span>}
          {rank.flag && <span class={`rank-flag ${rank.flag.isBad ? 'bad' : 'faint'}`}>{rank.flag.text}</span>}
        </span>
        {rank.shape ? (
          <canvas ref={canvas} role="img" aria-label={`memory of ${rank.name}`} />
        ) : (
          <span class="rank-waiting faint">{rank.flag ? '' : 'reading …'}</span>
        )}
        {rank.figures.map((figure, column) => (
          <span class="right rank-figure" key={titles[column]}>
            {figure !== '' && <span class="rank-figure-name">{titles[column]} </span>}
            {figure}
          </span>
        ))}
      </button>
    </li>
  );
}

/** Up and down go from rank to rank; Enter opens one, as for every button. */
function moveFocus(event: KeyboardEvent): void {
  const rows = [...(event.currentTarget as HTMLElement).querySelectorAll<HTMLButtonElement>('button:not(:disabled)')];
  const at = rows.indexOf(document.activeElement as HTMLButtonElement);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1 }[event.key];
  if (at < 0 || to === undefined) return;
  event.preventDefault();
  event.stopPropagation();
  rows[Math.max(0, Math.min(rows.length - 1, to))]?.focus();
}
