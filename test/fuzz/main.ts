// Feeds damaged recordings to the readers for a while: `npm run fuzz -- --seconds 30 --seed 1`.
// Whatever is not an InputError, takes long or takes much memory is a defect: its input is kept in build/fuzz/.
import { mkdirSync, writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import { InputError } from '../../src/base/errors.ts';
import { readRecording } from '../../src/trace/detect.ts';
import { writeSnapshotJson } from '../../src/trace/snapshot-json.ts';
import { writeWeir } from '../../src/trace/weir/writer.ts';
import { readSample } from '../support/samples.ts';
import { mutate, Random, type Seed, seedOf, withoutFrames } from './mutate.ts';

const SLOW_MS = 5000;
/** Inputs stay below 2 MiB, so that this is far beyond what reading one can need. */
const MAX_GROWTH = 512 * 2 ** 20;
const HEAP_LIMIT_MB = 2048;
const FOLDER = 'build/fuzz';
const NOT_BEGUN = -1;

/** The small one comes up more often: more of its mutants fit into a second, and all shapes occur in it. */
const SAMPLES = [
  ...Array.from({ length: 8 }, () => 'exact/s1.pickle'),
  'vgg16-b100.native.pickle.gz',
  'vgg16-b100.expandable.pickle.gz',
  'exact/exp.pkl.gz',
];

interface Task {
  readonly seed: number;
  readonly seconds: number;
  /** Shared with the parent: the number of the input in work. */
  readonly progress: Int32Array;
}

interface Result {
  readonly inputs: number;
  readonly outcomes: readonly (readonly [string, number])[];
  readonly slowestMs: number;
  readonly largestGrowth: number;
  readonly defect?: string;
}

function makeSeeds(): Seed[] {
  const seeds = SAMPLES.map((name, index) => seedOf(name, index === 0 ? readSample(name) : withoutFrames(readSample(name))));
  const recording = readRecording(readSample('exact/s1.pickle'));
  let json = '';
  writeSnapshotJson(recording, (text) => {
    json += text;
  });
  const chunks: Uint8Array[] = [];
  writeWeir(recording, (chunk) => chunks.push(Uint8Array.from(chunk)));
  seeds.push(...smallSeeds('s1.json', new TextEncoder().encode(json)), ...smallSeeds('s1.weir', Buffer.concat(chunks)));
  return seeds;
}

function smallSeeds(name: string, bytes: Uint8Array): Seed[] {
  const seed = seedOf(name, bytes);
  return [seed, seed, seed];
}

/** Input `number` of a run; the parent makes it again when the worker is past telling. */
function inputOf(seeds: readonly Seed[], seed: number, number: number): Uint8Array {
  return mutate(seeds, new Random(Math.imul(seed, 0x9e3779b1) ^ number));
}

/** A message without what differs from input to input. */
function kindOf(error: InputError): string {
  const general = error.message.replace(/ \(it begins.*| for [\w.]+ at.*/, '').replace(/'[^']*'|"[^"]*"|0x[0-9a-f]+|-?\d[\d.]*/g, '_');
  return general.slice(0, 60);
}

function work({ seed, seconds, progress }: Task): Result {
  const seeds = makeSeeds();
  const outcomes = new Map<string, number>();
  const end = performance.now() + seconds * 1000;
  let inputs = 0;
  let slowestMs = 0;
  let largestGrowth = 0;
  let defect: string | undefined;
  while (performance.now() < end && defect === undefined) {
    Atomics.store(progress, 0, inputs);
    const bytes = inputOf(seeds, seed, inputs);
    const before = memoryInUse();
    const began = performance.now();
    let outcome = 'read';
    try {
      readRecording(bytes);
    } catch (error) {
      if (error instanceof InputError) outcome = kindOf(error);
      else defect = error instanceof Error ? (error.stack ?? error.message) : String(error);
    }
    const tookMs = performance.now() - began;
    const growth = memoryInUse() - before;
    if (tookMs > SLOW_MS) defect = `it took ${Math.round(tookMs)} ms`;
    if (growth > MAX_GROWTH) defect = `it took ${Math.round(growth / 2 ** 20)} MiB`;
    slowestMs = Math.max(slowestMs, tookMs);
    largestGrowth = Math.max(largestGrowth, growth);
    outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
    inputs++;
  }
  return { inputs, outcomes: [...outcomes], slowestMs, largestGrowth, ...(defect === undefined ? {} : { defect }) };
}

function memoryInUse(): number {
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
}

function supervise(): void {
  const { values } = parseArgs({ options: { seconds: { type: 'string', default: '30' }, seed: { type: 'string', default: '1' } } });
  const seed = Number(values.seed);
  const seconds = Number(values.seconds);
  const progress = new Int32Array(new SharedArrayBuffer(4)).fill(NOT_BEGUN);
  const worker = new Worker(new URL(import.meta.url), {
    workerData: { seed, seconds, progress } satisfies Task,
    resourceLimits: { maxOldGenerationSizeMb: HEAP_LIMIT_MB },
  });
  const keep = (defect: string, number: number) => {
    mkdirSync(FOLDER, { recursive: true });
    const path = `${FOLDER}/seed${seed}-${number}.bin`;
    writeFileSync(path, inputOf(makeSeeds(), seed, number));
    console.error(`input ${number} of seed ${seed} is a defect, kept as ${path}:\n${defect}`);
    process.exit(1);
  };
  let last = NOT_BEGUN;
  let since = performance.now();
  const watch = setInterval(() => {
    const now = Atomics.load(progress, 0);
    if (now !== last) {
      last = now;
      since = performance.now();
    } else if (performance.now() - since > 2 * SLOW_MS && last !== NOT_BEGUN) keep('it does not come to an end', now);
  }, 1000);
  worker.on('error', (error) => keep(`the worker died: ${error.message}`, Atomics.load(progress, 0)));
  worker.on('message', (result: Result) => {
    clearInterval(watch);
    for (const [outcome, count] of [...result.outcomes].sort((a, b) => b[1] - a[1]).slice(0, 40))
      console.log(`${String(count).padStart(8)}  ${outcome}`);
    const growth = Math.round(result.largestGrowth / 2 ** 20);
    console.log(`${result.inputs} inputs from seed ${seed}; slowest ${Math.round(result.slowestMs)} ms, largest growth ${growth} MiB`);
    if (result.defect) keep(result.defect, result.inputs - 1);
  });
}

if (isMainThread) supervise();
else parentPort!.postMessage(work(workerData as Task));
