// Colours of memory in the page, for any colour vision. Grey means held from the driver and free, and nothing else. All data
// has a contrast of at least 3:1 to the ground, and any two categories differ for every kind of colour blindness.
import { type ColourMode, FADED, isScale, REST, SCALE_STEPS, SELECTED } from './block-classes.ts';

export type Rgb = readonly [number, number, number];

export interface MapTheme {
  /** Addresses that are not held. */
  readonly empty: Rgb;
  /** Held from the driver and free. */
  readonly held: Rgb;
  /** What a selection takes in, and what it leaves out. */
  readonly selected: Rgb;
  readonly faded: Rgb;
  /** In the order of CATEGORY_ORDER; the last is for the rest. */
  readonly categories: readonly Rgb[];
  /** From the least to the most. */
  readonly scale: readonly Rgb[];
}

export const LIGHT_MAP: MapTheme = {
  empty: [255, 255, 255],
  held: [146, 148, 152],
  selected: [214, 0, 100],
  faded: [118, 150, 186],
  categories: [
    [0, 123, 255],
    [123, 62, 182],
    [202, 43, 9],
    [27, 126, 139],
    [133, 102, 72],
    [39, 48, 95],
    [0, 167, 107],
    [191, 135, 8],
    [186, 55, 120],
  ],
  scale: [
    [229, 107, 93],
    [209, 79, 115],
    [185, 50, 137],
    [150, 20, 160],
    [106, 0, 168],
    [58, 4, 153],
    [13, 8, 135],
  ],
};

export const DARK_MAP: MapTheme = {
  empty: [22, 25, 31],
  held: [106, 110, 118],
  selected: [255, 120, 190],
  faded: [66, 110, 166],
  categories: [
    [35, 123, 255],
    [192, 155, 252],
    [250, 107, 51],
    [95, 213, 218],
    [149, 121, 92],
    [97, 116, 162],
    [112, 183, 116],
    [247, 195, 66],
    [248, 136, 182],
  ],
  scale: [
    [190, 55, 133],
    [209, 79, 115],
    [225, 100, 98],
    [241, 130, 77],
    [251, 160, 56],
    [252, 200, 38],
    [240, 249, 33],
  ],
};

/** For pages that know no theme. */
export const CATEGORY_COLOURS: readonly Rgb[] = LIGHT_MAP.categories;

/** A colour of a theme's scale, from 0 (the least) to 1. */
export function scaleColour(theme: MapTheme, share: number): Rgb {
  const { scale } = theme;
  const at = Math.min(1, Math.max(0, share)) * (scale.length - 1);
  const left = scale[Math.floor(at)]!;
  const right = scale[Math.ceil(at)]!;
  const part = at - Math.floor(at);
  return [0, 1, 2].map((channel) => Math.round(left[channel]! + (right[channel]! - left[channel]!) * part)) as unknown as Rgb;
}

/** Red, green and blue of every class. */
export function paletteOf(mode: ColourMode, theme: MapTheme): Uint8Array {
  const palette = new Uint8Array(256 * 3);
  for (let kind = 0; kind < 256; kind++) palette.set(colourOf(mode, kind, theme), kind * 3);
  return palette;
}

export function colourOf(mode: ColourMode, kind: number, theme: MapTheme): Rgb {
  if (kind === SELECTED) return theme.selected;
  if (kind === FADED) return theme.faded;
  return isScale(mode) ? scaleColour(theme, kind / (SCALE_STEPS - 1)) : theme.categories[Math.min(kind, REST)]!;
}

export function css([red, green, blue]: Rgb): string {
  return `rgb(${red} ${green} ${blue})`;
}
