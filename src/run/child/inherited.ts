// File descriptors that our parent left open for the command: job servers, process managers of clusters, `9<file`.
// Node closes them all in children, so they are passed on. Descriptors that Node opened itself are left out.
import { constants, readdirSync, readFileSync, readlinkSync } from 'node:fs';

export type Stdio = 'inherit' | 'pipe' | 'ignore';

/** Read at startup, before we open files ourselves. */
const AT_START: readonly number[] = openedByOthers();

/** The `stdio` of the command: input, output, errors, then the inherited descriptors by number. */
export function inheritedStdio(first: readonly Stdio[]): (Stdio | number)[] {
  const all: (Stdio | number)[] = [...first];
  for (const descriptor of AT_START) {
    if (linkOf(descriptor) === undefined) continue;
    while (all.length < descriptor) all.push('ignore');
    all[descriptor] = descriptor;
  }
  return all;
}

function openedByOthers(): number[] {
  const byLink = new Map<string, number[]>();
  for (const descriptor of descriptors()) {
    const link = descriptor > 2 ? linkOf(descriptor) : undefined;
    if (link !== undefined) byLink.set(link, [...(byLink.get(link) ?? []), descriptor]);
  }
  const lock = lockOf(byLink);
  const others = [...byLink].filter(([link, ends]) => {
    // Node opens /dev/null and the terminal too. These cannot be told from inherited ones.
    if (link.startsWith('anon_inode:') || link === '/dev/null' || /^\/dev\/(tty|pts\/)/.test(link) || link === lock) return false;
    return !link.startsWith('pipe:') || ends.length !== 2 || !ends.every(isNonBlocking);
  });
  return others.flatMap(([, ends]) => ends).sort((a, b) => a - b);
}

/** Node holds both ends of several pipes. One of them blocks: a lock, made right after the first event queue. */
function lockOf(byLink: ReadonlyMap<string, readonly number[]>): string | undefined {
  const queue = Math.min(...(byLink.get('anon_inode:[eventpoll]') ?? []));
  const candidates = [...byLink].filter(
    ([link, ends]) => link.startsWith('pipe:') && ends.length === 2 && ends.every((end) => end > queue && !isNonBlocking(end)),
  );
  return candidates.sort(([, a], [, b]) => Math.min(...a) - Math.min(...b))[0]?.[0];
}

function descriptors(): number[] {
  try {
    return readdirSync('/proc/self/fd').map(Number);
  } catch {
    // Not Linux.
    return [];
  }
}

function isNonBlocking(descriptor: number): boolean {
  try {
    const flags = /^flags:\s*([0-7]+)/m.exec(readFileSync(`/proc/self/fdinfo/${descriptor}`, 'latin1'))?.[1];
    return (Number.parseInt(flags ?? '0', 8) & constants.O_NONBLOCK) !== 0;
  } catch {
    return false;
  }
}

function linkOf(descriptor: number): string | undefined {
  try {
    return readlinkSync(`/proc/self/fd/${descriptor}`);
  } catch {
    return undefined;
  }
}
