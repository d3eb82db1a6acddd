// Arguments and variables as the bytes that this process was given. Node takes them for UTF-8 and replaces all other bytes, but a path
// may hold any. The command gets what it would get without us.
import { readFileSync } from 'node:fs';

/** What stands for bytes that are not UTF-8. */
const REPLACEMENT = '\ufffd';

/** The words of a command, which are the last words of this process, or nearly. */
export function wordsAsGiven(command: readonly string[]): (string | Buffer)[] {
  const given = command.some((word) => word.includes(REPLACEMENT)) ? entriesOf('cmdline') : [];
  let end = given.length;
  const found: (string | Buffer)[] = [];
  // From the end: of two words that look the same, the later one comes later.
  for (const word of command.toReversed()) {
    const at = word.includes(REPLACEMENT) ? given.findLastIndex((bytes, index) => index < end && bytes.toString() === word) : -1;
    found.push(at < 0 ? word : terminated(given[at]!));
    if (at >= 0) end = at;
  }
  return found.reverse();
}

/** `NAME=value` for each variable. Bytes that were given stay, also behind what we have put before them. */
export function variablesAsGiven(environment: NodeJS.ProcessEnv): (string | Buffer)[] {
  const given = entriesOf('environ');
  return Object.entries(environment).flatMap(([name, value]) => {
    if (value === undefined) return [];
    const text = `${name}=${value}`;
    return [text.includes(REPLACEMENT) ? (bytesOf(name, value, given) ?? text) : text];
  });
}

function bytesOf(name: string, value: string, given: readonly Buffer[]): Buffer | undefined {
  const found = given.find((bytes) => bytes.toString().startsWith(`${name}=`));
  if (!found) return undefined;
  const split = found.indexOf('=');
  const old = found.subarray(split + 1);
  const text = old.toString();
  if (!value.endsWith(text)) return undefined;
  const added = Buffer.from(value.slice(0, value.length - text.length));
  return terminated(Buffer.concat([found.subarray(0, split + 1), added, old]));
}

function terminated(bytes: Buffer): Buffer {
  return Buffer.concat([bytes, Buffer.of(0)]);
}

/** Each entry ends with a zero. */
function entriesOf(file: 'cmdline' | 'environ'): Buffer[] {
  const entries: Buffer[] = [];
  try {
    const bytes = readFileSync(`/proc/self/${file}`);
    for (let from = 0, to = bytes.indexOf(0); to >= 0; from = to + 1, to = bytes.indexOf(0, from)) entries.push(bytes.subarray(from, to));
  } catch {
    // Then nothing is known of them.
  }
  return entries;
}
