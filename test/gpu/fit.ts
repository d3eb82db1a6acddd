// `weir fit` against a GPU: predicted peaks at 2, 4 and 8 times the tried values, and the largest batch under a limit.
// Results are written to OUT.json one by one. A second call goes on where the first ended.
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { GIB, MIB, roundUp } from '../../src/base/bytes.ts';

const USAGE = `usage: node build/test/gpu/fit.js OUT.json [record] [peaks] [limit] [WORKLOAD...] [seconds=N] [at-once=N] [keep=FOLDER]
  record: runs the tried values and predicts. peaks, limit: compare with real runs. Without words, all.
  seconds: no run starts later than this. at-once: runs at the same time (default 6). keep: folder for recordings.
       node build/test/gpu/fit.js OUT.json again keep=FOLDER
  predicts once more from the recordings in FOLDER and compares with the measured peaks of OUT.json. Needs no GPU.
`;
const from = (name: string) => fileURLToPath(new URL(`../../../${name}`, import.meta.url));
const MAIN = from('dist/cli/main.js');
const SCRIPT = from('test/gpu/torch/fit_workload.py');
const PARTS: readonly string[] = ['record', 'peaks', 'limit', 'again'];
const ALLOCATORS = ['pytorch', 'weir', 'expandable'] as const;
const SWAP = 'weir --swap auto';
const FACTORS: readonly number[] = [2, 4, 8];
/** Nothing fits, so no largest value is searched for: only peaks are asked for. */
const NO_SEARCH = '1MiB';
const RUN_MS = 120_000;
const FIT_MS = 300_000;
/** Recorded steps and repeated ones, as the synthesised run has them. */
const STEPS = 7;
/** Runs at the same time share the GPU: their predicted peaks must fit, with what CUDA itself takes for each. */
const SHARED_BYTES = 125 * GIB;
const CONTEXT_BYTES = GIB;
/** The peak of the measured run of this factor on PyTorch's allocator is recorded, to explain differences. */
const KEPT_FACTOR = 4;

/** The values that are tried, the most important workloads first. The largest times 8 must fit on the GPU. */
const WORKLOADS: Readonly<Record<string, readonly number[]>> = {
  gpt: [2, 3, 4],
  resnet: [8, 12, 16],
  lora: [2, 3, 4],
  'gpt-recompute': [4, 6, 8],
  vit: [8, 12, 16],
  kv: [8, 12, 16],
};

interface Row {
  readonly allocator: string;
  readonly largest: number;
  /** Null: no value is known to be too large. */
  readonly largestPossible: number | null;
  readonly swappedBytes: number;
  readonly largestSwapped: number | null;
  readonly onGpu: { readonly peakReserved: number } | null;
  readonly asked: readonly { readonly values: readonly number[]; readonly peakReserved: number; readonly peakReservedAtLeast: number }[];
}

interface Answer {
  readonly learned: Record<string, number>;
  readonly results: readonly Row[];
}

/** What `weir fit` says: peaks at the factors, and the largest values under a limit. */
interface Predicted {
  readonly part: 'record';
  readonly workload: string;
  readonly tried: readonly number[];
  readonly seconds: number;
  readonly peaks: Answer;
  readonly limit: number;
  readonly largest: Answer;
}

interface Measured {
  readonly part: 'peaks' | 'limit';
  readonly workload: string;
  readonly allocator: string;
  readonly value: number;
  readonly [name: string]: unknown;
}

interface Run {
  readonly name: string;
  readonly bytes: number;
  start(): Promise<void>;
}

const [out, ...words] = process.argv.slice(2);
const numberOf = (name: string, otherwise: number) =>
  Number(words.find((word) => word.startsWith(`${name}=`))?.slice(name.length + 1) ?? otherwise);
const folderOf = (name: string) => words.find((word) => word.startsWith(`${name}=`))?.slice(name.length + 1);
const unknown = words.find((word) => !(word in WORKLOADS) && !PARTS.includes(word) && !/^(seconds|at-once)=\d+$|^keep=./.test(word));
if (out === undefined || unknown !== undefined) {
  process.stderr.write(
    `${unknown === undefined ? '' : `there is no ${unknown}\n`}${USAGE}workloads: ${Object.keys(WORKLOADS).join(', ')}\n`,
  );
  process.exit(2);
}
const began = Date.now();
const deadline = began + 1000 * numberOf('seconds', 24 * 3600);
const atOnce = numberOf('at-once', 6);
const chosen = words.filter((word) => word in WORKLOADS);
const workloads = chosen.length > 0 ? chosen : Object.keys(WORKLOADS);
const parts = PARTS.filter((part) => words.includes(part));
const has = (part: string) => parts.length === 0 || parts.includes(part);
const results: (Predicted | Measured)[] = existsSync(out) ? (JSON.parse(readFileSync(out, 'utf8')) as (Predicted | Measured)[]) : [];
const folder = mkdtempSync(join(tmpdir(), 'weir-fit-'));
const kept = folderOf('keep') ?? join(folder, 'recordings');
mkdirSync(kept, { recursive: true });
let failed = 0;
let skipped = 0;

try {
  if (parts.includes('again')) await inTurn(workloads.map((name) => ({ name, bytes: 0, start: () => predictAgain(name) })));
  else await compare();
} finally {
  rmSync(folder, { recursive: true, force: true });
}
process.exit(failed === 0 && skipped === 0 ? 0 : 1);

async function compare(): Promise<void> {
  if (has('record')) {
    // Compiles the adapter, if it is not there yet, once.
    await weir(['run', '-q', '--no-what-if', '--', 'python3', '-c', 'import torch; torch.zeros(1).cuda()'], FIT_MS);
    say(`ready after ${elapsed()} s`);
    await inTurn(workloads.filter((name) => !predictedOf(name)).map((name) => ({ name, bytes: 0, start: () => predict(name) })));
  }
  const answers = workloads.flatMap((name) => predictedOf(name) ?? []);
  const peaks = has('peaks') ? FACTORS.flatMap((factor) => answers.flatMap((answer) => peakRuns(answer, factor))) : [];
  const limits = has('limit') ? answers.flatMap(limitRuns) : [];
  // The runs of PyTorch and Weir matter most, then the largest values, then the rest.
  const isFirst = ({ name }: Run) => !name.includes('expandable');
  await inTurn([
    ...peaks.filter(isFirst),
    ...limits.filter(isFirst),
    ...peaks.filter((run) => !isFirst(run)),
    ...limits.filter((run) => !isFirst(run)),
  ]);
  summarize();
}

/** Runs as many at a time as the GPU has memory for, in their order. */
async function inTurn(runs: readonly Run[]): Promise<void> {
  const waiting = [...runs];
  const running = new Map<Run, Promise<void>>();
  const bytes = () => [...running.keys()].reduce((sum, run) => sum + run.bytes + CONTEXT_BYTES, 0);
  while (waiting.length > 0 || running.size > 0) {
    if (Date.now() >= deadline) skipped += waiting.splice(0).length;
    const next = waiting.findIndex((run) => running.size === 0 || bytes() + run.bytes + CONTEXT_BYTES <= SHARED_BYTES);
    if (next >= 0 && running.size < atOnce) {
      const [run] = waiting.splice(next, 1);
      running.set(
        run!,
        run!.start().finally(() => running.delete(run!)),
      );
    } else if (running.size > 0) await Promise.race(running.values());
  }
}

async function predict(workload: string): Promise<void> {
  const tried = WORKLOADS[workload]!;
  const start = Date.now();
  const home = join(kept, workload);
  const command = ['--', 'python3', SCRIPT, workload, '{}'];
  const asked = FACTORS.map((factor) => factor * tried.at(-1)!);
  const aim = 5 * tried.at(-1)!;
  const peaks = await fitted(workload, [
    '--try',
    tried.join(),
    '--keep',
    home,
    '--gpu',
    NO_SEARCH,
    '--at',
    [...asked, aim].join(),
    ...command,
  ]);
  if (!peaks) return;
  // About five times the largest tried value fits: between the values of the other part.
  const atAim = peaks.results.find(({ allocator }) => allocator === 'weir')!.asked.at(-1)!.peakReserved;
  const limit = roundUp(atAim, 64 * MIB);
  const largest = await fitted(workload, [...recordingsOf(home, tried), '--values', tried.join(), '--gpu', String(limit)]);
  if (largest) add({ part: 'record', workload, tried, seconds: Math.round((Date.now() - start) / 1000), peaks, limit, largest });
}

function recordingsOf(home: string, tried: readonly number[]): string[] {
  return tried.map((value) => join(home, readdirSync(home).find((name) => name.startsWith(`pytorch-${value}.`)) ?? 'missing'));
}

/** What this version of Weir makes of the same recordings. Measured figures stand. */
async function predictAgain(workload: string): Promise<void> {
  const before = predictedOf(workload);
  if (!before) return;
  const { tried, limit, peaks, largest } = before;
  const asked = FACTORS.map((factor) => factor * tried.at(-1)!);
  const words = ['--values', tried.join(), '--gpu', String(limit), '--at', asked.join()];
  const now = await fitted(workload, [...recordingsOf(join(kept, workload), tried), ...words]);
  for (const row of now?.results ?? []) {
    for (const { values, peakReserved, peakReservedAtLeast } of row.asked) {
      const value = values[0]!;
      const old = peaks.results.find(({ allocator }) => allocator === row.allocator)?.asked.find((peak) => peak.values[0] === value);
      const measured = measuredOf('peaks', workload, row.allocator, value)?.['measured'] as number | null | undefined;
      const text = `${workload} ${row.allocator} ${value}: ${range(old!)}, now ${range({ peakReserved, peakReservedAtLeast })}`;
      if (typeof measured !== 'number') say(`     ${text}, not measured`);
      else verdict(measured >= peakReservedAtLeast && measured <= peakReserved, `${text}, measured ${measured}`);
    }
    const old = largest.results.find(({ allocator }) => allocator === row.allocator)!;
    const ran = results.filter((result) => result.part === 'limit' && result.workload === workload) as Measured[];
    const isRight = ({ value, fits }: Measured) =>
      fits ? value <= (row.largestPossible ?? value) : value > (row.largestSwapped ?? row.largest);
    const own = ran.filter(({ allocator }) => allocator === row.allocator);
    const text = `${workload} ${row.allocator} under ${limit}: ${old.largest} to ${old.largestPossible}, now ${row.largest} to ${row.largestPossible}`;
    const runs = own.map(({ value, fits }) => `${value} ${fits ? 'fits' : 'does not fit'}`).join(', ');
    if (own.length === 0) say(`     ${text}, not run`);
    else verdict(own.every(isRight), `${text}; ${runs}`);
  }
}

function range({ peakReserved, peakReservedAtLeast }: { readonly peakReserved: number; readonly peakReservedAtLeast: number }): string {
  return peakReserved === peakReservedAtLeast
    ? String(peakReserved)
    : `${peakReservedAtLeast} to ${peakReserved} (${(100 * (peakReserved / peakReservedAtLeast - 1)).toFixed(1)} % wide)`;
}

function peakRuns({ workload, tried, peaks }: Predicted, factor: number): Run[] {
  const value = factor * tried.at(-1)!;
  return ALLOCATORS.flatMap((allocator): Run[] => {
    const asked = peaks.results.find((row) => row.allocator === allocator)?.asked.find(({ values }) => values[0] === value);
    if (!asked || isDone('peaks', workload, allocator, value)) return [];
    const { peakReserved: predicted, peakReservedAtLeast: atLeast } = asked;
    const record = allocator === 'pytorch' && factor === KEPT_FACTOR ? ['--record', join(kept, workload, 'real.weir'), '-f'] : [];
    const start = async () => {
      mkdirSync(join(kept, workload), { recursive: true });
      const { peakReserved: measured } = await measure(workload, value, ['--allocator', allocator, ...record]);
      const error = measured === undefined ? undefined : predicted / measured - 1;
      // A prediction is wrong if the truth lies outside of it, however near.
      const isInside = measured !== undefined && measured >= atLeast && measured <= predicted;
      const words =
        error === undefined
          ? 'the run failed'
          : `${(100 * error).toFixed(3)} %${predicted === measured && atLeast === measured ? ', exact' : isInside ? `, inside from ${atLeast}` : ''}`;
      verdict(isInside, `${workload} ${allocator} ${value}: predicted ${predicted}, measured ${measured}: ${words}`);
      add({ part: 'peaks', workload, allocator, value, factor, predicted, atLeast, measured: measured ?? null });
    };
    return [{ name: `peaks ${allocator}`, bytes: predicted, start }];
  });
}

/** The answer must run under the limit, and the value above its interval must not. */
function limitRuns({ workload, limit, largest }: Predicted): Run[] {
  return largest.results.flatMap(({ allocator, largest: sure, largestPossible, largestSwapped, swappedBytes, onGpu }): Run[] => {
    const value = largestSwapped ?? sure;
    if (value === 0 || (allocator === SWAP && swappedBytes === 0)) return [];
    const which = allocator === SWAP ? ['--swap', 'auto'] : ['--allocator', allocator];
    const flags = [...which, '--limit', String(limit)];
    return [{ value, fits: true }, ...(largestPossible === null ? [] : [{ value: largestPossible + 1, fits: false }])].flatMap(
      (expected): Run[] => {
        if (isDone('limit', workload, allocator, expected.value)) return [];
        const start = async () => {
          const { peakReserved, isOutOfMemory, said } = await measure(workload, expected.value, flags);
          const fits = peakReserved !== undefined;
          const isGood = fits === expected.fits;
          const how = fits ? 'fits' : isOutOfMemory ? 'does not fit' : `failed: ${said}`;
          verdict(
            isGood && (fits || isOutOfMemory),
            `${workload} ${allocator} under ${limit}: ${expected.value} ${how} (${value} to ${largestPossible})`,
          );
          const predicted = expected.fits ? (onGpu?.peakReserved ?? null) : null;
          add({
            part: 'limit',
            workload,
            allocator,
            value: expected.value,
            limit,
            expected: expected.fits,
            fits,
            isOutOfMemory,
            predicted,
            measured: peakReserved ?? null,
            largestPossible,
            swappedBytes,
          });
        };
        return [{ name: `limit ${allocator}`, bytes: limit, start }];
      },
    );
  });
}

async function fitted(name: string, parameters: readonly string[]): Promise<Answer | undefined> {
  const [head, ...tail] = parameters;
  const { status, stdout, stderr } = await weir(['fit', '--json', head!, ...tail], FIT_MS);
  process.stdout.write(stderr);
  if (status === 0) return JSON.parse(stdout) as Answer;
  verdict(false, `${name}: weir fit ended with ${status}`);
  return undefined;
}

/** A real run. Without a peak it failed. */
async function measure(name: string, value: number, flags: readonly string[]) {
  const summaryFile = join(mkdtempSync(join(folder, 'run-')), 'summary.json');
  const words = [
    'run',
    '--no-what-if',
    '-q',
    '--oom-dir',
    'none',
    '--json-file',
    summaryFile,
    ...flags,
    '--',
    'python3',
    SCRIPT,
    name,
    String(value),
  ];
  const { status, stdout, stderr } = await weir([...words, '--steps', String(STEPS)], RUN_MS);
  const isOutOfMemory = /out of memory|OutOfMemoryError/i.test(stderr + stdout);
  const said = stderr.trim().split('\n').at(-1) ?? '';
  if (status !== 0 || !existsSync(summaryFile)) return { peakReserved: undefined, isOutOfMemory, said };
  const { processes } = JSON.parse(readFileSync(summaryFile, 'utf8')) as { processes: { gpus: { peakReserved: number }[] }[] };
  const peaks = processes.flatMap(({ gpus }) => gpus.map(({ peakReserved }) => peakReserved));
  return { peakReserved: peaks.length > 0 ? Math.max(...peaks) : undefined, isOutOfMemory, said };
}

function weir(parameters: readonly string[], most: number): Promise<{ status: number | null; stdout: string; stderr: string }> {
  const timeout = Math.min(most, Math.max(30_000, deadline + 30_000 - Date.now()));
  const child = spawn(process.execPath, [MAIN, ...parameters], { stdio: ['ignore', 'pipe', 'pipe'], timeout });
  const said = { stdout: '', stderr: '' };
  for (const name of ['stdout', 'stderr'] as const) child[name].on('data', (chunk: Buffer) => (said[name] += chunk.toString()));
  return new Promise((resolve) => child.on('close', (status) => resolve({ status, ...said })));
}

function predictedOf(workload: string): Predicted | undefined {
  return results.find((result): result is Predicted => result.part === 'record' && result.workload === workload);
}

function measuredOf(part: string, workload: string, allocator: string, value: number): Measured | undefined {
  return results.find(
    (result): result is Measured =>
      result.part === part &&
      result.part !== 'record' &&
      result.workload === workload &&
      result.allocator === allocator &&
      result.value === value,
  );
}

/** A run that failed, but not for lack of memory, is made again. */
function isDone(part: string, workload: string, allocator: string, value: number): boolean {
  const found = measuredOf(part, workload, allocator, value);
  return found !== undefined && (found['measured'] !== null || found['isOutOfMemory'] === true);
}

function add(result: Predicted | Measured): void {
  const before = result.part === 'record' ? undefined : measuredOf(result.part, result.workload, result.allocator, result.value);
  if (before) results.splice(results.indexOf(before), 1);
  results.push(result);
  writeFileSync(out!, `${JSON.stringify(results, undefined, 1)}\n`);
}

function verdict(isGood: boolean, sentence: string): void {
  if (!isGood) failed++;
  say(`${isGood ? 'PASS' : 'FAIL'} ${sentence}`);
}

function say(sentence: string): void {
  process.stdout.write(`${sentence}\n`);
}

function elapsed(): number {
  return Math.round((Date.now() - began) / 1000);
}

function summarize(): void {
  const peaks = results.filter((result) => result.part === 'peaks') as unknown as {
    predicted: number;
    atLeast: number;
    measured: number | null;
  }[];
  const exact = peaks.filter(({ predicted, atLeast, measured }) => predicted === measured && atLeast === measured).length;
  const near = peaks.filter(({ predicted, measured }) => measured !== null && Math.abs(predicted / measured - 1) <= 0.01).length;
  say(
    `${peaks.length} peaks: ${exact} exact to the byte, ${near} within 1 %. ${failed} failures, ${skipped} runs left for another call, ${elapsed()} s.`,
  );
}
