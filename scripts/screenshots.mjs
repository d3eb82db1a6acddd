// Makes docs/images/*.png: the page's main views on a laptop's screen, light and dark. Run `npm run build` first.
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const images = join(root, 'docs/images');
const size = { width: 1366, height: 768 };
const SAMPLE = 'samples/gpt2xl-oom.pickle.gz';
const executablePath = [process.env.WEIR_CHROMIUM, '/usr/bin/chromium-headless-shell', '/usr/bin/chromium'].find(
  (path) => path && existsSync(path),
);
if (!executablePath) {
  console.error('no Chromium was found; set WEIR_CHROMIUM to one, or apt install chromium-headless-shell');
  process.exit(1);
}
mkdirSync(images, { recursive: true });
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] });

for (const theme of ['light', 'dark']) {
  const server = await serve(SAMPLE);
  const page = await open(server.url, theme);
  await page.getByTestId('headline').waitFor({ timeout: 60_000 });
  await page.locator('#what-if [role=progressbar]').waitFor({ state: 'detached', timeout: 60_000 });
  await settle(page);
  await shoot(page, 'overview', theme);

  await page.getByTestId('beside-words').waitFor({ timeout: 60_000 });
  await page.locator('#fit').scrollIntoViewIfNeeded();
  await settle(page);
  await page.locator('#fit').screenshot({ path: join(images, `fit-${theme}.png`) });
  await page.keyboard.press('1');

  await page.locator('#what-if tbody tr', { hasText: 'weir' }).last().click();
  await page.getByTestId('difference').waitFor();
  await page.keyboard.press('3');
  await settle(page);
  await shoot(page, 'compare', theme);
  await page.getByLabel('Compare with').selectOption('');

  await page.keyboard.press('o');
  for (let times = 0; times < 5; times++) await page.keyboard.press('w');
  await page.getByLabel('Colour map by').selectOption('size');
  await page.keyboard.press('3');
  await settle(page);
  await shoot(page, 'map', theme);

  await page.keyboard.press('0');
  await page.keyboard.press('4');
  await settle(page);
  await shoot(page, 'live', theme);

  await page.keyboard.press('?');
  await settle(page);
  await shoot(page, 'help', theme);
  await page.context().close();
  await server.stop();

  const planned = await serve('samples/vgg16-b100.native.pickle.gz');
  const plan = await open(planned.url, theme);
  await plan.locator('#plan').waitFor({ timeout: 60_000 });
  await plan.locator('#plan').scrollIntoViewIfNeeded();
  await settle(plan);
  await plan.locator('#plan').screenshot({ path: join(images, `plan-${theme}.png`) });
  await plan.context().close();
  await planned.stop();

  const job = await serve(SAMPLE, 'samples/resnet50-b100.native.pickle.gz', 'samples/vgg16-b100.native.pickle.gz');
  const overview = await open(job.url, theme);
  await overview.getByTestId('headline').waitFor({ timeout: 60_000 });
  await settle(overview);
  await shoot(overview, 'job', theme);
  await overview.context().close();
  await job.stop();

  const ranks = await serve(SAMPLE, 'samples/resnet50-b100.native.pickle.gz', 'samples/vgg16-b100.native.pickle.gz', '--live');
  const live = await open(ranks.url, theme);
  await live.waitForTimeout(3200);
  await shoot(live, 'ranks', theme);
  await live.context().close();
  await ranks.stop();
}
await browser.close();

async function open(url, colorScheme) {
  const context = await browser.newContext({ viewport: size, colorScheme });
  const page = await context.newPage();
  await page.goto(url);
  return page;
}

async function settle(page) {
  await page.waitForTimeout(900);
}

async function shoot(page, name, theme) {
  const path = join(images, `${name}-${theme}.png`);
  await page.screenshot({ path });
  console.log(path);
}

async function serve(...parameters) {
  const child = spawn(process.execPath, [join(root, 'dist/cli/main.js'), 'serve', '-q', ...parameters], {
    cwd: root,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const url = await new Promise((resolve) => {
    child.stdout.on('data', (chunk) => resolve(/http:\S+/.exec(chunk.toString())[0]));
  });
  const stop = () =>
    new Promise((resolve) => {
      child.on('exit', resolve);
      child.kill('SIGINT');
    });
  return { url, stop };
}
