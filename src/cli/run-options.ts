// The options of `weir run` that concern supervision, whoever starts the job: `weir run`, `weir record`, or the process itself.
import { type Command, InvalidArgumentError, Option } from 'commander';
import { RUN_ALLOCATORS, type RunAllocator } from '../abi/allocators.ts';
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

function parseSwap(text: string): number | 'auto' {
  if (text === 'auto') return text;
  try {
    return parsePositive(text);
  } catch {
    throw new InvalidArgumentError(`'${text}' is neither a size like 24GiB nor auto`);
  }
}
