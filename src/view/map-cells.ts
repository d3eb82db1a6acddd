// The fragmentation map (address by time) as a grid of cells, at the resolution of the screen. Each cell has the share held
// from the driver, the share in use, and the class of the block that fills most of it.
import type { AxisKind, Clock } from './clock.ts';
import type { History } from './history.ts';
import type { Lifetimes } from './lifetimes.ts';

export interface MapWindow {
  readonly axis: AxisKind;
  /** Range of the x axis. */
  readonly from: number;
  readonly to: number;
  readonly columns: number;
  /** Range of the y axis, in bytes. */
  readonly low: number;
  readonly high: number;
  readonly rows: number;
}

/** Row 0 is the top one, at the high end of the axis. */
export interface MapCells extends MapWindow {
  /** Class of the block that fills most of the cell; see colours.ts. */
  readonly kind: Uint8Array;
  /** Share of the cell in use, and held from the driver: 0 to 255. */
  readonly used: Uint8Array;
  readonly held: Uint8Array;
}

/** The class of an allocation, which may depend on its age at a column. */
export type Classify = (allocation: number, age: number) => number;

export function mapCells(
  clock: Clock,
  lifetimes: Lifetimes,
  history: History,
  window: MapWindow,
  classify: Classify,
  changesWithAge: boolean,
): MapCells {
  const grid = new Grid(window);
  const { axis } = window;
  const { pieces, pieceOffset, offset, size, parts } = history;
  const held = new Float32Array(window.columns * window.rows);
  const used = new Float32Array(held.length);
  const most = new Float32Array(held.length);
  const kind = new Uint8Array(held.length);

  for (let row = 0; row < pieceOffset.length; row++) {
    const start = clock.position(axis, pieces.from[row]!);
    const end = clock.position(axis, pieces.to[row]!);
    grid.cover(start, end, pieceOffset[row]!, pieces.size[row]!, (cell, share) => {
      held[cell]! += share;
    });
  }
  const firstEvent = clock.lastAt(axis, window.from);
  const lastEvent = clock.firstFrom(axis, window.to) + 1;
  lifetimes.each(firstEvent - 1, lastEvent, (allocation) => {
    const stitched = parts.size > 0 ? parts.get(allocation) : undefined;
    const low = offset[allocation]!;
    // A failed request has NaN here, so the comparison is false and it covers nothing.
    if (!stitched && !(low < window.high && low + size[allocation]! > window.low)) return;
    const start = clock.position(axis, lifetimes.start[allocation]!);
    const end = clock.position(axis, lifetimes.end[allocation]!);
    let which = classify(allocation, 0);
    const mark = (cell: number, share: number, column: number) => {
      used[cell]! += share;
      if (share > most[cell]!) {
        most[cell] = share;
        if (changesWithAge) which = classify(allocation, Math.max(0, grid.positionOf(column) - start));
        kind[cell] = which;
      }
    };
    if (!stitched) grid.cover(start, end, low, size[allocation]!, mark);
    else for (let part = 0; part < stitched.length; part += 2) grid.cover(start, end, stitched[part]!, stitched[part + 1]!, mark);
  });
  return { ...window, kind, used: quantize(used), held: quantize(held) };
}

class Grid {
  private readonly window: MapWindow;
  private readonly perColumn: number;
  private readonly perRow: number;

  constructor(window: MapWindow) {
    this.window = window;
    this.perColumn = (window.to - window.from) / window.columns;
    this.perRow = (window.high - window.low) / window.rows;
  }

  /** The middle of a column on the x axis. */
  positionOf(column: number): number {
    return this.window.from + (column + 0.5) * this.perColumn;
  }

  /** Calls `visit` with each cell that the rectangle touches and the share of the cell it covers. */
  cover(start: number, end: number, low: number, size: number, visit: (cell: number, share: number, column: number) => void): void {
    const { window, perColumn, perRow } = this;
    const left = Math.max(0, (start - window.from) / perColumn);
    const right = Math.min(window.columns, (end - window.from) / perColumn);
    const top = Math.max(0, (window.high - low - size) / perRow);
    const bottom = Math.min(window.rows, (window.high - low) / perRow);
    if (!(right > left && bottom > top)) return;
    const firstColumn = Math.floor(left);
    const lastColumn = Math.min(window.columns, Math.ceil(right)) - 1;
    const firstRow = Math.floor(top);
    const lastRow = Math.min(window.rows, Math.ceil(bottom)) - 1;
    for (let row = firstRow; row <= lastRow; row++) {
      const height = Math.min(bottom, row + 1) - Math.max(top, row);
      const base = row * window.columns;
      for (let column = firstColumn; column <= lastColumn; column++) {
        visit(base + column, height * (Math.min(right, column + 1) - Math.max(left, column)), column);
      }
    }
  }
}

/** A share above 0 stays above 0, so that it is visible. */
function quantize(shares: Float32Array): Uint8Array {
  const bytes = new Uint8Array(shares.length);
  for (let cell = 0; cell < shares.length; cell++) {
    const share = shares[cell]!;
    if (share > 0) bytes[cell] = Math.max(1, Math.min(255, Math.round(share * 255)));
  }
  return bytes;
}
