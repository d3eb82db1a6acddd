// Recordings in folders, one per rank, and which of two folders belong together.
import { lstatSync, readdirSync, realpathSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { InputError } from '../base/errors.ts';

const RECORDING_NAME = /\.(pickle|pkl|json|weir)(\.(gz|zst))?$/;
/** Files about out-of-memory errors, which lie beside the recordings of the same processes. */
const FAILURE_NAME = /^oom\.(\d+\.)?\d+(-\d+)?(\.last)?\.weir(\.(gz|zst))?$/;

export interface RankPair {
  readonly before: string;
  readonly after: string;
}

export interface RankPairs {
  readonly pairs: readonly RankPair[];
  /** Files that have no partner. */
  readonly alone: readonly string[];
  /** Files about out-of-memory errors, if there are recordings beside them. */
  readonly leftOut: readonly string[];
  readonly by: 'files' | 'names' | 'ranks' | 'order';
}

interface RankFile {
  readonly name: string;
  readonly path: string;
}

/** Two files are a pair. Of two folders, files are paired by name, else by rank, else by order if there are as many. */
export function pairRecordings(before: string, after: string): RankPairs {
  const [first, second] = [isFolder(before), isFolder(after)];
  if (!first && !second) return { pairs: [{ before, after }], alone: [], leftOut: [], by: 'files' };
  const [whole, other] = [first ? recordingsIn(before) : [fileAt(before)], second ? recordingsIn(after) : [fileAt(after)]];
  const [from, to] = [comparable(whole, other), comparable(other, whole)];
  const leftOut = [...whole, ...other].filter((file) => !from.includes(file) && !to.includes(file)).map(({ path }) => path);
  if (first !== second && (from.length > 1 || to.length > 1))
    throw new InputError(
      `${first ? before : after} is a folder with several recordings, and ${first ? after : before} is a file; name two of a kind`,
    );
  const found = pairBy('names', ({ name }) => name, from, to) ?? pairBy('ranks', ({ name }) => rankIn(name), from, to);
  if (found) return { ...found, leftOut };
  if (from.length !== to.length)
    throw new InputError(
      `${before} has ${from.length} recordings and ${after} has ${to.length}, and their names do not tell which belong together`,
    );
  return { pairs: from.map(({ path }, index) => ({ before: path, after: to[index]!.path })), alone: [], leftOut, by: 'order' };
}

function fileAt(path: string): RankFile {
  return { name: path, path };
}

/** Files of one kind: recordings if both sides have some, else files about failures. Of a process, its first failure is compared. */
function comparable(files: readonly RankFile[], others: readonly RankFile[]): RankFile[] {
  const names = new Set(files.map(({ name }) => name));
  const isFirst = (file: RankFile) => !isFailure(file) || !file.name.includes('.last.') || !names.has(file.name.replace('.last.', '.'));
  const isRecording = (file: RankFile) => !isFailure(file);
  const kind = [isRecording, isFailure].find((each) => files.some(each) && others.some(each));
  return files.filter((file) => isFirst(file) && (kind?.(file) ?? true));
}

function isFailure({ name }: RankFile): boolean {
  return FAILURE_NAME.test(name);
}

/** Pairs files of the same key; undefined if the key does not tell them apart, or none has a partner. */
function pairBy(
  by: RankPairs['by'],
  keyOf: (file: RankFile) => string | undefined,
  from: readonly RankFile[],
  to: readonly RankFile[],
): Omit<RankPairs, 'leftOut'> | undefined {
  const partners = new Map(to.map((file) => [keyOf(file), file]));
  if (partners.size < to.length || new Set(from.map(keyOf)).size < from.length) return undefined;
  partners.delete(undefined);
  const pairs: RankPair[] = [];
  const alone: string[] = [];
  for (const file of from) {
    const partner = partners.get(keyOf(file));
    if (partner) pairs.push({ before: file.path, after: partner.path });
    else alone.push(file.path);
    partners.delete(keyOf(file));
  }
  const paired = new Set(pairs.map((pair) => pair.after));
  return pairs.length === 0
    ? undefined
    : { pairs, alone: [...alone, ...to.filter(({ path }) => !paired.has(path)).map(({ path }) => path)], by };
}

/** Of a file and links to it, as `latest.weir` beside a recording, the file alone. `*.weir` names both. */
export function withoutLinks(paths: readonly string[]): string[] {
  const links = new Set(paths.filter(isLink));
  if (links.size === 0) return [...paths];
  const files = new Set(paths.filter((path) => !links.has(path)).map(targetOf));
  return paths.filter((path) => !links.has(path) || !files.has(targetOf(path)));
}

function isLink(path: string): boolean {
  try {
    return lstatSync(path).isSymbolicLink();
  } catch {
    return false;
  }
}

/** The path itself if nothing is there. */
function targetOf(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    return path;
  }
}

export function isFolder(path: string): boolean {
  return path !== '-' && (statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false);
}

/** In the order of their ranks and names. Links such as `latest.weir` are left out: they name a file that is there too. */
export function recordingsIn(folder: string): RankFile[] {
  const files = readdirSync(folder, { withFileTypes: true })
    .filter((entry) => entry.isFile() && RECORDING_NAME.test(entry.name))
    .map((entry) => entry.name)
    .sort((a, b) => a.localeCompare(b, 'en', { numeric: true }));
  if (files.length === 0) throw new InputError(`${folder} has no recordings (.pickle, .pkl, .json or .weir)`);
  return files.map((name) => ({ name, path: join(folder, name) }));
}

/** The rank in a name such as `train.node1.r3.4711.weir`, `rank3.pickle` or `oom.3.4711.weir`. */
function rankIn(file: string): string | undefined {
  return /(?:^|[^a-z])(?:r|rank[-_.]?)(\d+)(?:[^\d]|$)/i.exec(file)?.[1] ?? /^oom\.(\d+)\.\d+\./.exec(file)?.[1];
}
