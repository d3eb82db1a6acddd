// Colours of flame graphs: one hue per file, and text and edges that can be read in both themes.
import { describe, expect, it } from 'vitest';
import { RectKind } from '../../src/view/flame.ts';
import { contrast, hueOf, LEAST_EDGE_CONTRAST, LEAST_TEXT_CONTRAST, rectColours } from '../../src/view/flame-colours.ts';

const FILES = Array.from({ length: 400 }, (_, index) => `/home/me/job/module${index}.py:${index}`);

describe.each([
  ['light', false, '#ffffff'],
  ['dark', true, '#181c23'],
] as const)('colours of a flame graph (%s)', (_, isDark, surface) => {
  it.each(Object.entries(RectKind))('can be read: %s', (_name, kind) => {
    for (const file of FILES) {
      const { fill, edge, text } = rectColours(kind, file, isDark);
      expect(contrast(text, fill)).toBeGreaterThanOrEqual(LEAST_TEXT_CONTRAST);
      expect(contrast(edge, surface)).toBeGreaterThanOrEqual(LEAST_EDGE_CONTRAST);
    }
  });

  it('tells the code of the user from libraries of the same file', () => {
    for (const file of FILES) {
      const [user, library] = [rectColours(RectKind.User, file, isDark), rectColours(RectKind.Library, file, isDark)];
      expect(contrast(user.fill, library.fill)).toBeGreaterThan(2.5);
    }
  });
});

describe('the hue of a frame', () => {
  it('is that of its file, whatever the line', () => {
    expect(hueOf('/a/train.py:1')).toBe(hueOf('/a/train.py:999'));
    expect(new Set(FILES.map(hueOf)).size).toBeGreaterThan(20);
  });
});
