// The view as one HTML file: saved by the button or written by `weir report`, it shows the same and tells nothing about the machine.
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { weir } from '../support/command.ts';
import { atHome, sampleRecording, writeRank } from '../support/ranks.ts';
import { CHROMIUM, launch, NO_BROWSER, type Served, serve, untilOpen, type Watch, watch } from './browser.ts';

if (!CHROMIUM) console.log(NO_BROWSER);

const SLOW = { timeout: 60_000 };
const HOME = '/home/ann/secret';
const folder = mkdtempSync(join(tmpdir(), 'weir-saving-ann-'));
const job = join(folder, 'runs-of-ann');
const ranks = [0, 1, 2].map((rank) => join(job, `rank${rank}.weir`));

/** One that is not empty. */
const RECORDING = /<script type="text\/plain" class="weir-recording">([\w+/=]+)</g;

/** Everything a file says: its text, and its recordings unpacked. */
function contentOf(html: string): string {
  const recordings = [...html.matchAll(RECORDING)].map((match) => gunzipSync(Buffer.from(match[1]!, 'base64')).toString('latin1'));
  // Base64 may spell anything.
  return [html.replaceAll(RECORDING, ''), ...recordings].join('\n');
}

const keptIn = (html: string) => [...html.matchAll(RECORDING)].length;

function expectNothingPrivate(html: string): void {
  const content = contentOf(html);
  for (const word of [HOME, 'secret', folder, 'runs-of-ann', '/home/', tmpdir() === '/tmp' ? '/tmp/' : tmpdir()])
    expect([word, content.includes(word)]).toEqual([word, false]);
  if (hostname().length > 3) expect([hostname(), content.includes(hostname())]).toEqual([hostname(), false]);
}

describe.skipIf(!CHROMIUM)(`a view as one file${CHROMIUM ? '' : ' (skipped: there is no Chromium)'}`, () => {
  let browser: Browser;
  let served: Served;
  let page: Page;
  let seen: Watch;

  beforeAll(async () => {
    mkdirSync(job);
    const home = atHome(sampleRecording('gpt2xl-oom.pickle.gz'), HOME);
    writeRank(home, ranks[0]!, { share: 0.12 });
    writeRank(home, ranks[1]!, { share: 0.25, shiftUs: 20_000 });
    writeRank(home, ranks[2]!, { share: 0.1 });
    expect(readFileSync(ranks[1]!, 'latin1')).toContain(HOME);
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

  async function open(url: string, options: { width?: number; offline?: boolean } = {}): Promise<void> {
    const { width = 1440, offline = false } = options;
    const context = await browser.newContext({ viewport: { width, height: 900 }, offline, acceptDownloads: true });
    page = await context.newPage();
    seen = watch(page);
    await page.goto(url);
  }

  async function save(): Promise<{ path: string; name: string; html: string }> {
    const [download] = await Promise.all([
      page.waitForEvent('download', { timeout: 60_000 }),
      page.getByRole('button', { name: 'Save as HTML' }).press('Enter'),
    ]);
    const path = join(folder, `saved-${Math.random()}.html`);
    await download.saveAs(path);
    return { path, name: download.suggestedFilename(), html: readFileSync(path, 'utf8') };
  }

  const hash = () => new URLSearchParams(new URL(page.url()).hash.slice(1));
  const cursor = () => page.getByTestId('cursor').innerText();

  it.each([1440, 390])('is saved from the served page, with its view and without paths, at %i px', async (width) => {
    await open(`${served.url}#file=${encodeURIComponent(ranks[1]!)}&axis=event&from=1000&to=3000&cursor=2000&colour=size`, { width });
    await untilOpen(page);
    const verdict = await page.getByTestId('headline').innerText();
    const { path, name, html } = await save();
    expect(name).toBe('rank1.html');
    expectNothingPrivate(html);
    expect(keptIn(html)).toBe(1);
    expect(html).toContain('<title>rank1.weir - Weir</title>');
    await page.context().close();
    await open(`file://${path}`, { width, offline: true });
    await untilOpen(page);
    expect(await page.getByTestId('headline').innerText()).toBe(verdict);
    // The analysis is inside: nothing is left to compare.
    expect(await page.locator('#what-if [role=progressbar]').count()).toBe(0);
    expect(await cursor()).toContain('event 2,000');
    await expect.poll(() => Object.fromEntries(hash()), SLOW).toMatchObject({ axis: 'event', from: '1000', to: '3000', colour: 'size' });
    // All ranks are in the overview; those that were not shown cannot be opened.
    expect(await page.locator('#job .rank-name strong').allInnerTexts()).toEqual(['rank1.weir', 'rank0.weir', 'rank2.weir']);
    expect(await page.getByTestId('rank-1').getByRole('button').isDisabled()).toBe(true);
    expect(await page.getByTestId('rank-0').getByRole('button').isDisabled()).toBe(false);
    // A page that was saved can be saved again.
    const again = await save();
    expectNothingPrivate(again.html);
    expect(keptIn(again.html)).toBe(1);
  });

  it('holds both sides of a difference', async () => {
    const key = (rank: number) => encodeURIComponent(`${ranks[rank]}#0`);
    await open(`${served.url}#left=${key(0)}&right=${key(1)}&by=peak`);
    await untilOpen(page);
    await page.getByTestId('difference-headline').waitFor(SLOW);
    const headline = await page.getByTestId('difference-headline').innerText();
    const { path, html } = await save();
    expectNothingPrivate(html);
    expect(keptIn(html)).toBe(2);
    await page.context().close();
    await open(`file://${path}`, { offline: true });
    await expect.poll(() => page.getByTestId('difference-headline').innerText(), SLOW).toBe(headline);
  });

  it('is saved of a file that only the browser has', async () => {
    const empty = await serve([]);
    await open(empty.url);
    const [chooser] = await Promise.all([page.waitForEvent('filechooser'), page.getByRole('button', { name: 'Choose a file' }).click()]);
    await chooser.setFiles([ranks[1]!]);
    await untilOpen(page);
    const { path, html } = await save();
    expectNothingPrivate(html);
    expect(seen.requests.some((url) => url.includes('/ask'))).toBe(false);
    await page.context().close();
    await open(`file://${path}`, { offline: true });
    await untilOpen(page);
    expect(await page.getByTestId('headline').innerText()).toContain('Peak: ');
    await empty.stop();
  });

  it('is written by weir report for all ranks, with paths only if they are asked for', async () => {
    const out = join(folder, 'report.html');
    const { code, stdout } = await weir(['report', job, '-o', out, '--json', '-q']);
    expect([code, JSON.parse(stdout)]).toEqual([0, expect.objectContaining({ from: ranks, to: out, gpus: 3 })]);
    const html = readFileSync(out, 'utf8');
    expectNothingPrivate(html);
    expect(keptIn(html)).toBe(3);
    await open(`file://${out}`, { offline: true });
    await untilOpen(page);
    expect(await page.locator('#job [aria-current] strong').innerText()).toBe('rank1.weir');
    await page.getByTestId('rank-2').getByRole('button').click();
    await expect.poll(() => page.locator('#job [aria-current] strong').innerText(), SLOW).toBe('rank2.weir');
    expect((await weir(['report', ranks[1]!, '-o', out, '-f', '-q', '--keep-paths'])).code).toBe(0);
    expect(contentOf(readFileSync(out, 'utf8'))).toContain(HOME);
    const unnamed = await weir(['report', ...ranks]);
    expect([unnamed.code, unnamed.stderr]).toEqual([2, expect.stringContaining('name the file to write with -o')]);
  });
});
