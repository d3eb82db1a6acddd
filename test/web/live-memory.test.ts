// Live memory in a real browser: ranges, ages, recordings without stacks, tabs by keyboard, and what the search finds.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { newestSnapshot } from '../support/newest-snapshot.ts';
import { writePickle } from '../support/pickle-writer.ts';
import { CHROMIUM, launch, NO_BROWSER, type Served, serve, untilAnalysed, type Watch, watch } from './browser.ts';

/** Stacks were recorded, a request failed. */
const OOM_SAMPLE = 'samples/gpt2xl-oom.pickle.gz';
const NO_STACKS = 'samples/vgg16-b100.native.pickle.gz';
const folder = mkdtempSync(join(tmpdir(), 'weir-web-live-'));
const noted = join(folder, 'noted.pickle');
writeFileSync(noted, writePickle(newestSnapshot()));

if (!CHROMIUM) console.log(NO_BROWSER);

describe.skipIf(!CHROMIUM)(`live memory${CHROMIUM ? '' : ' (skipped: there is no Chromium)'}`, () => {
  let browser: Browser;
  let served: Served;
  let page: Page;
  let seen: Watch;

  beforeAll(async () => {
    [browser, served] = await Promise.all([launch(), serve([OOM_SAMPLE, NO_STACKS, noted])]);
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

  async function open(file: string, state = ''): Promise<void> {
    const context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
    page = await context.newPage();
    seen = watch(page);
    await page.goto(`${served.url}#file=${encodeURIComponent(file)}${state}`);
    await untilAnalysed(page);
  }

  const cursorEvent = async () => {
    const text = await page.getByTestId('cursor').innerText();
    return Number(/event ([\d,]+)/.exec(text)![1]!.replaceAll(',', ''));
  };
  const figures = async () =>
    Object.fromEntries(
      await page
        .locator('#live .figure-list > div')
        .evaluateAll((items) =>
          items.map((item) => [item.querySelector('dt')!.textContent!, Number(item.querySelector('dd')!.getAttribute('data-bytes'))]),
        ),
    ) as Record<string, number>;
  const find = async (text: string) => {
    await page.locator('#search').fill(text);
    // The address names the search whose answer is shown.
    await expect.poll(() => new URLSearchParams(new URL(page.url()).hash.slice(1)).get('search')).toBe(text);
    return page.getByTestId('hits').innerText();
  };

  it('shows the figures of the range, which add up with those of its ends', async () => {
    await open(NO_STACKS, '&axis=event&cursor=799');
    await expect.poll(async () => (await figures())['live']).toBeGreaterThan(0);
    const before = await figures();
    await open(NO_STACKS, '&axis=event&cursor=1500');
    await expect.poll(async () => (await figures())['live']).toBeGreaterThan(0);
    const after = await figures();
    await open(NO_STACKS, '&axis=event&cursor=1500&since=800');
    await page.getByTestId('range-figures').waitFor();
    const range = await figures();
    expect(range['live memory grew by']).toBe(after['live']! - before['live']!);
    expect(range['reserved memory grew by']).toBe(after['reserved']! - before['reserved']!);
    expect(range['of that still live at its end']).toBeGreaterThan(0);
    expect(range['of that still live at its end']).toBeLessThanOrEqual(range['allocated in the range']!);
    expect(range['of that still live at its end']).toBeLessThanOrEqual(after['live']!);
    expect(range['peak of reserved memory']).toBeGreaterThanOrEqual(after['reserved']!);
    expect(range['peak of live memory']).toBeGreaterThanOrEqual(after['live']!);
    expect(await page.locator('#live tbody tr').count()).toBeGreaterThan(0);
  });

  it('leaves the range when the cursor goes before it, and shows what is live there', async () => {
    await open(NO_STACKS, '&axis=event&cursor=1500&since=1500');
    await page.getByTestId('range-figures').waitFor();
    await page.keyboard.press(',');
    await page.getByRole('heading', { name: 'Live at the cursor' }).waitFor();
    await expect.poll(() => page.locator('#live tbody tr').count()).toBeGreaterThan(0);
    expect(await cursorEvent()).toBe(1499);
  });

  it('writes ages that say something', async () => {
    await open(OOM_SAMPLE);
    await page.getByRole('tab', { name: 'Blocks' }).click();
    const ages = await page.locator('#live tbody tr td:nth-child(2)').allInnerTexts();
    expect(ages.length).toBeGreaterThan(10);
    for (const age of ages) expect(age).toMatch(/^(new|older|\d{1,3}(\.\d{1,2})? (µs|ms|s|min))$/);
    // What was found is of many moments: an age would be 0 in every row.
    await find('forward');
    await page.getByRole('tab', { name: /^Found/ }).waitFor();
    expect(await page.locator('#live th').allInnerTexts()).toEqual(['bytes', 'event', 'lived', 'stream', 'address', 'call site']);
    const lived = await page.locator('#live tbody tr td:nth-child(3)').allInnerTexts();
    expect(new Set(lived).size).toBeGreaterThan(3);
  });

  it('says once how to record stacks, and names blocks by what they hold', async () => {
    await open(NO_STACKS);
    const words = await page.getByTestId('no-stacks').innerText();
    expect(words).toContain('weir record --stacks=python -- COMMAND');
    expect(words).toContain('torch.cuda.memory._record_memory_history(stacks="python"');
    expect(await page.locator('#live').innerText()).not.toContain('no stack recorded');
    const names = await page.locator('#live tbody tr td:last-child').allInnerTexts();
    expect(new Set(names)).toContain('activations');
    await page.getByRole('tab', { name: 'By category and size' }).click();
    const groups = await page.locator('#live tbody tr td:last-child').allInnerTexts();
    expect(groups.length).toBeGreaterThan(3);
    for (const group of groups) expect(group).toMatch(/ of [\d.]+ ([KMGT]i)?B$/);
  });

  it('moves between tabs with the arrow keys', async () => {
    await open(OOM_SAMPLE);
    const selected = () => page.locator('#live [role=tab][aria-selected=true]').innerText();
    const tab = page.getByRole('tab', { name: 'By call site' });
    await tab.focus();
    expect(await page.locator('#live [role=tab][tabindex="0"]').count()).toBe(1);
    for (const [key, name] of [
      ['ArrowRight', 'Blocks'],
      ['ArrowRight', 'By call site'],
      ['ArrowLeft', 'Blocks'],
      ['Home', 'By call site'],
      ['End', 'Blocks'],
    ] as const) {
      await page.keyboard.press(key);
      await expect.poll(selected).toBe(name);
      expect(await page.evaluate('document.activeElement.textContent')).toBe(name);
    }
    const panel = page.locator(`#${await page.getByRole('tab', { name: 'Blocks' }).getAttribute('aria-controls')}`);
    expect(await panel.getAttribute('role')).toBe('tabpanel');
    expect(await panel.getByRole('table').getAttribute('aria-label')).toBe('Live blocks');
  });

  it('finds an event by its number, and goes there', async () => {
    await open(OOM_SAMPLE, '&cursor=100');
    await expect.poll(cursorEvent).toBe(100);
    expect(await find('#54894')).toBe('1');
    await page.keyboard.press('Enter');
    await expect.poll(cursorEvent).toBe(54_894);
    await page.getByRole('button', { name: 'event 54,894' }).waitFor();
  });

  it('finds texts of the program, call sites, categories, sizes, addresses and annotations', async () => {
    await open(noted);
    expect(await find('weights')).toBe('1');
    expect(await find('<img src')).toBe('1');
    expect(await find('model.py:12 forward')).toBe('1');
    expect(await find('graphs and mempools')).toBe('1');
    expect(await find('8MiB')).toBe('2');
    expect(await find('0x7f0000000010')).toBe('1');
    expect(await find('step')).not.toBe('nothing found');
    expect(await find('no such thing')).toBe('nothing found');
    expect(await page.getByTestId('searched').innerText()).toBe(
      'Searched: names and files of frames, call sites, categories, texts of the program (user_metadata, annotations)',
    );
    expect(await find('24')).toBe('nothing found');
    expect(await page.getByTestId('searched').innerText()).toContain('sizes of blocks (about 24.00 GiB)');
  });
});
