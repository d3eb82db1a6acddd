// The page of a snapshot with everything that PyTorch 2.14 records: served, and as one HTML file. Texts of the program stay texts.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { weir } from '../support/command.ts';
import { newestSnapshot } from '../support/newest-snapshot.ts';
import { writePickle } from '../support/pickle-writer.ts';
import { CHROMIUM, launch, serve, untilAnalysed, watch } from './browser.ts';

const folder = mkdtempSync(join(tmpdir(), 'weir-web-newest-'));
afterAll(() => rmSync(folder, { recursive: true }));
const path = join(folder, 'newest.pickle');
writeFileSync(path, writePickle(newestSnapshot()));

describe.skipIf(!CHROMIUM)(`the page of a snapshot of PyTorch 2.14${CHROMIUM ? '' : ' (skipped: there is no Chromium)'}`, () => {
  let browser: Browser;
  beforeAll(async () => {
    browser = await launch();
  });
  afterAll(() => browser.close());

  async function look(url: string): Promise<void> {
    const page = await browser.newPage();
    const seen = watch(page);
    await page.goto(url);
    await untilAnalysed(page);
    expect(await page.getByTestId('host-memory').innerText()).toContain('Pinned host memory: peak 20 MiB (16 MiB in use)');
    expect(await page.locator('#verdict').innerText()).toContain('Private pools (CUDA graphs, MemPool) held 20 MiB of it');
    await page.getByRole('tab', { name: 'Blocks' }).click();
    await page.getByRole('cell', { name: '[weights, </script>' }).first().click();
    expect(await page.getByTestId('notes').innerText()).toContain('Named by the program: weights, </script><img src=x onerror=alert(1)>');
    expect(await page.locator('img').count()).toBe(0);
    expect(seen.complaints).toEqual([]);
    await page.close();
  }

  it('served', async () => {
    const served = await serve([path]);
    await look(served.url);
    await served.stop();
  });

  it('as one HTML file', async () => {
    const to = `${path}.html`;
    expect(await weir(['report', path, '-o', to, '--quiet'])).toMatchObject({ code: 0 });
    await look(pathToFileURL(to).href);
  });
});
