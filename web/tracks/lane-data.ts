// The data of a lane at the resolution of the screen: an overview, and details of the visible part. Drawing uses what has
// arrived, and requests what is missing.
import type { ColourMode } from '../../src/view/block-classes.ts';
import type { AxisKind } from '../../src/view/clock.ts';
import { DARK_MAP, LIGHT_MAP, paletteOf } from '../../src/view/colours.ts';
import type { MapCells, MapWindow } from '../../src/view/map-cells.ts';
import type { Selection } from '../../src/view/protocol.ts';
import type { StackColumns, StackMode } from '../../src/view/stack-columns.ts';
import type { TimelineColumns } from '../../src/view/timeline.ts';
import { type DetailGrid, detailGrid, type Viewport } from '../../src/view/viewport.ts';
import { type Lane, problem, wordsOf } from '../app/state.ts';
import { latest } from '../data/latest.ts';
import { paintStack, type StackLook } from './stack-image.ts';

/** How a lane is to be drawn. */
export interface Wanted {
  readonly axis: AxisKind;
  readonly view: Viewport;
  readonly vertical: Viewport;
  readonly wholeX: number;
  readonly wholeY: number;
  readonly width: number;
  readonly mapHeight: number;
  /** How the timeline is stacked, its height in device pixels, and the bytes from its bottom to its top. */
  readonly by: StackMode;
  readonly rows: number;
  readonly bytes: Viewport;
  readonly colour: ColourMode;
  readonly selection: Selection;
}

export interface MapImage {
  readonly cells: MapCells;
  readonly canvas: HTMLCanvasElement;
}

/** A part of the stacked timeline, painted. */
export interface StackImage {
  readonly stack: StackColumns;
  readonly canvas: HTMLCanvasElement;
}

/** How bands look; the image's size and scale come from `Wanted`. */
export type StackLookInput = Omit<StackLook, 'rows' | 'range'> & {
  /** A name for this look: two that differ have two names. */
  readonly key: string;
};

const MOST_KEPT = 6;
/** A tensor of fewer device pixels is not listed by itself. */
const LEAST_ROWS = 3;

export class LaneData {
  readonly lane: Lane;
  private readonly onChange: () => void;
  private readonly timelines = new Kept<TimelineColumns>();
  private readonly cells = new Kept<MapCells>();
  private readonly images = new WeakMap<MapCells, { image: MapImage; look: string }>();
  private readonly stacks = new Kept<StackColumns>();
  private readonly stackImages = new WeakMap<StackColumns, { image: StackImage; look: string }>();
  private readonly askStack: (ask: { key: string; wanted: Wanted; grid: DetailGrid; least: number }) => void;
  private lastStack: { stack: StackColumns; by: StackMode } | undefined;
  private readonly askTimeline: (ask: { key: string; wanted: Wanted; from: number; to: number; columns: number }) => void;
  private readonly askMap: (ask: { key: string; wanted: Wanted; window: MapWindow }) => void;
  /** The last detail, drawn until a better one arrives. */
  private lastTimeline: TimelineColumns | undefined;
  private lastCells: MapCells | undefined;

  constructor(lane: Lane, onChange: () => void) {
    this.lane = lane;
    this.onChange = onChange;
    const { connection } = lane.source;
    const run = lane.run.run;
    this.askTimeline = latest(async ({ key, wanted, from, to, columns }) => {
      if (this.timelines.get(key)) return;
      await this.keep(async () => {
        this.timelines.set(key, await connection.ask('timeline', lane.gpu.device, { run, axis: wanted.axis, from, to, columns }));
      });
    });
    this.askStack = latest(async ({ key, wanted, grid, least }) => {
      if (this.stacks.get(key)) return;
      await this.keep(async () => {
        const window = { axis: wanted.axis, from: grid.from, to: grid.to, columns: grid.cells, least };
        this.stacks.set(key, await connection.ask('stack', lane.gpu.device, { by: wanted.by, window }));
        // bench/page.ts waits for this mark.
        performance.clearMarks('weir-stack');
        performance.mark('weir-stack');
      });
    });
    this.askMap = latest(async ({ key, wanted, window }) => {
      if (this.cells.get(key)) return;
      await this.keep(async () => {
        const { colour, selection } = wanted;
        this.cells.set(key, await connection.ask('map', lane.gpu.device, { run, window, colour, selection }));
        // bench/page.ts waits for this mark.
        performance.mark('weir-map');
      });
    });
  }

  /** The best detail that has arrived, then the overview. */
  timeline(wanted: Wanted): TimelineColumns[] {
    const whole = this.timelineFor(wanted, { from: 0, to: wanted.wholeX });
    const detail = this.timelineFor(wanted, wanted.view);
    if (detail) this.lastTimeline = detail;
    return [detail ?? this.lastTimeline, whole].filter((columns) => columns !== undefined);
  }

  overview(wanted: Wanted): TimelineColumns | undefined {
    return this.timelineFor(wanted, { from: 0, to: wanted.wholeX });
  }

  /** The best detail that has arrived, then the overview; undefined: the timeline is not stacked, or nothing has arrived. */
  stack(wanted: Wanted, look: StackLookInput | undefined): StackImage[] | undefined {
    if (!look) return undefined;
    const images = this.stackLayers(wanted).map((stack) => this.stackImage(stack, wanted, look));
    return images.length > 0 ? images : undefined;
  }

  /** What is drawn at a position: the columns, and the one among them. */
  stackAt(wanted: Wanted, position: number): { stack: StackColumns; column: number } | undefined {
    const stack = this.stackLayers(wanted).find(({ from, to }) => position >= from && position < to);
    if (!stack) return undefined;
    return { stack, column: Math.floor(((position - stack.from) / (stack.to - stack.from)) * stack.columns) };
  }

  private stackLayers(wanted: Wanted): StackColumns[] {
    const whole = this.stackFor(wanted, { from: 0, to: wanted.wholeX });
    const detail = this.stackFor(wanted, wanted.view);
    if (detail) this.lastStack = { stack: detail, by: wanted.by };
    const last = this.lastStack?.by === wanted.by && this.lastStack.stack.axis === wanted.axis ? this.lastStack.stack : undefined;
    return [detail ?? last, whole].filter((stack) => stack !== undefined);
  }

  private stackFor(wanted: Wanted, range: Viewport): StackColumns | undefined {
    const grid = detailGrid(range, wanted.wholeX, wanted.width);
    // A power of two, so that small changes of the scale need no new list.
    const least = 2 ** Math.floor(Math.log2((LEAST_ROWS * (wanted.bytes.to - wanted.bytes.from)) / wanted.rows));
    const key = `${wanted.by} ${wanted.axis} ${grid.from} ${grid.to} ${grid.cells} ${least}`;
    const known = this.stacks.get(key);
    if (!known) this.askStack({ key, wanted, grid, least });
    return known;
  }

  private stackImage(stack: StackColumns, { rows, bytes }: Wanted, look: StackLookInput): StackImage {
    const key = `${look.key} ${rows} ${bytes.from} ${bytes.to}`;
    const known = this.stackImages.get(stack);
    if (known?.look === key) return known.image;
    const image = { stack, canvas: paintStack(stack, { ...look, rows, range: bytes }) };
    this.stackImages.set(stack, { image, look: key });
    return image;
  }

  /** From coarse to fine; each is drawn over the previous one. */
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

/** One pixel per cell: held memory over the background, used memory over that. */
function paint(cells: MapCells, colour: ColourMode, isDark: boolean): HTMLCanvasElement {
  const canvas = document.createElement('canvas');
  canvas.width = cells.columns;
  canvas.height = cells.rows;
  const context = canvas.getContext('2d')!;
  const image = context.createImageData(cells.columns, cells.rows);
  const pixels = new Uint32Array(image.data.buffer);
  const theme = isDark ? DARK_MAP : LIGHT_MAP;
  const palette = paletteOf(colour, theme);
  // Nearly all cells are unused or fully used, and come from tables. Only the rest is mixed.
  const unused = new Uint32Array(256);
  const full = new Uint32Array(256);
  for (let value = 0; value < 256; value++) {
    // Half a cell of free memory counts as a whole one: fragments must be seen.
    const share = Math.min(1, (2 * value) / 255);
    const [red, green, blue] = theme.empty.map((channel, index) => channel + (theme.held[index]! - channel) * share) as [
      number,
      number,
      number,
    ];
    unused[value] = packed(red, green, blue);
    full[value] = packed(palette[value * 3]!, palette[value * 3 + 1]!, palette[value * 3 + 2]!);
  }
  const { kind, used, held } = cells;
  for (let cell = 0; cell < kind.length; cell++) {
    const share = used[cell]!;
    const under = unused[held[cell]!]!;
    if (share === 0) pixels[cell] = under;
    else pixels[cell] = share === 255 ? full[kind[cell]!]! : mixed(under, full[kind[cell]!]!, share);
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

/** A pixel in memory; browsers run on little-endian machines only. */
function packed(red: number, green: number, blue: number): number {
  return ((255 << 24) | (Math.round(blue) << 16) | (Math.round(green) << 8) | Math.round(red)) >>> 0;
}

function mixed(under: number, over: number, share: number): number {
  const rest = 255 - share;
  const red = ((under & 255) * rest + (over & 255) * share) >> 8;
  const green = (((under >> 8) & 255) * rest + ((over >> 8) & 255) * share) >> 8;
  const blue = (((under >> 16) & 255) * rest + ((over >> 16) & 255) * share) >> 8;
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

/** A cache of the last few answers. */
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
