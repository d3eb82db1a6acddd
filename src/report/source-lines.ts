// The lines of Python code in a recording, by file, with what they do: the functions they call in libraries and the sizes that they ask for.
// Two runs of code that was edited in between are compared by these, since lines move.
import { NO_STACK } from '../trace/symbols.ts';
import { EventKind, type Trace } from '../trace/trace.ts';
import { inPackages, MOST_FRAMES, originsOf } from './origin.ts';

export interface SourceLine {
  readonly line: number;
  /** The function that the line belongs to. */
  readonly name: string;
  /** Functions below the line up to the next one of the user's code, as `file.py:name`. */
  readonly calls: ReadonlySet<string>;
  readonly sizes: ReadonlySet<number>;
}

/** Sizes kept of a line. */
const MOST_SIZES = 64;

/** Lines of each file in their order; files by their full path. */
export type SourceFiles = ReadonlyMap<string, readonly SourceLine[]>;

interface Growing {
  readonly line: number;
  readonly name: string;
  readonly calls: Set<string>;
  readonly sizes: Set<number>;
}

export function sourceFilesOf(trace: Trace): SourceFiles {
  const { symbols, events } = trace;
  const { stacks, frames, strings } = symbols;
  const lines = new Map<number, Growing>();
  const pathOf = (frame: number) => (strings[frames.filename(frame)] ?? '').replaceAll('\\', '/');
  const sites = originsOf(trace);
  const lineFor = (frame: number) => {
    let line = lines.get(frame);
    if (!line) {
      line = { line: frames.line(frame), name: strings[frames.name(frame)] ?? '', calls: new Set(), sizes: new Set() };
      lines.set(frame, line);
    }
    return line;
  };
  for (let stack = 0; stack < stacks.count; stack++) {
    const called = stacks.frame(stack);
    if (!sites.isPython(called)) continue;
    lineFor(called);
    const callee = `${pathOf(called).split('/').at(-1)}:${(strings[frames.name(called)] ?? '').split('.').at(-1)}`;
    for (let node = stacks.parent(stack), depth = 0; node !== NO_STACK && depth < MOST_FRAMES; node = stacks.parent(node), depth++) {
      const frame = stacks.frame(node);
      if (!sites.isPython(frame)) continue;
      lineFor(frame).calls.add(callee);
      if (sites.isUser(frame)) break;
    }
  }
  const seen = new Set<string>();
  for (let event = 0; event < events.count; event++) {
    const stack = events.stack[event]!;
    if (events.kind[event] !== EventKind.Alloc || stack === NO_STACK) continue;
    const size = events.size[event]!;
    const key = `${stack}/${size}`;
    if (seen.has(key)) continue;
    seen.add(key);
    for (let node = stack, depth = 0; node !== NO_STACK && depth < MOST_FRAMES; node = stacks.parent(node), depth++) {
      const frame = stacks.frame(node);
      if (!sites.isPython(frame)) continue;
      const { sizes } = lineFor(frame);
      if (sizes.size < MOST_SIZES) sizes.add(size);
      if (sites.isUser(frame)) break;
    }
  }
  const files = new Map<string, Growing[]>();
  for (const [frame, line] of lines) {
    const path = pathOf(frame);
    const known = files.get(path);
    if (known) known.push(line);
    else files.set(path, [line]);
  }
  for (const list of files.values()) list.sort((a, b) => a.line - b.line || (a.name < b.name ? -1 : 1));
  return files;
}

/** How much two runs ask for the same sizes: 1 if for all, as often. */
export function sizeOverlap(a: Trace, b: Trace): number {
  const counts = (trace: Trace) => {
    const found = new Map<number, number>();
    const { events } = trace;
    for (let event = 0; event < events.count; event++)
      if (events.kind[event] === EventKind.Alloc) found.set(events.size[event]!, (found.get(events.size[event]!) ?? 0) + 1);
    return found;
  };
  const [first, second] = [counts(a), counts(b)];
  let shared = 0;
  let all = 0;
  for (const size of new Set([...first.keys(), ...second.keys()])) {
    const [x, y] = [first.get(size) ?? 0, second.get(size) ?? 0];
    shared += Math.min(x, y);
    all += Math.max(x, y);
  }
  return all === 0 ? 0 : shared / all;
}

/** A path without what differs between machines: below the packages or the standard library of its environment. */
export function portablePath(path: string): string {
  return inPackages(path).replace(/^.*\/lib\/python\d[.\d]*\//, '');
}
