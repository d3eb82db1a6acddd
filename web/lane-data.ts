// What is known of a lane at the detail of the screen: an overview of the whole, and details of where we are. Drawing
// takes what is there; what is missing is asked for and drawn when it comes.
import type { ColourMode } from '../src/view/block-classes.ts';
import type { AxisKind } from '../src/view/clock.ts';
import { DARK_MAP, LIGHT_MAP, paletteOf } from '../src/view/colours.ts';
import type { MapCells, MapWindow } from '../src/view/map-cells.ts';
import type { Selection } from '../src/view/protocol.ts';
import type { TimelineColumns } from '../src/view/timeline.ts';
import { detailGrid, type Viewport } from '../src/view/viewport.ts';
import { latest } from './latest.ts';
import { type Lane, problem, wordsOf } from './state.ts';

/** What a lane is to be drawn with. */
export interface Wanted {
  readonly axis: AxisKind;
  readonly view: Viewport;
  readonly vertical: Viewport;
  readonly wholeX: number;
  readonly wholeY: number;
  readonly width: number;
  readonly mapHeight: number;
  readonly colour: ColourMode;
  readonly selection: Selection;
}

export interface MapImage {
  readonly cells: MapCells;
  readonly canvas: HTMLCanvasElement;
}

const MOST_KEPT = 6;

export class LaneData {
  readonly lane: Lane;
  private readonly onChange: () => void;
  private readonly timelines = new Kept<TimelineColumns>();
  private readonly cells = new Kept<MapCells>();
  private readonly images = new WeakMap<MapCells, { image: MapImage; look: string }>();
  private readonly askTimeline: (ask: { key: string; wanted: Wanted; from: number; to: number; columns: number }) => void;
  private readonly askMap: (ask: { key: string; wanted: Wanted; window: MapWindow }) => void;
  /** The detail that was drawn last stays until there is a better one. */
  private lastTimeline: TimelineColumns | undefined;
  private lastCells: MapCells | undefined;

  constructor(lane: Lane, onChange: () => void) {
    this.lane = lane;
    this.onChange = onChange;
    const { backend } = lane.source;
    const run = lane.run.run;
    this.askTimeline = latest(async ({ key, wanted, from, to, columns }) => {
      if (this.timelines.get(key)) return;
      await this.keep(async () => {
        this.timelines.set(key, await backend.ask('timeline', lane.gpu.device, { run, axis: wanted.axis, from, to, columns }));
      });
    });
    this.askMap = latest(async ({ key, wanted, window }) => {
      if (this.cells.get(key)) return;
      await this.keep(async () => {
        const { colour, selection } = wanted;
        this.cells.set(key, await backend.ask('map', lane.gpu.device, { run, window, colour, selection }));
      });
    });
  }

  /** Overview first, then the best detail there is. */
  timeline(wanted: Wanted): TimelineColumns[] {
    const whole = this.timelineFor(wanted, { from: 0, to: wanted.wholeX });
    const detail = this.timelineFor(wanted, wanted.view);
    if (detail) this.lastTimeline = detail;
    return [detail ?? this.lastTimeline, whole].filter((columns) => columns !== undefined);
  }

  overview(wanted: Wanted): TimelineColumns | undefined {
    return this.timelineFor(wanted, { from: 0, to: wanted.wholeX });
  }

  /** From coarse to fine: each is drawn over the one before. */
  map(wanted: Wanted, isDark: boolean): MapImage[] {
    const whole = this.cellsFor(wanted, { from: 0, to: wanted.wholeX }, { from: 0, to: wanted.wholeY });
    const detail = this.cellsFor(wanted, wanted.view, wanted.vertical);
    if (detail) this.lastCells = detail;
    const layers = detail ? [whole, detail] : [whole, this.lastCells];
    return layers
      .filter((cells) => cells !== undefined)
      .filter((cells) => cells.axis === wanted.axis)
      .map((cells) => this.imageOf(cells, wanted.colour, isDark));
  }

  private timelineFor(wanted: Wanted, range: Viewport): TimelineColumns | undefined {
    const grid = detailGrid(range, wanted.wholeX, wanted.width);
    const key = `${wanted.axis} ${grid.from} ${grid.to} ${grid.cells}`;
    const known = this.timelines.get(key);
    if (!known) this.askTimeline({ key, wanted, from: grid.from, to: grid.to, columns: grid.cells });
    return known;
  }

  private cellsFor(wanted: Wanted, range: Viewport, rows: Viewport): MapCells | undefined {
    const x = detailGrid(range, wanted.wholeX, wanted.width);
    const y = detailGrid(rows, wanted.wholeY, wanted.mapHeight);
    const look = `${wanted.colour} ${JSON.stringify(wanted.selection)}`;
    const key = `${wanted.axis} ${x.from} ${x.to} ${x.cells} ${y.from} ${y.to} ${y.cells} ${look}`;
    const known = this.cells.get(key);
    const window = { axis: wanted.axis, from: x.from, to: x.to, columns: x.cells, low: y.from, high: y.to, rows: y.cells };
    if (!known) this.askMap({ key, wanted, window });
    return known;
  }

  private imageOf(cells: MapCells, colour: ColourMode, isDark: boolean): MapImage {
    const look = `${colour} ${isDark}`;
    const known = this.images.get(cells);
    if (known?.look === look) return known.image;
    const image = { cells, canvas: paint(cells, colour, isDark) };
    this.images.set(cells, { image, look });
    return image;
  }

  private async keep(work: () => Promise<void>): Promise<void> {
    try {
      await work();
      this.onChange();
    } catch (error) {
      problem.value = wordsOf(error);
    }
  }
}

/** One pixel per cell: held memory over nothing, what is used over that. */
function paint(cells: MapCells, colour: ColourMode, isDark: boolean): HTMLCanvasElement {
  const canvas = document.createElement('canvas');
  canvas.width = cells.columns;
  canvas.height = cells.rows;
  const context = canvas.getContext('2d')!;
  const image = context.createImageData(cells.columns, cells.rows);
  const pixels = image.data;
  const theme = isDark ? DARK_MAP : LIGHT_MAP;
  const palette = paletteOf(colour, theme);
  const { kind, used, held } = cells;
  for (let cell = 0, at = 0; cell < kind.length; cell++, at += 4) {
    const heldShare = held[cell]! / 255;
    const usedShare = used[cell]! / 255;
    const base = kind[cell]! * 3;
    for (let channel = 0; channel < 3; channel++) {
      const background = theme.empty[channel]! + (theme.held[channel]! - theme.empty[channel]!) * heldShare;
      pixels[at + channel] = background + (palette[base + channel]! - background) * usedShare;
    }
    pixels[at + 3] = 255;
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

/** The last few things asked for. */
class Kept<Value> {
  private readonly entries = new Map<string, Value>();

  get(key: string): Value | undefined {
    const value = this.entries.get(key);
    if (value !== undefined) {
      this.entries.delete(key);
      this.entries.set(key, value);
    }
    return value;
  }

  set(key: string, value: Value): void {
    this.entries.set(key, value);
    for (const oldest of this.entries.keys()) {
      if (this.entries.size <= MOST_KEPT) break;
      this.entries.delete(oldest);
    }
  }
}
