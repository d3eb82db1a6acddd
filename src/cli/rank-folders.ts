// Recordings in folders, one per rank, and which of two folders belong together.
import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { InputError } from '../base/errors.ts';

const RECORDING_NAME = /\.(pickle|pkl|json|weir)(\.(gz|zst))?$/;

export interface RankPair {
  readonly before: string;
  readonly after: string;
}

export interface RankPairs {
  readonly pairs: readonly RankPair[];
  /** Files that have no partner. */
  readonly alone: readonly string[];
  readonly by: 'files' | 'names' | 'ranks' | 'order';
}

/** Two files are a pair. Of two folders, files are paired by name, else by rank, else by order if there are as many. */
export function pairRecordings(before: string, after: string): RankPairs {
  const [first, second] = [isFolder(before), isFolder(after)];
  if (!first && !second) return { pairs: [{ before, after }], alone: [], by: 'files' };
  const from = first ? recordingsIn(before) : [before];
  const to = second ? recordingsIn(after) : [after];
  if (first !== second && (from.length > 1 || to.length > 1))
    throw new InputError(
      `${first ? before : after} is a folder with several recordings, and ${first ? after : before} is a file; name two of a kind`,
    );
  const join_ = (files: readonly string[], folder: string, isIn: boolean) => files.map((file) => (isIn ? join(folder, file) : file));
  const keys: readonly (readonly [RankPairs['by'], (file: string) => string | undefined])[] = [
    ['names', (file) => file],
    ['ranks', rankIn],
  ];
  for (const [by, key] of keys) {
    const others = new Map(to.map((file) => [key(file), file]));
    const isUnique = new Set(from.map(key)).size === from.length && others.size === to.length;
    const matched = from.filter((file) => key(file) !== undefined && others.has(key(file)));
    if (matched.length === 0 || !isUnique) continue;
    const partners = matched.map((file) => others.get(key(file))!);
    return {
      pairs: matched.map((file, index) => ({
        before: join_([file], before, first)[0]!,
        after: join_([partners[index]!], after, second)[0]!,
      })),
      alone: [
        ...join_(
          from.filter((file) => !matched.includes(file)),
          before,
          first,
        ),
        ...join_(
          to.filter((file) => !partners.includes(file)),
          after,
          second,
        ),
      ],
      by,
    };
  }
  if (from.length !== to.length)
    throw new InputError(
      `${before} has ${from.length} recordings and ${after} has ${to.length}, and their names do not tell which belong together`,
    );
  const [left, right] = [join_(from, before, first), join_(to, after, second)];
  return { pairs: left.map((file, index) => ({ before: file, after: right[index]! })), alone: [], by: 'order' };
}

function isFolder(path: string): boolean {
  return path !== '-' && (statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false);
}

/** In the order of their ranks and names. Links such as `latest.weir` are left out: they name a file that is there too. */
function recordingsIn(folder: string): string[] {
  const files = readdirSync(folder, { withFileTypes: true })
    .filter((entry) => entry.isFile() && RECORDING_NAME.test(entry.name))
    .map((entry) => entry.name)
    .sort((a, b) => a.localeCompare(b, 'en', { numeric: true }));
  if (files.length === 0) throw new InputError(`${folder} has no recordings (.pickle, .pkl, .json or .weir)`);
  return files;
}

/** The rank in a name such as `train.node1.r3.4711.weir`, `rank3.pickle` or `oom.3.4711.weir`. */
function rankIn(file: string): string | undefined {
  return /(?:^|[^a-z])(?:r|rank[-_.]?)(\d+)(?:[^\d]|$)/i.exec(file)?.[1] ?? /^oom\.(\d+)\.\d+\./.exec(file)?.[1];
}
