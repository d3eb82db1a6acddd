// Why it did not fit, in a real browser: the strips and the request to scale, holes and their pins, the moment, at three widths.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { formatBytes } from '../../src/base/bytes.ts';
import { analyzeTrace } from '../../src/report/analysis.ts';
import { failureFile } from '../../src/run/failures/failure-file.ts';
import { weir } from '../support/command.ts';
import { failedProcess } from '../support/failed-process.ts';
import { SPLIT_BLOCK, SPLIT_HOLE, SPLIT_REQUEST, SPLIT_SEGMENTS, splitSnapshot } from '../support/split-snapshot.ts';
import { sampleTrace } from '../support/traces.ts';
import { CHROMIUM, launch, NO_BROWSER, type Served, serve, untilAnalysed, type Watch, watch } from './browser.ts';

const OOM_SAMPLE = 'samples/gpt2xl-oom.pickle.gz';
const PEAK_SAMPLE = 'samples/vgg16-b100.native.pickle.gz';
const DEMAND_SAMPLE = 'samples/exact/full-exp.pkl.gz';
const folder = mkdtempSync(join(tmpdir(), 'weir-web-fit-'));
const split = join(folder, 'split.json');
writeFileSync(split, splitSnapshot());
const WIDTHS = [1440, 1280, 390];
/** Of text and lines, by WCAG; of figures against what is behind them. */
const LEAST_CONTRAST = 3;

if (!CHROMIUM) console.log(NO_BROWSER);

describe.skipIf(!CHROMIUM)(`the strip of memory${CHROMIUM ? '' : ' (skipped: there is no Chromium)'}`, () => {
  let browser: Browser;
  let served: Served;
  let page: Page;
  let seen: Watch;
  const failures: string[] = [];

  beforeAll(async () => {
    for (const allocator of ['weir', 'pytorch'] as const) {
      const { process, failure } = failedProcess(allocator);
      const path = join(folder, `oom.${allocator}.weir`);
      writeFileSync(path, failureFile(failure, failure.state!, process));
      failures.push(path);
    }
    [browser, served] = await Promise.all([launch(), serve([split, OOM_SAMPLE, PEAK_SAMPLE, DEMAND_SAMPLE, ...failures])]);
  });
  afterAll(async () => {
    await browser.close();
    await served.stop();
    rmSync(folder, { recursive: true });
  });
  afterEach(async () => {
    expect(seen.complaints).toEqual([]);
    await page.context().close();
  });

  async function open(file: string, options: { width?: number; colorScheme?: 'dark' | 'light' } = {}): Promise<void> {
    const { width = 1440, colorScheme = 'light' } = options;
    const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme });
    page = await context.newPage();
    seen = watch(page);
    await page.goto(`${served.url}#file=${encodeURIComponent(file)}`);
    await untilAnalysed(page);
    await page.getByTestId('fit-figures').waitFor();
  }

  const canvas = (side: 'recorded' | 'beside') => page.locator(`[data-testid=fit-${side}] canvas`);
  const text = (id: string) => page.getByTestId(id).innerText();
  const cursorEvent = async () => Number(/event ([\d,]+)/.exec(await text('cursor'))![1]!.replaceAll(',', ''));
  const momentEvent = async () => Number(/event ([\d,]+)/.exec(await text('fit-moment'))![1]!.replaceAll(',', ''));

  /** First and last column of a row of a canvas that has the colour, in CSS pixels. */
  const extent = (side: 'recorded' | 'beside', y: number, colour: string) =>
    page.evaluate(`(() => {
      const canvas = document.querySelector('[data-testid=fit-${side}] canvas');
      const ratio = canvas.width / canvas.clientWidth;
      const probe = document.createElement('canvas').getContext('2d');
      probe.fillStyle = getComputedStyle(document.documentElement).getPropertyValue('--${colour}').trim();
      probe.fillRect(0, 0, 1, 1);
      const wanted = probe.getImageData(0, 0, 1, 1).data;
      const row = canvas.getContext('2d').getImageData(0, Math.round(${y} * ratio), canvas.width, 1).data;
      const found = [];
      for (let at = 0; at < canvas.width; at++)
        if ([0, 1, 2].every((channel) => Math.abs(row[at * 4 + channel] - wanted[channel]) < 12) && row[at * 4 + 3] > 200) found.push(at / ratio);
      return { first: found[0], last: found.at(-1), count: found.length, width: canvas.clientWidth };
    })()`) as Promise<{ first: number; last: number; count: number; width: number }>;

  /** Bytes per pixel of both strips: they end at the limit, and a little behind it. */
  const perPixel = (width: number, limit: number) => (limit * 1.01) / width;
  const LIMIT = SPLIT_SEGMENTS * (SPLIT_BLOCK + SPLIT_HOLE) + 10 * 2 ** 20;

  describe.each(WIDTHS)('at %d pixels', (width) => {
    it.each(['light', 'dark'] as const)('draws holes and the request to scale, and stays inside its card (%s)', async (colorScheme) => {
      await open(split, { width, colorScheme });
      expect(await text('fit-words')).toContain('The request for 150 MiB that failed at event 30.');
      expect(await text('fit-words')).toContain('270 MiB of reserved memory is free, in 6 holes. The largest that it may use has 45 MiB');
      await page.getByTestId('beside-words').waitFor();
      expect(await text('beside-words')).toContain('The request fits');
      const ghost = await extent('recorded', 2, 'bad');
      const unit = perPixel(ghost.width, LIMIT);
      // A dashed line: up to one gap may be missing at its end.
      expect(Math.abs((ghost.last - ghost.first) * unit - SPLIT_REQUEST)).toBeLessThan(6 * unit);
      // It begins where the largest hole begins: behind the first block.
      expect(Math.abs(ghost.first * unit - SPLIT_BLOCK)).toBeLessThan(4 * unit);
      const fits = await extent('beside', 40, 'good');
      expect(Math.abs(fits.count * unit - SPLIT_REQUEST)).toBeLessThan(4 * unit);
      const hatched = await extent('recorded', 40, 'fit-hole');
      const used = await extent('recorded', 40, 'fit-used');
      expect(hatched.count).toBeGreaterThan(10);
      expect(hatched.count * unit).toBeLessThan(SPLIT_SEGMENTS * SPLIT_HOLE * 0.7);
      // The first block is drawn as what pins the chosen hole.
      expect(Math.abs(used.count * unit - (SPLIT_SEGMENTS - 1) * SPLIT_BLOCK)).toBeLessThan(SPLIT_SEGMENTS * 4 * unit);
      const overflow = await page.evaluate(`(() => {
        const card = document.querySelector('#fit');
        const right = card.getBoundingClientRect().right;
        return [...card.querySelectorAll('*')].filter((each) => !each.closest('.table-scroll, .frames, .copy-line') && each.getBoundingClientRect().right > right + 0.5)
          .map((each) => each.className || each.tagName);
      })()`);
      expect(overflow).toEqual([]);
    });
  });

  it.each(WIDTHS)('has its height from the beginning, at %d pixels', async (width) => {
    const context = await browser.newContext({ viewport: { width, height: 900 } });
    page = await context.newPage();
    seen = watch(page);
    await page.addInitScript(`window.heights = []; (function look() {
      const card = document.querySelector('#fit');
      if (card) window.heights.push(card.offsetHeight);
      requestAnimationFrame(look);
    })()`);
    await page.goto(`${served.url}#file=${encodeURIComponent(OOM_SAMPLE)}`);
    await page.getByTestId('beside-words').waitFor({ timeout: 60_000 });
    await page.waitForTimeout(300);
    const heights = (await page.evaluate('window.heights')) as number[];
    expect(Math.max(...heights) - Math.min(...heights)).toBeLessThanOrEqual(2);
  });

  it.each(['light', 'dark'] as const)('has colours that stand out from the ground (%s)', async (colorScheme) => {
    await open(split, { colorScheme });
    const contrasts = (await page.evaluate(`(() => {
      const style = getComputedStyle(document.documentElement);
      const probe = document.createElement('canvas').getContext('2d');
      const parse = (name) => {
        probe.fillStyle = style.getPropertyValue('--' + name).trim();
        probe.fillRect(0, 0, 1, 1);
        return [...probe.getImageData(0, 0, 1, 1).data].slice(0, 3).map((value) => value / 255);
      };
      const light = (name) => {
        const [r, g, b] = parse(name).map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const ground = light('surface');
      return ['fit-used', 'fit-pending', 'fit-hole', 'fit-other', 'fit-pin', 'bad', 'good', 'faint'].map((name) => {
        const own = light(name);
        return [name, (Math.max(own, ground) + 0.05) / (Math.min(own, ground) + 0.05), parse(name)];
      });
    })()`)) as [string, number, [number, number, number]][];
    for (const [name, contrast, channels] of contrasts) {
      expect([name, contrast >= LEAST_CONTRAST]).toEqual([name, true]);
      // Data is never grey.
      if (name !== 'faint') expect(Math.max(...channels) - Math.min(...channels)).toBeGreaterThan(0.25);
    }
  });

  it('says what pins a hole that is clicked: size, age and call site', async () => {
    await open(split);
    // The overview of all open recordings is above it.
    await canvas('recorded').scrollIntoViewIfNeeded();
    const box = (await canvas('recorded').boundingBox())!;
    const unit = perPixel(box.width, LIMIT);
    const third = 2 * (SPLIT_BLOCK + SPLIT_HOLE) + SPLIT_BLOCK + SPLIT_HOLE / 2;
    await page.mouse.move(box.x + third / unit, box.y + 50);
    await page.locator('.fit-strip .tip').waitFor();
    expect(await page.locator('.fit-strip .tip').innerText()).toContain('45 MiB free, too small');
    await page.mouse.click(box.x + third / unit, box.y + 50);
    await expect.poll(() => page.locator('.fit-holes tr.chosen').count()).toBe(1);
    const chosen = page.locator('.fit-holes tbody tr').nth(2);
    await expect.poll(() => chosen.getAttribute('class')).toContain('chosen');
    expect(await text('hole-words')).toContain(
      'A hole of 45 MiB in a segment of 100 MiB. A request like this one may use it. 1 block (55 MiB) pins 45 MiB',
    );
    const pins = page.locator('.fit-pins tbody tr');
    await expect.poll(() => pins.first().innerText()).toMatch(/^55 MiB\s+4\.00 ms\s+never\s+right before\s+job\/train\.py:20 forward/);
    await pins.first().click();
    await expect.poll(() => text('block')).toContain('/home/me/job/train.py:20');
  });

  it('shows the stack of the request that failed', async () => {
    await open(split);
    expect(await text('fit-stack')).toContain('job/train.py:30 loss');
    expect(await page.locator('.fit-stack li').allInnerTexts()).toEqual([
      'loss  /home/me/job/train.py:30',
      'main  /home/me/job/train.py:3',
    ]);
    await page.getByLabel('Recording').selectOption(OOM_SAMPLE);
    await expect.poll(() => text('fit-stack'), { timeout: 20_000 }).toContain("none for autograd's threads");
  });

  it('has the figures of the verdict, and those of the replay that serves the request', async () => {
    await open(OOM_SAMPLE);
    const { oom } = analyzeTrace(sampleTrace('gpt2xl-oom.pickle.gz'), { findSmallest: false, withHistory: false });
    const figures = page.getByTestId('fit-figures');
    expect(Number(await figures.getAttribute('data-reserved'))).toBe(oom!.breakdown.reserved);
    expect(await text('fit-words')).toContain(`has ${formatBytes(oom!.breakdown.largestFree)}`);
    await page.getByTestId('beside-words').waitFor();
    expect(await page.getByLabel('Allocator beside the recorded run').inputValue()).toBe('expandable');
    expect(await text('beside-words')).toContain('The request fits');
    await page.getByLabel('Allocator beside the recorded run').selectOption('weir');
    await expect
      .poll(() => text('beside-words'), { timeout: 20_000 })
      .toMatch(/The request fits, stitched from \d+ pieces|The request fits:/);
    await page.getByLabel('Allocator beside the recorded run').selectOption('pytorch[roundup_power2_divisions:8]');
    await expect.poll(() => text('beside-words'), { timeout: 20_000 }).toContain('The request fits, but others fail');
  });

  it('scrubs in time by slider, keys and the cursor of the page', async () => {
    await open(OOM_SAMPLE);
    await page.getByTestId('beside-words').waitFor();
    const slider = page.locator('#fit-scrub');
    await slider.focus();
    await page.keyboard.press('ArrowLeft');
    await expect.poll(cursorEvent).toBe(54_893);
    await page.keyboard.press('Home');
    await expect.poll(cursorEvent).toBe(0);
    await expect.poll(() => text('fit-words')).toContain('At this moment it would fit');
    await expect.poll(() => text('beside-words')).toContain('At this moment:');
    await page.evaluate('document.activeElement.blur()');
    // The timeline's cursor moves the strip, too.
    await page.keyboard.press('.');
    await expect.poll(momentEvent).toBe(1);
    await page.keyboard.press('o');
    await expect.poll(momentEvent).toBe(54_894);
    await expect.poll(() => text('beside-words')).toContain('The request fits');
    await page.locator('#fit').getByRole('button', { name: 'Peak' }).click();
    await page.getByRole('heading', { name: 'Why it needed more memory' }).waitFor();
    await expect.poll(() => text('fit-words')).toContain('for which reserved memory rose towards its peak');
    await page.locator('#fit').getByRole('button', { name: 'Out of memory' }).click();
    await page.getByRole('heading', { name: 'Why it did not fit' }).waitFor();
  });

  it('is used by keys alone', async () => {
    await open(split);
    await canvas('recorded').focus();
    const chosen = () =>
      page.locator('.fit-holes tbody tr').evaluateAll((rows) => rows.findIndex((row) => String(row.className).includes('chosen')));
    expect(await chosen()).toBe(0);
    await page.keyboard.press('ArrowRight');
    await expect.poll(chosen).toBe(1);
    await page.keyboard.press('End');
    await expect.poll(chosen).toBe(SPLIT_SEGMENTS - 1);
    await page.keyboard.press('ArrowLeft');
    await expect.poll(chosen).toBe(SPLIT_SEGMENTS - 2);
    await page.locator('.fit-holes tbody tr').nth(2).focus();
    await page.keyboard.press('Enter');
    await expect.poll(chosen).toBe(2);
    expect(await canvas('recorded').getAttribute('aria-label')).toContain('600 MiB reserved in 6 segments, 6 holes');
    const names = await page
      .locator('#fit button, #fit select, #fit input')
      .evaluateAll((all) =>
        (all as unknown as { textContent: string; getAttribute(name: string): string | null; labels?: { length: number } }[]).map(
          (each) => (each.textContent ?? '').trim() !== '' || each.getAttribute('aria-label') !== null || (each.labels?.length ?? 0) > 0,
        ),
      );
    expect(names.every((isNamed) => isNamed)).toBe(true);
  });

  it('stays where it is while the moment changes', async () => {
    await open(OOM_SAMPLE);
    await page.getByTestId('beside-words').waitFor();
    await page.waitForTimeout(500);
    await page.evaluate(`window.shifted = 0; new PerformanceObserver((list) => {
      for (const entry of list.getEntries()) window.shifted += entry.value;
    }).observe({ type: 'layout-shift' });`);
    const box = (await page.locator('#fit').boundingBox())!;
    for (const event of [100, 20_000, 40_000, 54_000, 54_894]) {
      await page.locator('#fit-scrub').fill(String(event));
      await expect.poll(momentEvent).toBe(event);
      await page.waitForTimeout(150);
      expect((await page.locator('#fit').boundingBox())!.height).toBe(box.height);
    }
    expect(Number(await page.evaluate('window.shifted'))).toBeLessThan(0.05);
  });

  it('shows the peak where nothing failed', async () => {
    await open(PEAK_SAMPLE);
    await page.getByRole('heading', { name: 'Why it needed more memory' }).waitFor();
    expect(await text('fit-words')).toMatch(/^The request for 2\.39 GiB at event 439, .* too little\./);
    expect(await page.locator('#fit').getByRole('button', { name: 'Out of memory' }).count()).toBe(0);
    await page.getByTestId('beside-words').waitFor();
    expect(await text('beside-words')).toContain('The request fits');
  });

  it('packs memory where no allocator can serve the request', async () => {
    await open(DEMAND_SAMPLE);
    await page.getByText('No allocator serves it:').waitFor();
    expect(await text('fit-words')).toContain('exceed the limit by 185.3 MiB, whatever the layout');
    expect(await canvas('beside').getAttribute('aria-label')).toContain('185.3 MiB beyond the limit');
  });

  it('works with files about a failure', async () => {
    await open(failures[0]!);
    expect(await text('fit-words')).toContain('The request for 250 MiB that failed');
    expect(await text('fit-figures')).toContain("Weir's engine does not record where blocks lie");
    expect(await text('fit-stack')).toContain('job/train.py:30 loss');
    await page.getByLabel('Recording').selectOption(failures[1]!);
    await expect.poll(() => text('fit-figures'), { timeout: 20_000 }).toContain('120 MiB free in 4 holes');
    expect(await text('fit-stack')).toContain('job/train.py:30 loss');
  });

  it('is in the page that is one file', async () => {
    const report = join(folder, 'report.html');
    expect(await weir(['report', split, '-o', report, '-q'])).toMatchObject({ code: 0 });
    const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, offline: true });
    page = await context.newPage();
    seen = watch(page);
    await page.goto(pathToFileURL(report).href);
    await page.getByTestId('beside-words').waitFor({ timeout: 20_000 });
    expect(await text('fit-words')).toContain('105 MiB too little');
    expect(await text('beside-words')).toContain('The request fits');
  });
});
