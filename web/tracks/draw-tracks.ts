// Draws the tracks: minimap, ruler, timeline, maps, and over them the cursor, marks and selections. The cost depends on pixels,
// not on events, since all data is reduced to columns and cells.
import type { AxisKind } from '../../src/view/clock.ts';
import type { BlockInfo } from '../../src/view/protocol.ts';
import type { Ruler } from '../../src/view/ruler.ts';
import { axisTicks, byteTicks } from '../../src/view/ticks.ts';
import type { Viewport } from '../../src/view/viewport.ts';
import { type Context, clipped, label, line, plate, scaleX, type TrackColours } from './brush.ts';
import { drawRuler } from './draw-ruler.ts';
import { area, drawEnd, drawTimeline } from './draw-timeline.ts';
import type { LaneData, StackLookInput, Wanted } from './lane-data.ts';
import { type Box, MAP_TITLE, type TrackLayout } from './track-layout.ts';

export interface Picture {
  readonly wanted: Wanted;
  readonly isDark: boolean;
  readonly colours: TrackColours;
  readonly lanes: readonly { readonly data: LaneData; readonly span: number; readonly label: string; readonly note: string }[];
  /** Top of the timeline's scale. */
  readonly mostBytes: number;
  /** Colours and names of the bands from the bottom up; none: the timeline is not stacked. */
  readonly stackLook: StackLookInput | undefined;
  readonly bandNames: readonly string[];
  readonly ruler: Ruler | undefined;
  readonly capacity: number | undefined;
  readonly cursor: number | undefined;
  readonly hover: number | undefined;
  readonly mark: number | undefined;
  readonly range: Viewport | undefined;
  /** The selected block in each lane. */
  readonly blocks: readonly ({ readonly info: BlockInfo; readonly from: number; readonly to: number } | undefined)[];
  readonly ooms: readonly number[];
  readonly marks: readonly { readonly at: number; readonly name: string }[];
}

export function drawTracks(context: Context, layout: TrackLayout, picture: Picture): void {
  const { colours, wanted } = picture;
  context.clearRect(0, 0, layout.width, layout.height);
  context.font = colours.font;
  context.lineWidth = 1;
  drawMinimap(context, layout.minimap, picture);
  if (picture.ruler && picture.lanes[0])
    drawRuler(context, layout, picture.ruler, { axis: wanted.axis, view: wanted.view, span: picture.lanes[0].span }, colours);
  drawTimeline(context, layout.timeline, picture);
  drawTicks(context, layout.ticks, wanted.axis, wanted.view, colours);
  picture.lanes.forEach((_, index) => {
    const box = layout.maps[index];
    if (box) drawMap(context, box, picture, index, layout.maps.length > 1);
  });
  drawOver(context, layout, picture);
}

function drawMinimap(context: Context, box: Box, picture: Picture): void {
  const { colours, wanted } = picture;
  const whole = { from: 0, to: wanted.wholeX };
  const overview = picture.lanes[0]?.data.overview(wanted);
  clipped(context, box, () => {
    context.fillStyle = colours.surface;
    context.fillRect(box.left, box.top, box.width, box.height);
    if (overview) {
      const place = { box, view: whole, layers: [overview], bytes: { from: 0, to: picture.mostBytes }, end: picture.lanes[0]!.span };
      area(context, place, 'reserved', colours.held, 0.6);
      area(context, place, 'live', colours.allocated, 0.75);
    }
    const x = scaleX(box, whole);
    const from = x(wanted.view.from);
    const to = Math.max(from + 2, x(wanted.view.to));
    context.globalAlpha = 0.55;
    context.fillStyle = colours.surface;
    context.fillRect(box.left, box.top, from - box.left, box.height);
    context.fillRect(to, box.top, box.left + box.width - to, box.height);
    context.globalAlpha = 1;
    context.strokeStyle = colours.accent;
    context.lineWidth = 1.5;
    context.strokeRect(from + 0.75, box.top + 0.75, Math.max(1, to - from - 1.5), box.height - 1.5);
    context.fillStyle = colours.accent;
    for (const edge of [from, to]) context.fillRect(edge - 2, box.top + box.height / 2 - 6, 4, 12);
    context.lineWidth = 1;
  });
}

function drawTicks(context: Context, box: Box, axis: AxisKind, view: Viewport, colours: TrackColours): void {
  const x = scaleX(box, view);
  for (const tick of axisTicks(axis, view.from, view.to, Math.max(2, Math.floor(box.width / 110)))) {
    const at = Math.round(x(tick.at)) + 0.5;
    line(context, colours.line, at, box.top, at, box.top + 4);
    const text = context.measureText(tick.label).width / 2;
    const middle = Math.min(Math.max(at, box.left + text), box.left + box.width - text);
    label(context, tick.label, middle, box.top + 6, colours.faint, 'center', 'top');
  }
}

function drawMap(context: Context, box: Box, picture: Picture, index: number, isTitled: boolean): void {
  const { colours, wanted } = picture;
  const lane = picture.lanes[index]!;
  const { vertical } = wanted;
  if (isTitled) {
    const title = `${index === 0 ? 'A' : 'B'}  ${lane.label}`;
    label(context, title, box.left, box.top - MAP_TITLE / 2, colours.text, 'left', 'middle');
    label(context, lane.note, box.left + box.width, box.top - MAP_TITLE / 2, colours.faint, 'right', 'middle');
  }
  context.fillStyle = colours.surface;
  context.fillRect(box.left, box.top, box.width, box.height);
  const y = (bytes: number) => box.top + box.height * (1 - (bytes - vertical.from) / (vertical.to - vertical.from));
  const x = scaleX(box, wanted.view);
  clipped(context, box, () => {
    for (const { cells, canvas } of lane.data.map(wanted, picture.isDark)) {
      const left = x(cells.from);
      const top = y(cells.high);
      const width = x(cells.to) - left;
      const height = y(cells.low) - top;
      context.imageSmoothingEnabled = width < cells.columns;
      context.drawImage(canvas, left, top, width, height);
    }
    drawEnd(context, box, x(lane.span), index === 0 ? 'A' : 'B', colours);
  });
  for (const tick of byteTicks(vertical.from, vertical.to, isTitled ? 3 : 5)) {
    const at = Math.round(y(tick.at)) + 0.5;
    line(context, colours.line, box.left - 4, at, box.left, at);
    label(context, tick.label, box.left - 8, Math.min(at, box.top + box.height - 5), colours.faint, 'right', 'middle');
  }
  context.strokeStyle = colours.line;
  context.strokeRect(box.left + 0.5, box.top + 0.5, box.width - 1, box.height - 1);
}

function drawOver(context: Context, layout: TrackLayout, picture: Picture): void {
  const { colours, wanted } = picture;
  const { timeline, maps } = layout;
  const bottom = maps.at(-1) ? maps.at(-1)!.top + maps.at(-1)!.height : timeline.top + timeline.height;
  const whole: Box = { left: timeline.left, top: timeline.top, width: timeline.width, height: bottom - timeline.top };
  const x = scaleX(timeline, wanted.view);
  const right = whole.left + whole.width;
  clipped(context, whole, () => {
    const upright = (at: number, colour: string, dash: number[], width = 1) => {
      context.setLineDash(dash);
      context.lineWidth = width;
      line(context, colour, Math.round(x(at)) + 0.5, whole.top, Math.round(x(at)) + 0.5, bottom);
      context.setLineDash([]);
      context.lineWidth = 1;
    };
    if (picture.range) {
      context.globalAlpha = 0.14;
      context.fillStyle = colours.accent;
      context.fillRect(x(picture.range.from), whole.top, Math.max(1, x(picture.range.to) - x(picture.range.from)), whole.height);
      context.globalAlpha = 1;
    }
    let lastLabel = Number.NEGATIVE_INFINITY;
    for (const { at, name } of picture.marks) {
      if (at < wanted.view.from || at > wanted.view.to) continue;
      const left = x(at) + 2;
      if (left < lastLabel) continue;
      context.globalAlpha = 0.6;
      upright(at, colours.text, [1, 3]);
      context.globalAlpha = 1;
      const short = name.length > 24 ? `${name.slice(0, 23)}…` : name;
      plate(context, short, left, timeline.top + 2, colours, [whole.left, right]);
      lastLabel = left + context.measureText(short).width + 14;
    }
    let lastOom = Number.NEGATIVE_INFINITY;
    for (const at of picture.ooms) {
      upright(at, colours.bad, [4, 2], 1.5);
      if (at < wanted.view.from || at > wanted.view.to || x(at) < lastOom) continue;
      const words = { text: colours.bad, surface: colours.surface };
      plate(context, 'out of memory', x(at) + 3, timeline.top + timeline.height - 20, words, [whole.left, right]);
      lastOom = x(at) + 90;
    }
    if (picture.mark !== undefined) upright(picture.mark, colours.accent, [6, 3], 1.5);
    if (picture.hover !== undefined) {
      context.globalAlpha = 0.5;
      upright(picture.hover, colours.cursor, []);
      context.globalAlpha = 1;
    }
    if (picture.cursor !== undefined) upright(picture.cursor, colours.cursor, [], 1.5);
  });
  maps.forEach((box, index) => {
    drawBlock(context, box, picture, index);
  });
}

function drawBlock(context: Context, box: Box, picture: Picture, index: number): void {
  const { wanted, colours } = picture;
  const block = picture.blocks[index];
  if (!block) return;
  const { vertical } = wanted;
  const perByte = box.height / (vertical.to - vertical.from);
  const x = scaleX(box, wanted.view);
  clipped(context, box, () => {
    const left = x(block.from);
    const width = Math.max(3, x(block.to) - left);
    const { parts } = block.info;
    for (const [colour, thick] of [
      [colours.surface, 4],
      [colours.selected, 2],
    ] as const) {
      context.strokeStyle = colour;
      context.lineWidth = thick;
      for (let part = 0; part < parts.length; part += 2) {
        const top = box.top + box.height - (parts[part]! + parts[part + 1]! - vertical.from) * perByte;
        context.strokeRect(left, top, width, Math.max(3, parts[part + 1]! * perByte));
      }
    }
    context.lineWidth = 1;
  });
}
