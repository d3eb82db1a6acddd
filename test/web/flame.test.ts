// The flame graph in a real browser: one click zooms, keys do the same, the way back, searching, both sides, three weights.
import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { CHROMIUM, launch, NO_BROWSER, type Served, serve, untilAnalysed, type Watch, watch } from './browser.ts';

const OOM_SAMPLE = 'samples/gpt2xl-oom.pickle.gz';
const ROW = 19;

if (!CHROMIUM) console.log(NO_BROWSER);

describe.skipIf(!CHROMIUM)(`the flame graph${CHROMIUM ? '' : ' (skipped: there is no Chromium)'}`, () => {
  let browser: Browser;
  let served: Served;
  let page: Page;
  let seen: Watch;

  beforeAll(async () => {
    [browser, served] = await Promise.all([launch(), serve([OOM_SAMPLE])]);
  });
  afterAll(async () => {
    await browser.close();
    await served.stop();
  });
  beforeEach(async () => {
    const context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
    page = await context.newPage();
    seen = watch(page);
    await page.goto(served.url);
    await untilAnalysed(page);
    await page.getByTestId('flame-words').waitFor();
  });
  afterEach(async () => {
    expect(seen.complaints).toEqual([]);
    await page.context().close();
  });

  const words = () => page.getByTestId('flame-words').innerText();
  const graph = () => page.getByRole('application', { name: /^Flame graph/ });
  const out = () => page.getByRole('button', { name: 'Back to all' });
  const clickRow = async (row: number, share: number) => {
    const box = (await graph().boundingBox())!;
    await graph().click({ position: { x: box.width * share, y: row * ROW + ROW / 2 } });
  };
  /** Live bytes, as the figures above say them. */
  const live = async () => (await page.locator('.figure-list div', { hasText: /^live/ }).locator('dd').first().innerText()).trim();

  it('zooms with one click, and back by the frames above, the button, or the first row', async () => {
    expect(await words()).toBe(`all of it: ${await live()}`);
    expect(await out().isDisabled()).toBe(true);
    await clickRow(3, 0.1);
    await expect.poll(words).toMatch(/^step, gpt2xl\/train\.py:\d+: [\d.]+ GiB \([\d.]+ %\)$/);
    const step = await words();
    expect(await out().isEnabled()).toBe(true);
    // The map shows the memory of the same frames.
    await expect.poll(() => new URL(page.url()).hash).toMatch(/node=\d+/);
    // It is as wide as the graph now; a frame above leads back.
    await clickRow(3, 0.95);
    await expect.poll(words).toBe(step);
    await clickRow(2, 0.5);
    await expect.poll(words).toMatch(/^main, /);
    await out().click();
    await expect.poll(words).toBe(`all of it: ${await live()}`);
    await clickRow(2, 0.1);
    await expect.poll(words).toMatch(/^main, /);
    await clickRow(0, 0.5);
    await expect.poll(words).toMatch(/^all of it/);
    expect(await out().isDisabled()).toBe(true);
  });

  it('works with keys alone', async () => {
    await page.getByLabel('Search in the flame graph').focus();
    // The way back is disabled, so the graph comes next.
    await page.keyboard.press('Tab');
    expect(await page.evaluate('document.activeElement.getAttribute("role")')).toBe('application');
    for (const [key, expected] of [
      ['ArrowDown', /^<module>, /],
      ['ArrowRight', /^\(no stack recorded\)/],
      ['ArrowLeft', /^<module>, /],
      ['ArrowDown', /^main, /],
      ['ArrowRight', /^main, /],
      ['ArrowLeft', /^main, /],
      ['ArrowDown', /^step, /],
      ['ArrowUp', /^main, /],
      ['ArrowDown', /^step, /],
    ] as const) {
      await page.keyboard.press(key);
      await expect.poll(words).toMatch(expected);
    }
    await page.keyboard.press('Enter');
    await expect.poll(() => out().isEnabled()).toBe(true);
    await expect.poll(() => new URL(page.url()).hash).toMatch(/node=\d+/);
    await page.keyboard.press('Escape');
    await expect.poll(words).toMatch(/^main, /);
    for (const _ of ['main', '<module>']) await page.keyboard.press('Escape');
    await expect.poll(() => out().isDisabled()).toBe(true);
    await expect.poll(words).toMatch(/^all of it/);
  });

  it('highlights what is searched for, and says its share', async () => {
    const share = page.getByTestId('flame-share');
    const matches = () =>
      page.evaluate(`(() => {
        const canvas = document.querySelector('.flame canvas');
        const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
        let count = 0;
        for (let at = 0; at < data.length; at += 4) if (data[at] === 0x7a && data[at + 1] === 0x1f && data[at + 2] === 0xa2) count++;
        return count;
      })()`);
    expect(await matches()).toBe(0);
    await page.getByLabel('Search in the flame graph').fill('cross_entropy');
    await expect.poll(() => share.innerText()).toMatch(/^\d+\.\d %$/);
    await expect.poll(matches).toBeGreaterThan(500);
    // Two blocks of 2.76 GiB in 16.50 GiB, as the table beside says.
    expect(Number.parseFloat(await share.innerText())).toBeCloseTo(16.7, 0);
    await page.getByLabel('Search in the flame graph').fill('train.py');
    await expect.poll(async () => Number.parseFloat(await share.innerText())).toBeGreaterThan(75);
    await page.getByLabel('Search in the flame graph').fill('no_such_frame');
    await expect.poll(() => share.innerText()).toBe('0.0 %');
    expect(await matches()).toBe(0);
  });

  it('begins with the innermost frames if it is turned', async () => {
    await page.getByRole('button', { name: 'Innermost first' }).click();
    await expect.poll(words).toBe(`all of it: ${await live()}`);
    await clickRow(1, 0.05);
    // The widest of them: the optimizer's state.
    await expect.poll(words).toMatch(/^(?!all of it|<module>).+: [\d.]+ GiB \([\d.]+ %\)$/);
    expect(await out().isEnabled()).toBe(true);
    await page.getByRole('button', { name: 'Callers first' }).click();
    await expect.poll(words).toMatch(/^all of it/);
    await clickRow(1, 0.05);
    await expect.poll(words).toMatch(/^<module>, /);
  });

  it('weighs live bytes at the cursor, at the peak, and what a range has left', async () => {
    const weight = page.getByLabel('Bytes of the flame graph');
    expect(await weight.locator('option').allInnerTexts()).toEqual(['live at the cursor', 'live at the peak']);
    const atCursor = await words();
    await weight.selectOption('peak');
    await expect.poll(words).not.toBe(atCursor);
    const atPeak = await words();
    await page.keyboard.press('Escape');
    await weight.selectOption('cursor');
    await page.locator('#live').click({ position: { x: 5, y: 5 } });
    await page.keyboard.press('p');
    await expect.poll(words).toBe(atPeak);
    await page.goto(`${served.url}#cursor=54894&since=50000`);
    await page.reload();
    await untilAnalysed(page);
    await page.getByTestId('range-figures').waitFor();
    const left = page.locator('.figure-list div', { hasText: 'still live at its end' }).locator('dd').first();
    await expect.poll(words).toBe(`all of it: ${(await left.innerText()).trim()}`);
    expect(await weight.inputValue()).toBe('range');
  });
});
