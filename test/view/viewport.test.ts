// Views stay inside their axis, zooming keeps its anchor, and grids cover what they are for.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { detailGrid, focus, pan, reveal, within, zoom } from '../../src/view/viewport.ts';

const WHOLE = 1000;
const views = fc
  .tuple(fc.double({ min: 0, max: WHOLE, noNaN: true }), fc.double({ min: 0.001, max: WHOLE, noNaN: true }))
  .map(([from, width]) => within({ from, to: from + width }, WHOLE));

describe('a viewport', () => {
  it('never leaves the axis, whatever is done to it', () => {
    const share = fc.double({ min: 0, max: 1, noNaN: true });
    const factor = fc.double({ min: 0.01, max: 100, noNaN: true });
    fc.assert(
      fc.property(views, share, factor, fc.double({ min: -5000, max: 5000, noNaN: true }), (view, at, by, move) => {
        const about = view.from + at * (view.to - view.from);
        for (const next of [
          zoom(view, WHOLE, by, about),
          pan(view, WHOLE, move),
          reveal(view, WHOLE, at * WHOLE),
          focus(view.from, view.to, WHOLE),
        ]) {
          expect(next.from).toBeGreaterThanOrEqual(0);
          expect(next.to).toBeLessThanOrEqual(WHOLE + 1e-9);
          expect(next.to).toBeGreaterThan(next.from);
        }
      }),
    );
  });

  it('zooms about the point that is given', () => {
    const next = zoom({ from: 200, to: 600 }, WHOLE, 0.5, 300);
    expect(next).toEqual({ from: 250, to: 450 });
  });

  it('is covered by its grid, at about a cell per pixel', () => {
    fc.assert(
      fc.property(views, fc.integer({ min: 64, max: 3000 }), (view, pixels) => {
        const grid = detailGrid(view, WHOLE, pixels);
        expect(grid.from).toBeLessThanOrEqual(view.from);
        expect(grid.to).toBeGreaterThanOrEqual(view.to - 1e-6);
        const perPixel = ((grid.cells / (grid.to - grid.from)) * (view.to - view.from)) / pixels;
        expect(perPixel).toBeGreaterThan(0.6);
        expect(perPixel).toBeLessThan(1.5);
        expect(grid.cells).toBeLessThan(pixels * 3 + 256);
      }),
    );
  });

  it('keeps its grid while it moves a little', () => {
    const grid = detailGrid({ from: 400, to: 420 }, WHOLE, 1200);
    expect(detailGrid({ from: 400.1, to: 420.1 }, WHOLE, 1200)).toEqual(grid);
  });
});
