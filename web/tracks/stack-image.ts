// Paints a stacked timeline as an image: one pixel column per data column, bands from the bottom up, and in each band its large
// tensors, one above the other. A frame then copies the image, whatever it shows.
import type { Rgb } from '../../src/view/colours.ts';
import type { StackColumns } from '../../src/view/stack-columns.ts';
import type { Viewport } from '../../src/view/viewport.ts';

export interface BandLook {
  readonly colour: Rgb;
  /** What has no name of its own is hatched. */
  readonly isHatched: boolean;
}

export interface StackLook {
  readonly bands: readonly BandLook[];
  readonly ground: Rgb;
  readonly selected: Rgb;
  /** The selected allocation; -1: none. */
  readonly allocation: number;
  readonly rows: number;
  /** Bytes from the bottom of the image to its top. */
  readonly range: Viewport;
}

/** Tensors that are lower or narrower than this have no edge: edges would be all that is seen of them. */
const LEAST_EDGED = 3;
/** How far edges, hatches, and every other tensor, are from the colour of their band toward black or white. */
const EDGE = 0.45;
const HATCH = 0.25;
const SHADE = 0.12;

export function paintStack(stack: StackColumns, look: StackLook): HTMLCanvasElement {
  const canvas = document.createElement('canvas');
  canvas.width = stack.columns;
  canvas.height = look.rows;
  const context = canvas.getContext('2d')!;
  const image = context.createImageData(stack.columns, look.rows);
  new Painter(stack, look, new Uint32Array(image.data.buffer)).paint();
  context.putImageData(image, 0, 0);
  return canvas;
}

class Painter {
  private readonly stack: StackColumns;
  private readonly look: StackLook;
  private readonly pixels: Uint32Array;
  /** Bytes below the next tensor of each column, and the pixel row where that is. */
  private readonly level: Float64Array;
  private readonly row: Int32Array;
  private readonly perByte: number;

  constructor(stack: StackColumns, look: StackLook, pixels: Uint32Array) {
    this.stack = stack;
    this.look = look;
    this.pixels = pixels;
    this.level = new Float64Array(stack.columns);
    this.perByte = look.rows / (look.range.to - look.range.from);
    this.row = new Int32Array(stack.columns).fill(this.rowOf(0));
  }

  paint(): void {
    const { stack, look } = this;
    let tensor = 0;
    const before = new Float64Array(stack.columns);
    for (let band = 0; band < stack.bands; band++) {
      const { colour, isHatched } = look.bands[band]!;
      const isLightGround = look.ground[0] > 128;
      const plain = [packed(colour), packed(toward(colour, isLightGround ? 0 : 255, SHADE))] as const;
      const edge = packed(toward(colour, isLightGround ? 255 : 0, EDGE));
      const hatch = isHatched ? packed(toward(colour, isLightGround ? 255 : 0, HATCH)) : 0;
      before.set(this.level);
      for (; tensor < stack.tensor.length && stack.tensorBand[tensor] === band; tensor++) {
        const isSelected = stack.tensor[tensor] === look.allocation;
        this.paintTensor(tensor, isSelected ? packed(look.selected) : plain[stack.tensor[tensor]! & 1]!, edge);
      }
      for (let column = 0; column < stack.columns; column++) {
        const top = before[column]! + stack.bytes[column * stack.bands + band]!;
        this.raise(column, top);
        this.fill(column, this.row[column]!, this.rowOf(top), plain[0], hatch);
        this.row[column] = this.rowOf(top);
      }
    }
  }

  private paintTensor(tensor: number, colour: number, edge: number): void {
    const { stack, level, row } = this;
    const first = stack.tensorFrom[tensor]!;
    const end = stack.tensorTo[tensor]!;
    const bytes = stack.tensorBytes[tensor]!;
    const isWide = end - first >= LEAST_EDGED;
    for (let column = first; column < end; column++) {
      const bottom = row[column]!;
      this.raise(column, level[column]! + bytes);
      const top = this.rowOf(level[column]!);
      row[column] = top;
      if (bottom - top < LEAST_EDGED || !isWide) {
        this.fill(column, bottom, top, colour, 0);
        continue;
      }
      const isSide = column === first && first > 0;
      this.fill(column, bottom, top + 1, isSide ? edge : colour, 0);
      this.fill(column, top + 1, top, edge, 0);
    }
  }

  private raise(column: number, to: number): void {
    this.level[column] = to;
  }

  private rowOf(bytes: number): number {
    return Math.round(this.look.rows - (bytes - this.look.range.from) * this.perByte);
  }

  /** Rows `top` to `bottom - 1`; with `hatch`, some of them in that colour. */
  private fill(column: number, bottom: number, top: number, colour: number, hatch: number): void {
    const { pixels, look, stack } = this;
    const last = Math.min(bottom, look.rows);
    for (let row = Math.max(0, top), at = row * stack.columns + column; row < last; row++, at += stack.columns)
      pixels[at] = hatch !== 0 && (row + column) % 6 < 2 ? hatch : colour;
  }
}

function toward([red, green, blue]: Rgb, end: number, share: number): Rgb {
  const mix = (channel: number) => Math.round(channel + (end - channel) * share);
  return [mix(red), mix(green), mix(blue)];
}

/** A pixel in memory; browsers run on little-endian machines only. */
function packed([red, green, blue]: Rgb): number {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}
