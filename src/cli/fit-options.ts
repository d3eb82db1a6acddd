// The options of `weir fit` and the parsers of their values.
import { closeSync, existsSync, openSync, readSync, statSync } from 'node:fs';
import { type Command, Option } from 'commander';
import type { AllocatorChoice } from '../allocator/registry.ts';
import { formatBytes, MIB } from '../base/bytes.ts';
import { InputError, UsageError } from '../base/errors.ts';
import type { Point } from '../fit/monomials.ts';
import { summarizeTrace } from '../trace/summary.ts';
import type { Recording, Trace } from '../trace/trace.ts';
import { requireDemand } from './input.ts';
import { allocatorOption, asArgument, jsonOption, parsePort, parsePositive, quietOption } from './options.ts';

export interface FitFlags {
  readonly values?: readonly Point[];
  readonly try?: readonly Point[];
  readonly names?: readonly string[];
  readonly gpu?: number;
  readonly device?: number;
  readonly allocator?: readonly AllocatorChoice[];
  readonly at?: readonly Point[];
  readonly multiple: number;
  readonly table?: readonly number[];
  readonly lengths?: string;
  readonly steps: number;
  readonly whole?: boolean;
  readonly confirm?: boolean;
  readonly keep?: string;
  readonly write?: string;
  readonly force?: boolean;
  readonly serve?: boolean;
  readonly servePort: number;
  readonly open?: boolean;
  readonly json?: boolean;
  readonly quiet?: boolean;
}

export function withFitOptions(command: Command): Command {
  return command
    .addOption(
      new Option('--values <list>', 'for recordings: the value of each, like 4,8; of several parameters like 4x512,8x512').argParser(
        asArgument(parsePoints),
      ),
    )
    .addOption(
      new Option('--try <list>', 'for a command: the values to run, like 4,6,8 (default: small ones, chosen by itself)').argParser(
        asArgument(parsePoints),
      ),
    )
    .addOption(
      new Option('--gpu <size>', 'memory of the GPU that PyTorch can use, like 80GiB (default: the GPU of the runs)').argParser(
        asArgument(parseGpu),
      ),
    )
    .addOption(
      new Option('--device <index>', 'the GPU to look at, if the runs use several (default: the one with most memory)').argParser(
        asArgument(parseIndex),
      ),
    )
    .addOption(allocatorOption('allocators to ask about; weir also with --swap auto (default: pytorch,expandable,weir)'))
    .addOption(new Option('--at <list>', 'also predict the peak at these values').argParser(asArgument(parsePoints)))
    .addOption(new Option('--multiple <n>', 'try only multiples of this').argParser(asArgument(parseWhole)).default(1))
    .addOption(
      new Option('--names <list>', 'for recordings: names of the parameters, like batch,length').argParser((text: string) =>
        text.split(','),
      ),
    )
    .addOption(
      new Option('--table <list>', 'of two parameters: values of the second to search the first for').argParser(asArgument(parseWholes)),
    )
    .option('--lengths <file>', 'of two parameters: lengths of samples, one per line, to draw steps of random length from')
    .addOption(
      new Option('--steps <n>', 'for a command: end each run after so many optimizer steps').argParser(asArgument(parseSteps)).default(4),
    )
    .option('--whole', 'for a command: let each run go to its end, with or without optimizer steps')
    .option('--confirm', 'for a command: also run the answer and the next larger value')
    .option('--keep <folder>', 'for a command: keep the recordings in this folder')
    .option('--write <file>', 'write the synthesised run of the answer as a .weir file, for weir serve')
    .option('-f, --force', 'overwrite an existing file')
    .option('--serve', 'then show the runs of other values in a page, with sliders for the values and the GPU')
    .addOption(new Option('--serve-port <port>', 'the port for --serve; 0 chooses a free one').argParser(parsePort).default(0))
    .option('--open', 'with --serve: open the page in a browser')
    .addOption(jsonOption())
    .addOption(quietOption());
}

/** Reads `4,8` or `4x512,8x512`. */
export function parsePoints(text: string): Point[] {
  return text.split(',').map((part) => {
    if (!/^\s*\d+(x\d+)*\s*$/.test(part)) throw new UsageError(`'${part}' is not a value such as 8 or 4x512`);
    return part.split('x').map(parseWhole);
  });
}

/** No GPU is smaller. A number without a unit is bytes. */
const LEAST_GPU = MIB;

function parseGpu(text: string): number {
  const bytes = parsePositive(text);
  if (bytes < LEAST_GPU)
    throw new UsageError(`a GPU has more than ${bytes} bytes; write a unit, like ${/^\d+$/.test(text) ? text : 24}GiB`);
  return bytes;
}

function parseSteps(text: string): number {
  const steps = parseWhole(text);
  if (steps < 2) throw new UsageError('one step is too few: optimizers make their state at its end');
  return steps;
}

function parseWholes(text: string): number[] {
  return text.split(',').map(parseWhole);
}

function parseWhole(text: string): number {
  const value = Number(text.trim());
  if (text.trim() === '' || !Number.isSafeInteger(value) || value <= 0) throw new UsageError(`'${text}' is not a whole number above 0`);
  return value;
}

function parseIndex(text: string): number {
  const index = Number(text);
  if (text.trim() === '' || !Number.isInteger(index) || index < 0) throw new UsageError(`'${text}' is not the number of a GPU`);
  return index;
}

/** The GPU that was asked for, or the one that needs most. */
export function traceOf(recording: Recording, device: number | undefined, file: string): Trace {
  requireDemand(recording.traces, file, 'requests');
  if (device !== undefined) {
    const found = recording.traces.find((trace) => trace.device === device);
    if (found) return found;
    throw new InputError(`${file} has no events of GPU ${device}; it has GPU ${recording.traces.map((trace) => trace.device).join(', ')}`);
  }
  return largestOf(recording.traces);
}

/** The one that needs most. */
export function largestOf(traces: readonly Trace[]): Trace {
  return traces.reduce((most, trace) => (summarizeTrace(trace).peakLive > summarizeTrace(most).peakLive ? trace : most));
}

/** More samples say no more. What never ends, such as a device, ends here. */
const MOST_LENGTHS_BYTES = 64 * MIB;

/** One whole number per line. */
export function readLengths(path: string): number[] {
  if (!existsSync(path)) throw new InputError(`${path}: there is no such file`);
  if (statSync(path).isDirectory()) throw new InputError(`${path} is a folder; give a file with one whole number per line`);
  const words = readText(path, MOST_LENGTHS_BYTES)
    .split(/\s+/)
    .filter((word) => word !== '');
  const wrong = words.find((word) => !/^[1-9]\d{0,8}$/.test(word));
  if (wrong !== undefined || words.length < 2)
    throw new InputError(
      `${path}: ${wrong === undefined ? 'fewer than two lengths' : `'${wrong.slice(0, 40)}' is not a length`}; write one whole number per line`,
    );
  return words.map(Number);
}

function readText(path: string, most: number): string {
  const file = openSync(path, 'r');
  try {
    const chunks: Buffer[] = [];
    for (let total = 0; ; ) {
      const chunk = Buffer.alloc(MIB);
      const read = readSync(file, chunk);
      if (read === 0) return Buffer.concat(chunks).toString();
      chunks.push(chunk.subarray(0, read));
      total += read;
      if (total > most) throw new InputError(`${path} is larger than ${formatBytes(most)}; a part of its lengths is enough`);
    }
  } finally {
    closeSync(file);
  }
}
