// Recordings with call stacks in a real browser: the flame graph of GPT-2 XL from a `.weir` file, and names that mean harm.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { formatBytes, MIB } from '../../src/base/bytes.ts';
import { weir } from '../support/command.ts';
import { scripted } from '../support/scripted.ts';
import { weirBytes } from '../trace/weir-support.ts';
import { CHROMIUM, launch, type Served, serve, untilAnalysed, type Watch, watch } from './browser.ts';

const SAMPLE = 'samples/gpt2xl-oom.pickle.gz';
const NAMES = ['<img src=x onerror=alert(1)>', '\u001b[2J\u0007\u202e', '"><script>alert(1)</script>', 'n'.repeat(20_000)];

describe.skipIf(!CHROMIUM)(`call stacks in the page${CHROMIUM ? '' : ' (skipped: there is no Chromium)'}`, () => {
  const folder = mkdtempSync(join(tmpdir(), 'weir-stacks-'));
  let browser: Browser;
  beforeAll(async () => {
    browser = await launch();
  });
  afterAll(async () => {
    await browser.close();
    rmSync(folder, { recursive: true });
  });

  async function withPage(file: string, use: (page: Page, seen: Watch) => Promise<void>): Promise<void> {
    const served: Served = await serve([file]);
    const context = await browser.newContext({ viewport: { width: 1366, height: 900 } });
    try {
      const page = await context.newPage();
      const seen = watch(page);
      await page.goto(served.url);
      await untilAnalysed(page);
      await use(page, seen);
      expect(seen.complaints).toEqual([]);
    } finally {
      await context.close();
      await served.stop();
    }
  }

  /** Distinct colours along a row of the flame graph: one alone is an empty canvas. */
  const coloursIn = (page: Page, row: number) =>
    page.locator('.flame canvas').evaluate((element, at) => {
      // The tests are compiled without the browser's types.
      const canvas = element as unknown as {
        width: number;
        clientWidth: number;
        getContext(kind: string): { getImageData(x: number, y: number, width: number, height: number): { data: Uint8ClampedArray } };
      };
      const scale = canvas.width / canvas.clientWidth;
      const { data } = canvas.getContext('2d').getImageData(0, Math.round((at * 18 + 3) * scale), canvas.width, 1);
      const colours = new Set<string>();
      for (let pixel = 0; pixel < data.length; pixel += 4) colours.add(data.slice(pixel, pixel + 4).join(' '));
      return colours.size;
    }, row);

  it('of GPT-2 XL, converted to .weir: the flame graph is drawn, names its lines and zooms', async () => {
    const file = join(folder, 'gpt2xl.weir');
    expect((await weir(['convert', SAMPLE, file])).code).toBe(0);
    const { stdout } = await weir(['analyze', file, '--json', '-q']);
    const { sites } = JSON.parse(stdout) as { sites: { label: string; bytes: number }[] };
    await withPage(file, async (page) => {
      const canvas = page.locator('.flame canvas');
      expect(await canvas.getAttribute('aria-label')).toContain('Flame graph of live bytes by call stack');
      await canvas.scrollIntoViewIfNeeded();
      const bounds = (await canvas.boundingBox())!;
      expect(bounds.height).toBeGreaterThan(5 * 18);
      const rows = Array.from({ length: 5 }, (_, row) => row);
      await expect.poll(async () => Math.max(...(await Promise.all(rows.map((row) => coloursIn(page, row)))))).toBeGreaterThan(1);
      await page.mouse.move(bounds.x + bounds.width / 4, bounds.y + 4 * 18 + 9);
      const tip = page.locator('.flame .tip');
      await tip.waitFor();
      expect(await tip.innerText()).toMatch(/^[\d.]+ [KMG]iB .*\n.+\n.+:\d+$/);
      await page.mouse.click(bounds.x + bounds.width / 4, bounds.y + 4 * 18 + 9);
      await page.getByRole('button', { name: 'Back to all', exact: true }).click();
      // The table beside it has the lines that `weir analyze` names.
      await page.locator('#live tbody tr').first().waitFor();
      const table = await page.locator('#live table').last().innerText();
      expect(table).toContain(formatBytes(sites[0]!.bytes));
    });
  });

  it('with names of HTML, control characters or great length are shown as text', async () => {
    const file = join(folder, 'names.weir');
    const trace = scripted((script) => {
      for (const name of NAMES) script.alloc(8 * MIB, [[`/home/${name}/a.py`, 3, name]]);
      script.alloc(MIB);
    });
    writeFileSync(file, weirBytes({ format: 'weir', traces: [trace] }));
    await withPage(file, async (page, seen) => {
      await page.locator('#live tbody tr').first().waitFor();
      expect(await page.locator('#live').innerText()).toContain('<img src=x onerror=alert(1)>');
      expect(await page.locator('img[src=x], #live script').count()).toBe(0);
      expect(seen.requests.filter((url) => url.endsWith('/x'))).toEqual([]);
      const wide = await page.evaluate('document.documentElement.scrollWidth - document.documentElement.clientWidth');
      expect(wide).toBe(0);
    });
    for (const command of [['analyze'], ['diff', file]]) {
      const { code, stdout } = await weir([...command, file]);
      expect(code).toBe(0);
      // biome-ignore lint/suspicious/noControlCharactersInRegex: it looks for them.
      expect(stdout).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/);
    }
  });
});
