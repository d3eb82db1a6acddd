// Options that several commands share, and the parsers of their values.
import { InvalidArgumentError, Option } from 'commander';
import { parseVersion } from '../allocator/pytorch/versions.ts';
import { type AllocatorChoice, chooseAllocators, describeAllocators } from '../allocator/registry.ts';
import { parseBytes } from '../base/bytes.ts';
import { UsageError } from '../base/errors.ts';

/** Pages and metrics are for this machine only, unless the user says otherwise. */
export const LOCAL_HOST = '127.0.0.1';

/** What commands read, for their help. */
export const RECORDING = 'a PyTorch snapshot (pickle or JSON) or a .weir file, plain, gzip or zstd; - is standard input';
export const RECORDINGS = 'PyTorch snapshots (pickle or JSON) or .weir files, plain, gzip or zstd; - is standard input';

export function capacityOption(): Option {
  return new Option('--capacity <size>', 'memory of the GPU to try, like 80GiB: the part that PyTorch can use').argParser(
    asArgument(parsePositive),
  );
}

export function gpuOption(): Option {
  return new Option('--gpu <index>', 'the GPU to look at, if the recording has several').argParser(
    asArgument((text) => {
      const gpu = Number(text);
      if (!Number.isInteger(gpu) || gpu < 0 || text.trim() === '') throw new UsageError(`'${text}' is not the number of a GPU`);
      return gpu;
    }),
  );
}

export function pytorchOption(): Option {
  return new Option(
    '--pytorch <version>',
    'the PyTorch that made the recording, like 2.13; by default as recorded, or found by trying',
  ).argParser(asArgument(parseVersion));
}

export function allocatorOption(description: string): Option {
  return new Option('--allocator <names>', description).argParser<AllocatorChoice[]>(asArgument(chooseAllocators));
}

export function quietOption(): Option {
  return new Option('-q, --quiet', 'show no progress on stderr');
}

export function jsonOption(): Option {
  return new Option('--json', 'print the result as JSON (schema 1; bytes and microseconds as numbers)');
}

export const ALLOCATOR_HELP: string = `
Allocators: NAME or NAME[SETTINGS], separated by commas:
${describeAllocators()}`;

/** Turns our errors into commander's, which name the option. */
export function asArgument<Value>(parse: (text: string) => Value): (text: string) => Value {
  return (text) => {
    try {
      return parse(text);
    } catch (error) {
      if (error instanceof UsageError) throw new InvalidArgumentError(error.message);
      throw error;
    }
  };
}

export function parsePositive(text: string): number {
  const bytes = parseBytes(text);
  if (bytes <= 0) throw new UsageError('the size must be more than 0');
  return bytes;
}

export function parsePort(text: string): number {
  const port = Number(text);
  if (text.trim() === '' || !Number.isInteger(port) || port < 0 || port > 65535)
    throw new InvalidArgumentError('a port is a number from 0 to 65535.');
  return port;
}
