// The page in a real browser: dropped files, the verdict, the tables, the keys, searching, comparing, sharing.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { formatBytes } from '../../src/base/bytes.ts';
import { ROOT, weir } from '../support/command.ts';
import { CHROMIUM, launch, NO_BROWSER, type Served, serve, untilAnalysed, type Watch, watch } from './browser.ts';

const SAMPLE = 'samples/vgg16-b100.native.pickle.gz';
const OOM_SAMPLE = 'samples/gpt2xl-oom.pickle.gz';
const folder = mkdtempSync(join(tmpdir(), 'weir-web-'));
const sample = (name: string) => readFileSync(new URL(name, ROOT));

interface AnalyzeJson {
  readonly peak: Record<string, number>;
  readonly whatIf: { allocator: string; peakReserved: number; smallestGpu: number | null }[];
}

if (!CHROMIUM) console.log(NO_BROWSER);

describe.skipIf(!CHROMIUM)(`the page${CHROMIUM ? '' : ' (skipped: there is no Chromium)'}`, () => {
  let browser: Browser;
  let served: Served;
  let page: Page;
  let seen: Watch;

  beforeAll(async () => {
    [browser, served] = await Promise.all([launch(), serve([SAMPLE, OOM_SAMPLE])]);
    // Of two recordings the page would open the one that failed.
    served = { ...served, url: `${served.url}#file=${encodeURIComponent(SAMPLE)}` };
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

  async function open(url: string, options: { colorScheme?: 'dark' | 'light'; offline?: boolean } = {}): Promise<void> {
    const context = await browser.newContext({ viewport: { width: 1366, height: 1900 }, ...options });
    page = await context.newPage();
    seen = watch(page);
    await page.goto(url);
  }

  /** What a person does with a mouse: a file let go over the page. */
  async function drop(name: string, bytes: Uint8Array): Promise<void> {
    // As text: the tests are compiled without the browser's types.
    const transfer = await page.evaluateHandle(`(() => {
      const data = new DataTransfer();
      const bytes = Uint8Array.from(atob('${Buffer.from(bytes).toString('base64')}'), (character) => character.charCodeAt(0));
      data.items.add(new File([bytes], ${JSON.stringify(name)}));
      return data;
    })()`);
    await page.dispatchEvent('body', 'drop', { dataTransfer: transfer });
  }

  const hash = () => new URLSearchParams(new URL(page.url()).hash.slice(1));
  const viewWidth = async () => {
    await page.waitForTimeout(250);
    return hash().has('from') ? Number(hash().get('to')) - Number(hash().get('from')) : Number.POSITIVE_INFINITY;
  };
  const cursorEvent = async () => {
    const text = await page.getByTestId('cursor').innerText();
    return Number(/event ([\d,]+)/.exec(text)![1]!.replaceAll(',', ''));
  };
  const whatIfBytes = () =>
    page.locator('#what-if [data-bytes]').evaluateAll((cells) => cells.map((cell) => Number(cell.getAttribute('data-bytes'))));
  const column = (table: string, index: number) => page.locator(`${table} tbody tr td:nth-child(${index})`).allInnerTexts();

  it('shows the numbers of `weir analyze --json` to the byte, and asks nobody else for anything', async () => {
    await open(served.url);
    const { stdout } = await weir(['analyze', SAMPLE, '--json', '-q']);
    const expected = JSON.parse(stdout) as AnalyzeJson;
    await untilAnalysed(page);
    // JSON has every allocator; the page lists those of historical interest only if somebody asks.
    await page.getByLabel('Show all allocators').check();
    await expect.poll(whatIfBytes, { timeout: 20_000 }).toEqual(expected.whatIf.map((row) => row.peakReserved));
    expect(await column('#what-if', 2)).toEqual(expected.whatIf.map((row) => formatBytes(row.smallestGpu!)));
    const parts = await page.locator('#verdict .bar-part').evaluateAll((bars) => bars.map((bar) => Number(bar.getAttribute('data-bytes'))));
    expect(parts.reduce((sum, part) => sum + part, 0)).toBe(expected.peak['reserved']);
    expect(await page.getByTestId('replay-error').innerText()).toContain('Replay error 0');
    expect(seen.requests.every((url) => new URL(url).origin === new URL(served.url).origin)).toBe(true);
  });

  it('opens a dropped file without a server having it, and the example in one click', async () => {
    const empty = await serve([]);
    await open(empty.url);
    await page.getByRole('heading', { name: 'Drop a memory snapshot here' }).waitFor();
    await drop('mine.pickle.gz', sample(OOM_SAMPLE));
    await untilAnalysed(page);
    expect(await page.getByTestId('headline').innerText()).toBe('Out of memory at event 54,894: a request for 2.76 GiB failed.');
    expect(await cursorEvent()).toBe(54_894);
    // What the job could have is known only as a range, and one of the rows depends on it.
    expect(await page.locator('#what-if th').allInnerTexts()).toContain('fits in 20.67 to 21.22 GiB');
    const fits = await column('#what-if', 2);
    expect(fits.map((text) => text[0]).join('')).toBe('✕✓✕?✕✓');
    expect(fits[3]).toBe('? may fit, 3 retries');
    expect(seen.requests.some((url) => url.includes('/ask'))).toBe(false);
    // All of it was worked out in the browser, to the byte.
    const { stdout } = await weir(['analyze', OOM_SAMPLE, '--json', '--no-smallest', '-q']);
    const usual = (JSON.parse(stdout) as AnalyzeJson).whatIf.filter(({ allocator }) => !/cnmem|gmlake/.test(allocator));
    expect(await whatIfBytes()).toEqual(usual.map((row) => row.peakReserved));
    await page.reload();
    await page.getByRole('button', { name: 'Show the example' }).click();
    await untilAnalysed(page);
    await page.goto('about:blank');
    await empty.stop();
  });

  it('says in words what is wrong with a file', async () => {
    const empty = await serve([]);
    await open(empty.url);
    for (const [name, bytes, words] of [
      ['photo.png', Uint8Array.of(0x89, 0x50, 0x4e, 0x47, 1, 2), 'a PNG image'],
      ['cut.pickle', sample('samples/exact/s1.pickle').subarray(0, 3000), 'truncated'],
      ['cut.pickle.gz', sample(SAMPLE).subarray(0, 9000), 'truncated or damaged'],
      ['empty.pickle', new Uint8Array(), 'the file is empty'],
    ] as const) {
      await drop(name, bytes);
      await page.getByRole('alert').filter({ hasText: words }).waitFor();
      await page.getByRole('button', { name: 'Close' }).click();
    }
    // What comes after a bad file works.
    await drop('members.pickle.gz', twoMembers(sample('samples/exact/s1.pickle')));
    await page.getByTestId('headline').waitFor();
    await empty.stop();
  });

  it('sorts the tables', async () => {
    await open(served.url);
    await untilAnalysed(page);
    const head = page.locator('#what-if').getByRole('button', { name: 'peak with unlimited memory' });
    await head.click();
    expect(await whatIfBytes()).toEqual([...(await whatIfBytes())].sort((a, b) => b - a));
    expect(await page.locator('#what-if th[aria-sort=descending]').count()).toBe(1);
    await head.click();
    expect(await whatIfBytes()).toEqual([...(await whatIfBytes())].sort((a, b) => a - b));
  });

  it('zooms and pans by keys and Ctrl + wheel, and fits again', async () => {
    await open(served.url);
    await untilAnalysed(page);
    const whole = await viewWidth();
    await page.keyboard.press('p');
    for (const _ of [1, 2, 3]) await page.keyboard.press('w');
    const near = await viewWidth();
    expect(near).toBeLessThan(whole);
    const before = Number(hash().get('from'));
    await page.keyboard.press('a');
    await viewWidth();
    expect(Number(hash().get('from'))).toBeLessThan(before);
    await page.keyboard.press('d');
    await page.keyboard.press('s');
    expect(await viewWidth()).toBeCloseTo(near * 1.5, 0);
    const box = (await page.locator('.track-canvas').boundingBox())!;
    await page.mouse.move(box.x + box.width / 2, box.y + 100);
    await page.keyboard.down('Control');
    await page.mouse.wheel(0, -600);
    await page.keyboard.up('Control');
    expect(await viewWidth()).toBeLessThan(near * 1.5);
    await page.keyboard.press('0');
    expect(await viewWidth()).toBe(Number.POSITIVE_INFINITY);
  });

  it('brushes the minimap', async () => {
    await open(served.url);
    await untilAnalysed(page);
    const box = (await page.locator('.track-canvas').boundingBox())!;
    await page.mouse.move(box.x + box.width * 0.4, box.y + 15);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * 0.6, box.y + 15, { steps: 4 });
    await page.mouse.up();
    const share = (await viewWidth()) / 1e6;
    expect(share).toBeGreaterThan(0.1);
    expect(share).toBeLessThan(0.3);
  });

  it('moves the cursor by dragging, stepping and jumping, and everything follows', async () => {
    await open(served.url);
    await untilAnalysed(page);
    const box = (await page.locator('.track-canvas').boundingBox())!;
    await page.mouse.move(box.x + box.width * 0.3, box.y + 100);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * 0.5, box.y + 100, { steps: 8 });
    await page.mouse.up();
    await expect.poll(cursorEvent).toBeGreaterThan(100);
    await page.waitForTimeout(200);
    const at = await cursorEvent();
    await page.keyboard.press('.');
    await expect.poll(cursorEvent).toBe(at + 1);
    await page.keyboard.press(',');
    await expect.poll(cursorEvent).toBe(at);
    await page.keyboard.press('m');
    await page.keyboard.press('p');
    await expect.poll(cursorEvent).not.toBe(at);
    expect(await page.locator('.figure-list').innerText()).toContain(`mark at event ${at.toLocaleString('en-US')}`);
    const { stdout } = await weir(['analyze', SAMPLE, '--json', '-q']);
    const reserved = await page.locator('.figure-list dd[data-bytes]').first().getAttribute('data-bytes');
    expect(Number(reserved)).toBe((JSON.parse(stdout) as AnalyzeJson).peak['reserved']);
  });

  it('selects a range and a block with the mouse', async () => {
    await open(served.url);
    await untilAnalysed(page);
    await page.keyboard.press('3');
    const box = (await page.locator('.track-canvas').boundingBox())!;
    const drag = async (from: number, to: number) => {
      await page.mouse.move(box.x + box.width * from, box.y + 100);
      await page.mouse.down();
      await page.mouse.move(box.x + box.width * to, box.y + 100, { steps: 4 });
      await page.mouse.up();
    };
    await page.keyboard.down('Shift');
    await drag(0.3, 0.5);
    await page.keyboard.up('Shift');
    await page.getByRole('heading', { name: 'Allocated in the range and still live at its end' }).waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('heading', { name: 'Live at the cursor' }).waitFor();
    // The oldest memory lies at the bottom of the map.
    const bottom = box.y + box.height - 14;
    await page.mouse.move(box.x + box.width * 0.45, bottom);
    await page.locator('.tip').waitFor();
    await page.mouse.click(box.x + box.width * 0.45, bottom);
    await page.getByTestId('block').waitFor();
    expect(await page.getByTestId('block').innerText()).toContain('allocated at event');
    await expect.poll(() => hash().get('block')).toMatch(/^\d+$/);
  });

  it('searches, selects and clears', async () => {
    await open(served.url.replace(encodeURIComponent(SAMPLE), encodeURIComponent(OOM_SAMPLE)));
    await untilAnalysed(page);
    await page.keyboard.press('/');
    await page.keyboard.type('cross_entropy');
    await expect.poll(() => page.getByTestId('hits').innerText()).toMatch(/^\d+$/);
    await page.keyboard.press('Enter');
    await page.getByTestId('block').waitFor();
    expect(await page.getByTestId('block').innerText()).toContain('cross_entropy');
    expect(await page.getByTestId('hits').innerText()).toMatch(/^1 \/ \d+$/);
    await page.keyboard.press('Escape');
    await page.keyboard.press('f');
    await expect.poll(viewWidth, { timeout: 10_000 }).toBeLessThan(3.6e6);
    await page.keyboard.press('Escape');
    await page.getByTestId('block').waitFor({ state: 'detached' });
    await page.locator('#search').fill('no such thing anywhere');
    await expect.poll(() => page.getByTestId('hits').innerText()).toBe('nothing found');
  });

  it('compares allocators and files on one axis', async () => {
    await open(served.url);
    await untilAnalysed(page);
    await page.locator('#what-if tbody tr', { hasText: 'expandable' }).first().click();
    await page.getByTestId('difference').waitFor();
    await page.keyboard.press('p');
    const difference = page.getByTestId('difference').locator('tr.difference td').first();
    await expect.poll(async () => Number(await difference.getAttribute('data-bytes'))).toBeLessThan(-1e9);
    await page.getByLabel('Compare with').selectOption(`file:${OOM_SAMPLE}`);
    await expect.poll(() => page.getByTestId('difference').innerText(), { timeout: 30_000 }).toContain(OOM_SAMPLE);
    // Longer than the first one: the axis grows with it.
    await expect.poll(() => hash().get('with')).toBe(`file:${OOM_SAMPLE}`);
    await page.getByLabel('Compare with').selectOption('');
    await page.getByTestId('difference').waitFor({ state: 'detached' });
  });

  it('loses the token from its address, and is not shown without it', async () => {
    await open(served.url);
    await page.getByTestId('headline').waitFor();
    expect(page.url()).not.toContain('token');
    await page.reload();
    await page.getByTestId('headline').waitFor();
    const stranger = await browser.newContext();
    const visit = await stranger.newPage();
    const response = await visit.goto(new URL('/', served.url).href);
    expect(response!.status()).toBe(401);
    expect(await visit.locator('body').innerText()).toContain('open the URL that weir printed in the terminal');
    await stranger.close();
  });

  it('stops an analysis that a newer one replaces', async () => {
    await open(served.url.replace(encodeURIComponent(SAMPLE), encodeURIComponent(OOM_SAMPLE)));
    await untilAnalysed(page);
    const stopped: string[] = [];
    page.on('requestfailed', (request) => stopped.push(request.postData() ?? ''));
    const asked = page.waitForRequest((request) => request.postData()?.includes('"analyze"') ?? false);
    for (const [index, size] of ['30GiB', '12GiB'].entries()) {
      await page.getByLabel('GPU memory').fill(size);
      await page.getByLabel('GPU memory').press('Enter');
      if (index === 0) await asked;
    }
    await page.getByRole('columnheader', { name: 'in 12.00 GiB' }).waitFor({ timeout: 20_000 });
    await untilAnalysed(page);
    const analyses = stopped.map((question) => JSON.parse(question)).filter(({ method }) => method === 'analyze');
    expect(analyses).toEqual([{ method: 'analyze', gpu: 0, capacity: 30 * 2 ** 30 }]);
    expect(await page.getByRole('alert').count()).toBe(0);
  });

  it('tries another GPU size', async () => {
    await open(served.url);
    await untilAnalysed(page);
    await page.getByLabel('GPU memory').fill('12GiB');
    await page.getByLabel('GPU memory').press('Enter');
    await page.getByRole('columnheader', { name: 'in 12.00 GiB' }).waitFor({ timeout: 20_000 });
    await page.getByLabel('GPU memory').fill('plenty');
    await page.getByLabel('GPU memory').press('Enter');
    await page.getByText('write it like 24GiB').waitFor();
  });

  it('comes back from its address', async () => {
    await open(`${served.url}&axis=event&from=1000&to=2000&cursor=1500&colour=size&with=weir`);
    await untilAnalysed(page);
    await page.getByTestId('difference').waitFor();
    expect(await cursorEvent()).toBe(1500);
    await page.waitForTimeout(300);
    expect(Object.fromEntries(hash())).toMatchObject({
      axis: 'event',
      from: '1000',
      to: '2000',
      cursor: '1500',
      colour: 'size',
      with: 'weir',
    });
  });

  it('is dark where the system is, and by choice', async () => {
    await open(served.url, { colorScheme: 'dark' });
    await page.getByTestId('headline').waitFor();
    const background = () => page.evaluate('getComputedStyle(document.body).backgroundColor');
    expect(await background()).toBe('rgb(16, 19, 24)');
    await page.getByRole('button', { name: 'Light theme' }).click();
    expect(await background()).toBe('rgb(244, 245, 247)');
    await page.reload();
    await page.getByTestId('headline').waitFor();
    expect(await background()).toBe('rgb(244, 245, 247)');
  });

  it('shows a plan where the run repeats, and nothing where it does not', async () => {
    await open(served.url);
    await page.getByRole('heading', { name: 'A plan for the step this run repeats' }).waitFor({ timeout: 20_000 });
    expect(await page.locator('#plan').innerText()).toContain('exactly the lower bound');
    await page.getByLabel('Recording').selectOption(OOM_SAMPLE);
    await page.getByTestId('headline').filter({ hasText: 'Out of memory' }).waitFor({ timeout: 20_000 });
    await untilAnalysed(page);
    expect(await page.locator('#plan').count()).toBe(0);
  });

  it('lists its keys', async () => {
    await open(served.url);
    await page.getByTestId('headline').waitFor();
    await page.keyboard.press('?');
    await page.getByRole('dialog').waitFor();
    expect(await page.getByRole('dialog').innerText()).toContain('jump to the peak');
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
  });

  it('is one file that works from the disk with no network', async () => {
    const report = join(folder, 'report.html');
    const { code, stderr } = await weir(['report', OOM_SAMPLE, '-o', report, '-q']);
    expect([code, stderr]).toEqual([0, expect.stringContaining('wrote')]);
    await open(`file://${report}`, { offline: true });
    await untilAnalysed(page);
    expect(await page.getByTestId('headline').innerText()).toContain('Out of memory at event 54,894');
    await page.getByLabel('Compare with').selectOption('weir');
    await page.getByTestId('difference').waitFor();
    expect(seen.requests.filter((url) => !url.startsWith('file:') && !url.startsWith('blob:') && !url.startsWith('data:'))).toEqual([]);
  });

  it('plays several ranks side by side as they run', async () => {
    const live = await serve([SAMPLE, OOM_SAMPLE, '--live', '--speed', '4']);
    await open(live.url);
    await page.getByRole('heading', { name: '2 ranks played back' }).waitFor();
    // The axis lies below the tracks, and recordings of different days begin together.
    const sides = await page
      .locator('.rank-row canvas, .rank-ticks')
      .evaluateAll((elements) => elements.map((element) => [element.getBoundingClientRect().left, element.getBoundingClientRect().right]));
    for (const side of sides) expect(side).toEqual(sides[0]);
    await page.getByRole('heading', { name: '2 ranks: the job was played to its end, 1 out of memory' }).waitFor({ timeout: 15_000 });
    expect(await page.locator('.rank-ticks').innerText()).toMatch(/^0\.0 s/);
    expect(await page.getByTestId('rank-0').innerText()).toContain('out of memory (1 x)');
    expect(await page.getByTestId('rank-0').innerText()).toContain('20.67 GiB');
    // The analysis of the rank that failed follows by itself.
    await untilAnalysed(page);
    expect(await page.getByTestId('headline').innerText()).toContain('Out of memory at event 54,894');
    await page.goto('about:blank');
    await live.stop();
  });
});

/** A gzip file may have several members, as `weir convert` writes them. */
function twoMembers(bytes: Uint8Array): Uint8Array {
  const half = Math.floor(bytes.length / 2);
  return Buffer.concat([gzipSync(bytes.subarray(0, half)), gzipSync(bytes.subarray(half))]);
}
