// `weir fit --serve` in a real browser: sliders for the values and the GPU, and the run of the chosen value below them.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { chooseAllocators } from '../../src/allocator/registry.ts';
import { formatBytes, GIB, MIB } from '../../src/base/bytes.ts';
import { whatIf } from '../../src/replay/what-if.ts';
import { writeWeir } from '../../src/trace/weir/writer.ts';
import { type Program, runProgram } from '../fit/program.ts';
import { weir } from '../support/command.ts';
import { CHROMIUM, launch, NO_BROWSER, type Served, served, untilAnalysed, type Watch, watch } from './browser.ts';

const folder = mkdtempSync(join(tmpdir(), 'weir-web-values-'));
const PROGRAM: Program = {
  layers: Array.from({ length: 6 }, (_, index) => ({
    weight: 24 * MIB,
    saved: (batch: number) => batch * (index + 2) * MIB,
    workspace: (batch: number) => batch * batch * 32 * 1024,
  })),
  steps: 4,
  hasStacks: true,
  hasMarks: true,
  hasState: true,
};
const files = [4, 8].map((batch) => {
  const path = join(folder, `${batch}.weir`);
  const chunks: Uint8Array[] = [];
  writeWeir({ format: 'weir', traces: [runProgram(PROGRAM, batch)] }, (chunk) => chunks.push(chunk.slice()));
  writeFileSync(path, Buffer.concat(chunks));
  return path;
});
const FIT = ['fit', ...files, '--values', '4,8', '--names', 'batch', '--gpu', '2GiB'];

if (!CHROMIUM) console.log(NO_BROWSER);

describe.skipIf(!CHROMIUM)(`runs of other values${CHROMIUM ? '' : ' (skipped: there is no Chromium)'}`, () => {
  let browser: Browser;
  let server: Served;
  let page: Page;
  let seen: Watch;

  beforeAll(async () => {
    [browser, server] = await Promise.all([launch(), served([...FIT, '--serve', '-q'])]);
  });
  afterAll(async () => {
    await browser.close();
    await server.stop();
    rmSync(folder, { recursive: true });
  });
  afterEach(async () => {
    expect(seen.complaints).toEqual([]);
    await page.context().close();
  });

  async function open(width = 1440, hash = ''): Promise<void> {
    const context = await browser.newContext({ viewport: { width, height: 900 } });
    page = await context.newPage();
    seen = watch(page);
    await page.goto(server.url + hash);
    await untilAnalysed(page);
    await answered();
  }

  async function answered(): Promise<void> {
    await page.locator('[data-testid=values-answer][aria-busy=false]').waitFor({ timeout: 30_000 });
  }

  const cell = (allocator: string, column: number) =>
    page
      .locator('#values tbody tr', { has: page.getByText(allocator, { exact: true }) })
      .first()
      .locator('td')
      .nth(column)
      .innerText();

  it('says the largest value, as the command does', async () => {
    await open();
    const { stdout } = await weir([...FIT, '--json']);
    for (const { allocator, largest } of JSON.parse(stdout).results.filter((row: { allocator: string }) => !row.allocator.includes('swap')))
      expect(await cell(allocator, 1)).toBe(String(largest));
    expect(await page.locator('#values').innerText()).toContain('each further batch adds');
  });

  it('shows the run of the value that is chosen, with the peak of the real one', async () => {
    await open();
    await page.getByLabel('batch, as a number').fill('20');
    await page.getByLabel('batch, as a number').press('Enter');
    await expect.poll(() => page.url()).toContain('values=20');
    await untilAnalysed(page);
    await answered();
    const [choice] = chooseAllocators('weir');
    const real = whatIf(runProgram({ ...PROGRAM, steps: 7 }, 20), choice!, {}).peakReserved;
    expect(await cell('weir', 3)).toBe(formatBytes(real));
    expect(await page.locator('#what-if tbody tr', { hasText: 'weir' }).last().innerText()).toContain(formatBytes(real));
    expect(await page.getByLabel('batch', { exact: true }).inputValue()).toBe('20');
  });

  it('follows the slider of the GPU, and both by keyboard', async () => {
    await open();
    const before = Number(await cell('weir', 1));
    expect(await cell('weir', 2)).toContain('fits');
    const gpu = page.getByLabel('GPU memory', { exact: true }).first();
    await gpu.focus();
    await gpu.press('ArrowRight');
    await expect.poll(() => page.url()).toContain(`capacity=${4 * GIB}`);
    await answered();
    expect(Number(await cell('weir', 1))).toBeGreaterThan(before);
    const batch = page.getByLabel('batch', { exact: true });
    await batch.focus();
    await batch.press('End');
    await expect.poll(() => page.url()).not.toMatch(/values=8\b/);
    await untilAnalysed(page);
    await answered();
    expect(await cell('pytorch', 2)).toContain('out of memory');
  });

  it('is restored by a link', async () => {
    await open(1440, '#values=16');
    expect(await page.getByLabel('batch', { exact: true }).inputValue()).toBe('16');
  });

  it.each([1440, 1280, 390])('fits into %s pixels', async (width) => {
    await open(width);
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(width);
    const box = await page.getByLabel('batch, as a number').boundingBox();
    expect(box!.x + box!.width).toBeLessThanOrEqual(width);
  });
});

describe('weir fit --serve', () => {
  it('is refused with --json, and --open without it', async () => {
    expect(await weir([...FIT, '--serve', '--json'])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('--serve prints the address'),
    });
    expect(await weir([...FIT, '--open'])).toMatchObject({ code: 2, stderr: expect.stringContaining('add --serve') });
  });
});
