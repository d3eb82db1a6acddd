// Colours of a flame graph. Frames of one file share a hue. The user's own code is filled; libraries are pale with an edge, so that
// they step back and can still be read.
import { RectKind } from './flame.ts';

export interface RectColours {
  readonly fill: string;
  readonly edge: string;
  readonly text: string;
}

/** Of text on its rectangle, and of a rectangle or its edge on the page. */
export const LEAST_TEXT_CONTRAST = 4.5;
export const LEAST_EDGE_CONTRAST = 3;

const HUES = 36;
const known = new Map<string, RectColours>();

export function rectColours(kind: number, place: string, isDark: boolean): RectColours {
  const hue = kind === RectKind.User || kind === RectKind.Library ? hueOf(place) : -1;
  const key = `${kind} ${hue} ${isDark}`;
  let colours = known.get(key);
  if (!colours) {
    colours = make(kind, hue, isDark);
    known.set(key, colours);
  }
  return colours;
}

/** The file without its line. */
export function hueOf(place: string): number {
  const file = place.replace(/:\d+$/, '');
  let hash = 0;
  for (let at = 0; at < file.length; at++) hash = (hash * 31 + file.charCodeAt(at)) | 0;
  return (Math.abs(hash) % HUES) * (360 / HUES);
}

function make(kind: number, hue: number, isDark: boolean): RectColours {
  const text = isDark ? '#e6e9ee' : '#1b1f27';
  const surface = isDark ? '#181c23' : '#ffffff';
  if (hue < 0) {
    // The whole, and memory without a stack: neutral, with an edge.
    return isDark ? { fill: '#2a313b', edge: '#8296ab', text } : { fill: '#eef1f5', edge: '#5b6b7d', text };
  }
  if (kind === RectKind.User) {
    const inverse = isDark ? '#10151c' : '#ffffff';
    const fill = withContrast(hue, 0.42, inverse, LEAST_TEXT_CONTRAST, isDark);
    return { fill, edge: fill, text: inverse };
  }
  return {
    fill: hsl(hue, isDark ? 0.22 : 0.5, isDark ? 0.2 : 0.94),
    edge: withContrast(hue, 0.4, surface, LEAST_EDGE_CONTRAST, isDark),
    text,
  };
}

/** The colour of a hue that is nearest to `against` and still has the contrast. */
function withContrast(hue: number, saturation: number, against: string, least: number, isLighter: boolean): string {
  for (let step = 0; step <= 100; step++) {
    const lightness = isLighter ? 0.3 + step * 0.007 : 0.7 - step * 0.007;
    const colour = hsl(hue, saturation, lightness);
    if (contrast(colour, against) >= least) return colour;
  }
  return isLighter ? '#ffffff' : '#000000';
}

function hsl(hue: number, saturation: number, lightness: number): string {
  const reach = saturation * Math.min(lightness, 1 - lightness);
  const channel = (offset: number) => {
    const at = (offset + hue / 30) % 12;
    const value = lightness - reach * Math.max(-1, Math.min(at - 3, 9 - at, 1));
    return Math.round(value * 255)
      .toString(16)
      .padStart(2, '0');
  };
  return `#${channel(0)}${channel(8)}${channel(4)}`;
}

/** By WCAG: 1 to 21. */
export function contrast(one: string, other: string): number {
  const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b) as [number, number];
  return (high + 0.05) / (low + 0.05);
}

function luminance(colour: string): number {
  const [red, green, blue] = [1, 3, 5].map((at) => {
    const value = Number.parseInt(colour.slice(at, at + 2), 16) / 255;
    return value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  }) as [number, number, number];
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
