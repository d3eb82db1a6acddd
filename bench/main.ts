// `npm run bench`, first part: time to read a large snapshot, against CPython's pickle, and to replay it.
// Writes bench/results/read-and-replay-<date>.json.
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, statSync, writeFileSync } from 'node:fs';
import { chooseAllocators } from '../src/allocator/registry.ts';
import { SimulatedBackend } from '../src/backend/simulated.ts';
import { formatBytes } from '../src/base/bytes.ts';
import { loadRecording } from '../src/cli/input.ts';
import { replay } from '../src/replay/replay.ts';
import { formatTable } from '../src/report/terminal/table.ts';
import { provenanceOf } from './provenance.ts';
import { generateSnapshot } from './snapshot-generator.ts';

const ROUNDS = 3;
const BYTES = 200e6;
const FILE = 'build/bench/large-snapshot.pickle';
const quiet = { update: () => {}, clear: () => {} };

const PYTHON = `
import json, pickle, resource, sys, time
started = time.perf_counter()
with open(sys.argv[1], "rb") as file:
    snapshot = pickle.load(file)
seconds = time.perf_counter() - started
print(json.dumps(dict(seconds=seconds, events=len(snapshot["device_traces"][0]), maxRssBytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)))
`;

interface Reading {
  readonly seconds: number;
  readonly events: number;
  readonly maxRssBytes: number;
}

mkdirSync('build/bench', { recursive: true });
if (!existsSync(FILE) || statSync(FILE).size < BYTES) {
  console.log(`making ${FILE} ...`);
  generateSnapshot(FILE, BYTES);
}
const { size } = statSync(FILE);

const ours: Reading[] = [];
const theirs: Reading[] = [];
for (let round = 0; round < ROUNDS; round++) {
  ours.push(JSON.parse(execFileSync(process.execPath, ['build/bench/read-once.js', FILE], { encoding: 'utf8' })));
  const python = runPython();
  if (python) theirs.push(python);
}
const readers = [summaryOf('weir', ours), ...(theirs.length > 0 ? [summaryOf('CPython pickle.load', theirs)] : [])];

const [trace] = (await loadRecording(FILE, quiet)).traces;
const replays = chooseAllocators('pytorch,expandable,cnmem').map((choice) => {
  const seconds = Array.from({ length: ROUNDS }, () => {
    const started = performance.now();
    replay(trace!, choice.create, { backend: new SimulatedBackend() });
    return (performance.now() - started) / 1000;
  });
  return { allocator: choice.name, eventsPerSecond: Math.round(trace!.events.count / median(seconds)) };
});

const result = {
  ...provenanceOf('npm run bench'),
  file: { bytes: size, events: trace!.events.count },
  readers,
  replays,
};
console.log(
  `\n${result.hardware}\nsnapshot of ${formatBytes(size)}, ${trace!.events.count.toLocaleString('en-US')} events, stacks of 20 frames\n`,
);
const right = 'right' as const;
const left = 'left' as const;
print(
  [
    { title: 'reader', align: left },
    { title: 'seconds', align: right },
    { title: 'MB/s', align: right },
    { title: 'peak memory / file', align: right },
  ],
  readers.map((row) => [row.reader, row.seconds.toFixed(2), row.megabytesPerSecond.toFixed(0), row.memoryOverFile.toFixed(2)]),
);
print(
  [
    { title: 'replay', align: left },
    { title: 'events/s', align: right },
  ],
  replays.map((row) => [row.allocator, row.eventsPerSecond.toLocaleString('en-US')]),
);
writeFileSync(`bench/results/read-and-replay-${result.date}.json`, `${JSON.stringify(result, null, 2)}\n`);

function print(columns: { title: string; align: 'left' | 'right' }[], rows: string[][]): void {
  console.log(`${formatTable(columns, rows).join('\n')}\n`);
}

function summaryOf(
  reader: string,
  readings: readonly Reading[],
): { reader: string; seconds: number; megabytesPerSecond: number; memoryOverFile: number } {
  const seconds = median(readings.map((reading) => reading.seconds));
  return {
    reader,
    seconds,
    megabytesPerSecond: size / 1e6 / seconds,
    memoryOverFile: Math.max(...readings.map((reading) => reading.maxRssBytes)) / size,
  };
}

function runPython(): Reading | undefined {
  try {
    return JSON.parse(execFileSync('python3', ['-c', PYTHON, FILE], { encoding: 'utf8' }));
  } catch {
    console.log('python3 is not here: no comparison with CPython');
    return undefined;
  }
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor((values.length - 1) / 2)]!;
}
