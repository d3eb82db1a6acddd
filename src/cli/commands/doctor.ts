// `weir doctor`: what this machine has, and which parts of weir that lets work.
import { execFile } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { cpus, freemem, totalmem } from 'node:os';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { Command } from 'commander';
import { formatBytes } from '../../base/bytes.ts';
import { trustAdvice, trustSentence } from '../../report/words/pytorch-trust.ts';
import { obstacleIn } from '../../run/child/environment.ts';
import { staleFolders } from '../../run/child/stale-folders.ts';
import { jsonOption } from '../options.ts';
import { readVersion } from '../version.ts';

interface Finding {
  readonly name: string;
  readonly ok: boolean;
  readonly found: string;
  /** What it is needed for, and what to do when it is missing. */
  readonly note: string;
}

/** Importing torch from a slow disk takes a while. */
const TIMEOUT_MS = 60_000;

export function doctorCommand(): Command {
  return new Command('doctor')
    .summary('what this machine has and what will work')
    .description('Looks at this machine and says which parts of weir work on it. Analysing and replaying recordings needs Node alone.')
    .addOption(jsonOption())
    .addHelpText('before', 'Examples:\n  weir doctor\n  weir doctor --json\n')
    .action(examine);
}

async function examine({ json }: { json?: boolean }): Promise<void> {
  const python = await askPython();
  const findings = await Promise.all([
    node(),
    memory(),
    driver(),
    gpu(),
    pythonFinding(python),
    torch(python),
    ...adapter(python),
    compiler(python),
    headers(python),
    runs(python),
    ...leftovers(),
  ]);
  if (json) {
    process.stdout.write(`${JSON.stringify({ schema: 1, version: readVersion(), findings })}\n`);
    return;
  }
  const width = Math.max(...findings.map((finding) => finding.name.length));
  const lines = findings.map(
    ({ name, ok, found, note }) =>
      `${ok ? 'ok     ' : 'missing'}  ${name.padEnd(width)}  ${found}${note === '' ? '' : `\n${' '.repeat(width + 11)}${note}`}`,
  );
  process.stdout.write(
    `weir ${readVersion()}\n${lines.join('\n')}\n\nanalyze, serve, replay, plan and convert work here; replay --backend cuda needs the driver and a GPU; run and record need all of the above, on the machine where the job runs.\n`,
  );
}

function node(): Finding {
  return { name: 'Node.js', ok: true, found: `${process.version} on ${process.platform} ${process.arch}`, note: '' };
}

function memory(): Finding {
  return {
    name: 'machine',
    ok: true,
    found: `${cpus().length} cores, ${formatBytes(totalmem())} memory, ${formatBytes(freemem())} free`,
    note: 'A snapshot needs about three times its unpacked size in memory while it is read.',
  };
}

function driver(): Finding {
  const version = firstMatch('/proc/driver/nvidia/version', /Kernel Module.*?(\d+\.\d+(?:\.\d+)?)/);
  const library = [
    '/usr/lib/x86_64-linux-gnu/libcuda.so.1',
    '/usr/lib/aarch64-linux-gnu/libcuda.so.1',
    '/usr/lib64/libcuda.so.1',
    '/usr/lib/wsl/lib/libcuda.so.1',
  ].find(existsSync);
  const found = [version ? `NVIDIA driver ${version}` : '', library ?? ''].filter((part) => part !== '').join(', ');
  return { name: 'CUDA driver', ok: found !== '', found: found || 'no NVIDIA driver', note: found ? '' : 'Not needed to read recordings.' };
}

async function gpu(): Promise<Finding> {
  const output = await run('nvidia-smi', ['--query-gpu=name,memory.total', '--format=csv,noheader']);
  return { name: 'GPU', ok: output !== undefined, found: output?.trim().split('\n').join('; ') ?? 'none seen by nvidia-smi', note: '' };
}

/** `python -m weir_gpu.doctor`, but without the current folder: a weir.py there is not ours. */
const START_DOCTOR =
  "import runpy, sys; sys.path[:] = [path for path in sys.path if path]; runpy.run_module('weir_gpu.doctor', run_name='__main__')";

/** What `python -m weir_gpu.doctor` prints (python/weir_gpu/doctor.py). */
interface PythonFacts {
  readonly executable: string;
  readonly version: string;
  readonly torch: string | null;
  readonly cuda: string | null;
  readonly torchProblem: string | null;
  readonly adapter: string | null;
  readonly adapterProblem: string | null;
  readonly headers: string | null;
  readonly headersProblem: string | null;
  /** Why `weir run` would refuse; empty if it would not. */
  readonly refusals: readonly string[];
}

async function askPython(): Promise<PythonFacts | undefined> {
  const part = join(fileURLToPath(new URL('../..', import.meta.url)), 'python');
  const path = [part, process.env['PYTHONPATH']].filter((entry) => entry).join(delimiter);
  for (const name of ['python3', 'python']) {
    const output = await run(name, ['-c', START_DOCTOR], { PYTHONPATH: path });
    const line = output?.trim().split('\n').at(-1);
    if (line?.startsWith('{')) return JSON.parse(line) as PythonFacts;
  }
  return undefined;
}

function pythonFinding(python: PythonFacts | undefined): Finding {
  return {
    name: 'Python',
    ok: python !== undefined,
    found: python ? `${python.version}, ${python.executable}` : 'no python3 that answers',
    note: python ? '' : 'Needed only to run and record jobs; activate the environment the job runs in.',
  };
}

function torch(python: PythonFacts | undefined): Finding {
  return {
    name: 'PyTorch',
    ok: typeof python?.torch === 'string',
    found: python?.torch ? `${python.torch}, CUDA ${python.cuda ?? 'none'}` : 'python3 here cannot import torch',
    note: python?.torch
      ? [trustSentence(python.torch), trustAdvice(python.torch)].filter((sentence) => sentence !== undefined).join(' ')
      : 'Needed only where jobs run and snapshots are made; activate the environment the job runs in.',
  };
}

/** An adapter that came with Weir needs neither compiler nor headers. */
const NOT_NEEDED = 'Not needed here: the adapter for this PyTorch came with Weir.';

/** Only for a PyTorch that is there. */
function adapter(python: PythonFacts | undefined): Finding[] {
  if (!python?.torch) return [];
  const { adapter: path, adapterProblem: problem } = python;
  const note = problem ? `The one that came with Weir is not used: ${problem}.` : '';
  return [{ name: 'adapter', ok: !problem, found: path ?? 'is compiled on first use', note }];
}

function headers(python: PythonFacts | undefined): Finding {
  if (python?.adapter) return { name: 'CUDA headers', ok: true, found: 'not looked for', note: NOT_NEEDED };
  return {
    name: 'CUDA headers',
    ok: typeof python?.headers === 'string',
    found: python?.headers ?? 'not found',
    note: python?.headers ? '' : (python?.headersProblem ?? 'Needed only to run and record jobs; looked for beside PyTorch.'),
  };
}

function runs(python: PythonFacts | undefined): Finding {
  const obstacle = obstacleIn(process.env);
  const reasons = [
    ...(process.platform === 'linux' ? [] : ['jobs run on Linux only']),
    ...(obstacle ? [obstacle] : []),
    ...(python?.torch ? [] : ['there is no PyTorch in the Python that is found here']),
    ...(python?.refusals ?? []),
  ];
  return { name: 'weir run', ok: reasons.length === 0, found: reasons.length === 0 ? 'ready' : 'would refuse', note: reasons.join('; ') };
}

/** Only if there are some. */
function leftovers(): Finding[] {
  const folders = staleFolders(process.env);
  if (folders.length === 0) return [];
  const size = formatBytes(folders.reduce((sum, { bytes }) => sum + bytes, 0));
  const found = `${folders.length} ${folders.length === 1 ? 'folder' : 'folders'} of killed runs, ${size}`;
  return [{ name: 'leftovers', ok: true, found, note: `The next weir run removes ${folders.map(({ path }) => path).join(', ')}.` }];
}

async function compiler(python: PythonFacts | undefined): Promise<Finding> {
  for (const name of [process.env['CXX'], 'c++', 'g++', 'clang++']) {
    const output = name ? await run(name, ['--version']) : undefined;
    if (output) return { name: 'C++ compiler', ok: true, found: output.split('\n')[0] ?? name ?? '', note: '' };
  }
  const isNeeded = !python?.adapter;
  return { name: 'C++ compiler', ok: !isNeeded, found: 'none', note: isNeeded ? 'Needed only to run and record jobs.' : NOT_NEEDED };
}

/** What the program printed, or undefined if it is not there, fails or hangs. */
async function run(program: string, parameters: readonly string[], env: Record<string, string> = {}): Promise<string | undefined> {
  try {
    const { stdout } = await promisify(execFile)(program, parameters, { timeout: TIMEOUT_MS, env: { ...process.env, ...env } });
    return stdout;
  } catch {
    return undefined;
  }
}

function firstMatch(path: string, pattern: RegExp): string | undefined {
  return existsSync(path) ? pattern.exec(readFileSync(path, 'utf8'))?.[1] : undefined;
}
