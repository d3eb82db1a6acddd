// Positions on the canvas of the tracks, in CSS pixels: the minimap, the timeline, and a map per lane.
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
  readonly timeline: Box;
  readonly ticks: Box;
  readonly maps: readonly Box[];
}

/** Room for the labels of the y axes. */
const GUTTER = 64;
const RIGHT = 10;
const GAP = 8;
const MINIMAP = 30;
const TIMELINE = 128;
const TICKS = 20;
const MAP = 236;
const MAP_IN_PAIR = 150;
/** Room for the name above each map of a pair. */
export const MAP_TITLE = 18;

export function trackLayout(width: number, mapCount: number): TrackLayout {
  const left = GUTTER;
  const inner = Math.max(50, width - GUTTER - RIGHT);
  const minimap = { left, top: 2, width: inner, height: MINIMAP };
  const timeline = { left, top: minimap.top + MINIMAP + GAP, width: inner, height: TIMELINE };
  const ticks = { left, top: timeline.top + TIMELINE, width: inner, height: TICKS };
  const maps: Box[] = [];
  let top = ticks.top + TICKS + 2;
  for (let index = 0; index < mapCount; index++) {
    const height = mapCount > 1 ? MAP_IN_PAIR : MAP;
    if (mapCount > 1) top += MAP_TITLE;
    maps.push({ left, top, width: inner, height });
    top += height + GAP;
  }
  return { width, height: top, minimap, timeline, ticks, maps };
}

export function isInside(box: Box, x: number, y: number): boolean {
  return x >= box.left && x <= box.left + box.width && y >= box.top && y <= box.top + box.height;
}
