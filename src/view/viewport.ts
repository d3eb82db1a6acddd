// The visible part of an axis: zooming, panning, fitting, and the level of detail to draw it at.

export interface Viewport {
  readonly from: number;
  readonly to: number;
}

/** The narrowest view, as a share of the whole; below it, doubles lose precision. */
const NARROWEST = 2 ** -34;

/** Zooms by `factor` (below 1 is closer) about a point, within an axis from 0 to `whole`. */
export function zoom(view: Viewport, whole: number, factor: number, about: number): Viewport {
  const width = Math.min(whole, Math.max(whole * NARROWEST, (view.to - view.from) * factor));
  const share = (about - view.from) / (view.to - view.from || 1);
  return within({ from: about - share * width, to: about + (1 - share) * width }, whole);
}

export function pan(view: Viewport, whole: number, by: number): Viewport {
  return within({ from: view.from + by, to: view.to + by }, whole);
}

/** Moves a view into the axis without changing its width, unless it is wider than the axis. */
export function within(view: Viewport, whole: number): Viewport {
  const width = Math.min(whole, view.to - view.from);
  const from = Math.min(Math.max(0, view.from), whole - width);
  return { from, to: from + width };
}

/** A view of the range with a little room on both sides. */
export function focus(from: number, to: number, whole: number): Viewport {
  const room = Math.max((to - from) * 0.25, whole * 1e-6);
  return within({ from: from - room, to: to + room }, whole);
}

/** Moves the view, no further than needed, so that the point is in it. */
export function reveal(view: Viewport, whole: number, point: number): Viewport {
  const width = view.to - view.from;
  if (point >= view.from && point <= view.to) return view;
  return within({ from: point - width / 2, to: point + width / 2 }, whole);
}

export interface DetailGrid {
  readonly from: number;
  readonly to: number;
  readonly cells: number;
}

/** Cells are requested in groups of this many, so that small moves need no new ones. */
const GROUP = 64;
/** Wider screens get coarser cells: nobody may ask for more than `MOST_COLUMNS`. */
const MOST_PIXELS = 7168;

/**
 * The grid to draw a view from: cells of a power-of-two share of the axis, about one per pixel (0.7 to 1.4), with a
 * quarter of a view to spare on both sides. Views that are close to each other have the same grid.
 */
export function detailGrid(view: Viewport, whole: number, pixels: number): DetailGrid {
  const width = Math.max(view.to - view.from, whole * NARROWEST);
  const level = Math.max(0, Math.round(Math.log2((whole / width) * (Math.min(pixels, MOST_PIXELS) / GROUP))));
  const group = whole / 2 ** level;
  const first = Math.max(0, Math.floor((view.from - width / 4) / group));
  const last = Math.min(2 ** level, Math.max(first + 1, Math.ceil((view.to + width / 4) / group)));
  return { from: first * group, to: last * group, cells: (last - first) * GROUP };
}
