// Positions on the canvas of the tracks, in CSS pixels: the minimap, the ruler, the timeline, and a map per lane.
export interface Box {
  readonly left: number;
  readonly top: number;
  readonly width: number;
  readonly height: number;
}

export interface TrackLayout {
  readonly width: number;
  readonly height: number;
  readonly minimap: Box;
  /** Steps and phases; a row that is missing has no height. */
  readonly steps: Box;
  readonly phases: Box;
  readonly timeline: Box;
  readonly ticks: Box;
  readonly maps: readonly Box[];
}

export interface TrackRows {
  readonly maps: number;
  readonly isStacked: boolean;
  readonly hasSteps: boolean;
  readonly hasPhases: boolean;
}

/** Room for the labels of the y axes. */
const GUTTER = 64;
const NARROW_GUTTER = 50;
const NARROW = 600;
const RIGHT = 10;
const GAP = 8;
const MINIMAP = 30;
const RULER_ROW = 17;
const TIMELINE = 128;
const STACKED = 216;
const TICKS = 20;
const MAP = 216;
const MAP_IN_PAIR = 150;
/** Room for the name above each map of a pair. */
export const MAP_TITLE = 18;

export function trackLayout(width: number, rows: TrackRows): TrackLayout {
  const left = width < NARROW ? NARROW_GUTTER : GUTTER;
  const inner = Math.max(50, width - left - RIGHT);
  let top = 2;
  const place = (height: number, gap = 0): Box => {
    const box = { left, top, width: inner, height };
    top += height + gap;
    return box;
  };
  const minimap = place(MINIMAP, GAP);
  const steps = place(rows.hasSteps ? RULER_ROW : 0);
  const phases = place(rows.hasPhases ? RULER_ROW : 0, rows.hasSteps || rows.hasPhases ? 2 : 0);
  const timeline = place(rows.isStacked ? STACKED : TIMELINE);
  const ticks = place(TICKS, 2);
  const maps = Array.from({ length: rows.maps }, () => {
    if (rows.maps > 1) top += MAP_TITLE;
    return place(rows.maps > 1 ? MAP_IN_PAIR : MAP, GAP);
  });
  return { width, height: top, minimap, steps, phases, timeline, ticks, maps };
}

export function isInside(box: Box, x: number, y: number): boolean {
  return x >= box.left && x <= box.left + box.width && y >= box.top && y <= box.top + box.height;
}
