// Files that whoever started us has left open for the command: job servers, process managers of clusters, `9<file`.
// Node marks all of them to be closed in children.
import { readdirSync, readlinkSync } from 'node:fs';

/** As it was when we began: what we open ourselves comes later. */
const AT_START: readonly number[] = openedByOthers();

/** What the command gets beside input, output and errors: by number, as Node's `stdio` wants it. */
export function inheritedStdio(first: readonly ('inherit' | 'pipe' | 'ignore')[]): ('inherit' | 'pipe' | 'ignore' | number)[] {
  const all: ('inherit' | 'pipe' | 'ignore' | number)[] = [...first];
  for (const descriptor of AT_START) {
    if (linkOf(descriptor) === undefined) continue;
    while (all.length < descriptor) all.push('ignore');
    all[descriptor] = descriptor;
  }
  return all;
}

function openedByOthers(): number[] {
  let links: [number, string][];
  try {
    links = readdirSync('/proc/self/fd').flatMap((name): [number, string][] => {
      const link = linkOf(Number(name));
      return Number(name) > 2 && link !== undefined ? [[Number(name), link]] : [];
    });
  } catch {
    // No Linux.
    return [];
  }
  const ends = new Map<string, number>();
  for (const [, link] of links) ends.set(link, (ends.get(link) ?? 0) + 1);
  return (
    links
      // Node's own: what has no name, pipes of which it holds both ends, and /dev/null, which nobody misses.
      .filter(([, link]) => !link.startsWith('anon_inode:') && link !== '/dev/null' && !(link.startsWith('pipe:') && ends.get(link) !== 1))
      .map(([descriptor]) => descriptor)
      .sort((a, b) => a - b)
  );
}

function linkOf(descriptor: number): string | undefined {
  try {
    return readlinkSync(`/proc/self/fd/${descriptor}`);
  } catch {
    return undefined;
  }
}
