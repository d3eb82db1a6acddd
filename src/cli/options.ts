// Options that several commands share, and how their values are read.
import { InvalidArgumentError, Option } from 'commander';
import { type AllocatorChoice, chooseAllocators, describeAllocators } from '../allocator/registry.ts';
import { parseBytes } from '../base/bytes.ts';
import { UsageError } from '../base/errors.ts';

export function capacityOption(): Option {
  return new Option('--capacity <size>', 'memory of the GPU to try, like 80GiB (what PyTorch can get of it)').argParser(
    asArgument(parsePositive),
  );
}

export function gpuOption(): Option {
  return new Option('--gpu <index>', 'which GPU of a recording that has several').argParser(
    asArgument((text) => {
      const gpu = Number(text);
      if (!Number.isInteger(gpu) || gpu < 0 || text.trim() === '') throw new UsageError(`'${text}' is not the number of a GPU`);
      return gpu;
    }),
  );
}

export function allocatorOption(description: string): Option {
  return new Option('--allocator <names>', description).argParser<AllocatorChoice[]>(asArgument(chooseAllocators));
}

export function quietOption(): Option {
  return new Option('-q, --quiet', 'no progress on stderr');
}

export function jsonOption(): Option {
  return new Option('--json', 'the result as JSON (schema 1; bytes and microseconds as numbers)');
}

export const ALLOCATOR_HELP: string = `
Allocators, written NAME or NAME[SETTINGS], several with commas between them:
${describeAllocators()}`;

/** Makes our own errors commander's, which then names the option they are about. */
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
  if (bytes <= 0) throw new UsageError('it must be more than 0');
  return bytes;
}
