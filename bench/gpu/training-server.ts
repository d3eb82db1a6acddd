// Sends training runs to the Python process that makes them and collects what they report.
// The process imports its libraries once and forks for each run.
import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

export interface Job {
  readonly workload: string;
  readonly allocator: 'native' | 'expandable' | 'cudaMallocAsync' | 'weir' | 'gmlake' | 'pytorch';
  readonly deterministic?: boolean;
  readonly steps?: number;
  readonly batch?: number;
  readonly limit?: number;
  /** Uses PyTorch's `save_on_cpu`. */
  readonly saveOnCpu?: boolean;
  /** Whether to report a checksum of the trained weights, which takes time. */
  readonly sumWeights?: boolean;
  readonly environment?: Readonly<Record<string, string>>;
  /** Runs at the same time. Times are meaningless above 1. */
  readonly parallel?: number;
}

export interface Result extends Job {
  readonly steps: number;
  /** Hexadecimal floats: equal text is equal bits. */
  readonly losses: readonly string[];
  /** Seconds per step. */
  readonly times: readonly number[];
  readonly weights?: string;
  readonly peakAllocated: number;
  readonly peakRequested: number;
  readonly peakReserved: number;
  /** Peaks of the last third of the steps, after watching and planning. */
  readonly settledAllocated?: number;
  readonly settledReserved?: number;
  /** Driver calls of these steps, and how many steps they are; on Weir's allocator. */
  readonly settledCalls?: number;
  readonly settledSteps?: number;
  readonly reserved: number;
  readonly allocations: number;
  readonly retries: number;
  readonly ooms: number;
  readonly oom?: string;
  readonly failed?: string;
  readonly status: number;
  readonly weir?: Readonly<Record<string, number>>;
}

export class TrainingServer {
  private readonly child: ChildProcess;
  private readonly waiting: ((result: Result) => void)[] = [];
  private readonly received: Result[] = [];

  constructor(workloads: string, pythonPath: string, environment: Readonly<Record<string, string>> = {}) {
    const script = fileURLToPath(new URL('../../../bench/gpu/training_run.py', import.meta.url));
    this.child = spawn('python3', [script, workloads], {
      stdio: ['pipe', 'pipe', 'inherit'],
      env: {
        ...process.env,
        PYTHONPATH: [pythonPath, process.env['PYTHONPATH']].filter(Boolean).join(':'),
        PYTHONUNBUFFERED: '1',
        ...environment,
      },
    });
    createInterface({ input: this.child.stdout! }).on('line', (line) => {
      const result = JSON.parse(line) as Result;
      process.stderr.write(`${describe(result)}\n`);
      const next = this.waiting.shift();
      if (next) next(result);
      else this.received.push(result);
    });
  }

  /** All results, in the order in which the runs ended. */
  async run(jobs: readonly Job[]): Promise<Result[]> {
    for (const job of jobs) this.child.stdin!.write(`${JSON.stringify(job)}\n`);
    this.child.stdin!.write('{"barrier":true}\n');
    const results: Result[] = [];
    for (let index = 0; index < jobs.length; index++) results.push(await this.next());
    return results;
  }

  close(): void {
    this.child.stdin!.end();
  }

  private next(): Promise<Result> {
    const result = this.received.shift();
    if (result) return Promise.resolve(result);
    return new Promise((resolve, reject) => {
      const fail = (code: number | null) => reject(new Error(`the training process ended with code ${code}`));
      this.child.once('exit', fail);
      this.waiting.push((next) => {
        this.child.off('exit', fail);
        resolve(next);
      });
    });
  }
}

const gib = (bytes: number) => (bytes / 2 ** 30).toFixed(2);

export function describe(result: Result): string {
  const name = `${result.workload}${result.batch ? ` batch ${result.batch}` : ''}, ${result.allocator}${result.deterministic ? ', deterministic' : ''}`;
  if (result.failed) return `${name}: FAILED ${result.failed}`;
  if (result.oom) return `${name}: out of memory after ${result.steps} steps`;
  const sorted = [...result.times].sort((a, b) => a - b);
  return `${name}: ${gib(result.peakReserved)} of ${gib(result.peakAllocated)} GiB, ${((sorted[sorted.length >> 1] ?? 0) * 1e3).toFixed(1)} ms, weights ${result.weights ?? '-'}`;
}
