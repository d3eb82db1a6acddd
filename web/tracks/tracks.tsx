// The timeline over the fragmentation map, on one canvas with one cursor.
import { effect } from '@preact/signals';
import { useEffect, useRef, useState } from 'preact/hooks';
import { formatBytes } from '../../src/base/bytes.ts';
import { colourOf, css, DARK_MAP, LIGHT_MAP } from '../../src/view/colours.ts';
import type { BlockInfo } from '../../src/view/protocol.ts';
import { formatTime } from '../../src/view/ticks.ts';
import { askBlockAt } from '../app/selecting.ts';
import {
  analysis,
  axis,
  block,
  colour,
  cursor,
  cursorX,
  type Lane,
  lanes,
  legend,
  main,
  mark,
  otherBlock,
  runLabel,
  selection,
  since,
  spanOf,
  vertical,
  view,
  wholeX,
  wholeY,
} from '../app/state.ts';
import { isDark, isPrinting, themeColour } from '../app/theme.ts';
import { drawTracks, momentPosition, type Picture, type TrackColours } from './draw-tracks.ts';
import { attachGestures, offsetAt } from './gestures.ts';
import { LaneData, type Wanted } from './lane-data.ts';
import { isInside, type TrackLayout, trackLayout } from './track-layout.ts';

interface Hover {
  readonly x: number;
  readonly y: number;
  readonly position: number;
  readonly block: BlockInfo | undefined;
}

export function Tracks() {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [hover, setHover] = useState<Hover | undefined>(undefined);
  useEffect(() => (canvas.current ? new TrackCanvas(canvas.current, setHover).start() : undefined), []);
  return (
    <div class="tracks">
      <canvas
        ref={canvas}
        class="track-canvas"
        tabIndex={0}
        role="img"
        aria-label="Memory over time, above a map of addresses by time. Keys: W and S zoom, A and D pan, comma and period step, 0 fits, question mark lists all."
      />
      {hover?.block && <BlockTip hover={hover} block={hover.block} />}
      <Legend />
    </div>
  );
}

/** The canvas and what moves on it; redraws once per frame at most. */
class TrackCanvas {
  private readonly canvas: HTMLCanvasElement;
  private readonly setHover: (hover: Hover | undefined) => void;
  private readonly data = new WeakMap<Lane, LaneData>();
  private layoutNow: TrackLayout = trackLayout(800, 1);
  private frame = 0;
  private draggedCursor: number | undefined;
  private draggedRange: { from: number; to: number } | undefined;
  private hoverPosition: number | undefined;
  private colours: TrackColours | undefined;

  constructor(canvas: HTMLCanvasElement, setHover: (hover: Hover | undefined) => void) {
    this.canvas = canvas;
    this.setHover = setHover;
  }

  start(): () => void {
    const stopGestures = attachGestures(this.canvas, {
      layout: () => this.layoutNow,
      showCursor: (position) => {
        this.draggedCursor = position;
        this.redraw();
      },
      showRange: (range) => {
        this.draggedRange = range;
        this.redraw();
      },
    });
    const observer = new ResizeObserver(() => this.redraw());
    observer.observe(this.canvas.parentElement!);
    const move = (event: PointerEvent) => this.hoverAt(event);
    const leave = () => this.unhover();
    this.canvas.addEventListener('pointermove', move);
    this.canvas.addEventListener('pointerleave', leave);
    const stopTheme = effect(() => {
      this.colours = readColours(isDark.value);
      this.redraw();
    });
    // Redraws when any signal changes that drawing reads.
    const stopDrawing = effect(() => {
      this.picture(100, 100);
      this.redraw();
    });
    return () => {
      stopGestures();
      observer.disconnect();
      stopTheme();
      stopDrawing();
      cancelAnimationFrame(this.frame);
      this.canvas.removeEventListener('pointermove', move);
      this.canvas.removeEventListener('pointerleave', leave);
    };
  }

  private redraw(): void {
    if (isPrinting.peek()) this.draw();
    if (this.frame !== 0) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  private draw(): void {
    const width = this.canvas.parentElement!.clientWidth;
    if (width === 0 || !main.value) return;
    const layout = trackLayout(width, lanes.value.length);
    this.layoutNow = layout;
    const ratio = window.devicePixelRatio || 1;
    const pixelWidth = Math.round(layout.width * ratio);
    const pixelHeight = Math.round(layout.height * ratio);
    if (this.canvas.width !== pixelWidth || this.canvas.height !== pixelHeight) {
      this.canvas.width = pixelWidth;
      this.canvas.height = pixelHeight;
      this.canvas.style.height = `${layout.height}px`;
    }
    const context = this.canvas.getContext('2d')!;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const picture = this.picture(layout.timeline.width, layout.maps[0]?.height ?? 0);
    if (picture) drawTracks(context, layout, picture);
  }

  private picture(width: number, mapHeight: number): Picture | undefined {
    const lane = main.value;
    if (!lane) return undefined;
    const wanted: Wanted = {
      axis: axis.value,
      view: view.value,
      vertical: vertical.value,
      wholeX: wholeX.value,
      wholeY: wholeY.value,
      width,
      mapHeight,
      colour: colour.value,
      selection: selection.value,
    };
    const capacity = analysis.value?.analysis.capacity;
    const peak = Math.max(1, ...lanes.value.map(({ run }) => run.peakReserved));
    const position = cursorX.value;
    return {
      wanted,
      isDark: isDark.value,
      colours: this.colours ?? readColours(isDark.value),
      lanes: lanes.value.map((each) => ({
        data: this.dataOf(each),
        span: spanOf(each),
        label: each.source === lane.source ? runLabel(each) : `${each.source.name}, ${runLabel(each)}`,
        note: `peak ${formatBytes(each.run.peakReserved)} reserved`,
      })),
      mostBytes: (capacity !== undefined && capacity > peak && capacity < peak * 1.4 ? capacity : peak) * 1.17,
      capacity,
      cursor: this.draggedCursor ?? position,
      hover: this.hoverPosition,
      mark: mark.value ? momentPosition(mark.value, axis.value) : undefined,
      range:
        this.draggedRange ??
        (since.value && position !== undefined ? { from: momentPosition(since.value, axis.value), to: position } : undefined),
      blocks: [block.value, otherBlock.value].map(
        (selected) =>
          selected && {
            info: selected,
            from: momentPosition(selected.start, axis.value),
            to: selected.end ? momentPosition(selected.end, axis.value) : spanOf(lane),
          },
      ),
      ooms: lane.gpu.ooms.map((oom) => momentPosition(oom, axis.value)),
      marks: lane.gpu.marks.map((each) => ({ at: axis.value === 'event' ? each.event : each.timeUs, name: each.name })),
    };
  }

  private dataOf(lane: Lane): LaneData {
    let data = this.data.get(lane);
    if (!data) {
      data = new LaneData(lane, () => this.redraw());
      this.data.set(lane, data);
    }
    return data;
  }

  private hoverAt(event: PointerEvent): void {
    const bounds = this.canvas.getBoundingClientRect();
    const x = event.clientX - bounds.left;
    const y = event.clientY - bounds.top;
    const { timeline, maps } = this.layoutNow;
    if (!main.value || event.buttons !== 0 || x < timeline.left || x > timeline.left + timeline.width || y < timeline.top) {
      this.unhover();
      return;
    }
    const position = view.value.from + ((x - timeline.left) / timeline.width) * (view.value.to - view.value.from);
    this.hoverPosition = position;
    this.redraw();
    const index = maps.findIndex((box) => isInside(box, x, y));
    const map = maps[index];
    const lane = lanes.value[index];
    if (!map || !lane) {
      this.setHover(undefined);
      return;
    }
    askBlockAt({
      lane,
      position,
      offset: offsetAt(map, y),
      onFound: (found) => {
        if (this.hoverPosition === position) this.setHover({ x, y, position, block: found });
      },
    });
  }

  private unhover(): void {
    if (this.hoverPosition === undefined) return;
    this.hoverPosition = undefined;
    this.setHover(undefined);
    this.redraw();
  }
}

function readColours(dark: boolean): TrackColours {
  return {
    text: themeColour('text'),
    faint: themeColour('faint'),
    line: themeColour('line'),
    surface: themeColour('surface'),
    allocated: themeColour('allocated'),
    reserved: themeColour('reserved'),
    live: themeColour('live'),
    cursor: themeColour('text'),
    bad: themeColour('bad'),
    other: themeColour('other'),
    accent: themeColour('accent'),
    font: `11px ${getComputedStyle(document.body).fontFamily || (dark ? 'sans-serif' : 'sans-serif')}`,
  };
}

function BlockTip({ hover, block: info }: { hover: Hover; block: BlockInfo }) {
  const isRight = hover.x > window.innerWidth / 2;
  const life = info.end ? formatTime(info.end.timeUs - info.start.timeUs) : 'to the end';
  return (
    <div
      class="tip"
      role="tooltip"
      style={{ left: `${hover.x + (isRight ? -12 : 14)}px`, top: `${hover.y + 14}px`, translate: isRight ? '-100% 0' : 'none' }}
    >
      <strong>{formatBytes(info.requested)}</strong> {info.site}
      <div class="faint">
        {info.address} · stream {info.stream} · lived {life}
        {formatBytes(info.size) !== formatBytes(info.requested) && ` · ${formatBytes(info.size)} given out`}
      </div>
    </div>
  );
}

const SCALES = {
  size: ['512 B', '32 KiB', '2 MiB', '128 MiB', '8 GiB'],
  age: ['1 µs', '0.1 ms', '10 ms', '1 s', '1 h'],
  lifetime: ['1 µs', '0.1 ms', '10 ms', '1 s', 'never freed'],
} as const;

function Legend() {
  const mode = colour.value;
  const theme = isDark.value ? DARK_MAP : LIGHT_MAP;
  const swatch = (background: string, text: string, kind = 'swatch') => (
    <span class="legend-entry" title={text}>
      <span class={kind} style={{ background }} />
      <span class="legend-text">{text}</span>
    </span>
  );
  return (
    <div class="legend">
      <span class="legend-group">
        {swatch('var(--reserved)', 'reserved')}
        {swatch('var(--allocated)', 'allocated')}
        {swatch('var(--live)', 'live', 'swatch line')}
        {main.value && main.value.gpu.ooms.length > 0 && swatch('var(--bad)', 'out of memory', 'swatch line')}
        {lanes.value.length > 1 && swatch('var(--other)', 'reserved by B', 'swatch line')}
      </span>
      <span class="legend-group">
        <span class="faint">map:</span>
        {swatch(css(theme.held), 'held, free')}
        {mode === 'stream' || mode === 'stack' ? (
          legend.value.map((entry) => swatch(css(colourOf(mode, entry.kind)), entry.label))
        ) : (
          <span class="legend-scale">
            {SCALES[mode].map((text, index, all) => (
              <span class="legend-step" key={text}>
                <span class="swatch" style={{ background: css(colourOf(mode, Math.round((index / (all.length - 1)) * 31))) }} />
                {text}
              </span>
            ))}
          </span>
        )}
      </span>
      {cursor.value && block.value && (
        <span class="legend-group">
          {swatch('transparent', `selected: ${formatBytes(block.value.requested)} at ${block.value.address}`, 'swatch outline')}
        </span>
      )}
    </div>
  );
}
