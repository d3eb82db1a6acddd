// `npm run bench:gpu -- WORKLOADS_FOLDER [PART...]`: training on a GPU under PyTorch's allocators and Weir's, side by side.
// Parts: deterministic, default, batch, faults, streams, async, plan, swap. Results go to bench/results/ as JSON and as the tables of
// the README.
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { runSupervised, type SupervisedResult } from './supervised.ts';
import { tablesOf } from './tables.ts';
import { type Job, type Result, TrainingServer } from './training-server.ts';

const PARTS = ['deterministic', 'default', 'batch', 'faults', 'streams', 'async', 'plan', 'swap'];
const [workloads = '', ...chosen] = process.argv.slice(2);
const unknown = chosen.find((part) => !PARTS.includes(part));
const isFolder = existsSync(join(workloads, 'workloads.py'));
if (unknown !== undefined || !isFolder) {
  if (unknown !== undefined) process.stderr.write(`there is no part '${unknown}'\n`);
  else if (workloads !== '') process.stderr.write(`${workloads} has no workloads.py\n`);
  process.stderr.write(`usage: npm run bench:gpu -- WORKLOADS_FOLDER ${PARTS.map((part) => `[${part}]`).join(' ')}\n`);
  process.exit(2);
}
const parts = chosen.length > 0 ? chosen : PARTS;
const outputFolder = process.env['WEIR_RESULTS'] ?? 'bench/results';

/** Steps in default mode, where the workload's own number takes too long to repeat, and in deterministic mode. */
const WORKLOADS: readonly { name: string; steps?: number; deterministicSteps: number }[] = [
  { name: 'opt13b-LR-var', steps: 6, deterministicSteps: 3 },
  { name: 'llama7b-LRO-var', steps: 6, deterministicSteps: 3 },
  { name: 'opt1b3-R', steps: 6, deterministicSteps: 4 },
  { name: 'opt1b3-N-var', steps: 12, deterministicSteps: 8 },
  { name: 'gpt2xl-R-var', steps: 10, deterministicSteps: 6 },
  { name: 'bert-wavelet', deterministicSteps: 6 },
  { name: 'resnet50-b100', steps: 20, deterministicSteps: 6 },
  { name: 'vgg16-b100', steps: 20, deterministicSteps: 6 },
];
/** Native first and last: what the machine does meanwhile shows. */
const ROUND = ['native', 'expandable', 'weir', 'native'] as const;
const GIB = 2 ** 30;
/** Batches are sought under this much memory. */
const BATCHES = [
  { workload: 'vgg16', limit: 16 * GIB, from: 100, to: 240, grain: 5, steps: 4 },
  { workload: 'gpt2xl-var', limit: 24 * GIB, from: 4, to: 28, grain: 1, steps: 10 },
] as const;
const ALLOCATORS = ['native', 'expandable', 'weir'] as const;
/** Steps of one shape: enough of them to be watched, planned and followed. */
const FIXED: readonly Pick<Job, 'workload' | 'batch' | 'steps'>[] = [
  { workload: 'vgg16-b100', steps: 90 },
  { workload: 'resnet50-b100', steps: 120 },
  { workload: 'opt1b3-R', steps: 30 },
  { workload: 'gpt2xl-fixed', batch: 16, steps: 30 },
];
/** Swaps need longer runs, since a plan for them takes seconds, and workloads that leave the link time. */
const IDLE: readonly (Pick<Job, 'workload' | 'batch' | 'steps'> & { limit: number })[] = [
  { workload: 'opt1b3-R', steps: 42, limit: 21 * GIB },
  { workload: 'gpt2xl-fixed', batch: 16, steps: 42, limit: 16 * GIB },
  { workload: 'opt1b3-fixed', batch: 12, steps: 60, limit: 22 * GIB },
  { workload: 'resnet50-b100', steps: 200, limit: 7 * GIB },
];

const pythonPath = fileURLToPath(new URL('../../../dist/python', import.meta.url));
const server = new TrainingServer(workloads, pythonPath);
/** By part; parts of an earlier run of the same day stay. */
const results: Record<string, SupervisedResult[]> = earlierResults();

if (parts.includes('deterministic')) {
  const jobs = WORKLOADS.flatMap(({ name, deterministicSteps: steps }): Job[] =>
    (['native', 'weir'] as const).map((allocator) => ({
      workload: name,
      allocator,
      deterministic: true,
      steps,
      sumWeights: true,
      parallel: 2,
    })),
  );
  results['deterministic'] = await server.run(jobs);
  keep();
}
if (parts.includes('default')) {
  const jobs = WORKLOADS.flatMap(({ name, steps }): Job[] =>
    ROUND.map((allocator): Job => ({ workload: name, allocator, ...(steps && { steps }) })),
  );
  results['default'] = await server.run(jobs);
  keep();
}
if (parts.includes('batch')) {
  results['batch'] = await largestBatches();
  keep();
}
if (parts.includes('faults')) {
  const faults = [2_000, 10_000, 50_000].flatMap((rate): Job[] =>
    [1, 2].map((seed) => ({
      workload: 'gpt2xl-R-var',
      allocator: 'weir',
      deterministic: true,
      steps: 4,
      parallel: 3,
      environment: { WEIR_FAULTS: `${rate}:${seed}` },
    })),
  );
  const clean: Job = { workload: 'gpt2xl-R-var', allocator: 'native', deterministic: true, steps: 4, parallel: 3 };
  results['faults'] = await server.run([clean, ...faults]);
  keep();
}
if (parts.includes('streams')) {
  const two = { workload: 'bert-wavelet', steps: 12 } as const;
  const round: Job[] = [
    { ...two, allocator: 'native' },
    { ...two, allocator: 'expandable' },
    { ...two, allocator: 'weir', environment: { WEIR_LEND: '1' } },
    { ...two, allocator: 'weir', environment: { WEIR_LEND: '0' } },
    { workload: 'bert-one-stream', batch: 12, steps: 12, allocator: 'native' },
    { workload: 'bert-one-stream', batch: 12, steps: 12, allocator: 'weir' },
  ];
  results['streams'] = await server.run(round);
  keep();
}
if (parts.includes('plan')) {
  results['plan'] = [];
  for (const job of FIXED) {
    for (const deterministic of [false, true]) {
      results['plan'].push(...(await server.run([{ ...job, deterministic, allocator: 'native' }])));
      results['plan'].push(await runSupervised(workloads, { ...job, deterministic, allocator: 'weir' }, ['--plan']));
      keep();
    }
  }
}
if (parts.includes('swap')) {
  results['swap'] = [];
  for (const { limit, ...job } of IDLE) {
    const swaps: [boolean, string[]][] = [
      [false, ['--swap', 'auto']],
      [true, ['--swap', 'auto']],
      // Down to a size that PyTorch's own allocator is shown not to train in.
      [true, ['--swap', String(limit), '--limit', String(Math.round(1.04 * limit))]],
    ];
    const native: Job = { ...job, allocator: 'native' };
    const few = Math.min(job.steps ?? 0, 20);
    const alone = [
      native,
      { ...native, deterministic: true },
      { ...native, saveOnCpu: true, steps: few },
      { ...native, limit, steps: few },
    ];
    results['swap'].push(...(await server.run(alone)));
    for (const [deterministic, flags] of swaps) {
      results['swap'].push(await runSupervised(workloads, { ...job, deterministic, allocator: 'weir' }, flags));
      keep();
    }
  }
}
server.close();
if (parts.includes('async')) {
  // PyTorch chooses this backend when it is loaded, so it needs a process of its own.
  const asynchronous = new TrainingServer(workloads, pythonPath, { PYTORCH_CUDA_ALLOC_CONF: 'backend:cudaMallocAsync' });
  const jobs = WORKLOADS.slice(3).map(
    ({ name, steps }): Job => ({ workload: name, allocator: 'cudaMallocAsync', ...(steps && { steps }) }),
  );
  results['async'] = await asynchronous.run(jobs);
  asynchronous.close();
  keep();
}

/** Halves the range of every workload and allocator at once: a limit keeps runs side by side apart. */
async function largestBatches(): Promise<Result[]> {
  const made: Result[] = [];
  const searches = BATCHES.flatMap(({ workload, limit, from, to, grain, steps }) =>
    ALLOCATORS.map((allocator) => ({ workload, allocator, limit, grain, steps, fits: from - grain, fails: to + grain })),
  );
  for (;;) {
    const jobs = searches.flatMap(({ workload, allocator, limit, grain, steps, fits, fails }): Job[] => {
      if (fails - fits <= grain) return [];
      const batch = fits + Math.max(1, Math.floor((fails - fits) / (2 * grain))) * grain;
      const environment: Record<string, string> = allocator === 'weir' ? { WEIR_LIMIT: String(limit) } : {};
      return [{ workload, allocator, batch, limit, steps, parallel: 6, environment }];
    });
    if (jobs.length === 0) return made;
    for (const result of await server.run(jobs)) {
      made.push(result);
      const search = searches.find(({ workload, allocator }) => workload === result.workload && allocator === result.allocator)!;
      if (result.oom || result.failed) search.fails = Math.min(search.fails, result.batch!);
      else search.fits = Math.max(search.fits, result.batch!);
    }
  }
}

function resultPath(extension: string): string {
  return `${outputFolder}/gpu-training-${new Date().toISOString().slice(0, 10)}.${extension}`;
}

function earlierResults(): Record<string, SupervisedResult[]> {
  if (!existsSync(resultPath('json'))) return {};
  return (JSON.parse(readFileSync(resultPath('json'), 'utf8')) as { results: Record<string, SupervisedResult[]> }).results;
}

/** After each part: a run that is cut short keeps what it has. */
function keep(): void {
  mkdirSync(outputFolder, { recursive: true });
  const date = new Date().toISOString().slice(0, 10);
  const hardware = execFileSync('nvidia-smi', ['--query-gpu=name,driver_version', '--format=csv,noheader'], { encoding: 'utf8' }).trim();
  const command = `npm run bench:gpu -- WORKLOADS ${Object.keys(results).join(' ')}`;
  writeFileSync(resultPath('json'), `${JSON.stringify({ date, hardware, command, results })}\n`);
  writeFileSync(resultPath('md'), `# Training on a GPU, ${date}\n\n${hardware}; \`${command}\`.\n\n${tablesOf(results).join('\n')}`);
}
