// `npm run bench:page`: time to open a snapshot of three million events in the page of `weir serve`, time per frame during
// zooming, panning and scrubbing, and time until the page answers a pointer. Headless Chromium, software rendering.
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, mkdirSync, statSync, writeFileSync } from 'node:fs';
import { loadavg } from 'node:os';
import { chromium, type Page } from 'playwright-core';
import { formatTable } from '../src/report/terminal/table.ts';
import { provenanceOf, thisMachine } from './provenance.ts';
import { generateSnapshot } from './snapshot-generator.ts';

const BYTES = 200e6;
const FILE = 'build/bench/page-snapshot.pickle';
const WIDTH = 1366;
const HEIGHT = 768;
const BROWSER = [process.env['WEIR_CHROMIUM'], '/usr/bin/chromium-headless-shell', '/usr/bin/chromium'].find(
  (path) => path !== undefined && existsSync(path),
);
if (!BROWSER) throw new Error('no Chromium was found; WEIR_CHROMIUM names one, or apt install chromium-headless-shell');

mkdirSync('build/bench', { recursive: true });
if (!existsSync(FILE) || statSync(FILE).size < BYTES) {
  console.log(`making ${FILE} ...`);
  generateSnapshot(FILE, BYTES, 0);
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

interface Answers {
  readonly over: string;
  readonly answers: number;
  /** From the move of the pointer to the answer on the page. */
  readonly medianMs: number;
  readonly p99Ms: number;
  readonly worstMs: number;
}

/** Heights on the canvas of the tracks. */
const STACK_Y = 200;
const MAP_Y = 420;

/** Kept with the result, because other work on the machine changes every figure. */
const [loadBefore] = loadavg();
const browser = await chromium.launch({ executablePath: BROWSER, args: ['--no-sandbox'] });
const started = performance.now();
const server = spawn(process.execPath, ['dist/cli/main.js', 'serve', FILE, '-q'], { stdio: ['ignore', 'pipe', 'inherit'] });
const page = await browser.newPage({ viewport: { width: WIDTH, height: HEIGHT } });
await page.goto(await addressOf(server));
const since = () => (performance.now() - started) / 1000;
const opened = await Promise.all([untilMapped().then(since), page.getByTestId('headline').waitFor({ timeout: 120_000 }).then(since)]);
const [mapSeconds, verdictSeconds] = opened;
await page.locator('#what-if [role=progressbar]').waitFor({ state: 'detached', timeout: 300_000 });
const tableSeconds = since();
const events = Number((await page.locator('.counts').innerText()).replace(/ events.*/, '').replaceAll(',', ''));

await page.keyboard.press('3');
await untilMarked('weir-stack');
const stackSeconds = since();
const box = (await page.locator('.track-canvas').boundingBox())!;
const middle = box.x + box.width / 2;
const hovers: Answers[] = [];
const gestures: Frames[] = [
  await measure('zoom in and out (keys)', async () => {
    for (let turn = 0; turn < 14; turn++) await press('w');
    for (let turn = 0; turn < 14; turn++) await press('s');
  }),
  await measure('zoom in and out (Ctrl + wheel)', async () => {
    await page.mouse.move(middle, box.y + STACK_Y);
    await page.keyboard.down('Control');
    for (let turn = 0; turn < 20; turn++) await wheel(-240);
    for (let turn = 0; turn < 20; turn++) await wheel(240);
    await page.keyboard.up('Control');
  }),
  await measure('pan the stacked timeline (Shift + wheel)', async () => {
    for (let turn = 0; turn < 8; turn++) await press('w');
    await page.keyboard.down('Shift');
    for (let turn = 0; turn < 30; turn++) await wheel(120);
    for (let turn = 0; turn < 30; turn++) await wheel(-120);
    await page.keyboard.up('Shift');
    await press('0');
  }),
  await measure('zoom the stack in bytes (keys)', async () => {
    for (let turn = 0; turn < 10; turn++) await press(']');
    for (let turn = 0; turn < 10; turn++) await press('[');
  }),
  await measure('pan (drag on the map)', async () => {
    for (let turn = 0; turn < 8; turn++) await press('w');
    await drag(box.y + MAP_Y, -300);
    await drag(box.y + MAP_Y, 500);
    await press('0');
  }),
  await measure('scrub (drag on the timeline)', async () => {
    await drag(box.y + STACK_Y, -400);
    await drag(box.y + STACK_Y, 400);
  }),
  await measure('step through events', async () => {
    for (let turn = 0; turn < 40; turn++) await press('.');
  }),
  await measure('hover over the stacked timeline', async () => {
    hovers.push(await hover('the stacked timeline', box.y + STACK_Y));
  }),
  await measure('hover over the map', async () => {
    hovers.push(await hover('the map', box.y + MAP_Y));
  }),
];
await browser.close();
server.kill('SIGINT');

const result = {
  ...provenanceOf('npm run bench:page', `${thisMachine()}, ${BROWSER} (software rendering), ${WIDTH}x${HEIGHT}`),
  loadBefore,
  file: { bytes: statSync(FILE).size, events },
  seconds: { map: mapSeconds, verdict: verdictSeconds, wholeTable: tableSeconds, stack: stackSeconds },
  gestures,
  hovers,
};
console.log(
  `\n${result.hardware}; load before: ${loadBefore!.toFixed(1)}\nsnapshot of ${(result.file.bytes / 1e6).toFixed(0)} MB, ${events.toLocaleString('en-US')} events\n`,
);
print(
  ['from `weir serve` to', 'seconds'],
  [
    ['timeline and map drawn', mapSeconds!.toFixed(1)],
    ['verdict', verdictSeconds!.toFixed(1)],
    ['every allocator compared', tableSeconds.toFixed(1)],
  ],
);
print(
  ['gesture', 'frames', 'median ms', '95 % ms', '99 % ms', 'worst ms', 'tasks over 50 ms'],
  gestures.map((row) => [
    row.gesture,
    String(row.frames),
    row.medianMs.toFixed(1),
    row.p95Ms.toFixed(1),
    row.p99Ms.toFixed(1),
    row.worstMs.toFixed(1),
    String(row.longTasks),
  ]),
);
print(
  ['pointer over', 'answers', 'median ms', '99 % ms', 'worst ms'],
  hovers.map((row) => [row.over, String(row.answers), row.medianMs.toFixed(1), row.p99Ms.toFixed(1), row.worstMs.toFixed(1)]),
);
writeFileSync(`bench/results/page-${result.date}.json`, `${JSON.stringify(result, null, 2)}\n`);

async function untilMapped(): Promise<void> {
  await untilMarked('weir-map');
}

/** Polls, because the page's content security policy forbids `waitForFunction`. */
async function untilMarked(name: string): Promise<void> {
  while (!(await page.evaluate(`performance.getEntriesByName('${name}').length > 0`))) await page.waitForTimeout(50);
}

/** Moves the pointer across the canvas, and times each answer from the last move before it. */
async function hover(over: string, y: number): Promise<Answers> {
  await page.evaluate(`(() => {
    performance.clearMarks('weir-hover');
    window.moves = [];
    document.querySelector('.track-canvas').addEventListener('pointermove', (event) => moves.push(event.timeStamp));
  })()`);
  for (let step = 0; step <= 80; step++) {
    await page.mouse.move(box.x + 80 + ((box.width - 100) * step) / 80, y + (step % 7) * 6);
    await page.waitForTimeout(25);
  }
  await page.waitForTimeout(300);
  const waits = (await page.evaluate(`performance.getEntriesByName('weir-hover').map(({ startTime }) =>
    startTime - moves.findLast((time) => time <= startTime))`)) as number[];
  const sorted = waits.sort((a, b) => a - b);
  return { over, answers: waits.length, medianMs: shareOf(sorted, 0.5), p99Ms: shareOf(sorted, 0.99), worstMs: shareOf(sorted, 1) };
}

function shareOf(sorted: readonly number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
}

async function press(key: string): Promise<void> {
  await page.keyboard.press(key);
  await page.waitForTimeout(40);
}

async function wheel(by: number): Promise<void> {
  await page.mouse.wheel(0, by);
  await page.waitForTimeout(25);
}

async function drag(y: number, by: number): Promise<void> {
  await page.mouse.move(middle, y);
  await page.mouse.down();
  for (let step = 1; step <= 40; step++) {
    await page.mouse.move(middle + (by * step) / 40, y);
    await page.waitForTimeout(16);
  }
  await page.mouse.up();
}

/** Times between animation frames during a gesture. */
async function measure(gesture: string, work: () => Promise<void>): Promise<Frames> {
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
