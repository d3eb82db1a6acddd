// `npm run bench:page`: time to open a snapshot of three million events in the page of `weir serve`, time per frame during
// zooming, panning and scrubbing, and time until the page answers a pointer. Headless Chromium, software rendering.
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, mkdirSync, statSync, writeFileSync } from 'node:fs';
import { loadavg } from 'node:os';
import { chromium, type Page } from 'playwright-core';
import { formatTable } from '../src/report/terminal/table.ts';
import { type Answers, Hands, shareOf } from './page-hands.ts';
import { provenanceOf, thisMachine } from './provenance.ts';
import { generateSnapshot } from './snapshot-generator.ts';

/** Without stacks, all memory is one band. With them, the timeline is stacked by call site. */
const PLAIN = { path: 'build/bench/page-snapshot.pickle', bytes: 200e6, stackDepth: 0 };
const STACKED = { path: 'build/bench/page-snapshot-stacks.pickle', bytes: 250e6, stackDepth: 4 };
const WIDTH = 1366;
const HEIGHT = 768;
const BROWSER = [process.env['WEIR_CHROMIUM'], '/usr/bin/chromium-headless-shell', '/usr/bin/chromium'].find(
  (path) => path !== undefined && existsSync(path),
);
if (!BROWSER) throw new Error('no Chromium was found; WEIR_CHROMIUM names one, or apt install chromium-headless-shell');

mkdirSync('build/bench', { recursive: true });
for (const { path, bytes, stackDepth } of [PLAIN, STACKED]) {
  if (existsSync(path) && statSync(path).size >= bytes) continue;
  console.log(`making ${path} ...`);
  generateSnapshot(path, bytes, stackDepth);
}

interface Frames {
  readonly gesture: string;
  readonly frames: number;
  readonly medianMs: number;
  readonly p95Ms: number;
  readonly p99Ms: number;
  readonly worstMs: number;
  /** Tasks of the main thread that took more than 50 ms. */
  readonly longTasks: number;
}

/** Heights on the canvas of the tracks. */
const STACK_Y = 200;
const MAP_Y = 420;

/** Kept with the result, because other work on the machine changes every figure. */
const [loadBefore] = loadavg();
const browser = await chromium.launch({ executablePath: BROWSER, args: ['--no-sandbox'] });
const plain = await visit(PLAIN.path);
const stacked = await visit(STACKED.path);
await browser.close();

const result = {
  ...provenanceOf('npm run bench:page', `${thisMachine()}, ${BROWSER} (software rendering), ${WIDTH}x${HEIGHT}`),
  loadBefore,
  ...plain,
  stacked,
};
console.log(`\n${result.hardware}; load before: ${loadBefore!.toFixed(1)}`);
report('without stacks', plain);
report('stacked by call site', stacked);
writeFileSync(`bench/results/page-${result.date}.json`, `${JSON.stringify(result, null, 2)}\n`);

interface Visit {
  readonly file: { readonly bytes: number; readonly events: number };
  readonly seconds: { readonly map: number; readonly verdict: number; readonly wholeTable: number };
  readonly gestures: readonly Frames[];
  readonly hovers: readonly Answers[];
}

async function visit(path: string): Promise<Visit> {
  const started = performance.now();
  const since = () => (performance.now() - started) / 1000;
  const server = spawn(process.execPath, ['dist/cli/main.js', 'serve', path, '-q'], { stdio: ['ignore', 'pipe', 'inherit'] });
  const page = await browser.newPage({ viewport: { width: WIDTH, height: HEIGHT } });
  await page.goto(await addressOf(server));
  const [map, verdict] = await Promise.all([
    untilMarked(page, 'weir-map').then(since),
    page.getByTestId('headline').waitFor({ timeout: 120_000 }).then(since),
  ]);
  await page.locator('#what-if [role=progressbar]').waitFor({ state: 'detached', timeout: 300_000 });
  const wholeTable = since();
  const events = Number((await page.locator('.counts').innerText()).replace(/ events.*/, '').replaceAll(',', ''));
  await page.keyboard.press('3');
  await untilMarked(page, 'weir-stack');
  const hands = new Hands(page, (await page.locator('.track-canvas').boundingBox())!);
  const measured = await perform(page, hands);
  await page.close();
  server.kill('SIGINT');
  return { file: { bytes: statSync(path).size, events }, seconds: { map, verdict, wholeTable }, ...measured };
}

async function perform(page: Page, hands: Hands): Promise<Pick<Visit, 'gestures' | 'hovers'>> {
  const hovers: Answers[] = [];
  const gestures: Frames[] = [
    await measure(page, 'zoom in and out (keys)', async () => {
      for (let turn = 0; turn < 14; turn++) await hands.press('w');
      for (let turn = 0; turn < 14; turn++) await hands.press('s');
    }),
    await measure(page, 'zoom in and out (Ctrl + wheel)', async () => {
      await hands.moveTo(STACK_Y);
      await page.keyboard.down('Control');
      for (let turn = 0; turn < 20; turn++) await hands.wheel(-240);
      for (let turn = 0; turn < 20; turn++) await hands.wheel(240);
      await page.keyboard.up('Control');
    }),
    await measure(page, 'pan the stacked timeline (Shift + wheel)', async () => {
      for (let turn = 0; turn < 8; turn++) await hands.press('w');
      await page.keyboard.down('Shift');
      for (let turn = 0; turn < 30; turn++) await hands.wheel(120);
      for (let turn = 0; turn < 30; turn++) await hands.wheel(-120);
      await page.keyboard.up('Shift');
      await hands.press('0');
    }),
    await measure(page, 'zoom the stack in bytes (keys)', async () => {
      for (let turn = 0; turn < 10; turn++) await hands.press(']');
      for (let turn = 0; turn < 10; turn++) await hands.press('[');
    }),
    await measure(page, 'pan (drag on the map)', async () => {
      for (let turn = 0; turn < 8; turn++) await hands.press('w');
      await hands.drag(MAP_Y, -300);
      await hands.drag(MAP_Y, 500);
      await hands.press('0');
    }),
    await measure(page, 'scrub (drag on the timeline)', async () => {
      await hands.drag(STACK_Y, -400);
      await hands.drag(STACK_Y, 400);
    }),
    await measure(page, 'step through events', async () => {
      for (let turn = 0; turn < 40; turn++) await hands.press('.');
    }),
    await measure(page, 'hover over the stacked timeline', async () => {
      hovers.push(await hands.hover('the stacked timeline', STACK_Y));
    }),
    await measure(page, 'hover over the map', async () => {
      hovers.push(await hands.hover('the map', MAP_Y));
    }),
  ];
  return { gestures, hovers };
}

function report(what: string, { file, seconds, gestures, hovers }: Visit): void {
  console.log(`\n${what}: snapshot of ${(file.bytes / 1e6).toFixed(0)} MB, ${file.events.toLocaleString('en-US')} events\n`);
  print(
    ['from `weir serve` to', 'seconds'],
    [
      ['timeline and map drawn', seconds.map.toFixed(1)],
      ['verdict', seconds.verdict.toFixed(1)],
      ['every allocator compared', seconds.wholeTable.toFixed(1)],
    ],
  );
  print(
    ['gesture', 'frames', 'median ms', '95 % ms', '99 % ms', 'worst ms', 'tasks over 50 ms'],
    gestures.map((row) => [
      row.gesture,
      String(row.frames),
      ...[row.medianMs, row.p95Ms, row.p99Ms, row.worstMs].map((ms) => ms.toFixed(1)),
      String(row.longTasks),
    ]),
  );
  print(
    ['pointer over', 'answers', 'median ms', '99 % ms', 'worst ms'],
    hovers.map((row) => [row.over, String(row.answers), ...[row.medianMs, row.p99Ms, row.worstMs].map((ms) => ms.toFixed(1))]),
  );
}

/** Polls, because the page's content security policy forbids `waitForFunction`. */
async function untilMarked(page: Page, name: string): Promise<void> {
  while (!(await page.evaluate(`performance.getEntriesByName('${name}').length > 0`))) await page.waitForTimeout(50);
}

/** Times between animation frames during a gesture. */
async function measure(page: Page, gesture: string, work: () => Promise<void>): Promise<Frames> {
  await page.waitForTimeout(500);
  await page.evaluate(`(() => {
    const seen = (window.seen = { times: [], long: 0, on: true });
    let last = performance.now();
    const tick = (now) => { seen.times.push(now - last); last = now; if (seen.on) requestAnimationFrame(tick); };
    requestAnimationFrame((now) => { last = now; requestAnimationFrame(tick); });
    seen.observer = new PerformanceObserver((list) => { seen.long += list.getEntries().length; });
    seen.observer.observe({ entryTypes: ['longtask'] });
  })()`);
  await work();
  await page.waitForTimeout(300);
  const { times, long } = await stopMeasuring(page);
  const sorted = [...times].sort((a, b) => a - b);
  const at = (share: number) => shareOf(sorted, share);
  return { gesture, frames: times.length, medianMs: at(0.5), p95Ms: at(0.95), p99Ms: at(0.99), worstMs: at(1), longTasks: long };
}

async function stopMeasuring(on: Page): Promise<{ times: number[]; long: number }> {
  return (await on.evaluate(
    `(() => { seen.on = false; seen.observer.disconnect(); return { times: seen.times, long: seen.long }; })()`,
  )) as {
    times: number[];
    long: number;
  };
}

async function addressOf(child: ChildProcess): Promise<string> {
  return await new Promise((resolve, reject) => {
    child.stdout!.on('data', (chunk: Buffer) => {
      const found = /http:\S+/.exec(chunk.toString());
      if (found) resolve(found[0]);
    });
    child.on('exit', (code) => reject(new Error(`weir serve ended with ${code}`)));
  });
}

function print(titles: string[], rows: string[][]): void {
  const columns = titles.map((title, index) => ({ title, align: index === 0 ? ('left' as const) : ('right' as const) }));
  console.log(`${formatTable(columns, rows).join('\n')}\n`);
}
