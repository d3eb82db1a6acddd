// One run of a command for a few steps, recorded, with its output kept back.
import { join } from 'node:path';
import { finished } from 'node:stream/promises';
import type { RunAllocator } from '../../abi/allocators.ts';
import { RING_ROWS } from '../../abi/ring.ts';
import type { ChildEnd } from '../child/child.ts';
import { endingSignals } from '../child/hang-up.ts';
import type { RunningCommand } from '../child/posix-process.ts';
import { type RunOutcome, supervise } from '../supervise.ts';
import type { RunVoice } from '../supervision.ts';
import { TrialEnd } from './trial-end.ts';

export interface TryOptions {
  readonly command: readonly string[];
  readonly allocator: RunAllocator;
  /** Whether optimizer state and saved tensors may leave the GPU. */
  readonly swap: boolean;
  /** Bytes that the run may take; undefined: all of the GPU. */
  readonly limit: number | undefined;
  /** Optimizer steps after which it ends; 0: it goes to its end. */
  readonly endAfter: number;
  /** Folder for the recordings, and their name. */
  readonly folder: string;
  readonly name: string;
  readonly version: string;
  readonly environment: NodeJS.ProcessEnv;
}

export interface TriedRun {
  readonly end: ChildEnd;
  readonly outcome: RunOutcome;
  /** The recordings, one for each process that used a GPU. */
  readonly files: readonly string[];
  /** The most that a process held on a GPU. */
  readonly peakReserved: number;
  /** Whether a request of it found no memory. */
  readonly isOutOfMemory: boolean;
  /** The end of what it printed. */
  readonly said: string;
}

/** What PyTorch and CUDA say. */
const OUT_OF_MEMORY = /out of memory|OutOfMemoryError/i;
/** Bytes of output that are kept. */
const MOST_SAID = 16 * 1024;
/** Longest wait for the last output after the command has ended. */
const DRAIN_MS = 2000;
/** Longest wait for processes that were told to end. */
const PATIENCE_MS = 5000;

export async function tryRun(options: TryOptions, voice: RunVoice): Promise<TriedRun> {
  const { command, allocator, limit, folder, name, version, environment } = options;
  let said = '';
  const drained: Promise<unknown>[] = [];
  const trialEnd = new TrialEnd(endingSignals(environment), PATIENCE_MS);
  const listen = (child: RunningCommand) => {
    trialEnd.watch(child.pid);
    for (const stream of [child.stdout, child.stderr]) {
      stream?.on('data', (chunk: Buffer) => {
        said = (said + chunk.toString()).slice(-MOST_SAID);
      });
      if (stream) drained.push(finished(stream).catch(() => undefined));
    }
  };
  const outcome = await supervise(
    {
      command,
      allocator,
      limit,
      record: join(folder, `${name}.weir`),
      force: true,
      whatIf: false,
      whatIfEvents: 1,
      metricsPort: undefined,
      metricsHost: '',
      plan: false,
      swap: options.swap ? 'auto' : undefined,
      lend: true,
      swapHost: undefined,
      allowUntested: false,
      ringRows: RING_ROWS,
      // They tell which request of one run is which of another.
      stacks: 'python',
      // A trial may fail for lack of memory. That is an answer, not a failure to look at.
      oomDir: 'none',
      quiet: true,
      version,
      environment,
      endAfter: options.endAfter,
      onCaptured: listen,
    },
    voice,
  ).finally(() => trialEnd.finish());
  // A daemon may hold the pipe open for ever.
  await Promise.race([Promise.all(drained), new Promise((resolve) => setTimeout(resolve, DRAIN_MS).unref())]);
  const { processes } = outcome.summary;
  return {
    end: outcome.end,
    outcome,
    files: processes.flatMap(({ file }) => (file.path === undefined ? [] : [file.path])),
    peakReserved: Math.max(0, ...processes.flatMap(({ gauges }) => [...gauges.values()].map((gauge) => gauge.peak_reserved))),
    isOutOfMemory: !hasSucceeded(outcome.end) && (OUT_OF_MEMORY.test(said) || processes.some(hasFailedRequest)),
    said,
  };
}

function hasFailedRequest({ gauges }: RunOutcome['summary']['processes'][number]): boolean {
  return [...gauges.values()].some(({ ooms }) => ooms > 0);
}

/** Whether the command ended as it should. */
export function hasSucceeded({ code }: ChildEnd): boolean {
  return code === 0;
}

/** `exit code 1` or `SIGKILL`. */
export function endWords({ code, signal }: ChildEnd): string {
  return signal ?? `exit code ${code}`;
}

/** Characters of a line that are shown. */
const MOST_SHOWN = 300;

/** How Python and Node name what ended a program. Launchers such as torchrun print lines of their own below it. */
const ERROR_LINE = /^(\[[^\]]+\]:?\s*)?[\w.]*(Error|Exception)(: .*\S.*)?$/;

/** The line that says why a run failed: the last that names an error, else the last with a word. */
export function failureLine(said: string): string {
  const lines = said.split('\n').map((line) => line.trim());
  const line = lines.findLast((each) => ERROR_LINE.test(each)) ?? lines.findLast((each) => /\w/.test(each)) ?? '';
  return line.length > MOST_SHOWN ? `${line.slice(0, MOST_SHOWN)}...` : line;
}
