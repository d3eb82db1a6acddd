// A job in a real browser: all ranks on one clock, the one that failed first is open, and the address, the title and files say what is open.
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { formatBytes } from '../../src/base/bytes.ts';
import { weir } from '../support/command.ts';
import { sampleRecording, writeRank } from '../support/ranks.ts';
import { CHROMIUM, launch, NO_BROWSER, type Served, serve, untilOpen, type Watch, watch } from './browser.ts';

if (!CHROMIUM) console.log(NO_BROWSER);

/** Other work on the machine must not fail a test. */
const SLOW = { timeout: 60_000 };
const WIDTHS = [1440, 1280, 390] as const;
const folder = mkdtempSync(join(tmpdir(), 'weir-job-'));
const job = join(folder, 'job-4711');

describe.skipIf(!CHROMIUM)(`a job in the page${CHROMIUM ? '' : ' (skipped: there is no Chromium)'}`, () => {
  let browser: Browser;
  let served: Served;
  let page: Page;
  let seen: Watch;

  beforeAll(async () => {
    mkdirSync(job);
    const sample = sampleRecording('gpt2xl-oom.pickle.gz');
    // Rank 2 fails 40 ms after rank 1; the others end before they would.
    writeRank(sample, join(job, 'rank0.weir'), { share: 0.5, succeeds: true });
    writeRank(sample, join(job, 'rank1.weir'), { shiftUs: 200_000 });
    writeRank(sample, join(job, 'rank2.weir'), { shiftUs: 240_000 });
    writeRank(sample, join(job, 'rank3.weir'), { share: 0.9, succeeds: true, shiftUs: 5000 });
    [browser, served] = await Promise.all([launch(), serve([job])]);
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

  async function open(url: string, width = 1440, colorScheme: 'light' | 'dark' = 'light'): Promise<void> {
    const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme });
    page = await context.newPage();
    seen = watch(page);
    await page.goto(url);
  }
  const names = () => page.locator('#job .rank-name strong').allInnerTexts();
  const opened = () => page.locator('#job [aria-current] strong').innerText();
  const hash = () => new URLSearchParams(new URL(page.url()).hash.slice(1));
  const widthOf = (selector: string) =>
    page.evaluate(`(() => { const box = document.querySelector('${selector}').getBoundingClientRect(); return [box.left, box.right]; })()`);

  it('shows the ranks in the order of their failures, with the figures of weir analyze, and opens the first', async () => {
    await open(served.url);
    await untilOpen(page);
    expect(await names()).toEqual(['rank1.weir', 'rank2.weir', 'rank0.weir', 'rank3.weir']);
    expect(await opened()).toBe('rank1.weir');
    expect(await page.getByRole('heading', { name: '4 ranks, 2 ran out of memory' }).count()).toBe(1);
    expect(await page.getByTestId('rank-0').innerText()).toContain('out of memory first');
    expect(await page.getByTestId('rank-1').innerText()).toContain('out of memory 40 ms later');
    expect(await page.locator('#job').innerText()).toContain('All ranks are on one clock.');
    const files = ['rank1', 'rank0'].map((name) => join(job, `${name}.weir`));
    const { stdout } = await weir(['analyze', ...files, '--json', '-q']);
    const { ranks } = JSON.parse(stdout) as { ranks: { peak: { reserved: number; requested: number }; trace: { peakLive: number } }[] };
    for (const [index, { peak, trace }] of ranks.entries()) {
      const figures = await page
        .getByTestId(`rank-${index * 2}`)
        .locator('.rank-figure')
        .allInnerTexts();
      expect(figures).toEqual([peak.reserved, trace.peakLive, peak.reserved - peak.requested].map(formatBytes));
    }
    expect(await page.title()).toBe('job-4711, rank1.weir - out of memory: 2.76 GiB failed - Weir');
  });

  it('draws every track where the rank ran, on one axis', async () => {
    await open(served.url);
    await page.locator('#job canvas').nth(3).waitFor();
    await page.locator('#job [role=progressbar]').waitFor({ state: 'detached' });
    // The share of the track's width that is not empty: its first and last column with a colour.
    const spans = (await page.evaluate(`[...document.querySelectorAll('#job canvas')].map((canvas) => {
      const { width, height } = canvas;
      const row = canvas.getContext('2d').getImageData(0, height - 2, width, 1).data;
      const filled = Array.from({ length: width }, (_, x) => row[x * 4 + 3] > 0);
      return [filled.indexOf(true) / width, (filled.lastIndexOf(true) + 1) / width];
    })`)) as [number, number][];
    const sample = sampleRecording('gpt2xl-oom.pickle.gz').traces[0]!.events;
    const [start, end] = [sample.timeUs[0]!, sample.timeUs[sample.count - 1]!];
    const span = end - start + 240_000;
    expect(spans[0]![0]).toBeCloseTo(200_000 / span, 2);
    expect(spans[1]![0]).toBeCloseTo(240_000 / span, 2);
    expect(spans[1]![1]).toBeCloseTo(1, 2);
    expect(spans[2]![0]).toBeCloseTo(0, 2);
    expect(spans[2]![1]).toBeLessThan(0.95);
  });

  it('opens another rank by a click and by Enter', async () => {
    await open(served.url);
    await untilOpen(page);
    await page.getByTestId('rank-2').getByRole('button').click();
    await expect.poll(opened, SLOW).toBe('rank0.weir');
    await expect.poll(() => page.title(), SLOW).toContain('job-4711, rank0.weir - peak ');
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('Enter');
    await expect.poll(opened, SLOW).toBe('rank3.weir');
    await expect.poll(() => hash().get('file'), SLOW).toBe(join(job, 'rank3.weir'));
    await untilOpen(page);
  });

  it.each(WIDTHS.flatMap((width) => [[width, 'light'] as const, [width, 'dark'] as const]))(
    'is readable at %i px, %s',
    async (width, scheme) => {
      await open(served.url, width, scheme);
      await page.getByTestId('headline').waitFor({ timeout: 60_000 });
      for (const selector of ['#job', '#job .rank-box', '#difference', 'header.top']) {
        const [left, right] = (await widthOf(selector)) as [number, number];
        expect(left).toBeGreaterThanOrEqual(0);
        expect(right).toBeLessThanOrEqual(width);
      }
      for (const name of ['Save as HTML', 'Open…', 'Help']) {
        const box = (await page.getByRole('button', { name }).boundingBox())!;
        expect(box.x + box.width).toBeLessThanOrEqual(width);
      }
      expect((await page.locator('#job canvas').first().boundingBox())!.width).toBeGreaterThan(250);
      const contrasts = (await page.evaluate(`(() => {
      const style = getComputedStyle(document.documentElement);
      const luminance = (name) => {
        const given = style.getPropertyValue('--' + name).trim();
        const hex = given.length === 4 ? given.replace(/[^#]/g, (digit) => digit + digit) : given;
        const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      return ['live', 'track-reserved', 'bad'].flatMap((data) => ['track-ground', 'surface'].map((ground) => {
        const [high, low] = [luminance(data), luminance(ground)].sort((a, b) => b - a);
        return (high + 0.05) / (low + 0.05);
      }));
    })()`)) as number[];
      expect(Math.min(...contrasts)).toBeGreaterThanOrEqual(3);
    },
  );

  it('opens the others if a file is missing or corrupt, and names those', async () => {
    const corrupt = join(folder, 'corrupt.weir');
    writeFileSync(corrupt, readFileSync(join(job, 'rank0.weir')).subarray(0, 40));
    const hostile = join(folder, '<img src=x onerror=alert(1)>.weir');
    const partly = await serve([join(job, 'rank3.weir'), corrupt, join(folder, 'none.weir'), hostile]);
    await open(partly.url);
    await untilOpen(page);
    expect(await page.getByRole('heading', { name: '4 ranks, 3 cannot be read' }).count()).toBe(1);
    const text = await page.locator('#job').innerText();
    expect(text).toContain(`${join(folder, 'none.weir')}: there is no such file`);
    expect(text).toContain(`${hostile}: there is no such file`);
    expect(text).toMatch(/corrupt\.weir: \S/);
    expect(await opened()).toBe('job-4711/rank3.weir');
    expect(await page.locator('#job img').count()).toBe(0);
    expect(await page.getByTestId('rank-1').getByRole('button').isDisabled()).toBe(true);
    await page.goto('about:blank');
    await partly.stop();
  });

  it('applies an address that is typed into the open page, and says what it does not have', async () => {
    await open(served.url);
    await untilOpen(page);
    const type = (text: string) => page.evaluate(`location.hash = ${JSON.stringify(text)}`);
    await type(`file=${encodeURIComponent(join(job, 'rank1.weir'))}&axis=event&from=1000&to=3000&cursor=2000&colour=size`);
    await expect.poll(() => page.getByTestId('cursor').innerText(), SLOW).toContain('event 2,000');
    expect(await page.getByLabel('Colour map by').inputValue()).toBe('size');
    await type(`file=${encodeURIComponent(join(job, 'rank3.weir'))}`);
    await expect.poll(opened, SLOW).toBe('rank3.weir');
    await type('file=elsewhere.weir');
    await page.getByRole('alert').filter({ hasText: 'the address names elsewhere.weir, which is not open here' }).waitFor();
  });

  it('takes several dropped files as a job, and after a reload says which were open', async () => {
    const empty = await serve([]);
    await open(empty.url);
    const bytes = ['rank0.weir', 'rank1.weir'].map((name) => readFileSync(join(job, name)).toString('base64'));
    const transfer = await page.evaluateHandle(`(() => {
      const data = new DataTransfer();
      for (const [name, text] of ${JSON.stringify([
        ['rank0.weir', bytes[0]],
        ['rank1.weir', bytes[1]],
      ])}) data.items.add(new File([Uint8Array.from(atob(text), (character) => character.charCodeAt(0))], name));
      return data;
    })()`);
    await page.dispatchEvent('body', 'drop', { dataTransfer: transfer });
    await untilOpen(page);
    expect(await names()).toEqual(['rank1.weir', 'rank0.weir']);
    expect(await opened()).toBe('rank1.weir');
    // The cursor goes elsewhere, and the address with it.
    await page.keyboard.press('p');
    await expect.poll(() => hash().get('cursor'), SLOW).not.toBe('54894');
    const cursor = hash().get('cursor');
    await page.reload();
    const notice = page.getByTestId('reloaded');
    expect(await notice.innerText()).toContain('rank0.weir, rank1.weir were open before this page was loaded again');
    const [chooser] = await Promise.all([
      page.waitForEvent('filechooser'),
      page.getByRole('button', { name: 'Choose them again' }).click(),
    ]);
    await chooser.setFiles([join(job, 'rank0.weir'), join(job, 'rank1.weir')]);
    await untilOpen(page);
    await notice.waitFor({ state: 'detached' });
    await expect.poll(() => hash().get('cursor'), SLOW).toBe(cursor);
    await page.goto('about:blank');
    await empty.stop();
  });
});
