// Draws a flame graph, and finds rectangles: under the pointer, and in the direction of an arrow key.
import type { FlameGraph } from '../../src/view/flame.ts';
import { rectColours } from '../../src/view/flame-colours.ts';
import { isPrinting, PAPER_WIDTH, themeColour } from '../app/theme.ts';
import { prepareCanvas } from '../tracks/canvas.ts';

export const ROW = 19;
const NARROWEST_TEXT = 32;

interface Look {
  readonly isDark: boolean;
  /** The rectangle that keys act on; -1: none. */
  readonly focused: number;
  readonly isSearching: boolean;
}

export function drawFlame(canvas: HTMLCanvasElement, flame: FlameGraph, { isDark, focused, isSearching }: Look): void {
  const width = isPrinting.peek() ? PAPER_WIDTH : canvas.parentElement!.clientWidth;
  const context = prepareCanvas(canvas, width, Math.max(ROW, flame.depth * ROW));
  context.textBaseline = 'middle';
  for (let index = 0; index < flame.node.length; index++) {
    const left = flame.x[index]! * width;
    const top = flame.row[index]! * ROW;
    const wide = Math.max(1, flame.width[index]! * width - 1);
    const { fill, edge, text } = isSearching && flame.isMatch[index] === 1 ? matchColours(isDark) : coloursOf(flame, index, isDark);
    context.fillStyle = fill;
    context.fillRect(left, top, wide, ROW - 1);
    if (wide > 2) {
      context.strokeStyle = edge;
      context.lineWidth = 1;
      context.strokeRect(left + 0.5, top + 0.5, wide - 1, ROW - 2);
    }
    if (wide > NARROWEST_TEXT) {
      context.fillStyle = text;
      context.fillText(shorten(context, flame.name[index]!, wide - 10), left + 5, top + ROW / 2);
    }
  }
  if (focused >= 0 && focused < flame.node.length) {
    context.strokeStyle = themeColour('bad');
    context.lineWidth = 2;
    const wide = Math.max(3, flame.width[focused]! * width - 1);
    context.strokeRect(flame.x[focused]! * width + 1, flame.row[focused]! * ROW + 1, wide - 2, ROW - 3);
  }
}

function coloursOf(flame: FlameGraph, index: number, isDark: boolean): ReturnType<typeof rectColours> {
  return rectColours(flame.kind[index]!, flame.place[index]!, isDark);
}

function matchColours(isDark: boolean): ReturnType<typeof rectColours> {
  return isDark ? { fill: '#f2e14b', edge: '#f2e14b', text: '#10151c' } : { fill: '#7a1fa2', edge: '#7a1fa2', text: '#ffffff' };
}

function shorten(context: CanvasRenderingContext2D, name: string, room: number): string {
  if (context.measureText(name).width <= room) return name;
  const letters = Math.max(1, Math.floor((name.length * room) / context.measureText(name).width) - 1);
  return `${name.slice(0, letters)}…`;
}

export function rectAt(flame: FlameGraph, canvas: HTMLCanvasElement, event: MouseEvent): number {
  const bounds = canvas.getBoundingClientRect();
  const x = (event.clientX - bounds.left) / bounds.width;
  return rectIn(flame, Math.floor((event.clientY - bounds.top) / ROW), x);
}

function rectIn(flame: FlameGraph, row: number, x: number): number {
  for (let index = 0; index < flame.node.length; index++) {
    if (flame.row[index] === row && x >= flame.x[index]! && x < flame.x[index]! + flame.width[index]!) return index;
  }
  return -1;
}

/** Where an arrow key leads from a rectangle: up to its parent, down to its widest child, sideways to its neighbours. */
export function neighbour(flame: FlameGraph, from: number, key: string): number {
  const row = flame.row[from]!;
  const middle = flame.x[from]! + flame.width[from]! / 2;
  const inRow = (wanted: number) => [...flame.row.keys()].filter((index) => flame.row[index] === wanted);
  switch (key) {
    case 'ArrowUp':
      return rectIn(flame, row - 1, middle);
    case 'ArrowDown':
      return inRow(row + 1)
        .filter((index) => flame.x[index]! >= flame.x[from]! - 1e-9 && flame.x[index]! < flame.x[from]! + flame.width[from]! - 1e-9)
        .reduce((best, index) => (best < 0 || flame.width[index]! > flame.width[best]! ? index : best), -1);
    case 'ArrowRight':
      return inRow(row).reduce(
        (best, index) => (flame.x[index]! > flame.x[from]! && (best < 0 || flame.x[index]! < flame.x[best]!) ? index : best),
        -1,
      );
    case 'ArrowLeft':
      return inRow(row).reduce(
        (best, index) => (flame.x[index]! < flame.x[from]! && (best < 0 || flame.x[index]! > flame.x[best]!) ? index : best),
        -1,
      );
    case 'Home':
      return 0;
    default:
      return -1;
  }
}
