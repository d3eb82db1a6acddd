// `weir doctor`: what this machine has, and which parts of weir that lets work.
import { execFile } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { cpus, freemem, totalmem } from 'node:os';
import { promisify } from 'node:util';
import { Command } from 'commander';
import { formatBytes } from '../../base/bytes.ts';
import { jsonOption } from '../options.ts';
import { readVersion } from '../version.ts';

interface Finding {
  readonly name: string;
  readonly ok: boolean;
  readonly found: string;
  /** What it is needed for, and what to do when it is missing. */
  readonly note: string;
}

const TIMEOUT_MS = 20_000;

export function doctorCommand(): Command {
  return new Command('doctor')
    .summary('what this machine has and what will work')
    .description('Looks at this machine and says which parts of weir work on it. Analysing and replaying recordings needs Node alone.')
    .addOption(jsonOption())
    .addHelpText('before', 'Examples:\n  weir doctor\n  weir doctor --json\n')
    .action(examine);
}

async function examine({ json }: { json?: boolean }): Promise<void> {
  const findings = await Promise.all([node(), memory(), driver(), gpu(), torch(), compiler()]);
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
    `weir ${readVersion()}\n${lines.join('\n')}\n\nanalyze, serve, replay, plan and convert work here; replay --device cuda needs the driver and a GPU. Recording needs PyTorch with a GPU, on the machine where the job runs.\n`,
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

async function torch(): Promise<Finding> {
  const script = 'import torch; print(torch.__version__, "CUDA", torch.version.cuda, "GPUs", torch.cuda.device_count())';
  const output = await run('python3', ['-c', script]);
  return {
    name: 'PyTorch',
    ok: output !== undefined,
    found: output?.trim() ?? 'python3 here cannot import torch',
    note: output ? '' : 'Needed only where snapshots are made; activate the environment the job runs in.',
  };
}

async function compiler(): Promise<Finding> {
  for (const name of [process.env['CC'], 'cc', 'gcc', 'clang']) {
    const output = name ? await run(name, ['--version']) : undefined;
    if (output) return { name: 'C compiler', ok: true, found: output.split('\n')[0] ?? name ?? '', note: '' };
  }
  return { name: 'C compiler', ok: false, found: 'none', note: 'Not needed to read recordings.' };
}

/** What the program printed, or undefined if it is not there, fails or hangs. */
async function run(program: string, parameters: readonly string[]): Promise<string | undefined> {
  try {
    const { stdout } = await promisify(execFile)(program, parameters, { timeout: TIMEOUT_MS });
    return stdout;
  } catch {
    return undefined;
  }
}

function firstMatch(path: string, pattern: RegExp): string | undefined {
  return existsSync(path) ? pattern.exec(readFileSync(path, 'utf8'))?.[1] : undefined;
}
