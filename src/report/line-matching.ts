// Finds the lines of one run in another: files by their path or the end of it, lines by what they do and by their order.
import type { Frame } from '../trace/symbols.ts';
import type { Trace } from '../trace/trace.ts';
import { portablePath, type SourceFiles, type SourceLine, sizeOverlap, sourceFilesOf } from './source-lines.ts';

export interface LineMatches {
  /** The same line in the other run; undefined: it has none. */
  of(frame: Frame): Frame | undefined;
  /** Files with other paths that were taken for the same, the first run's first. */
  readonly moved: readonly (readonly [string, string])[];
  /** Files whose lines moved. */
  readonly edited: readonly string[];
}

/** Runs that ask for the same sizes this often can be compared by sizes. Other batches or contexts cannot. */
const COMPARABLE = 0.7;
/** Pairs of lines that are compared in one file, and in all; lines of further ones are compared by their numbers alone. */
const MOST_PAIRS = 4e6;
const MOST_PAIRS_IN_ALL = 4e7;
/** Pairs of files of one name that are compared; a program has a few. */
const MOST_FILES = 1e5;

export function matchLines(before: Trace, after: Trace): LineMatches {
  const [from, to] = [sourceFilesOf(before), sourceFilesOf(after)];
  const files = matchFiles(from, to);
  const usesSizes = sizeOverlap(before, after) >= COMPARABLE;
  const lines = new Map<string, Frame>();
  const edited: string[] = [];
  let compared = 0;
  for (const [path, other] of files) {
    const [own, others] = [from.get(path)!, to.get(other)!];
    compared += own.length * others.length;
    const isShort = own.length * others.length <= MOST_PAIRS && compared <= MOST_PAIRS_IN_ALL;
    const pairs = isShort && !isUnchanged(own, others) ? alignLines(own, others, usesSizes) : sameLines(own, others);
    for (const [a, b] of pairs) lines.set(keyOf(path, a), { filename: other, line: b.line, name: b.name });
    if (pairs.some(([a, b]) => a.line !== b.line)) edited.push(path);
  }
  const moved = [...files].filter(([path, other]) => portablePath(path) !== portablePath(other)).sort();
  return { of: (frame) => lines.get(keyOf(frame.filename, frame)), moved, edited };
}

function keyOf(path: string, { line, name }: { readonly line: number; readonly name: string }): string {
  return `${path}\0${line}\0${name}`;
}

/** Pairs of files: the same path first, then the same one in another environment, then those whose paths have the longest common end. */
function matchFiles(from: SourceFiles, to: SourceFiles): Map<string, string> {
  const pairs = new Map<string, string>();
  for (const path of from.keys()) if (to.has(path)) pairs.set(path, path);
  const openOf = (files: SourceFiles) => [...files.keys()].filter((path) => !pairs.has(path));
  const free = new Set(openOf(to));
  const portable = grouped(free, portablePath);
  for (const path of openOf(from)) {
    const same = portable.get(portablePath(path))?.shift();
    if (same === undefined) continue;
    pairs.set(path, same);
    free.delete(same);
  }
  const nameOf = (path: string) => path.split('/').at(-1)!;
  const [byName, freeByName] = [grouped(openOf(from), nameOf), grouped(free, nameOf)];
  for (const [name, paths] of byName) {
    const others = freeByName.get(name) ?? [];
    if (others.length * paths.length > MOST_FILES) continue;
    const candidates = paths.flatMap((path) => others.map((other) => ({ path, other, common: commonEnd(path, other) })));
    const taken = new Set<string>();
    for (const { path, other, common } of candidates.sort((a, b) => b.common - a.common)) {
      if (pairs.has(path) || taken.has(other)) continue;
      // A name such as `utils.py` alone says little, unless there is no other.
      if (common < 2 && (paths.length > 1 || others.length > 1)) continue;
      pairs.set(path, other);
      taken.add(other);
    }
  }
  return pairs;
}

function grouped<Item, Key>(items: Iterable<Item>, keyOf: (item: Item) => Key): Map<Key, Item[]> {
  const groups = new Map<Key, Item[]>();
  for (const item of items) {
    const known = groups.get(keyOf(item));
    if (known) known.push(item);
    else groups.set(keyOf(item), [item]);
  }
  return groups;
}

/** How many parts two paths have in common, counted from their end. */
function commonEnd(a: string, b: string): number {
  const [x, y] = [a.split('/').reverse(), b.split('/').reverse()];
  let common = 0;
  while (common < Math.min(x.length, y.length) && x[common] === y[common]) common++;
  return common;
}

const NONE = -1;

/** The pairs with the highest score in total, in the order of both files. */
function alignLines(from: readonly SourceLine[], to: readonly SourceLine[], usesSizes: boolean): [SourceLine, SourceLine][] {
  const width = to.length + 1;
  const score = new Float64Array((from.length + 1) * width);
  /** How far lines have moved at the last pair before. */
  const shift = new Int32Array(score.length);
  const isPair = new Uint8Array(score.length);
  for (let a = 1; a <= from.length; a++) {
    for (let b = 1; b <= to.length; b++) {
      const [at, up, left, back] = [a * width + b, (a - 1) * width + b, a * width + b - 1, (a - 1) * width + b - 1];
      const skip = score[up]! >= score[left]! ? up : left;
      score[at] = score[skip]!;
      shift[at] = shift[skip]!;
      const own = similarity(from[a - 1]!, to[b - 1]!, usesSizes);
      if (own === NONE) continue;
      const moved = to[b - 1]!.line - from[a - 1]!.line;
      const total = score[back]! + own + (moved === shift[back] ? 0.75 : 0) + (moved === 0 ? 0.5 : 0);
      if (total <= score[at]!) continue;
      score[at] = total;
      shift[at] = moved;
      isPair[at] = 1;
    }
  }
  const pairs: [SourceLine, SourceLine][] = [];
  for (let a = from.length, b = to.length; a > 0 && b > 0; ) {
    const at = a * width + b;
    if (isPair[at]) pairs.push([from[--a]!, to[--b]!]);
    else if (score[(a - 1) * width + b]! >= score[at - 1]!) a--;
    else b--;
  }
  return pairs.reverse();
}

/** NONE: they cannot be the same line. What they call and ask for counts for more than where they stand. */
function similarity(a: SourceLine, b: SourceLine, usesSizes: boolean): number {
  if (!isSameFunction(a.name, b.name)) return NONE;
  const calls = a.calls.size === 0 && b.calls.size === 0 ? 0.5 : overlap(a.calls, b.calls);
  const sizes = usesSizes ? overlap(a.sizes, b.sizes) : 0;
  return calls === 0 && sizes === 0 ? NONE : 1 + 3 * calls + 3 * sizes;
}

/** Weir records `Model.forward` where PyTorch's snapshots have `forward`. */
function isSameFunction(a: string, b: string): boolean {
  if (a === b) return true;
  const [x, y] = [methodOf(a), methodOf(b)];
  return x === y && (a === x || b === y);
}

/** `forward` of `Model.forward`. */
function methodOf(name: string): string {
  return name.split('.').at(-1)!;
}

function overlap<Item>(a: ReadonlySet<Item>, b: ReadonlySet<Item>): number {
  const shared = [...a].filter((item) => b.has(item)).length;
  const all = a.size + b.size - shared;
  return all === 0 ? 0 : shared / all;
}

/** Whether both runs have the same lines, which do the same. Then sizes may differ. */
function isUnchanged(from: readonly SourceLine[], to: readonly SourceLine[]): boolean {
  const pairs = sameLines(from, to);
  return (
    from.length === to.length &&
    pairs.length === from.length &&
    pairs.every(([a, b]) => a.calls.size + b.calls.size === 0 || overlap(a.calls, b.calls) > 0)
  );
}

/** Lines of the same number. A lambda or a comprehension stands on a line of its function, so the function's name counts, too. */
function sameLines(from: readonly SourceLine[], to: readonly SourceLine[]): [SourceLine, SourceLine][] {
  const exact = new Map(to.map((line) => [`${line.line}\0${line.name}`, line]));
  const byMethod = new Map(to.map((line) => [`${line.line}\0${methodOf(line.name)}`, line]));
  return from.flatMap((line) => {
    const method = methodOf(line.name);
    const other = exact.get(`${line.line}\0${line.name}`) ?? (method === line.name ? byMethod : exact).get(`${line.line}\0${method}`);
    return other ? [[line, other] as [SourceLine, SourceLine]] : [];
  });
}
