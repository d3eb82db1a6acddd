// `weir run` around what starts trainings: torchrun, accelerate, multiprocessing. Part of `npm run test:gpu`.
// Each process must train on Weir's allocator, and the summary must have them all.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const from = (name: string) => fileURLToPath(new URL(`../../../${name}`, import.meta.url));
const rank = from('test/gpu/torch/rank.py');
const LAUNCHERS = [
  { name: 'torchrun', processes: 2, command: ['torchrun', '--nproc-per-node=2', '--master-port=29513', rank] },
  { name: 'accelerate launch', processes: 1, command: ['accelerate', 'launch', '--num_processes', '1', rank, 'accelerate'] },
  { name: 'multiprocessing', processes: 2, command: ['python3', rank, 'spawn'] },
];

interface Summary {
  readonly processes: readonly { readonly gpus: readonly { readonly peakReserved: number }[] }[];
}

const folder = mkdtempSync(join(tmpdir(), 'weir-launchers-'));
let failed = 0;
for (const { name, processes, command } of LAUNCHERS) {
  const summaryFile = join(folder, 'summary.json');
  const traces = join(folder, 'run.weir');
  const flags = ['run', '--force', '--record', traces, '--json-file', summaryFile, '--'];
  const run = spawnSync(process.execPath, [from('dist/cli/main.js'), ...flags, ...command], { encoding: 'utf8', timeout: 120_000 });
  const trained = run.stdout.split('\n').filter((line) => /^rank \d of \d: /.test(line));
  let summary: Summary = { processes: [] };
  if (run.status === 0) summary = JSON.parse(readFileSync(summaryFile, 'utf8')) as Summary;
  const onGpu = summary.processes.filter(({ gpus }) => (gpus[0]?.peakReserved ?? 0) > 0);
  const isGood = run.status === 0 && trained.length === processes && onGpu.length === processes;
  if (!isGood) failed++;
  process.stdout.write(
    `${isGood ? 'PASS' : 'FAIL'} ${name}: ended with ${run.status}, ${trained.length} trained, ${onGpu.length} in the summary of ${processes}\n`,
  );
  if (!isGood) process.stdout.write(`${run.stdout}${run.stderr}\n`);
}
rmSync(folder, { recursive: true, force: true });
process.exit(failed === 0 ? 0 : 1);
