// The difference of two ranks in a real browser: that of `weir diff`, with both verdicts, from the server and without one.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { formatBytes } from '../../src/base/bytes.ts';
import { weir } from '../support/command.ts';
import { sampleRecording, writeRank } from '../support/ranks.ts';
import { CHROMIUM, launch, NO_BROWSER, type Served, serve, untilOpen, type Watch, watch } from './browser.ts';

if (!CHROMIUM) console.log(NO_BROWSER);

interface DiffJson {
  readonly headline: string;
  readonly sites: { readonly before: number; readonly after: number; readonly label: string }[];
  readonly categories: { readonly before: number; readonly after: number }[];
}

const folder = mkdtempSync(join(tmpdir(), 'weir-difference-'));
const [A, B] = [join(folder, 'a.weir'), join(folder, 'b.weir')];
const sized = (bytes: number) => (bytes === 0 ? '–' : formatBytes(bytes));

describe.skipIf(!CHROMIUM)(`the difference of two ranks${CHROMIUM ? '' : ' (skipped: there is no Chromium)'}`, () => {
  let browser: Browser;
  let served: Served;
  let page: Page;
  let seen: Watch;
  let expected: DiffJson;

  beforeAll(async () => {
    const sample = sampleRecording('gpt2xl-oom.pickle.gz');
    writeRank(sample, A, { share: 0.5, succeeds: true });
    writeRank(sample, B);
    [browser, served] = await Promise.all([launch(), serve([A, B])]);
    expected = JSON.parse((await weir(['diff', A, B, '--by', 'peak', '--json', '-q'])).stdout) as DiffJson;
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

  async function open(url: string, width = 1440): Promise<void> {
    const context = await browser.newContext({ viewport: { width, height: 900 } });
    page = await context.newPage();
    seen = watch(page);
    await page.goto(url);
  }

  const table = (label: string) =>
    page
      .getByRole('table', { name: label })
      .locator('tbody tr')
      .evaluateAll((rows) => rows.map((row) => [...row.querySelectorAll('td')].map((cell) => cell.textContent ?? '')));

  async function expectDifference(): Promise<void> {
    await expect.poll(() => page.getByTestId('difference-headline').innerText(), { timeout: 60_000 }).toBe(expected.headline);
    const sites = await table('Difference by call site');
    expect(sites.map((cells) => [cells[0], cells[1]])).toEqual(
      expected.sites.slice(0, 200).map(({ before, after }) => [sized(before), sized(after)]),
    );
    expect(sites[0]!.at(-1)).toContain(expected.sites[0]!.label);
    const categories = await table('Difference by category');
    expect(categories.map((cells) => [cells[1], cells[2]])).toEqual(
      expected.categories.map(({ before, after }) => [sized(before), sized(after)]),
    );
    await expect.poll(() => page.getByTestId('verdict-A').innerText(), { timeout: 60_000 }).toMatch(/Peak: .* reserved, .* lost/);
    await expect.poll(() => page.getByTestId('verdict-B').innerText(), { timeout: 60_000 }).toContain('Out of memory at event 54,894');
    expect(await page.getByTestId('verdict-A').innerText()).not.toContain('Out of memory');
  }

  it.each([1440, 1280, 390])('is that of weir diff, chosen by keys alone, at %i px', async (width) => {
    await open(served.url, width);
    await untilOpen(page);
    // A is the healthy one, B the one that is open.
    const moments = page.getByLabel('Compared at');
    await moments.focus();
    await moments.selectOption('peak');
    await page.getByRole('button', { name: 'Compare', exact: true }).press('Enter');
    await expectDifference();
    const box = (await page.locator('#difference').boundingBox())!;
    expect(box.x + box.width).toBeLessThanOrEqual(width);
    const hash = () => new URLSearchParams(new URL(page.url()).hash.slice(1));
    await expect.poll(() => [hash().get('left'), hash().get('right'), hash().get('by')]).toEqual([`${A}#0`, `${B}#0`, 'peak']);
    await page.reload();
    await expectDifference();
    await page.locator('#difference').getByRole('button', { name: 'Close' }).click();
    await page.getByTestId('difference-headline').waitFor({ state: 'detached' });
  });

  it('comes by itself when another recording is put beside', async () => {
    await open(`${served.url}#file=${encodeURIComponent(A)}`);
    await untilOpen(page);
    await page.getByLabel('Compare with').selectOption(`file:${B}`);
    await page.getByTestId('difference-headline').waitFor({ timeout: 60_000 });
    await expect.poll(() => page.getByTestId('verdict-B').innerText(), { timeout: 60_000 }).toContain('Out of memory at event 54,894');
  });

  it('needs no server for files of the browser', async () => {
    const empty = await serve([]);
    await open(empty.url);
    const [chooser] = await Promise.all([page.waitForEvent('filechooser'), page.getByRole('button', { name: 'Choose a file' }).click()]);
    await chooser.setFiles([A, B].map((path) => ({ name: path.split('/').at(-1)!, mimeType: '', buffer: readFileSync(path) })));
    await untilOpen(page);
    await page.getByLabel('Compared at').selectOption('peak');
    await page.getByRole('button', { name: 'Compare', exact: true }).click();
    await expectDifference();
    expect(seen.requests.some((url) => url.includes('/ask') || url.includes('/difference'))).toBe(false);
    await page.goto('about:blank');
    await empty.stop();
  });
});
