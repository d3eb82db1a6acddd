// The layout in a real browser: nothing moves while a page loads, nothing sticks out at three widths, and paper is light and full.
import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { CHROMIUM, launch, NO_BROWSER, type Served, serve, untilAnalysed, type Watch, watch } from './browser.ts';

const OOM_SAMPLE = 'samples/gpt2xl-oom.pickle.gz';
const SAMPLE = 'samples/vgg16-b100.native.pickle.gz';
const SIZES = [
  { width: 1440, height: 900 },
  { width: 1280, height: 800 },
  { width: 390, height: 844 },
];
const CASES = SIZES.flatMap((viewport) => [OOM_SAMPLE, SAMPLE].map((file) => ({ file, viewport, width: viewport.width })));
const MOST_SHIFT = 0.05;

if (!CHROMIUM) console.log(NO_BROWSER);

describe.skipIf(!CHROMIUM)(`the layout${CHROMIUM ? '' : ' (skipped: there is no Chromium)'}`, () => {
  let browser: Browser;
  let served: Served;
  let page: Page;
  let seen: Watch;

  beforeAll(async () => {
    [browser, served] = await Promise.all([launch(), serve([OOM_SAMPLE, SAMPLE])]);
  });
  afterAll(async () => {
    await browser.close();
    await served.stop();
  });
  afterEach(async () => {
    expect(seen.complaints).toEqual([]);
    await page.context().close();
  });

  async function open(file: string, viewport: { width: number; height: number }, colorScheme: 'light' | 'dark' = 'light', more = '') {
    const context = await browser.newContext({ viewport, colorScheme });
    page = await context.newPage();
    seen = watch(page);
    await page.addInitScript(`
      window.shifts = [];
      new PerformanceObserver((list) => {
        for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shifts.push(entry.value);
      }).observe({ type: 'layout-shift', buffered: true });
    `);
    await page.goto(`${served.url}#file=${encodeURIComponent(file)}${more}`);
    await untilAnalysed(page);
    await page.getByTestId('fit-figures').waitFor();
  }

  /** Elements that stick out of the page, or are cut by it. Boxes that scroll may be wider inside. */
  const sticking = () =>
    page.evaluate(`(() => {
      const width = document.documentElement.clientWidth;
      const isInside = (element) => {
        for (let at = element.parentElement; at; at = at.parentElement) if (getComputedStyle(at).overflowX !== 'visible' && at !== document.body) return true;
        return false;
      };
      return [...document.querySelectorAll('button, input, select, th, td, p, canvas, h1, h2, h3, dd, code')]
        .filter((element) => element.getBoundingClientRect().width > 0 && element.getBoundingClientRect().right > width + 1 && !isInside(element))
        .map((element) => element.tagName + ' ' + element.textContent.slice(0, 40));
    })()`);

  it.each(CASES)('$file moves by less than 0.05 while it loads at $width px', async ({ file, viewport }) => {
    await open(file, viewport);
    const shifts = (await page.evaluate('window.shifts')) as number[];
    expect(shifts.reduce((sum, shift) => sum + shift, 0)).toBeLessThan(MOST_SHIFT);
  });

  it.each(CASES)('$file does not scroll sideways at $width px', async ({ file, viewport, width }) => {
    await open(file, viewport, 'light', '&with=weir');
    await page.getByTestId('difference').waitFor({ timeout: 20_000 });
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(width);
    expect(await sticking()).toEqual([]);
    // The what-if table is whole, and no text runs into the next cell.
    const cut = await page.locator('#what-if :is(th, td)').evaluateAll((cells) =>
      cells
        .filter((cell) => {
          const child = cell.firstElementChild;
          return (
            cell.getBoundingClientRect().width > 0 && child && child.getBoundingClientRect().right > cell.getBoundingClientRect().right + 1
          );
        })
        .map((cell) => cell.textContent),
    );
    expect(cut).toEqual([]);
    const box = await page.locator('#what-if .scroll-x').evaluate((element) => [element.scrollWidth, element.clientWidth]);
    expect(box[0]).toBe(box[1]);
  });

  it.each(['light', 'dark'] as const)('prints in light colours, with its bars and without controls (%s theme)', async (colorScheme) => {
    await open(OOM_SAMPLE, SIZES[0]!, colorScheme);
    await page.locator('.track-canvas').waitFor();
    const pixels = () =>
      page.locator('canvas').evaluateAll((canvases) =>
        canvases.map((element) => {
          const canvas = element as unknown as { width: number; height: number; getContext(kind: '2d'): never };
          const context = canvas.getContext('2d') as { getImageData(x: number, y: number, w: number, h: number): { data: Uint8Array } };
          const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
          let dark = 0;
          // The ground of the dark theme.
          for (let at = 0; at < data.length; at += 4)
            if (data[at + 3]! > 200 && Math.abs(data[at]! - 0x18) + Math.abs(data[at + 1]! - 0x1c) + Math.abs(data[at + 2]! - 0x23) < 12)
              dark++;
          return dark / (data.length / 4);
        }),
      );
    await page.emulateMedia({ media: 'print' });
    await expect.poll(() => page.evaluate('document.documentElement.dataset.theme')).toBe('light');
    for (const share of await pixels()) expect(share).toBeLessThan(0.05);
    const { printColorAdjust, backgroundColor } = (await page.evaluate(`(() => {
      const { printColorAdjust, backgroundColor } = getComputedStyle(document.querySelector('.bar-part'));
      return { printColorAdjust, backgroundColor };
    })()`)) as Record<string, string>;
    expect(printColorAdjust).toBe('exact');
    expect(backgroundColor).toBe('rgb(0, 104, 163)');
    for (const control of ['.toolbar', '#search', '.copy-line button', '.fit-scrub'])
      expect(await page.locator(control).first().isVisible()).toBe(false);
    const pdf = (await page.pdf({ format: 'A4', printBackground: false })).toString('latin1');
    const pages = pdf.match(/\/Type \/Page\b/g)!.length;
    expect(pages).toBeGreaterThan(1);
    expect(pages).toBeLessThanOrEqual(4);
    // The screen is as it was.
    await page.emulateMedia({ media: 'screen' });
    await expect.poll(() => page.evaluate('document.documentElement.dataset.theme')).toBe(colorScheme);
  });
});
