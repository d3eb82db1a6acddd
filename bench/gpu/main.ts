// `npm run bench:gpu -- WORKLOADS_FOLDER [PART...]`: training on a GPU with PyTorch's allocators and with Weir's.
// Parts: deterministic, default, batch, faults, streams, async, plan, swap, identical, debug. Writes bench/results/gpu-training-<date>.
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { provenanceOf } from '../provenance.ts';
import type { SupervisedResult } from './supervised.ts';
import { debugPart, identicalPart, planPart, SUPERVISED_WORKLOADS, swapPart } from './supervised-parts.ts';
import { tablesOf } from './tables.ts';
import { type Job, type Result, TrainingServer } from './training-server.ts';

const SUPERVISED = [
  ['plan', planPart],
  ['swap', swapPart],
  ['identical', identicalPart],
  ['debug', debugPart],
] as const;
const PARTS = ['deterministic', 'default', 'batch', 'faults', 'streams', 'async', ...SUPERVISED.map(([part]) => part as string)];
const [workloads = '', ...chosen] = process.argv.slice(2).filter((word) => !word.startsWith('only='));
/** `only=NAME` limits `default` and the parts that use `weir run` to that workload. */
const only = process.argv.slice(2).flatMap((word) => (word.startsWith('only=') ? [word.slice('only='.length)] : []));
const unknown = chosen.find((part) => !PARTS.includes(part));
const isFolder = existsSync(join(workloads, 'workloads.py'));
if (unknown !== undefined || !isFolder) {
  if (unknown !== undefined) process.stderr.write(`there is no part '${unknown}'\n`);
  else if (workloads !== '') process.stderr.write(`${workloads} has no workloads.py\n`);
  process.stderr.write(`usage: npm run bench:gpu -- WORKLOADS_FOLDER ${PARTS.map((part) => `[${part}]`).join(' ')} [only=WORKLOAD]\n`);
  process.exit(2);
}
const parts = chosen.length > 0 ? chosen : PARTS;
const outputFolder = process.env['WEIR_RESULTS'] ?? 'bench/results';

/** Native runs first and last, so that a drift of the machine shows, and affects all allocators alike. */
const ROUND = ['native', 'expandable', 'weir', 'weir', 'expandable', 'native'] as const;
/** More runs for short first steps, which differ by a third from run to run. */
const WARM_UPS = ['expandable', 'weir', 'weir', 'expandable'] as const;
/** More runs for trainings that wait for the host, where equal steps differ by as much. */
const MORE_STEPS = ['weir', 'native', 'native', 'weir'] as const;
/** `steps`: in default mode, if the workload's own number takes too long to repeat. */
const WORKLOADS: readonly { name: string; steps?: number; deterministicSteps: number; again?: readonly Job['allocator'][] }[] = [
  { name: 'opt13b-LR-var', steps: 10, deterministicSteps: 3 },
  { name: 'llama7b-LRO-var', steps: 6, deterministicSteps: 3 },
  { name: 'opt1b3-R', steps: 6, deterministicSteps: 4 },
  { name: 'opt1b3-N-var', deterministicSteps: 8, again: MORE_STEPS },
  { name: 'gpt2xl-R-var', steps: 10, deterministicSteps: 6 },
  { name: 'bert-wavelet', deterministicSteps: 6, again: WARM_UPS },
  { name: 'resnet50-b100', steps: 20, deterministicSteps: 6, again: WARM_UPS },
  { name: 'vgg16-b100', steps: 20, deterministicSteps: 6, again: WARM_UPS },
];
const GIB = 2 ** 30;
/** Memory limits under which the largest batch is searched. */
const BATCHES = [
  { workload: 'vgg16', limit: 16 * GIB, from: 100, to: 240, grain: 5, steps: 4 },
  { workload: 'gpt2xl-var', limit: 24 * GIB, from: 4, to: 28, grain: 1, steps: 10 },
] as const;
const ALLOCATORS = ['native', 'expandable', 'weir'] as const;
const stranger = only.find((name) => !SUPERVISED_WORKLOADS.includes(name) && !WORKLOADS.some((workload) => workload.name === name));
if (stranger !== undefined) {
  const names = new Set([...WORKLOADS.map(({ name }) => name), ...SUPERVISED_WORKLOADS]);
  process.stderr.write(`there is no workload '${stranger}'; there are ${[...names].join(', ')}\n`);
  process.exit(2);
}
const pythonPath = fileURLToPath(new URL('../../../dist/python', import.meta.url));
const server = new TrainingServer(workloads, pythonPath);
/** Results by part. Parts that only an earlier run of the same day has are kept. */
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
  const wanted = WORKLOADS.filter(({ name }) => only.length === 0 || only.includes(name));
  for (const { name, steps, again = [] } of wanted) {
    const jobs = [...ROUND, ...again].map((allocator): Job => ({ workload: name, allocator, ...(steps && { steps }) }));
    const made = await server.run(jobs);
    results['default'] = [...othersThan([name], 'default'), ...made];
    keep();
  }
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
    { ...two, allocator: 'weir', environment: { WEIR_CHILD_LEND: '1' } },
    { ...two, allocator: 'weir', environment: { WEIR_CHILD_LEND: '0' } },
    { workload: 'bert-one-stream', batch: 12, steps: 12, allocator: 'native' },
    { workload: 'bert-one-stream', batch: 12, steps: 12, allocator: 'weir' },
  ];
  results['streams'] = await server.run(round);
  keep();
}
for (const [part, make] of SUPERVISED) {
  if (!parts.includes(part)) continue;
  const runs = only.length > 0 ? othersThan(only, part) : [];
  results[part] = runs;
  const add = (result: SupervisedResult) => {
    runs.push(result);
    keep();
  };
  await make({ workloads, server, only, add });
}
server.close();
if (parts.includes('async')) {
  // PyTorch chooses this backend when it is imported, so it needs a process of its own.
  const asynchronous = new TrainingServer(workloads, pythonPath, { PYTORCH_CUDA_ALLOC_CONF: 'backend:cudaMallocAsync' });
  const jobs = WORKLOADS.slice(3).map(
    ({ name, steps }): Job => ({ workload: name, allocator: 'cudaMallocAsync', ...(steps && { steps }) }),
  );
  results['async'] = await asynchronous.run(jobs);
  asynchronous.close();
  keep();
}

/** Binary search for all workloads and allocators at once. Memory limits let the runs share the GPU. */
async function largestBatches(): Promise<Result[]> {
  const made: Result[] = [];
  const searches = BATCHES.flatMap(({ workload, limit, from, to, grain, steps }) =>
    ALLOCATORS.map((allocator) => ({ workload, allocator, limit, grain, steps, fits: from - grain, fails: to + grain })),
  );
  for (;;) {
    const jobs = searches.flatMap(({ workload, allocator, limit, grain, steps, fits, fails }): Job[] => {
      if (fails - fits <= grain) return [];
      const batch = fits + Math.max(1, Math.floor((fails - fits) / (2 * grain))) * grain;
      const environment: Record<string, string> = allocator === 'weir' ? { WEIR_CHILD_LIMIT: String(limit) } : {};
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

/** Rows of an earlier run of the part, without those of `names`. */
function othersThan(names: readonly string[], part: string): SupervisedResult[] {
  return (results[part] ?? []).filter(({ workload }) => !names.includes(workload));
}

/** Writes all results so far, after each part, so that an interrupted run keeps them. */
function keep(): void {
  mkdirSync(outputFolder, { recursive: true });
  const described = execFileSync('nvidia-smi', ['--query-gpu=name,driver_version', '--format=csv,noheader'], { encoding: 'utf8' });
  const [name, driver] = described.trim().split(', ');
  const source = provenanceOf(`npm run bench:gpu -- WORKLOADS ${Object.keys(results).join(' ')}`, `${name}, driver ${driver}`);
  writeFileSync(resultPath('json'), `${JSON.stringify({ ...source, results })}\n`);
  writeFileSync(
    resultPath('md'),
    `# Training on a GPU, ${source.date}\n\n${source.hardware}; \`${source.command}\`.\n\n${tablesOf(results).join('\n')}`,
  );
}
