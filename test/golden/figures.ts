// The figures of `weir analyze`, `replay` and `plan --json`: how they are made, kept in figures.json, and compared.
// A file of figures is small because the keys of each kind of object are written down once.
import { createProgram } from '../../src/cli/program.ts';

export type Figure = number | string | boolean | null | readonly Figure[] | { readonly [key: string]: Figure };

/** What is run on a recording, by the name of its section. */
export const COMMANDS: Readonly<Record<string, readonly string[]>> = {
  analyze: ['analyze'],
  replay: ['replay', '--allocator', 'pytorch,expandable,cnmem,gmlake,weir'],
  plan: ['plan', '--threads', '1', '--budget', '2'],
  swap: ['plan', '--swap', '--threads', '1', '--budget', '3'],
};

/** Runs the command in this process, as `parseAsync` of the real program, and returns the figures of what it printed, one object for each line. */
export async function figuresOf(section: string, path: string): Promise<Figure[]> {
  const printed: string[] = [];
  const { write } = process.stdout;
  process.stdout.write = ((text: string) => printed.push(text) > 0) as typeof write;
  try {
    await createProgram().parseAsync(['node', 'weir', ...COMMANDS[section]!, '--json', '--quiet', path]);
  } finally {
    process.stdout.write = write;
  }
  const lines = printed.join('').trimEnd().split('\n');
  return lines.map((line) => onlyFigures(JSON.parse(line) as Figure, section));
}

/** Clocks of this machine, sentences, and the path: not figures of the recording. */
const NO_FIGURES = new Set(['schema', 'file', 'wallMs', 'message', 'line', 'effect', 'reason', 'by']);

/** Planning swaps searches for a given time. These are what is found beside the limit, and differ from run to run. */
const SEARCHED_SWAPS = new Set(['curve', 'bytesMoved']);

/** What is left of an output without what changes from run to run or with its wording. */
export function onlyFigures(value: Figure, section: string): Figure {
  if (Array.isArray(value)) return value.map((item) => onlyFigures(item, section));
  if (value === null || typeof value !== 'object') return value;
  const isFigure = ([key, part]: [string, Figure]) => {
    if (section === 'swap' && SEARCHED_SWAPS.has(key)) return false;
    // More time may prove a plan optimal that was not proven before.
    return !NO_FIGURES.has(key) && !(key === 'optimal' && part === false);
  };
  const entries = Object.entries(value).filter(isFigure);
  return Object.fromEntries(entries.map(([key, part]) => [key, onlyFigures(part, section)]));
}

/**
 * How far a figure that a time-limited search found may be from what it was, as a share; 0 for all others.
 * Between an idle and a busy machine, the limit of a swap plan differed by 1 % and its footprint by 5 %.
 */
export function tolerance(section: string, old: Figure, path: string): number {
  const key = path.slice(path.lastIndexOf('.') + 1);
  if (section === 'swap') return key === 'footprint' ? 0.1 : ['zeroStallLimit', 'limit', 'reduction'].includes(key) ? 0.03 : 0;
  if (section !== 'plan' || !['footprint', 'ratio', 'total'].includes(key)) return 0;
  return JSON.stringify(old).includes('"optimal":true') ? 0 : 0.01;
}

/** A figure with objects as `[number of their keys' list, ...values]` and lists as `[-1, ...items]`. */
type Packed = number | string | boolean | null | readonly Packed[];

export interface FigureFile {
  readonly about: string;
  /** The lists of keys that objects have. */
  readonly keys: readonly (readonly string[])[];
  /** By path and section. */
  readonly figures: Readonly<Record<string, Readonly<Record<string, Packed>>>>;
}

/** Twelve digits of a fraction: all that a sum of times is good for. */
const rounded = (value: number) => (Number.isInteger(value) ? value : Number(value.toPrecision(12)));

export function pack(value: Figure, keys: string[][]): Packed {
  if (typeof value === 'number') return rounded(value);
  if (value === null || typeof value !== 'object') return value;
  if (Array.isArray(value)) return [-1, ...value.map((item) => pack(item, keys))];
  const names = Object.keys(value);
  let index = keys.findIndex((known) => known.join() === names.join());
  if (index < 0) index = keys.push(names) - 1;
  return [index, ...Object.values(value).map((part) => pack(part, keys))];
}

export function unpack(value: Packed, keys: readonly (readonly string[])[]): Figure {
  if (value === null || typeof value !== 'object') return value;
  const [kind, ...parts] = value.map((part, index) => (index === 0 ? part : unpack(part, keys)));
  if (kind === -1) return parts;
  return Object.fromEntries(keys[kind as number]!.map((key, index) => [key, parts[index]!]));
}

/** A file of figures as text, one section a line so that a change of one shows in a diff. */
export function writeFigures(about: string, figures: Readonly<Record<string, Readonly<Record<string, Figure>>>>): string {
  const keys: string[][] = [];
  const files = Object.entries(figures).map(([path, sections]) => {
    const lines = Object.entries(sections).map(([section, value]) => `${JSON.stringify(section)}: ${JSON.stringify(pack(value, keys))}`);
    return `${JSON.stringify(path)}: {\n${lines.join(',\n')}\n}`;
  });
  const lists = keys.map((list) => JSON.stringify(list)).join(',\n');
  return `{\n"about": ${JSON.stringify(about)},\n"keys": [\n${lists}\n],\n"figures": {\n${files.join(',\n')}\n}\n}\n`;
}

/** Rows of allocators are named after them, others by their index. */
function nameOf(row: Figure): Figure | undefined {
  return row !== null && typeof row === 'object' && 'allocator' in row ? row['allocator'] : undefined;
}

/** One line for each figure that is not what it was. New figures beside the old ones are no difference. */
export function differences(section: string, old: Figure, now: Figure): string[] {
  const compare = (before: Figure, after: Figure | undefined, path: string): string[] => {
    const differs = () => [`${path}: was ${JSON.stringify(before)}, is ${JSON.stringify(after) ?? 'gone'}`];
    if (before === null || typeof before !== 'object') {
      if (before === after) return [];
      if (typeof before !== 'number' || typeof after !== 'number') return differs();
      const share = tolerance(section, old, path) || (Number.isInteger(after) ? 0 : 1e-9);
      return Math.abs(after - before) <= share * Math.abs(before) ? [] : differs();
    }
    if (after === undefined || after === null || typeof after !== 'object' || Array.isArray(before) !== Array.isArray(after))
      return differs();
    if (Array.isArray(before) && before.length !== (after as readonly Figure[]).length) {
      return [`${path}: had ${before.length} entries, has ${(after as readonly Figure[]).length}`];
    }
    const parts = after as { readonly [key: string]: Figure };
    const inside = (key: string, part: Figure) =>
      Array.isArray(before) ? `${path}[${nameOf(part) ?? key}]` : path === '' ? key : `${path}.${key}`;
    return Object.entries(before).flatMap(([key, part]) => compare(part, parts[key], inside(key, part)));
  };
  return compare(old, now, '');
}
