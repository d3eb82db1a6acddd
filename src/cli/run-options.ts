// The options of `weir run` that concern supervision, whoever starts the job: `weir run`, `weir record`, or the process itself.
import { type Command, InvalidArgumentError, Option } from 'commander';
import { RUN_ALLOCATORS, type RunAllocator } from '../abi/allocators.ts';
import { LARGE_REQUEST } from '../abi/environment.ts';
import { UsageError } from '../base/errors.ts';
import { asArgument, LOCAL_HOST, parsePort, parsePositive } from './options.ts';

/** Options of supervision, parsed. */
export interface SupervisionFlags {
  readonly allocator: RunAllocator;
  readonly limit?: number;
  readonly record?: string;
  readonly force?: boolean;
  readonly oomDir?: string;
  readonly whatIf: boolean;
  readonly whatIfEvents: number;
  readonly metrics?: number;
  readonly metricsHost: string;
  readonly serve?: boolean;
  readonly servePort: number;
  readonly plan?: boolean;
  readonly swap?: number | 'auto';
  readonly jsonFile?: string;
  readonly quiet?: boolean;
  readonly verbose?: boolean;
}

const DEFAULT_WHAT_IF_EVENTS = 20_000_000;

export function runAllocatorOption(): Option {
  return new Option('--allocator <name>', 'the allocator to run on').choices(RUN_ALLOCATORS).default('weir');
}

export function limitOption(): Option {
  return new Option('--limit <size>', 'act as a smaller GPU: the memory that each process may hold, like 40GiB').argParser(
    asArgument(parsePositive),
  );
}

export function planOption(): Option {
  return new Option('--plan', 'watch the job for a few steps, then plan an offset for every request of a step');
}

export function swapOption(): Option {
  return new Option(
    '--swap <size>',
    'swap idle tensors to host memory: down to this size, like 24GiB, or auto: as low as costs hardly any time',
  ).argParser(parseSwap);
}

/** For the processes: `python` or `all`, and the least bytes of a request after a colon; or `off`. */
export type StacksFlag = string;

export function stacksOption(standard: 'large' | 'python'): Option {
  return new Option(
    '--stacks [which]',
    'record the call stack of each request: off, large (of requests from 1 MiB on), large:SIZE, python, or all (C++ too, slow)',
  )
    .argParser(parseStacks)
    .preset('python')
    .default(parseStacks(standard), standard);
}

/**
 * `--stacks python train.py` can only mean `--stacks -- python train.py`: both words stand for the same stacks, but there is no
 * command without the second.
 */
export function withSwallowedPython(command: readonly string[], typed: readonly string[]): readonly string[] {
  const at = typed.indexOf('--stacks');
  const isSwallowed = at >= 0 && typed[at + 1] === 'python' && !typed.includes('--') && /\.py$|^-/.test(command[0] ?? '');
  return isSwallowed ? ['python', ...command] : command;
}

export function withSupervisionOptions(command: Command): Command {
  return command
    .option(
      '-o, --record <file>',
      'keep a recording of each process as FILE.<pid>.weir; in FILE, %p is the process, %h the host, %r the rank, %q{NAME} a variable',
    )
    .option('-f, --force', 'overwrite existing recordings')
    .option(
      '--oom-dir <folder>',
      'where oom.<rank>.<pid>.weir goes if a request fails (default: beside the recording, or here); none: nowhere',
    )
    .option('--no-what-if', 'do not compare with other allocators at the end')
    .addOption(
      new Option('--what-if-events <n>', 'replay at most so many events of each process for that')
        .argParser(asArgument(parseCount))
        .default(DEFAULT_WHAT_IF_EVENTS),
    )
    .addOption(new Option('--metrics <port>', "serve live figures in Prometheus' format on this port").argParser(parsePort))
    .addOption(new Option('--metrics-host <address>', 'the address for --metrics').default(LOCAL_HOST))
    .option('--serve', 'serve a live page about the job, on this machine only')
    .addOption(new Option('--serve-port <port>', 'the port for --serve; 0 chooses a free one').argParser(parsePort).default(0))
    .option('--json-file <file>', 'write the summary as JSON to a file as well')
    .option('-q, --quiet', 'print only problems and the URL of --serve on stderr')
    .option('-v, --verbose', 'print every variable that is set and every file');
}

export function parseCount(text: string): number {
  const value = Number(text.replaceAll('_', ''));
  if (!Number.isSafeInteger(value) || value <= 0) throw new UsageError(`'${text}' is not a number of events`);
  return value;
}

function parseStacks(text: string): StacksFlag {
  const [, word, size] = /^([^:]*)(?::(.*))?$/s.exec(text.toLowerCase()) as unknown as [string, string, string | undefined];
  if (size === undefined && ['off', '0', 'false', 'no'].includes(word)) return 'off';
  if (size === undefined && ['python', '1', 'true', 'yes', 'on'].includes(word)) return 'python';
  if (size === undefined && word === 'all') return 'all';
  if (word === 'large') return `python:${size === undefined ? LARGE_REQUEST : sizeOf(size)}`;
  throw new InvalidArgumentError(
    `'${text}' is none of off, large, large:SIZE, python and all; write --stacks=python, and -- before the command`,
  );
}

function sizeOf(text: string): number {
  try {
    return parsePositive(text);
  } catch (error) {
    throw new InvalidArgumentError((error as Error).message);
  }
}

function parseSwap(text: string): number | 'auto' {
  if (text === 'auto') return text;
  try {
    return parsePositive(text);
  } catch {
    throw new InvalidArgumentError(`'${text}' is neither a size like 24GiB nor auto`);
  }
}
