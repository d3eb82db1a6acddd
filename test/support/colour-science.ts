// Colours as people see them: contrast (WCAG 2), lightness and chroma (CIELAB), difference (CIEDE2000), and what remains of them
// for each kind of colour blindness (Machado, Oliveira and Fernandes 2009, at full severity).
export type Rgb = readonly [number, number, number];
type Triple = readonly [number, number, number];

const SIMULATIONS: Readonly<Record<string, readonly [Triple, Triple, Triple]>> = {
  normal: [
    [1, 0, 0],
    [0, 1, 0],
    [0, 0, 1],
  ],
  protan: [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998],
  ],
  deutan: [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.01182, 0.04294, 0.968881],
  ],
  tritan: [
    [1.255528, -0.076749, -0.178779],
    [-0.078411, 0.930809, 0.147602],
    [0.004733, 0.691367, 0.3039],
  ],
};

function linear(channel: number): number {
  const share = channel / 255;
  return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
}

const dot = (row: Triple, [x, y, z]: Triple): number => row[0] * x + row[1] * y + row[2] * z;
const clamp = (share: number): number => Math.min(1, Math.max(0, share));

function luminance(colour: Rgb): number {
  return dot([0.2126, 0.7152, 0.0722], colour.map(linear) as unknown as Triple);
}

export function contrast(one: Rgb, other: Rgb): number {
  const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b) as [number, number];
  return (high + 0.05) / (low + 0.05);
}

function toLab(light: Triple): Triple {
  const curve = (share: number) => (share > 216 / 24389 ? Math.cbrt(share) : ((24389 / 27) * share + 16) / 116);
  const x = curve(dot([0.4124564, 0.3575761, 0.1804375], light) / 0.95047);
  const y = curve(dot([0.2126729, 0.7151522, 0.072175], light));
  const z = curve(dot([0.0193339, 0.119192, 0.9503041], light) / 1.08883);
  return [116 * y - 16, 500 * (x - y), 200 * (y - z)];
}

export function lightnessAndChroma(colour: Rgb): { lightness: number; chroma: number } {
  const [lightness, a, b] = toLab(colour.map(linear) as unknown as Triple);
  return { lightness, chroma: Math.hypot(a, b) };
}

/** The least difference of two colours for any kind of colour vision, and that kind. */
export function leastDifference(one: Rgb, other: Rgb): { difference: number; vision: string } {
  return Object.entries(SIMULATIONS)
    .map(([vision, matrix]) => {
      const [first, second] = [one, other].map((colour) => {
        const light = colour.map(linear) as unknown as Triple;
        return toLab(matrix.map((row) => clamp(dot(row, light))) as unknown as Triple);
      });
      return { vision, difference: ciede2000(first!, second!) };
    })
    .reduce((least, next) => (next.difference < least.difference ? next : least));
}

const radians = (degrees: number): number => (degrees * Math.PI) / 180;

function hueOf(a: number, b: number): number {
  if (a === 0 && b === 0) return 0;
  return ((Math.atan2(b, a) * 180) / Math.PI + 360) % 360;
}

export function ciede2000([l1, a1, b1]: Triple, [l2, a2, b2]: Triple): number {
  const meanChroma = (Math.hypot(a1, b1) + Math.hypot(a2, b2)) / 2;
  const stretch = 1.5 - 0.5 * Math.sqrt(meanChroma ** 7 / (meanChroma ** 7 + 25 ** 7));
  const [c1, c2] = [Math.hypot(a1 * stretch, b1), Math.hypot(a2 * stretch, b2)];
  const [h1, h2] = [hueOf(a1 * stretch, b1), hueOf(a2 * stretch, b2)];
  const isGrey = c1 * c2 === 0;
  let turn = isGrey ? 0 : h2 - h1;
  if (turn > 180) turn -= 360;
  if (turn < -180) turn += 360;
  const hueStep = 2 * Math.sqrt(c1 * c2) * Math.sin(radians(turn / 2));
  const lightness = (l1 + l2) / 2;
  const chroma = (c1 + c2) / 2;
  const sum = h1 + h2;
  const hue = isGrey ? sum : Math.abs(h1 - h2) <= 180 ? sum / 2 : (sum + (sum < 360 ? 360 : -360)) / 2;
  const weight =
    1 -
    0.17 * Math.cos(radians(hue - 30)) +
    0.24 * Math.cos(radians(2 * hue)) +
    0.32 * Math.cos(radians(3 * hue + 6)) -
    0.2 * Math.cos(radians(4 * hue - 63));
  const light = (l2 - l1) / (1 + (0.015 * (lightness - 50) ** 2) / Math.sqrt(20 + (lightness - 50) ** 2));
  const strong = (c2 - c1) / (1 + 0.045 * chroma);
  const turned = hueStep / (1 + 0.015 * chroma * weight);
  const blue = -2 * Math.sqrt(chroma ** 7 / (chroma ** 7 + 25 ** 7)) * Math.sin(radians(60 * Math.exp(-(((hue - 275) / 25) ** 2))));
  return Math.sqrt(light ** 2 + strong ** 2 + turned ** 2 + blue * strong * turned);
}
