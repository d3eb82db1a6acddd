// Colours for any colour vision: Okabe and Ito's palette for categories, viridis for scales.
import { CATEGORIES, type ColourMode, FADED, SCALE_STEPS } from './block-classes.ts';

export type Rgb = readonly [number, number, number];

/** Okabe-Ito without black; the last one, grey, is for the rest. */
export const CATEGORY_COLOURS: readonly Rgb[] = [
  [0, 114, 178],
  [230, 159, 0],
  [0, 158, 115],
  [204, 121, 167],
  [86, 180, 233],
  [213, 94, 0],
  [240, 228, 66],
  [140, 140, 140],
];

/** Viridis at equal steps. */
const VIRIDIS: readonly Rgb[] = [
  [68, 1, 84],
  [72, 40, 120],
  [62, 74, 137],
  [49, 104, 142],
  [38, 130, 142],
  [31, 158, 137],
  [53, 183, 121],
  [110, 206, 88],
  [181, 222, 43],
  [253, 231, 37],
];

export interface MapTheme {
  /** Addresses that are not held. */
  readonly empty: Rgb;
  /** Held from the driver and free. */
  readonly held: Rgb;
  readonly faded: Rgb;
}

export const LIGHT_MAP: MapTheme = { empty: [255, 255, 255], held: [228, 231, 236], faded: [198, 203, 211] };
export const DARK_MAP: MapTheme = { empty: [22, 25, 31], held: [45, 50, 60], faded: [66, 72, 84] };

export function viridis(share: number): Rgb {
  const at = Math.min(1, Math.max(0, share)) * (VIRIDIS.length - 1);
  const left = VIRIDIS[Math.floor(at)]!;
  const right = VIRIDIS[Math.ceil(at)]!;
  const part = at - Math.floor(at);
  return [0, 1, 2].map((channel) => Math.round(left[channel]! + (right[channel]! - left[channel]!) * part)) as unknown as Rgb;
}

/** Red, green and blue of every class. */
export function paletteOf(mode: ColourMode, theme: MapTheme): Uint8Array {
  const palette = new Uint8Array(256 * 3);
  for (let kind = 0; kind < 256; kind++) palette.set(kind === FADED ? theme.faded : colourOf(mode, kind), kind * 3);
  return palette;
}

export function colourOf(mode: ColourMode, kind: number): Rgb {
  if (mode === 'stream' || mode === 'stack') return CATEGORY_COLOURS[Math.min(kind, CATEGORIES)]!;
  return viridis(kind / (SCALE_STEPS - 1));
}

export function css([red, green, blue]: Rgb): string {
  return `rgb(${red} ${green} ${blue})`;
}
