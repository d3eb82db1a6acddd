// Weir beside other ranks and under compute-sanitizer: `node build/test/gpu/company.js [fsdp2[:drawn|:fixed]] [ddp[:drawn|:fixed]] [sanitizer] [--steps N] [--output FILE]`.
// Ranks: FSDP2 and DDP over NCCL on one GPU against PyTorch's own allocator, as ratios of runs that take turns.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const RANKS = 2;
/** The first steps choose kernels and make optimizer state. */
const WARM_UP = 10;
const MOST_RESERVED = 1.02;
const MOST_TIME = 1.01;
/** How far losses may be from PyTorch's, in distances of PyTorch from itself, which are 0 where all is deterministic. */
const MOST_DISTANCE = 1.5;
const RUN_MS = 150_000;
const TURNS = 2;
/** Of steps that are all alike, which swapping can plan. The others draw their lengths. */
const FIXED_LENGTH = 512;
const SWAP = 'weir --swap auto';
const SWAP_FLAGS = ['--swap', 'auto'];

interface RankReport {
  readonly losses: readonly number[];
  readonly times: readonly number[];
  readonly allocated: number;
  readonly reserved: number;
}

interface Figures {
  readonly run: string;
  /** Seconds of each step, by rank. */
  readonly times: readonly (readonly number[])[];
  readonly reservedOverAllocated: number;
  readonly peakReserved: number;
  readonly losses: readonly (readonly number[])[];
  readonly swappedBytes: number;
}

const from = (name: string) => fileURLToPath(new URL(`../../../${name}`, import.meta.url));
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { steps: { type: 'string', default: '100' }, output: { type: 'string' } },
});
const parts = positionals.length === 0 ? ['fsdp2', 'ddp', 'sanitizer'] : positionals;
const WAYS = ['fsdp2', 'ddp'];
const LENGTHS = ['drawn', 'fixed'] as const;
const known = ['sanitizer', ...WAYS, ...WAYS.flatMap((way) => LENGTHS.map((lengths) => `${way}:${lengths}`))];
const strange = parts.find((part) => !known.includes(part));
if (strange !== undefined) {
  process.stderr.write(`company: no part is called ${strange}; known: ${known.join(', ')}\n`);
  process.exit(2);
}
const folder = mkdtempSync(join(tmpdir(), 'weir-company-'));
const results: unknown[] = [];
let failed = 0;
let port = 29_540;

function check(isGood: boolean, words: string): void {
  if (!isGood) failed++;
  process.stdout.write(`${isGood ? 'PASS' : 'FAIL'} ${words}\n`);
}

const median = (numbers: readonly number[]) => [...numbers].sort((a, b) => a - b)[Math.floor(numbers.length / 2)] ?? Number.NaN;
const mean = (numbers: readonly number[]) => numbers.reduce((sum, number) => sum + number, 0) / numbers.length;

/** Mean distance of two runs' losses, over steps and ranks. */
function distance(one: Figures, other: Figures): number {
  return mean(one.losses.flatMap((losses, rank) => losses.map((loss, step) => Math.abs(loss - other.losses[rank]![step]!))));
}

function train(way: string, run: string, flags: readonly string[] | undefined, length: readonly string[]): Figures | undefined {
  const output = join(folder, `${way}-${run.replaceAll(' ', '')}`);
  const summary = join(folder, 'summary.json');
  const job = [
    'torchrun',
    `--nproc-per-node=${RANKS}`,
    `--master-port=${port++}`,
    from('test/gpu/torch/two_ranks.py'),
    way,
    output,
    values.steps,
    ...length,
  ];
  const around = flags && [process.execPath, from('dist/cli/main.js'), 'run', '-q', '--no-what-if', '--json-file', summary, ...flags, '--'];
  const [program, ...args] = [...(around ?? []), ...job];
  const child = spawnSync(program!, args, { encoding: 'utf8', timeout: RUN_MS, killSignal: 'SIGKILL' });
  if (child.status !== 0) {
    check(false, `${way} ${run}: ended with ${child.status ?? child.signal}\n${child.stdout}${child.stderr}`.slice(0, 4000));
    return undefined;
  }
  const ranks = Array.from({ length: RANKS }, (_, rank) => JSON.parse(readFileSync(`${output}.${rank}.json`, 'utf8')) as RankReport);
  let swappedBytes = 0;
  if (flags) {
    const { processes } = JSON.parse(readFileSync(summary, 'utf8')) as { processes: { gpus: { swapped: { out: number } }[] }[] };
    swappedBytes = processes.flatMap(({ gpus }) => gpus).reduce((sum, gpu) => sum + gpu.swapped.out, 0);
  }
  return {
    run,
    times: ranks.map(({ times }) => times),
    reservedOverAllocated: Math.max(...ranks.map(({ reserved, allocated }) => reserved / allocated)),
    peakReserved: Math.max(...ranks.map(({ reserved }) => reserved)),
    losses: ranks.map(({ losses }) => losses),
    swappedBytes,
  };
}

/** Milliseconds of the median step. */
const stepMs = ({ times }: Figures) => 1000 * median(times.flatMap((steps) => steps.slice(WARM_UP)));

/** The shortest that each step took in some runs. A step has the same length in all of them, and each may have been disturbed. */
function leastTimes(runs: readonly Figures[]): number[] {
  return runs[0]!.times.flatMap((steps, rank) =>
    steps.map((_, step) => Math.min(...runs.map(({ times }) => times[rank]![step]!))).slice(WARM_UP),
  );
}

/** Runs take turns, so that a machine that becomes slower does not favour one of them. */
function compareRanks(way: string, lengths: (typeof LENGTHS)[number]): void {
  const length = lengths === 'fixed' ? [String(FIXED_LENGTH)] : [];
  const native: Figures[] = [];
  const ours = new Map<string, Figures[]>(
    lengths === 'fixed'
      ? [[SWAP, []]]
      : [
          ['weir', []],
          [SWAP, []],
        ],
  );
  for (let turn = 0; turn < TURNS; turn++) {
    const plain = train(way, 'native', undefined, length);
    if (!plain) return;
    native.push(plain);
    for (const [run, runs] of ours) {
      const figures = train(way, run, run === SWAP ? SWAP_FLAGS : [], length);
      if (!figures) return;
      runs.push(figures);
    }
  }
  const noise = distance(native[0]!, native[1]!);
  process.stdout.write(
    `${way}, lengths ${lengths}: native ${native.map((figures) => stepMs(figures).toFixed(1)).join(' and ')} ms a step, reserved ${native[0]!.reservedOverAllocated.toFixed(3)} of allocated, losses ${noise.toExponential(2)} apart, last ${native[0]!.losses[0]!.at(-1)!.toFixed(4)}\n`,
  );
  const usual = leastTimes(native);
  for (const [run, runs] of ours) {
    const away = mean(runs.flatMap((figures) => native.map((plain) => distance(plain, figures))));
    const time = median(leastTimes(runs).map((seconds, step) => seconds / usual[step]!));
    const reserved = Math.max(...runs.map(({ reservedOverAllocated }) => reservedOverAllocated));
    const memory = Math.max(...runs.map(({ peakReserved }) => peakReserved)) / native[0]!.peakReserved;
    const swapped = Math.max(...runs.map(({ swappedBytes }) => swappedBytes));
    const words = `${way}, lengths ${lengths}, ${run}: reserved ${reserved.toFixed(3)} of allocated and ${memory.toFixed(3)} of native, step ${time.toFixed(3)} of native (${runs.map((figures) => stepMs(figures).toFixed(1)).join(' and ')} ms), losses ${away.toExponential(2)} from native's, last ${runs[0]!.losses[0]!.at(-1)!.toFixed(4)}, ${swapped} bytes swapped out`;
    check(reserved <= MOST_RESERVED && time <= MOST_TIME && away <= MOST_DISTANCE * noise, words);
  }
  results.push(...[...native, ...[...ours.values()].flat()].map((figures) => ({ way, lengths, ...figures })));
}

function sanitize(which: string): void {
  const summary = join(folder, 'summary.json');
  const flags = ['run', '-q', '--no-what-if', '--json-file', summary, '--limit', '1GiB', '--swap', '400MiB', '--'];
  // Calls of the driver that fail are no findings: Weir finds out in this way which kinds of memory there are.
  const job = [
    'compute-sanitizer',
    '--tool',
    'memcheck',
    '--report-api-errors',
    'no',
    '--error-exitcode',
    '9',
    'python3',
    from('test/gpu/torch/sanitized.py'),
    which,
  ];
  const child = spawnSync(process.execPath, [from('dist/cli/main.js'), ...flags, ...job], { encoding: 'utf8', timeout: RUN_MS });
  const found = /ERROR SUMMARY: (\d+) error/.exec(child.stdout + child.stderr)?.[1];
  let seen = 'no summary';
  let isUsed = false;
  if (child.status === 0) {
    const { processes } = JSON.parse(readFileSync(summary, 'utf8')) as {
      processes: { gpus: { stitches: number; borrows: number; swapped: { out: number } }[] }[];
    };
    const gpus = processes.flatMap((one) => one.gpus);
    const total = (value: (gpu: (typeof gpus)[number]) => number) => gpus.reduce((sum, gpu) => sum + value(gpu), 0);
    const [stitches, borrows, out] = [total((gpu) => gpu.stitches), total((gpu) => gpu.borrows), total((gpu) => gpu.swapped.out)];
    isUsed = stitches > 0 && borrows > 0 && out > 0;
    seen = `${stitches} stitches, ${borrows} loans, ${out} bytes swapped out`;
    results.push({ sanitized: which, found, stitches, borrows, out });
  }
  check(child.status === 0 && found === '0' && isUsed, `compute-sanitizer, ${which}: ${found ?? 'no'} findings, ${seen}`);
  if (child.status !== 0 || found !== '0') process.stdout.write(`${child.stdout}${child.stderr}`.slice(-5000));
}

for (const way of WAYS) {
  for (const lengths of LENGTHS) {
    if (parts.includes(way) || parts.includes(`${way}:${lengths}`)) compareRanks(way, lengths);
  }
}
if (parts.includes('sanitizer')) for (const which of ['vision', 'text']) sanitize(which);
rmSync(folder, { recursive: true, force: true });
if (values.output) writeFileSync(values.output, `${JSON.stringify({ steps: Number(values.steps), results })}\n`);
process.exit(failed === 0 ? 0 : 1);
