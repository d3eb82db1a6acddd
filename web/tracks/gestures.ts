// Mouse, pen and wheel on the tracks: scrubbing, panning, zooming, brushing, selecting a range or a block.
import { batch } from '@preact/signals';
import { pan, within, zoom } from '../../src/view/viewport.ts';
import { moveTo, selectBlockAt, selectRange } from '../app/selecting.ts';
import { axis, cursor, lanes, main, spanOf, vertical, view, wholeX, wholeY } from '../app/state.ts';
import { type Box, isInside, type TrackLayout } from './track-layout.ts';

/** A press that moves less than this is a click. */
const CLICK_PIXELS = 4;
const EDGE_PIXELS = 7;
const WHEEL_ZOOM = 0.0016;

export interface GestureView {
  layout(): TrackLayout;
  /** The position the cursor is dragged to, before its moment has arrived. */
  showCursor(position: number | undefined): void;
  showRange(range: { from: number; to: number } | undefined): void;
}

type Drag = (x: number, y: number) => void;

export function attachGestures(canvas: HTMLCanvasElement, gestures: GestureView): () => void {
  const point = (event: MouseEvent): { x: number; y: number } => {
    const bounds = canvas.getBoundingClientRect();
    return { x: event.clientX - bounds.left, y: event.clientY - bounds.top };
  };
  const toPosition = (x: number): number => {
    const { timeline } = gestures.layout();
    const share = Math.min(1, Math.max(0, (x - timeline.left) / timeline.width));
    return view.value.from + share * (view.value.to - view.value.from);
  };

  const press = (event: PointerEvent): void => {
    if (event.button !== 0 || !main.value) return;
    const { x, y } = point(event);
    const layout = gestures.layout();
    const drag = event.shiftKey && !isInside(layout.minimap, x, y) ? dragRange(x) : dragFor(layout, x, y);
    if (!drag) return;
    canvas.setPointerCapture(event.pointerId);
    const move = (moved: PointerEvent) => {
      const at = point(moved);
      drag.move(at.x, at.y);
    };
    const release = (released: PointerEvent) => {
      canvas.removeEventListener('pointermove', move);
      canvas.removeEventListener('pointerup', release);
      canvas.removeEventListener('pointercancel', release);
      const at = point(released);
      drag.end?.(at.x, at.y);
    };
    canvas.addEventListener('pointermove', move);
    canvas.addEventListener('pointerup', release);
    canvas.addEventListener('pointercancel', release);
    drag.move(x, y);
  };

  const dragFor = (layout: TrackLayout, x: number, y: number): { move: Drag; end?: Drag } | undefined => {
    if (isInside(layout.minimap, x, y)) return brush(layout.minimap, x);
    const index = layout.maps.findIndex((box) => isInside(box, x, y));
    if (index >= 0) return panMap(layout.maps[index]!, index, x, y);
    if (x >= layout.timeline.left && y >= layout.timeline.top && y <= layout.ticks.top + layout.ticks.height) return scrub();
    return undefined;
  };

  const scrub = (): { move: Drag; end: Drag } => ({
    move: (x) => {
      const position = toPosition(x);
      gestures.showCursor(position);
      moveTo(axis.value, position);
    },
    end: () => gestures.showCursor(undefined),
  });

  const dragRange = (start: number): { move: Drag; end: Drag } => {
    const anchor = toPosition(start);
    return {
      move: (x) => gestures.showRange({ from: Math.min(anchor, toPosition(x)), to: Math.max(anchor, toPosition(x)) }),
      end: (x) => {
        gestures.showRange(undefined);
        if (Math.abs(x - start) > CLICK_PIXELS) selectRange(anchor, toPosition(x));
      },
    };
  };

  const panMap = (box: Box, index: number, startX: number, startY: number): { move: Drag; end: Drag } => {
    const startView = view.value;
    const startVertical = vertical.value;
    let isMoved = false;
    return {
      move: (x, y) => {
        isMoved ||= Math.hypot(x - startX, y - startY) > CLICK_PIXELS;
        if (!isMoved) return;
        const perPixel = (startView.to - startView.from) / box.width;
        const bytesPerPixel = (startVertical.to - startVertical.from) / box.height;
        batch(() => {
          view.value = pan(startView, wholeX.value, (startX - x) * perPixel);
          vertical.value = pan(startVertical, wholeY.value, (y - startY) * bytesPerPixel);
        });
      },
      end: (x, y) => {
        if (isMoved) return;
        const position = toPosition(x);
        const offset = offsetAt(box, y);
        moveTo(axis.value, position);
        const lane = lanes.value[index];
        if (!lane) return;
        void selectBlockAt(lane, position, offset);
      },
    };
  };

  const brush = (box: Box, startX: number): { move: Drag } => {
    const whole = wholeX.value;
    const toWhole = (x: number) => Math.min(1, Math.max(0, (x - box.left) / box.width)) * whole;
    const toPixel = (position: number) => box.left + (position / whole) * box.width;
    const start = view.value;
    const nearFrom = Math.abs(startX - toPixel(start.from)) < EDGE_PIXELS;
    const nearTo = Math.abs(startX - toPixel(start.to)) < EDGE_PIXELS;
    const least = whole * 1e-9;
    if (nearTo) return { move: (x) => setView(start.from, Math.max(start.from + least, toWhole(x))) };
    if (nearFrom) return { move: (x) => setView(Math.min(start.to - least, toWhole(x)), start.to) };
    const isFitted = start.to - start.from > whole * 0.999;
    const anchor = toWhole(startX);
    if (isFitted) {
      return {
        move: (x) => {
          if (Math.abs(x - startX) > CLICK_PIXELS) setView(Math.min(anchor, toWhole(x)), Math.max(anchor, toWhole(x)));
        },
      };
    }
    const isOnBrush = anchor >= start.from && anchor <= start.to;
    const width = start.to - start.from;
    const base = isOnBrush ? start : within({ from: anchor - width / 2, to: anchor + width / 2 }, whole);
    return {
      move: (x) => {
        view.value = pan(base, whole, toWhole(x) - anchor);
      },
    };
  };

  const setView = (from: number, to: number): void => {
    view.value = within({ from, to }, wholeX.value);
  };

  const wheel = (event: WheelEvent): void => {
    const { x, y } = point(event);
    const layout = gestures.layout();
    if (!main.value || x < layout.timeline.left) return;
    event.preventDefault();
    const pixels = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
    const map = layout.maps.find((box) => isInside(box, x, y));
    const factor = Math.exp((event.deltaY || event.deltaX) * pixels * WHEEL_ZOOM);
    if (event.shiftKey && map) vertical.value = zoom(vertical.value, wholeY.value, factor, offsetAt(map, y));
    else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      view.value = pan(view.value, wholeX.value, (event.deltaX * pixels * (view.value.to - view.value.from)) / layout.timeline.width);
    } else view.value = zoom(view.value, wholeX.value, factor, toPosition(x));
  };

  canvas.addEventListener('pointerdown', press);
  canvas.addEventListener('wheel', wheel, { passive: false });
  return () => {
    canvas.removeEventListener('pointerdown', press);
    canvas.removeEventListener('wheel', wheel);
  };
}

/** The byte on the map's axis at a height of the canvas. */
export function offsetAt(box: Box, y: number): number {
  const share = 1 - (y - box.top) / box.height;
  return vertical.value.from + share * (vertical.value.to - vertical.value.from);
}

/** The centre of zooming by key: the cursor, or the middle if the cursor is out of view. */
export function zoomAnchor(): number {
  const lane = main.value;
  const at = lane && cursor.value ? (axis.value === 'event' ? cursor.value.event : cursor.value.timeUs) : -1;
  const { from, to } = view.value;
  return at >= from && at <= to ? at : Math.min((from + to) / 2, lane ? spanOf(lane) : to);
}
