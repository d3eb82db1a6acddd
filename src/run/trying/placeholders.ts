// Commands with a place for a value: `{}` or `{name}`. `${name}` is a variable of the shell.
import { UsageError } from '../../base/errors.ts';

const PLACE = /(?<!\$)\{([A-Za-z_][\w-]*)?\}/g;
/** What `{}` is called in words. */
const UNNAMED = 'value';

/** The names of the parameters in the order in which they first stand in the command. Throws if there is none. */
export function parametersOf(command: readonly string[]): string[] {
  const names = new Set<string>();
  for (const word of command) for (const [, name] of word.matchAll(PLACE)) names.add(name ?? UNNAMED);
  if (names.size === 0)
    throw new UsageError('the command has no {}; write {} where the value goes, like weir fit -- python train.py --batch-size {}');
  return [...names];
}

/** The command with these values. */
export function withValues(command: readonly string[], names: readonly string[], values: readonly number[]): string[] {
  return command.map((word) => word.replaceAll(PLACE, (_, name?: string) => String(values[names.indexOf(name ?? UNNAMED)])));
}
