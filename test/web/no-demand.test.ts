// The page of recordings in which nobody asks for memory: served, and as one HTML file.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { gunzipSync } from 'node:zlib';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { cutBeforeFirstEvent } from '../support/beginning.ts';
import { weir } from '../support/command.ts';
import { CHROMIUM, launch, serve, untilAnalysed, watch } from './browser.ts';

const folder = mkdtempSync(join(tmpdir(), 'weir-web-empty-'));
afterAll(() => rmSync(folder, { recursive: true }));

function file(name: string, content: string | Uint8Array): string {
  const path = join(folder, name);
  writeFileSync(path, content);
  return path;
}

const ADDRESS = 0x7f00_0000_0000;
const CACHED = {
  ...{ device: 0, address: ADDRESS, total_size: 20971520, allocated_size: 0, active_size: 0, requested_size: 0, stream: 0 },
  ...{ segment_type: 'large', segment_pool_id: [0, 0], is_expandable: false, frames: [] },
  blocks: [{ address: ADDRESS, size: 20971520, requested_size: 0, state: 'inactive', frames: [] }],
};

const FILES = [
  [
    'a recording cut before its first event',
    file('cut.weir', cutBeforeFirstEvent(gunzipSync(readFileSync(new URL('../run/h200-weir.weir.gz', import.meta.url))))),
    'the recording holds neither events nor segments',
  ],
  [
    'a snapshot of cached memory',
    file('cached.json', JSON.stringify({ segments: [CACHED], device_traces: [[]], allocator_settings: {} })),
    '1 segment (20 MiB) without a live block, but no request for memory',
  ],
] as const;

describe.skipIf(!CHROMIUM)(`the page of recordings without requests${CHROMIUM ? '' : ' (skipped: there is no Chromium)'}`, () => {
  let browser: Browser;
  beforeAll(async () => {
    browser = await launch();
  });
  afterAll(() => browser.close());

  async function textOf(url: string): Promise<string> {
    const page = await browser.newPage();
    const seen = watch(page);
    await page.goto(url);
    await untilAnalysed(page);
    const text = await page.locator('body').innerText();
    expect(seen.complaints).toEqual([]);
    await page.close();
    return text;
  }

  it.each(FILES)('%s, served', async (_, path, words) => {
    const served = await serve([path]);
    const text = await textOf(served.url);
    await served.stop();
    expect(text).toContain(words);
    expect(text).not.toMatch(/NaN|undefined|Infinity/);
  });

  it.each(FILES)('%s, as one HTML file', async (_, path, words) => {
    const to = `${path}.html`;
    expect(await weir(['report', path, '-o', to, '--quiet'])).toMatchObject({ code: 0 });
    const text = await textOf(pathToFileURL(to).href);
    expect(text).toContain(words);
    expect(text).not.toMatch(/NaN|undefined|Infinity/);
  });

  it('a file that cannot be read is named, with the reason', async () => {
    const path = file('unknown.json', JSON.stringify({ segments: [], device_traces: [[{ action: 'teleport' }]] }));
    const served = await serve([path]);
    const page = await browser.newPage();
    await page.goto(served.url);
    await page.getByText("1 of the action 'teleport'").first().waitFor({ timeout: 20_000 });
    await page.close();
    await served.stop();
  });
});
