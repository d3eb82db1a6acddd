// The timeline over the fragmentation map, on one canvas with one cursor, between their legends.
import { effect } from '@preact/signals';
import { useEffect, useRef, useState } from 'preact/hooks';
import { formatBytes } from '../../src/base/bytes.ts';
import { CATEGORY_ORDER } from '../../src/view/block-classes.ts';
import { colourOf, css } from '../../src/view/colours.ts';
import { stackHit } from '../../src/view/stack-columns.ts';
import { isRest } from '../../src/view/stack-view.ts';
import { askBlockAt } from '../app/selecting.ts';
import {
  analysis,
  axis,
  block,
  colour,
  cursorX,
  guarded,
  heightView,
  type Lane,
  lanes,
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
import { latest } from '../data/latest.ts';
import { momentPosition, type TrackColours } from './brush.ts';
import { drawTracks, type Picture } from './draw-tracks.ts';
import { attachGestures, offsetAt, positionAt, type StackPoint } from './gestures.ts';
import { LaneData, type StackLookInput, type Wanted } from './lane-data.ts';
import { BandLegend, bandColours, Legend, themeNow } from './legend.tsx';
import { bands, isBandSelected, ruler, stackBy } from './stack-state.ts';
import { type Hover, HoverTip } from './tips.tsx';
import { isInside, type TrackLayout, trackLayout } from './track-layout.ts';

export function Tracks() {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [hover, setHover] = useState<Hover | undefined>(undefined);
  useEffect(() => (canvas.current ? new TrackCanvas(canvas.current, setHover).start() : undefined), []);
  return (
    <div class="tracks">
      <BandLegend />
      <div class="track-frame">
        <canvas
          ref={canvas}
          class="track-canvas"
          tabIndex={0}
          role="img"
          aria-label="Live memory over time, above a map of addresses by time. Keys: W and S zoom, A and D pan, brackets zoom in bytes, comma and period step, 0 fits, question mark lists all."
        />
        {hover && <HoverTip hover={hover} />}
      </div>
      <Legend />
    </div>
  );
}

/** The canvas and what moves on it; redraws once per frame at most. */
class TrackCanvas {
  private readonly canvas: HTMLCanvasElement;
  private readonly setHover: (hover: Hover | undefined) => void;
  private readonly data = new WeakMap<Lane, LaneData>();
  private layoutNow: TrackLayout = trackLayout(800, { maps: 1, isStacked: true, hasSteps: false, hasPhases: false });
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
      stackPoint: (x, y) => this.stackPoint(x, y),
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
      this.picture(this.layoutNow, 1);
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
    const { stepEvent, phaseEvent } = ruler.value ?? {};
    const layout = trackLayout(width, {
      maps: lanes.value.length,
      isStacked: stackBy.value !== 'none',
      hasSteps: (stepEvent?.length ?? 0) > 0,
      hasPhases: (phaseEvent?.length ?? 0) > 1,
    });
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
    const picture = this.picture(layout, ratio);
    if (picture) drawTracks(context, layout, picture);
  }

  private wanted(layout: TrackLayout, ratio: number, mostBytes: number): Wanted {
    return {
      axis: axis.value,
      view: view.value,
      vertical: vertical.value,
      wholeX: wholeX.value,
      wholeY: wholeY.value,
      width: layout.timeline.width,
      mapHeight: layout.maps[0]?.height ?? 0,
      by: stackBy.value,
      rows: Math.round(layout.timeline.height * ratio),
      bytes: { from: heightView.value.from * mostBytes, to: heightView.value.to * mostBytes },
      colour: colour.value,
      selection: selection.value,
    };
  }

  private picture(layout: TrackLayout, ratio: number): Picture | undefined {
    const lane = main.value;
    if (!lane) return undefined;
    const capacity = analysis.value?.analysis.capacity;
    const mostBytes = topOfScale(capacity);
    const position = cursorX.value;
    return {
      wanted: this.wanted(layout, ratio, mostBytes),
      isDark: isDark.value,
      colours: this.colours ?? readColours(isDark.value),
      lanes: lanes.value.map((each) => ({
        data: this.dataOf(each),
        span: spanOf(each),
        label: each.source === lane.source ? runLabel(each) : `${each.source.name}, ${runLabel(each)}`,
        note: `peak ${formatBytes(each.run.peakReserved)} reserved`,
      })),
      mostBytes,
      stackLook: stackLook(),
      bandNames: bands.value?.bands.map((band) => band.label) ?? [],
      ruler: ruler.value,
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
      marks: shownMarks(lane),
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

  /** The tensor, the band and the moment that the stacked timeline shows at a point. */
  private stackPoint(x: number, y: number): StackPoint | undefined {
    const lane = main.value;
    const { timeline } = this.layoutNow;
    if (!lane || !bands.value || stackBy.value === 'none' || !isInside(timeline, x, y)) return undefined;
    const wanted = this.wanted(this.layoutNow, window.devicePixelRatio || 1, topOfScale(analysis.value?.analysis.capacity));
    const position = positionAt(timeline, x);
    const found = position <= spanOf(lane) ? this.dataOf(lane).stackAt(wanted, position) : undefined;
    if (!found) return undefined;
    const { bytes } = wanted;
    const height = bytes.from + (1 - (y - timeline.top) / timeline.height) * (bytes.to - bytes.from);
    return stackHit(found.stack, found.column, height);
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
    const position = positionAt(timeline, x);
    this.hoverPosition = position;
    this.redraw();
    const show = (found: Pick<Hover, 'block' | 'moment' | 'band'>) => {
      if (this.hoverPosition !== position) return;
      this.setHover({ x, y, width: bounds.width, ...found });
      // bench/page.ts measures the time from a move to this mark. One is enough.
      performance.clearMarks('weir-hover');
      performance.mark('weir-hover');
    };
    const index = maps.findIndex((box) => isInside(box, x, y));
    const lane = lanes.value[index];
    const point = this.stackPoint(x, y);
    if (point) askStackAt({ lane: main.value, point, onFound: (moment) => show({ moment, band: point.band }) });
    else if (lane) askBlockAt({ lane, position, offset: offsetAt(maps[index]!, y), onFound: (block) => show({ block }) });
    else this.setHover(undefined);
  }

  private unhover(): void {
    if (this.hoverPosition === undefined) return;
    this.hoverPosition = undefined;
    this.setHover(undefined);
    this.redraw();
  }
}

/** For hovering: only the latest position of the pointer matters. */
const askStackAt = latest(
  async ({ lane, point, onFound }: { lane: Lane; point: StackPoint; onFound: (found: NonNullable<Hover['moment']>) => void }) => {
    await guarded(async () => {
      const allocation = point.allocation < 0 ? undefined : point.allocation;
      const ask = { run: lane.run.run, by: stackBy.value, event: point.event, allocation };
      onFound(await lane.source.connection.ask('stackAt', lane.gpu.device, ask));
    });
  },
);

/** The top of the timeline's scale: a limit that is not far above the peak is shown. */
function topOfScale(capacity: number | undefined): number {
  const peak = Math.max(1, ...lanes.value.map(({ run }) => run.peakReserved));
  return (capacity !== undefined && capacity > peak && capacity < peak * 1.4 ? capacity : peak) * 1.08;
}

function stackLook(): StackLookInput | undefined {
  const known = bands.value;
  const mode = stackBy.value;
  if (!known || mode === 'none') return undefined;
  const theme = themeNow();
  const looks = known.bands.map((band) => {
    const isFaded = isBandSelected(band.label, mode, CATEGORY_ORDER[band.kind]) === false;
    return { colour: isFaded ? theme.faded : colourOf(bandColours(), band.kind, theme), isHatched: isRest(band) };
  });
  const allocation = block.value?.allocation ?? -1;
  const key = `${allocation} ${looks.map(({ colour: [red, green, blue] }) => `${red},${green},${blue}`).join(' ')}`;
  return { bands: looks, ground: theme.empty, selected: theme.selected, allocation, key };
}

/** Marks that only repeat what the ruler says are left out. */
const MANY = 3;

function shownMarks(lane: Lane): { at: number; name: string }[] {
  const kinds = new Map<string, number>();
  const kindOf = (name: string) => name.replace(/\d+/g, '#');
  for (const { name } of lane.gpu.marks) kinds.set(kindOf(name), (kinds.get(kindOf(name)) ?? 0) + 1);
  const hasSteps = (ruler.value?.stepEvent.length ?? 0) > 0;
  return lane.gpu.marks
    .filter(({ name }) => !hasSteps || kinds.get(kindOf(name))! < MANY)
    .map((each) => ({ at: axis.value === 'event' ? each.event : each.timeUs, name: each.name }));
}

function readColours(dark: boolean): TrackColours {
  return {
    text: themeColour('text'),
    faint: themeColour('faint'),
    line: themeColour('line'),
    surface: themeColour('surface'),
    allocated: themeColour('allocated'),
    held: css(themeNow().held),
    selected: css(themeNow().selected),
    reserved: themeColour('reserved'),
    live: themeColour('live'),
    cursor: themeColour('text'),
    bad: themeColour('bad'),
    other: themeColour('other'),
    accent: themeColour('accent'),
    font: `11px ${getComputedStyle(document.body).fontFamily || (dark ? 'sans-serif' : 'sans-serif')}`,
  };
}
