// Training runs under `weir run`: plans and swapping need the supervisor beside the job.
// The Python file is the same as for other runs, but not forked from a server.
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, type Job, type Result } from './training-server.ts';

/** Figures of a plan, from the summary of `weir run`. */
export interface PlanFigures {
  readonly state?: string;
  readonly reason?: string | null;
  readonly measured?: { readonly reserved: number; readonly steps: number; readonly driverCalls: number; readonly share: number } | null;
}

/** Figures of swapping, from the summary of `weir run`. */
export interface SwapFigures {
  readonly expected: { readonly from?: number; readonly peak?: number };
  readonly peakAllocated: number;
  readonly peakReserved: number;
  readonly stepsPlanned: number;
  readonly stepsOff: number;
  readonly stalls: number;
  readonly misses: number;
  readonly bytesOut: number;
  readonly parametersOut: number;
  readonly gradientsOut: number;
  /** Copies that debug mode compared. */
  readonly checked: number;
  readonly stopped: string | null;
}

interface Summary {
  readonly processes: readonly { readonly swap: SwapFigures | null; readonly gpus: readonly { readonly planned: PlanFigures }[] }[];
}

export interface SupervisedResult extends Result {
  readonly flags?: readonly string[];
  readonly plan?: PlanFigures | undefined;
  readonly swap?: SwapFigures | undefined;
}

export async function runSupervised(workloads: string, job: Job, flags: readonly string[]): Promise<SupervisedResult> {
  const folder = mkdtempSync(join(tmpdir(), 'weir-bench-'));
  const from = (name: string) => fileURLToPath(new URL(`../../../${name}`, import.meta.url));
  const resultFile = join(folder, 'result.json');
  const summaryFile = join(folder, 'summary.json');
  const command = [
    from('dist/cli/main.js'),
    'run',
    ...flags,
    '--no-what-if',
    '--json-file',
    summaryFile,
    '--',
    'python3',
    from('bench/gpu/training_run.py'),
    workloads,
    JSON.stringify(job),
    resultFile,
  ];
  const child = spawn(process.execPath, command, { stdio: ['ignore', 2, 2], env: { ...process.env, ...job.environment } });
  const status = await new Promise<number>((resolve) => child.on('close', (code) => resolve(code ?? -1)));
  try {
    const summary = JSON.parse(readFileSync(summaryFile, 'utf8')) as Summary;
    const [trained] = summary.processes;
    const result: SupervisedResult = {
      ...(JSON.parse(readFileSync(resultFile, 'utf8')) as Result),
      flags,
      status,
      plan: trained?.gpus[0]?.planned,
      swap: trained?.swap ?? undefined,
    };
    process.stderr.write(`${describe(result)}\n`);
    return result;
  } catch (error) {
    // What went wrong is on stderr already.
    const why = existsSync(resultFile) ? `: ${error instanceof Error ? error.message : String(error)}` : ' and no result';
    const failed = `weir run ended with ${status}${why}`;
    process.stderr.write(`${job.workload} ${flags.join(' ')}: FAILED ${failed}\n`);
    return { ...job, flags, failed, status } as SupervisedResult;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
