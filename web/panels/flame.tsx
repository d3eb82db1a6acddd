// The flame graph of live bytes at the cursor, by call stack. A click selects, a second click zooms.
import { batch, effect } from '@preact/signals';
import { useEffect, useRef, useState } from 'preact/hooks';
import { formatBytes } from '../../src/base/bytes.ts';
import { formatShare } from '../../src/report/words/numbers.ts';
import { CATEGORY_COLOURS, type Rgb } from '../../src/view/colours.ts';
import type { FlameGraph } from '../../src/view/flame.ts';
import { refreshMoment } from '../app/selecting.ts';
import { flameRoot, mainState, selection } from '../app/state.ts';
import { isDark, themeColour } from '../app/theme.ts';
import { prepareCanvas } from '../tracks/canvas.ts';

const ROW = 18;
const NARROWEST_TEXT = 32;

interface Tip {
  readonly x: number;
  readonly y: number;
  readonly index: number;
}

export function Flame() {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [tip, setTip] = useState<Tip | undefined>(undefined);
  useEffect(() => {
    const element = canvas.current;
    if (!element) return undefined;
    const redraw = () => draw(element);
    const stop = effect(redraw);
    const observer = new ResizeObserver(redraw);
    observer.observe(element.parentElement!);
    return () => {
      stop();
      observer.disconnect();
    };
  }, []);
  const flame = mainState.value?.flame;
  const at = (event: MouseEvent) => (canvas.current && flame ? hit(flame, canvas.current, event) : -1);
  const select = (event: MouseEvent) => {
    const index = at(event);
    if (!flame || index < 0) return;
    const node = flame.node[index]!;
    if (selection.value.node === node) {
      flameRoot.value = flameRoot.value === node ? undefined : node;
      refreshMoment();
    } else selection.value = { node };
  };
  const hover = (event: MouseEvent) => {
    const index = at(event);
    const bounds = canvas.current!.getBoundingClientRect();
    setTip(index < 0 ? undefined : { x: event.clientX - bounds.left, y: event.clientY - bounds.top, index });
  };
  return (
    <div class="flame">
      <div class="panel-bar">
        <span class="faint">Outermost call on top; width is bytes. Click selects, click again zooms.</span>
        {flameRoot.value !== undefined && (
          <button
            type="button"
            class="small"
            onClick={() => {
              batch(() => {
                flameRoot.value = undefined;
                selection.value = {};
              });
              refreshMoment();
            }}
          >
            Zoom out
          </button>
        )}
      </div>
      <div class="flame-scroll">
        {/* The table beside it has the same figures in text. */}
        <canvas
          ref={canvas}
          role="img"
          aria-label="Flame graph of live bytes by call stack"
          onClick={select}
          onMouseMove={hover}
          onMouseLeave={() => setTip(undefined)}
        />
        {tip && flame && flame.name[tip.index] !== undefined && (
          <div
            class="tip"
            style={{
              left: `${tip.x + 12}px`,
              top: `${tip.y + 12}px`,
              translate: tip.x > (canvas.current?.clientWidth ?? 0) / 2 ? 'calc(-100% - 24px) 0' : 'none',
            }}
          >
            <strong>{formatBytes(flame.bytes[tip.index]!)}</strong> {formatShare(flame.bytes[tip.index]!, flame.total)}
            <div>{flame.name[tip.index]}</div>
            <div class="faint">{flame.place[tip.index]}</div>
          </div>
        )}
      </div>
    </div>
  );
}

function draw(canvas: HTMLCanvasElement): void {
  const flame = mainState.value?.flame;
  const dark = isDark.value;
  const selected = selection.value.node;
  if (!flame) return;
  const width = canvas.parentElement!.clientWidth;
  const height = Math.max(ROW, flame.depth * ROW);
  const context = prepareCanvas(canvas, width, height);
  context.textBaseline = 'middle';
  const text = themeColour('text');
  for (let index = 0; index < flame.node.length; index++) {
    const left = flame.x[index]! * width;
    const top = flame.row[index]! * ROW;
    const wide = flame.width[index]! * width;
    context.fillStyle = colourFor(flame, index, dark);
    context.fillRect(left + 0.5, top + 0.5, Math.max(0.5, wide - 1), ROW - 1);
    if (flame.node[index] === selected) {
      context.strokeStyle = themeColour('bad');
      context.lineWidth = 2;
      context.strokeRect(left + 1.5, top + 1.5, Math.max(1, wide - 3), ROW - 3);
    }
    if (wide > NARROWEST_TEXT) {
      context.fillStyle = text;
      context.fillText(shorten(context, flame.name[index]!, wide - 10), left + 4, top + ROW / 2 + 0.5);
    }
  }
}

function shorten(context: CanvasRenderingContext2D, name: string, room: number): string {
  if (context.measureText(name).width <= room) return name;
  const letters = Math.max(1, Math.floor((name.length * room) / context.measureText(name).width) - 1);
  return `${name.slice(0, letters)}…`;
}

/** One colour per source folder, softened so that text stays readable on it. */
function colourFor(flame: FlameGraph, index: number, dark: boolean): string {
  const folder = flame.place[index]!.split('/').slice(-3, -1).join('/');
  let hash = 0;
  for (let at = 0; at < folder.length; at++) hash = (hash * 31 + folder.charCodeAt(at)) | 0;
  const colour: Rgb = folder === '' ? [128, 128, 128] : CATEGORY_COLOURS[Math.abs(hash) % (CATEGORY_COLOURS.length - 1)]!;
  const [toward, share] = dark ? [30, 0.45] : [255, 0.55];
  return `rgb(${colour.map((channel) => Math.round(channel + (toward - channel) * share)).join(' ')})`;
}

function hit(flame: FlameGraph, canvas: HTMLCanvasElement, event: MouseEvent): number {
  const bounds = canvas.getBoundingClientRect();
  const x = (event.clientX - bounds.left) / bounds.width;
  const row = Math.floor((event.clientY - bounds.top) / ROW);
  for (let index = 0; index < flame.node.length; index++) {
    if (flame.row[index] === row && x >= flame.x[index]! && x < flame.x[index]! + flame.width[index]!) return index;
  }
  return -1;
}
