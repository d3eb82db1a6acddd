// The rules of colours: seen against the ground, never grey if they are data, and told apart by every kind of colour vision.
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { CATEGORY_ORDER, COLOUR_MODES, FADED, SCALE_STEPS, SELECTED } from '../../src/view/block-classes.ts';
import { colourOf, DARK_MAP, LIGHT_MAP, type MapTheme, paletteOf, type Rgb } from '../../src/view/colours.ts';
import { ciede2000, contrast, leastDifference, lightnessAndChroma } from '../support/colour-science.ts';
import { ROOT } from '../support/command.ts';

/** WCAG's least contrast for parts of graphics. */
const LEAST_CONTRAST = 3;
const LEAST_DIFFERENCE = 11;
/** Above that nobody calls a colour grey; below the other, everybody does. */
const LEAST_CHROMA = 18;
const MOST_OF_GREY = 6;

/** `--surface` of both themes: the ground of the timeline. */
const surfaces = [...readFileSync(new URL('web/style/base.css', ROOT), 'utf8').matchAll(/--surface: #(..)(..)(..);/g)].map(
  ([, ...channels]) => channels.slice(0, 3).map((channel) => Number.parseInt(channel!, 16)) as unknown as Rgb,
);

function scaleOf(theme: MapTheme): Rgb[] {
  return Array.from({ length: SCALE_STEPS }, (_, step) => colourOf('size', step, theme));
}

describe('colour science', () => {
  it('agrees with published figures', () => {
    expect(contrast([0, 0, 0], [255, 255, 255])).toBeCloseTo(21, 5);
    expect(contrast([118, 118, 118], [255, 255, 255])).toBeCloseTo(4.54, 2);
    // From the test data of Sharma, Wu and Dalal (2005).
    expect(ciede2000([50, 2.6772, -79.7751], [50, 0, -82.7485])).toBeCloseTo(2.0425, 4);
    expect(ciede2000([50, 2.5, 0], [73, 25, -18])).toBeCloseTo(27.1492, 4);
    expect(ciede2000([6.7747, -0.2908, -2.4247], [5.8714, -0.0985, -2.2286])).toBeCloseTo(0.6377, 4);
    // Red and green of one lightness are nearly the same for a deuteranope.
    expect(leastDifference([190, 100, 40], [120, 140, 30]).vision).not.toBe('normal');
  });
});

describe.each([
  ['light', LIGHT_MAP, 0],
  ['dark', DARK_MAP, 1],
] as const)('the %s theme', (_, theme, place) => {
  const data = [...theme.categories, ...scaleOf(theme), theme.selected, theme.faded];

  it('shows data and free memory against the ground of map and timeline', () => {
    expect(surfaces).toHaveLength(2);
    for (const ground of [theme.empty, surfaces[place]!])
      for (const colour of [...data, theme.held])
        expect.soft(contrast(colour, ground), `${colour} on ${ground}`).toBeGreaterThan(LEAST_CONTRAST);
  });

  it('keeps grey for memory that is free', () => {
    for (const colour of data) expect.soft(lightnessAndChroma(colour).chroma, `${colour}`).toBeGreaterThan(LEAST_CHROMA);
    expect(lightnessAndChroma(theme.held).chroma).toBeLessThan(MOST_OF_GREY);
  });

  it('tells every two categories apart, and each from free memory, for any colour vision', () => {
    expect(theme.categories).toHaveLength(CATEGORY_ORDER.length);
    const colours = [...theme.categories, theme.held];
    colours.forEach((one, index) => {
      for (const other of colours.slice(index + 1)) {
        const { difference, vision } = leastDifference(one, other);
        expect.soft(difference, `${one} and ${other}, ${vision}`).toBeGreaterThan(LEAST_DIFFERENCE);
      }
    });
  });

  it('tells what is selected from everything else', () => {
    for (const [one, other] of [
      [theme.selected, theme.faded],
      [theme.selected, theme.held],
      [theme.faded, theme.held],
    ] as const) {
      const { difference, vision } = leastDifference(one, other);
      expect.soft(difference, `${one} and ${other}, ${vision}`).toBeGreaterThan(LEAST_DIFFERENCE);
    }
  });

  it('runs from the ground to the strongest contrast on a scale, so that grey tells its steps apart too', () => {
    const against = scaleOf(theme).map((colour) => contrast(colour, theme.empty));
    expect([...against].sort((a, b) => a - b)).toEqual(against);
  });

  it('has a colour for every class', () => {
    for (const mode of COLOUR_MODES) {
      const palette = paletteOf(mode, theme);
      expect(palette).toHaveLength(768);
      expect([...palette.subarray(SELECTED * 3)]).toEqual([...theme.selected, ...theme.faded]);
      expect([...palette.subarray(FADED * 3)]).toEqual(theme.faded);
    }
  });
});
