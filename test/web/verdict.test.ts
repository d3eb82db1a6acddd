// The verdict and the what-if table in a real browser: the advice, the failed request, the GPU size, all allocators.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { weir } from '../support/command.ts';
import { splitSnapshot } from '../support/split-snapshot.ts';
import { CHROMIUM, launch, NO_BROWSER, type Served, serve, untilAnalysed, type Watch, watch } from './browser.ts';

const OOM_SAMPLE = 'samples/gpt2xl-oom.pickle.gz';
const folder = mkdtempSync(join(tmpdir(), 'weir-web-verdict-'));
const split = join(folder, 'split.json');
writeFileSync(split, splitSnapshot());
const SIZES = [
  { width: 1440, height: 900 },
  { width: 1280, height: 800 },
  { width: 390, height: 844 },
];

if (!CHROMIUM) console.log(NO_BROWSER);

describe.skipIf(!CHROMIUM)(`verdict and what-if table${CHROMIUM ? '' : ' (skipped: there is no Chromium)'}`, () => {
  let browser: Browser;
  let served: Served;
  let alone: Served;
  let page: Page;
  let seen: Watch;

  beforeAll(async () => {
    [browser, served, alone] = await Promise.all([launch(), serve([OOM_SAMPLE, split]), serve([OOM_SAMPLE])]);
  });
  afterAll(async () => {
    await browser.close();
    await Promise.all([served.stop(), alone.stop()]);
    rmSync(folder, { recursive: true });
  });
  afterEach(async () => {
    expect(seen.complaints).toEqual([]);
    await page.context().close();
  });

  async function open(file: string, viewport = SIZES[0]!, { url } = served): Promise<void> {
    const context = await browser.newContext({ viewport, permissions: ['clipboard-read', 'clipboard-write'] });
    page = await context.newPage();
    seen = watch(page);
    await page.goto(`${url}#file=${encodeURIComponent(file)}`);
    await untilAnalysed(page);
  }

  const heads = () => page.locator('#what-if th').allInnerTexts();
  const names = () => page.locator('#what-if .allocator').allInnerTexts();

  it.each(SIZES)('says what to do on the first screen, with a button that copies it ($width px)', async (viewport) => {
    await open(OOM_SAMPLE, viewport, alone);
    const line = page.locator('#verdict .copy-line').first();
    expect(await line.locator('code').innerText()).toBe('export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True');
    const copy = line.getByRole('button');
    const box = (await copy.boundingBox())!;
    expect(box.y + box.height).toBeLessThan(viewport.height);
    expect(box.x + box.width).toBeLessThan(viewport.width);
    await copy.click();
    await line.getByText('Copied').waitFor();
    expect(await page.evaluate('navigator.clipboard.readText()')).toBe('export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True');
  });

  it('begins with the answer, and says why one peak is not the other', async () => {
    await open(OOM_SAMPLE);
    expect((await heads()).slice(0, 4)).toEqual([
      'allocator',
      'fits in 20.67 to 21.22 GiB',
      'runs on at least',
      'peak with unlimited memory',
    ]);
    expect(await page.getByTestId('unlimited').innerText()).toMatch(/reserved at most 20\.67 GiB\. .* 33\.42 GiB/);
  });

  it('lists what `weir analyze` lists, and everything only if somebody asks', async () => {
    await open(OOM_SAMPLE);
    const [{ stdout: usual }, { stdout: all }] = await Promise.all([
      weir(['analyze', OOM_SAMPLE, '-q', '--no-smallest']),
      weir(['analyze', OOM_SAMPLE, '-q', '--no-smallest', '--all']),
    ]);
    for (const name of ['cnmem', 'gmlake']) {
      expect(usual).not.toContain(name);
      expect(all).toContain(name);
    }
    expect(await names()).not.toContain('cnmem');
    await page.getByLabel('Show all allocators').check();
    await expect
      .poll(() => page.locator('#what-if tr', { hasText: 'gmlake' }).locator('[data-bytes]').count(), { timeout: 20_000 })
      .toBe(1);
    expect(await names()).toContain('cnmem');
    await page.getByLabel('Show all allocators').uncheck();
    expect(await names()).not.toContain('cnmem');
  });

  it('shows where the failed request came from, the rest of its stack folded', async () => {
    await open(split);
    const request = page.getByTestId('request');
    expect(await request.innerText()).toContain('Requested at job/train.py:30 loss');
    expect(await request.locator('.frames').isVisible()).toBe(false);
    await request.getByText('2 frames of its call stack').click();
    expect(await request.locator('.frames li').allInnerTexts()).toEqual([
      'loss  /home/me/job/train.py:30',
      'main  /home/me/job/train.py:3',
    ]);
  });

  it('takes a number alone as GiB, says so, and keeps the old rows until the new ones are there', async () => {
    await open(OOM_SAMPLE);
    const field = page.getByLabel('GPU memory');
    await field.fill('24');
    expect(await page.getByTestId('capacity-note').innerText()).toBe('means 24.00 GiB');
    const before = await names();
    // Every state that the table goes through, from now on.
    await page.evaluate(`(() => {
      window.states = [];
      const table = document.querySelector('#what-if table');
      new MutationObserver(() => window.states.push([...table.querySelectorAll('tbody tr')].map((row) => row.className + ':' + row.querySelectorAll('[data-bytes]').length)))
        .observe(table, { childList: true, subtree: true, attributes: true, characterData: true });
    })()`);
    await field.press('Enter');
    await page.getByRole('columnheader', { name: 'fits in 24.00 GiB' }).waitFor({ timeout: 20_000 });
    await untilAnalysed(page);
    await expect.poll(() => page.locator('#what-if tr.stale').count()).toBe(0);
    const states = (await page.evaluate('window.states')) as string[][];
    expect(states.length).toBeGreaterThan(1);
    // No row was ever missing or without figures, and those of the old size were marked.
    for (const rows of states) {
      expect(rows.length).toBe(before.length);
      expect(rows.filter((row) => row.endsWith(':0'))).toEqual([]);
    }
    expect(states.some((rows) => rows.some((row) => row.includes('stale')))).toBe(true);
    expect(new URLSearchParams(new URL(page.url()).hash.slice(1)).get('capacity')).toBe(String(24 * 2 ** 30));
    expect(await page.getByTestId('capacity-note').innerText()).toBe('a number alone means GiB');
    await field.fill('80000MiB');
    expect(await page.getByTestId('capacity-note').innerText()).toBe('means 78.13 GiB');
  });
});
