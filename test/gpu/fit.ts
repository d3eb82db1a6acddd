// `weir fit` against a GPU: predicted peaks at 2, 4 and 8 times the tried values, and the largest batch under a limit.
// Usage: node build/test/gpu/fit.js OUT.json [peaks] [limit] [WORKLOAD...]; without words, all. Results are added to OUT.json one by one,
// so the parts can be run one after another.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const from = (name: string) => fileURLToPath(new URL(`../../../${name}`, import.meta.url));
const MAIN = from('dist/cli/main.js');
const SCRIPT = from('test/gpu/torch/fit_workload.py');
const PARTS = ['peaks', 'limit'] as const;
const TIMEOUT_MS = 300_000;
/** Recorded steps and repeated ones, as the synthesised run has them. */
const STEPS = 7;

/** The values that are tried. The largest times 8 must fit on the GPU. */
const WORKLOADS: Readonly<Record<string, readonly number[]>> = {
  resnet: [8, 12, 16],
  vit: [8, 12, 16],
  gpt: [2, 3, 4],
  'gpt-recompute': [4, 6, 8],
  lora: [2, 3, 4],
  kv: [8, 12, 16],
};

interface Peak {
  readonly values: readonly number[];
  readonly peakReserved: number;
  readonly peakReservedAtLeast: number;
}

interface Answer {
  readonly gpuBytes: number;
  readonly learned: Record<string, number>;
  readonly results: readonly {
    readonly allocator: string;
    readonly largest: number;
    readonly largestPossible: number;
    readonly asked: readonly Peak[];
  }[];
  readonly confirmations?: readonly {
    readonly allocator: string;
    readonly value: number;
    readonly fits: boolean;
    readonly nextFits: boolean;
  }[];
}

const [out, ...words] = process.argv.slice(2);
if (out === undefined) {
  process.stderr.write(
    `usage: node build/test/gpu/fit.js OUT.json [${PARTS.join('] [')}] [WORKLOAD...]\nworkloads: ${Object.keys(WORKLOADS).join(', ')}\n`,
  );
  process.exit(2);
}
const unknown = words.find((word) => !(word in WORKLOADS) && !PARTS.some((part) => part === word));
if (unknown !== undefined) {
  process.stderr.write(`there is no workload and no part ${unknown}; there are ${[...PARTS, ...Object.keys(WORKLOADS)].join(', ')}\n`);
  process.exit(2);
}
const chosen = words.filter((word) => word in WORKLOADS);
const parts = PARTS.filter((part) => words.includes(part));
const results: Record<string, unknown>[] = existsSync(out) ? (JSON.parse(readFileSync(out, 'utf8')) as Record<string, unknown>[]) : [];
const folder = mkdtempSync(join(tmpdir(), 'weir-fit-'));
let failed = 0;
try {
  for (const name of chosen.length > 0 ? chosen : Object.keys(WORKLOADS)) {
    const tried = WORKLOADS[name]!;
    if (parts.length === 0 || parts.includes('peaks')) comparePeaks(name, tried);
    if (parts.length === 0 || parts.includes('limit')) findLargest(name, tried);
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}
process.exit(failed === 0 ? 0 : 1);

function comparePeaks(name: string, tried: readonly number[]): void {
  const asked = [2, 4, 8].map((factor) => factor * tried.at(-1)!);
  const answer = fitted(name, ['--try', tried.join(), '--at', asked.join()]);
  if (!answer) return;
  for (const { allocator, asked: peaks } of answer.results) {
    for (const { values, peakReserved: predicted, peakReservedAtLeast: atLeast } of peaks) {
      const measured = measure(name, allocator, values[0]!);
      const error = measured === undefined ? undefined : predicted / measured - 1;
      // An interval is right if the truth lies in it.
      const isInside = measured !== undefined && measured >= atLeast && measured <= predicted;
      const isGood = isInside || (error !== undefined && Math.abs(error) <= 0.01);
      if (!isGood) failed++;
      const shown =
        error === undefined
          ? 'the run failed'
          : `${(100 * error).toFixed(3)} %${predicted === measured ? ', exact' : isInside ? `, inside from ${atLeast}` : ''}`;
      process.stdout.write(
        `${isGood ? 'PASS' : 'FAIL'} ${name} ${allocator} ${values[0]}: predicted ${predicted}, measured ${measured}: ${shown}\n`,
      );
      add({
        part: 'peaks',
        workload: name,
        tried,
        allocator,
        value: values[0],
        predicted,
        atLeast,
        measured: measured ?? null,
        learned: answer.learned,
      });
    }
  }
}

/** A GPU on which about five times the largest tried value fits: the answer lies between values that were tried and those of the other part. */
function findLargest(name: string, tried: readonly number[]): void {
  const aim = 5 * tried.at(-1)!;
  const first = fitted(name, ['--try', tried.join(), '--at', String(aim), '--allocator', 'weir']);
  if (!first) return;
  const limit = Math.ceil(first.results[0]!.asked[0]!.peakReserved / 2 ** 26) * 2 ** 26;
  const answer = fitted(name, ['--try', tried.join(), '--gpu', String(limit), '--confirm']);
  if (!answer) return;
  for (const confirmation of answer.confirmations ?? []) {
    const isGood = confirmation.fits && !confirmation.nextFits;
    if (!isGood) failed++;
    process.stdout.write(`${isGood ? 'PASS' : 'FAIL'} ${name} ${confirmation.allocator} under ${limit}: ${JSON.stringify(confirmation)}\n`);
    add({ part: 'limit', workload: name, tried, limit, ...confirmation });
  }
}

function fitted(name: string, parameters: readonly string[]): Answer | undefined {
  const { status, stdout, stderr } = weir(['fit', ...parameters, '--json', '--', 'python3', SCRIPT, name, '{}']);
  process.stdout.write(stderr);
  // 1: --confirm found the answer wrong, which is told below.
  if (status === 0 || (status === 1 && stdout !== '')) return JSON.parse(stdout) as Answer;
  failed++;
  process.stdout.write(`FAIL ${name}: weir fit ended with ${status}\n`);
  return undefined;
}

/** Peak reserved of a real run; undefined: it failed. */
function measure(name: string, allocator: string, value: number): number | undefined {
  const summaryFile = join(folder, 'summary.json');
  const flags = ['--no-what-if', '-q', '--allocator', allocator, '--json-file', summaryFile];
  const { status } = weir(['run', ...flags, '--', 'python3', SCRIPT, name, String(value), '--steps', String(STEPS)]);
  if (status !== 0) return undefined;
  const { processes } = JSON.parse(readFileSync(summaryFile, 'utf8')) as { processes: { gpus: { peakReserved: number }[] }[] };
  return Math.max(0, ...processes.flatMap(({ gpus }) => gpus.map(({ peakReserved }) => peakReserved)));
}

function weir(parameters: readonly string[]) {
  return spawnSync(process.execPath, [MAIN, ...parameters], { encoding: 'utf8', timeout: TIMEOUT_MS, maxBuffer: 2 ** 28 });
}

function add(result: Record<string, unknown>): void {
  results.push(result);
  writeFileSync(out!, `${JSON.stringify(results, undefined, 1)}\n`);
}
