// The overview of a job of 64 ranks with 55,013 events each, in the page of `weir serve`: seconds until every rank is shown, and until
// the rank that failed is open below. Headless Chromium, software rendering. `npm run bench:page` runs it after page.ts.
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { loadavg } from 'node:os';
import { chromium } from 'playwright-core';
import { formatTable } from '../src/report/terminal/table.ts';
import { sampleRecording, writeRank } from '../test/support/ranks.ts';
import { provenanceOf, thisMachine } from './provenance.ts';

const RANKS = 64;
const FAILED = 41;
const FOLDER = 'build/bench/job';
const WIDTH = 1440;
const HEIGHT = 900;
const BROWSER = [process.env['WEIR_CHROMIUM'], '/usr/bin/chromium-headless-shell', '/usr/bin/chromium'].find(
  (path) => path !== undefined && existsSync(path),
);
if (!BROWSER) throw new Error('no Chromium was found; WEIR_CHROMIUM names one, or apt install chromium-headless-shell');

const fileOf = (rank: number) => `${FOLDER}/rank${rank}.weir`;
mkdirSync(FOLDER, { recursive: true });
const sample = sampleRecording('gpt2xl-oom.pickle.gz');
for (let rank = 0; rank < RANKS; rank++)
  if (!existsSync(fileOf(rank))) writeRank(sample, fileOf(rank), { shiftUs: rank * 7000, succeeds: rank !== FAILED });
const events = sample.traces[0]!.events.count;

const [loadBefore] = loadavg();
const browser = await chromium.launch({ executablePath: BROWSER, args: ['--no-sandbox'] });
const page = await browser.newPage({ viewport: { width: WIDTH, height: HEIGHT } });
const started = performance.now();
const server = spawn(process.execPath, ['dist/cli/main.js', 'serve', FOLDER, '-q'], { stdio: ['ignore', 'pipe', 'inherit'] });
const since = () => (performance.now() - started) / 1000;
await page.goto(await addressOf(server));
await page.locator('#job canvas').first().waitFor();
const firstSeconds = since();
await page.locator('#job [role=progressbar]').waitFor({ state: 'detached', timeout: 120_000 });
const drawn = await page.locator('#job canvas').count();
if (drawn !== RANKS) throw new Error(`${drawn} of ${RANKS} ranks were drawn`);
const overviewSeconds = since();
await page.getByTestId('headline').waitFor({ timeout: 120_000 });
const verdictSeconds = since();
const opened = await page.locator('#job [aria-current] strong').innerText();
if (opened !== `rank${FAILED}.weir`) throw new Error(`the page opened ${opened}, not the rank that failed`);
await browser.close();
server.kill('SIGINT');

const result = {
  ...provenanceOf('npm run bench:page', `${thisMachine()}, ${BROWSER} (software rendering), ${WIDTH}x${HEIGHT}`),
  loadBefore,
  ranks: RANKS,
  events,
  seconds: { firstTrack: firstSeconds, overview: overviewSeconds, verdict: verdictSeconds },
};
console.log(`\n${result.hardware}; load before: ${loadBefore!.toFixed(1)}\n${RANKS} ranks of ${events.toLocaleString('en-US')} events\n`);
const columns = [
  { title: 'from `weir serve` to', align: 'left' },
  { title: 'seconds', align: 'right' },
] as const;
const rows = [
  ['the first track', firstSeconds.toFixed(1)],
  ['every rank in the overview', overviewSeconds.toFixed(1)],
  ['the verdict of the rank that failed', verdictSeconds.toFixed(1)],
];
console.log(`${formatTable(columns, rows).join('\n')}\n`);
writeFileSync(`bench/results/job-page-${result.date}.json`, `${JSON.stringify(result, null, 2)}\n`);

async function addressOf(child: ChildProcess): Promise<string> {
  return await new Promise((resolve, reject) => {
    child.stdout!.on('data', (chunk: Buffer) => {
      const found = /http:\S+/.exec(chunk.toString());
      if (found) resolve(found[0]);
    });
    child.on('exit', (code) => reject(new Error(`weir serve ended with ${code}`)));
  });
}
