// The live page of `weir run --serve` in a real browser, with real processes that write rings and end in every way a job can end.
import type { ChildProcess } from 'node:child_process';
import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { job, RunFolder } from '../support/run-folder.ts';
import { CHROMIUM, launch, NO_BROWSER, watch } from './browser.ts';

if (!CHROMIUM) console.log(NO_BROWSER);

const run = new RunFolder();
const SLOW = { timeout: 60_000 };

describe.skipIf(!CHROMIUM)(`the live page${CHROMIUM ? '' : ' (skipped: there is no Chromium)'}`, () => {
  let browser: Browser;
  let page: Page;
  let complaints: string[];

  beforeAll(async () => {
    browser = await launch();
  });
  afterAll(() => browser.close());
  afterEach(async () => {
    await page.context().close();
  });

  interface Job {
    readonly weir: ChildProcess;
    readonly ended: Promise<readonly [number | null, NodeJS.Signals | null]>;
    text(): string;
  }

  async function start(options: readonly string[], words: readonly string[], width = 1440): Promise<Job> {
    const weir = run.start(['run', '--serve', ...options, ...job(...words)]);
    let text = '';
    for (const stream of [weir.stdout!, weir.stderr!])
      stream.on('data', (chunk: Buffer) => {
        text += chunk.toString();
      });
    const ended = new Promise<readonly [number | null, NodeJS.Signals | null]>((resolve) =>
      weir.on('exit', (code, signal) => resolve([code, signal])),
    );
    const address = () => /http:\S+token=\w+/.exec(text)?.[0];
    await expect.poll(address, SLOW).toBeDefined();
    const context = await browser.newContext({ viewport: { width, height: 900 } });
    page = await context.newPage();
    ({ complaints } = watch(page));
    await page.goto(address()!);
    // A page that was loaded again would have lost this.
    await page.evaluate('window.isSamePage = true');
    return { weir, ended, text: () => text };
  }

  const title = () => page.locator('#job-title').innerText();
  const rankText = (rank: number) => page.getByTestId(`rank-${rank}`).innerText();
  const pids = ({ text }: Job) => [...new Set([...text().matchAll(/pid (\d+)/g)].map((match) => Number(match[1])))];

  it.each([1440, 1280, 390])('follows the job, says that it failed, and then shows the rank that failed (%i px)', async (width) => {
    const { ended } = await start(
      ['--record', 'run.weir', '--limit', '128MiB'],
      ['train=30', 'pause=2500', 'oom', 'pause=1000', 'close', 'exit=3'],
      width,
    );
    await expect.poll(title, SLOW).toBe('The job is running');
    await page.locator('#job canvas').waitFor();
    expect(await page.locator('#job .rank-legend').innerText()).toContain('limit 128 MiB');
    expect(await page.locator('#job .rank-ticks').innerText()).toContain('0');
    const box = (await page.locator('#job').boundingBox())!;
    expect(box.x + box.width).toBeLessThanOrEqual(width);
    expect(await page.title()).toBe('The job is running - Weir');
    await expect.poll(title, SLOW).toBe('The job failed with exit code 3, out of memory');
    expect(await rankText(0)).toContain('out of memory (1 x), ended');
    // The recording comes from the page's memory: Weir may be gone by now.
    await expect.poll(() => page.getByTestId('headline').innerText(), SLOW).toContain('a request for 900 MiB failed.');
    expect(await ended).toEqual([3, null]);
    expect(await page.evaluate('window.isSamePage')).toBe(true);
    await expect.poll(() => page.title(), SLOW).toContain('The job failed with exit code 3, out of memory, run.');
    expect(complaints).toEqual([]);
  });

  it('says that a job was killed, and never that it runs', async () => {
    const started = await start(['--record', 'killed.weir'], ['train=30', 'hold=20', 'say-pid', 'sleep=60000']);
    await expect.poll(() => pids(started), SLOW).toHaveLength(1);
    await expect.poll(title, SLOW).toBe('The job is running');
    process.kill(pids(started)[0]!, 'SIGKILL');
    await expect.poll(title, SLOW).toBe('The job was killed by SIGKILL (signal 9)');
    expect(await page.locator('#job').innerText()).toContain('when the machine runs out of host memory');
    expect(await rankText(0)).toContain('gone without closing its recording: killed or crashed');
    await expect.poll(() => page.getByTestId('headline').innerText(), SLOW).toContain('Peak: 210 MiB reserved');
    expect(await started.ended).toEqual([null, 'SIGKILL']);
    expect(await page.evaluate('window.isSamePage')).toBe(true);
    expect(complaints).toEqual([]);
  });

  it('tells a rank that is gone from a job that goes on', async () => {
    const started = await start(['--no-what-if'], ['fork=2', 'train=3', 'say-pid', 'sleep=60000']);
    await expect.poll(() => pids(started), SLOW).toHaveLength(2);
    await expect.poll(title, SLOW).toBe('2 ranks running');
    const [first, second] = pids(started) as [number, number];
    process.kill(first, 'SIGKILL');
    await expect.poll(async () => (await page.locator('#job').innerText()).match(/gone without/g)?.length, SLOW).toBe(1);
    expect(await title()).toBe('2 ranks running');
    process.kill(second, 'SIGKILL');
    await expect.poll(title, SLOW).toBe('2 ranks: the job ended with exit code 0');
    expect(await page.locator('#job').innerText()).toContain('No recording was kept. With --record run.weir, the analysis would be here.');
    expect(await started.ended).toEqual([0, null]);
  });

  it('says that nobody answers if weir itself is killed', async () => {
    const started = await start(['--no-what-if'], ['train=3', 'say-pid', 'sleep=60000']);
    await expect.poll(() => pids(started), SLOW).toHaveLength(1);
    await page.locator('#job canvas').waitFor(SLOW);
    expect(await title()).toBe('The job is running');
    started.weir.kill('SIGKILL');
    await expect.poll(title, SLOW).toBe('The job: the connection is lost');
    expect(await page.locator('#job').innerText()).toContain('Whether the job still runs is unknown');
    expect(await rankText(0)).toContain('state unknown');
    process.kill(pids(started)[0]!, 'SIGKILL');
  });

  it('does not hold up a job that nobody watches', async () => {
    const started = await start(['--record', 'alone.weir'], ['train=3', 'pause=1500', 'close']);
    await expect.poll(title, SLOW).toBe('The job is running');
    await page.goto('about:blank');
    expect(await started.ended).toEqual([0, null]);
  });
});
