// Mouse, pen, wheel and touch on the tracks: scrubbing, panning, zooming, brushing, selecting a range or a block. A plain wheel
// and a vertical finger are left to the page, so that it scrolls.
import { batch } from '@preact/signals';
import type { StackHit } from '../../src/view/stack-columns.ts';
import { pan, within, zoom } from '../../src/view/viewport.ts';
import { moveTo, selectBlock, selectBlockAt, selectRange } from '../app/selecting.ts';
import { axis, cursor, heightView, lanes, main, spanOf, vertical, view, wholeX, wholeY } from '../app/state.ts';
import { type Box, isInside, type TrackLayout } from './track-layout.ts';

/** A press that moves less than this is a click. */
const CLICK_PIXELS = 4;
const TAP_PIXELS = 10;
const EDGE_PIXELS = 7;
const WHEEL_ZOOM = 0.0016;
/** Trackpads report a pinch as many small steps. */
const PINCH_ZOOM = 0.012;
const SMALL_STEP = 40;

export type StackPoint = StackHit;

export interface GestureView {
  layout(): TrackLayout;
  /** The position the cursor is dragged to, before its moment has arrived. */
  showCursor(position: number | undefined): void;
  showRange(range: { from: number; to: number } | undefined): void;
  /** What the stacked timeline shows at a point. */
  stackPoint(x: number, y: number): StackPoint | undefined;
}

interface Drag {
  move(x: number, y: number): void;
  end?(x: number, y: number): void;
  /** The browser took the gesture, or a second finger came. */
  cancel?(): void;
}

/** The position of the time axis at a place of the canvas. */
export function positionAt(box: Box, x: number): number {
  const share = Math.min(1, Math.max(0, (x - box.left) / box.width));
  return view.value.from + share * (view.value.to - view.value.from);
}

export function attachGestures(canvas: HTMLCanvasElement, gestures: GestureView): () => void {
  const point = (event: MouseEvent): { x: number; y: number } => {
    const bounds = canvas.getBoundingClientRect();
    return { x: event.clientX - bounds.left, y: event.clientY - bounds.top };
  };
  const toPosition = (x: number): number => positionAt(gestures.layout().timeline, x);
  const pointers = new Map<number, { x: number; y: number }>();
  let drag: Drag | undefined;

  const press = (event: PointerEvent): void => {
    if (event.button !== 0 || !main.value) return;
    const at = point(event);
    // A primary pointer is the only one: others were lifted outside of the canvas.
    if (event.isPrimary) pointers.clear();
    pointers.set(event.pointerId, at);
    const [first, second] = [...pointers.values()];
    if (first && second) {
      drag?.cancel?.();
      drag = pinch(first, second);
      return;
    }
    const layout = gestures.layout();
    const isRange = event.shiftKey && !isInside(layout.minimap, at.x, at.y);
    const started = isRange ? dragRange(at.x) : dragFor(layout, at.x, at.y);
    if (!started) return;
    // A finger may be about to scroll the page. What it touches must not change before it moves sideways.
    drag = event.pointerType === 'touch' ? afterMove(started, at.x, at.y) : started;
    canvas.setPointerCapture(event.pointerId);
    drag.move(at.x, at.y);
  };

  const move = (event: PointerEvent): void => {
    if (!pointers.has(event.pointerId)) return;
    const at = point(event);
    pointers.set(event.pointerId, at);
    drag?.move(at.x, at.y);
  };

  const release = (event: PointerEvent): void => {
    if (!pointers.delete(event.pointerId)) return;
    const { x, y } = point(event);
    const ended = drag;
    drag = undefined;
    if (event.type === 'pointercancel') ended?.cancel?.();
    else ended?.end?.(x, y);
  };

  const dragFor = (layout: TrackLayout, x: number, y: number): Drag | undefined => {
    if (isInside(layout.minimap, x, y)) return brush(layout.minimap, x);
    const index = layout.maps.findIndex((box) => isInside(box, x, y));
    if (index >= 0) return panMap(layout.maps[index]!, index, x, y);
    if (x >= layout.timeline.left && y >= layout.steps.top && y <= layout.ticks.top + layout.ticks.height) return scrub(x, y);
    return undefined;
  };

  /** The cursor goes to the moment that the column shows. A click also selects the tensor under the pointer. */
  const scrub = (startX: number, startY: number): Drag => ({
    move: (x, y) => {
      gestures.showCursor(toPosition(x));
      const shown = gestures.stackPoint(x, y);
      if (shown) moveTo('event', shown.event);
      else moveTo(axis.value, toPosition(x));
    },
    end: (x, y) => {
      gestures.showCursor(undefined);
      if (Math.hypot(x - startX, y - startY) > CLICK_PIXELS) return;
      const shown = gestures.stackPoint(x, y);
      if (shown && shown.allocation >= 0) void selectBlock(shown.allocation);
    },
    cancel: () => gestures.showCursor(undefined),
  });

  const dragRange = (start: number): Drag => {
    const anchor = toPosition(start);
    return {
      move: (x) => gestures.showRange({ from: Math.min(anchor, toPosition(x)), to: Math.max(anchor, toPosition(x)) }),
      end: (x) => {
        gestures.showRange(undefined);
        if (Math.abs(x - start) > CLICK_PIXELS) selectRange(anchor, toPosition(x));
      },
      cancel: () => gestures.showRange(undefined),
    };
  };

  const panMap = (box: Box, index: number, startX: number, startY: number): Drag => {
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
        moveTo(axis.value, position);
        const lane = lanes.value[index];
        if (lane) void selectBlockAt(lane, position, offsetAt(box, y));
      },
    };
  };

  /** Two fingers: what is between them stays between them. */
  const pinch = (first: { x: number; y: number }, second: { x: number; y: number }): Drag => {
    const { timeline } = gestures.layout();
    const start = view.value;
    const distance = Math.max(20, Math.hypot(first.x - second.x, first.y - second.y));
    const middle = (first.x + second.x) / 2;
    const about = toPosition(middle);
    return {
      move: () => {
        const [one, two] = [...pointers.values()];
        if (!one || !two) return;
        const factor = distance / Math.max(20, Math.hypot(one.x - two.x, one.y - two.y));
        const zoomed = zoom(start, wholeX.value, factor, about);
        const moved = ((one.x + two.x) / 2 - middle) / timeline.width;
        view.value = pan(zoomed, wholeX.value, -moved * (zoomed.to - zoomed.from));
      },
    };
  };

  const brush = (box: Box, startX: number): Drag => {
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
    const isZoom = event.ctrlKey || event.metaKey;
    const isSideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
    if (!main.value || x < layout.timeline.left || !(isZoom || isSideways)) return;
    event.preventDefault();
    const pixels = (event.deltaY || event.deltaX) * (event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1);
    if (!isZoom) {
      view.value = pan(
        view.value,
        wholeX.value,
        ((event.deltaX || event.deltaY) * (view.value.to - view.value.from)) / layout.timeline.width,
      );
      return;
    }
    const factor = Math.exp(pixels * (Math.abs(pixels) < SMALL_STEP ? PINCH_ZOOM : WHEEL_ZOOM));
    const map = layout.maps.find((box) => isInside(box, x, y));
    if (!event.shiftKey) view.value = zoom(view.value, wholeX.value, factor, toPosition(x));
    else if (map) vertical.value = zoom(vertical.value, wholeY.value, factor, offsetAt(map, y));
    else if (isInside(layout.timeline, x, y)) {
      const { timeline } = layout;
      const share = 1 - (y - timeline.top) / timeline.height;
      zoomHeight(factor, heightView.value.from + share * (heightView.value.to - heightView.value.from));
    }
  };

  const listeners = { pointerdown: press, pointermove: move, pointerup: release, pointercancel: release } as const;
  for (const [name, listener] of Object.entries(listeners)) canvas.addEventListener(name as 'pointerdown', listener);
  canvas.addEventListener('wheel', wheel, { passive: false });
  return () => {
    for (const [name, listener] of Object.entries(listeners)) canvas.removeEventListener(name as 'pointerdown', listener);
    canvas.removeEventListener('wheel', wheel);
  };
}

/** The same drag, from the first sideways move on; a tap is a click. */
function afterMove(drag: Drag, startX: number, startY: number): Drag {
  let isMoving = false;
  return {
    move: (x, y) => {
      isMoving ||= Math.abs(x - startX) > TAP_PIXELS;
      if (isMoving) drag.move(x, y);
    },
    end: (x, y) => {
      if (!isMoving && Math.hypot(x - startX, y - startY) > TAP_PIXELS) {
        drag.cancel?.();
        return;
      }
      // A finger is less steady than a mouse: a tap ends where it began.
      const [endX, endY] = isMoving ? [x, y] : [startX, startY];
      if (!isMoving) drag.move(endX, endY);
      drag.end?.(endX, endY);
    },
    cancel: () => drag.cancel?.(),
  };
}

/** Zooms the timeline's scale in bytes. Without a place, its bottom stays. */
export function zoomHeight(factor: number, about = heightView.value.from): void {
  heightView.value = zoom(heightView.value, 1, factor, about);
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
