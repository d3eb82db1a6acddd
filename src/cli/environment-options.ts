// Every flag of `weir run` and `weir record` has a twin in the environment: --what-if-events is WEIR_WHAT_IF_EVENTS. The flag wins.
import { type Command, InvalidArgumentError, type Option } from 'commander';
import { RUN_ALLOCATORS } from '../abi/allocators.ts';
import { UsageError } from '../base/errors.ts';

const YES = ['1', 'true', 'yes', 'on'];
const NO = ['0', 'false', 'no', 'off'];

/** Fills in from the environment what the command line leaves open. */
export function takeEnvironment(command: Command, environment: NodeJS.ProcessEnv = process.env): void {
  for (const option of command.options) {
    const name = option.attributeName();
    const variable = variableOf(option);
    const text = environment[variable];
    const source = command.getOptionValueSource(name);
    if (text === undefined || text === '' || (source !== undefined && source !== 'default')) continue;
    // The variable may be meant for another of our commands: `weir run` has more allocators than `weir record`.
    if (option.argChoices && !option.argChoices.includes(text) && RUN_ALLOCATORS.some((allocator) => allocator === text)) continue;
    command.setOptionValueWithSource(name, parsed(option, variable, text), 'env');
  }
}

/** Of two that contradict each other, the one that was typed. */
export function preferTyped(command: Command, ...names: readonly string[]): void {
  const isTyped = (name: string) => command.getOptionValueSource(name) === 'cli';
  if (!names.some(isTyped)) return;
  for (const name of names) if (!isTyped(name)) command.setOptionValueWithSource(name, undefined, 'default');
}

export function variableOf(option: Option): string {
  return `WEIR_${option
    .attributeName()
    .replace(/([A-Z]|\d+)/g, '_$1')
    .toUpperCase()}`;
}

function parsed(option: Option, variable: string, text: string): unknown {
  const isSwitch = !option.required && !option.optional;
  if (isSwitch) {
    const word = text.toLowerCase();
    if (YES.includes(word)) return true;
    if (NO.includes(word)) return false;
    throw new UsageError(`${variable}=${text}: it is 1 or 0`);
  }
  if (!option.parseArg) return text;
  try {
    return option.parseArg(text, undefined);
  } catch (error) {
    if (error instanceof InvalidArgumentError) throw new UsageError(`${variable}=${text}: ${error.message}`);
    throw error;
  }
}
