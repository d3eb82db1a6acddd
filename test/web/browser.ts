// A real Chromium for tests that use the page as a person would. Where there is none, they are skipped and say so.
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { type Browser, chromium, type Page } from 'playwright-core';
import { MAIN, ROOT } from '../support/command.ts';

const CANDIDATES = [
  process.env['WEIR_CHROMIUM'],
  '/usr/bin/chromium-headless-shell',
  '/usr/bin/chromium',
  '/usr/bin/chromium-browser',
  '/usr/bin/google-chrome',
];

export const CHROMIUM: string | undefined = CANDIDATES.find((path) => path !== undefined && existsSync(path));
export const NO_BROWSER =
  'no Chromium was found (WEIR_CHROMIUM, or apt install chromium-headless-shell): the page is not tested in a browser here';

export async function launch(): Promise<Browser> {
  return await chromium.launch({ executablePath: CHROMIUM!, args: ['--no-sandbox'] });
}

export interface Served {
  readonly url: string;
  stop(): Promise<void>;
}

/** `weir serve` as a user starts it. */
export function serve(parameters: readonly string[]): Promise<Served> {
  return served(['serve', ...parameters]);
}

/** A command that serves the page. */
export async function served(words: readonly string[]): Promise<Served> {
  const child: ChildProcess = spawn(process.execPath, [MAIN, ...words], {
    cwd: ROOT.pathname,
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const url = await new Promise<string>((resolve, reject) => {
    let text = '';
    child.stdout!.on('data', (chunk: Buffer) => {
      text += chunk.toString();
      const found = /http:\S+/.exec(text);
      if (found) resolve(found[0]);
    });
    child.on('exit', (code) => reject(new Error(`weir ${words[0]} ended with ${code}`)));
  });
  return {
    url,
    stop: () =>
      new Promise((resolve) => {
        child.on('exit', () => resolve());
        child.kill('SIGINT');
      }),
  };
}

/** Everything the page complained about, and every address it asked for. */
export interface Watch {
  readonly complaints: string[];
  readonly requests: string[];
}

export function watch(page: Page): Watch {
  const seen: Watch = { complaints: [], requests: [] };
  page.on('pageerror', (error) => seen.complaints.push(error.message));
  page.on('console', (message) => {
    if (message.type() === 'error') seen.complaints.push(message.text());
  });
  page.on('request', (request) => seen.requests.push(request.url()));
  return seen;
}

/** Waits until a recording is open and has its verdict. The allocators may still be compared. */
export async function untilOpen(page: Page): Promise<void> {
  await page.getByTestId('headline').waitFor({ timeout: 60_000 });
  await page.getByTestId('cursor').waitFor({ timeout: 60_000 });
}

/** Waits until the verdict and every allocator are there. */
export async function untilAnalysed(page: Page): Promise<void> {
  await page.getByTestId('headline').waitFor({ timeout: 30_000 });
  await page.locator('#what-if [role=progressbar]').waitFor({ state: 'detached', timeout: 30_000 });
  await page.getByTestId('cursor').waitFor();
}
