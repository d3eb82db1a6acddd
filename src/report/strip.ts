// A recording without the folders of the machine that it was made on: files keep their names, and libraries the paths below their
// packages. For pages that are given to others. The figures stay the same.
import { Symbols } from '../trace/symbols.ts';
import type { Annotation, Recording, SettingValue, Trace } from '../trace/trace.ts';
import { libraryPath } from './origin.ts';

/** A folder of generated code is named after the user. */
const GENERATED = /^\/torchinductor_[^/]*/;
/** Paths inside other texts: absolute, of a home folder, or of Windows. A single name after a slash is no path. */
const PATHS = /(?<![\w:/.])(?:~[\w.-]*(?:\/[^\s/'",;:()]+)+|(?:\/[^\s/'",;:()]+){2,})|\b[A-Za-z]:\\[^\s'",;()]+/g;

export function stripRecording({ format, traces }: Recording): Recording {
  const stripped = new Map<Symbols, Symbols>();
  const symbolsOf = (symbols: Symbols) => {
    const known = stripped.get(symbols) ?? stripSymbols(symbols);
    stripped.set(symbols, known);
    return known;
  };
  return { format, traces: traces.map((trace) => stripTrace(trace, symbolsOf(trace.symbols))) };
}

function stripTrace(trace: Trace, symbols: Symbols): Trace {
  return {
    ...trace,
    symbols,
    settings: new Map([...trace.settings].map(([name, value]) => [name, stripSetting(value)])),
    annotations: trace.annotations.map((annotation): Annotation => ({ ...annotation, name: stripText(annotation.name) })),
    warnings: trace.warnings.map(({ code, message }) => ({ code, message: stripText(message) })),
  };
}

/** Every number stays: only texts change. */
function stripSymbols(symbols: Symbols): Symbols {
  const { frames, stacks, addresses, strings } = symbols;
  const files = new Set<number>();
  for (let frame = 0; frame < frames.count; frame++) files.add(frames.filename(frame));
  const names = new FileNames();
  const copy = new Symbols();
  // The tables hold numbers alone, so both recordings can have the same.
  Object.assign(copy, { frames, stacks, addresses });
  for (let index = 1; index < strings.length; index++) {
    const text = strings[index]!;
    copy.strings.push(files.has(index) ? names.of(text) : stripText(text));
  }
  return copy;
}

/** Names of source files. Two files of one name stay two: the second is in a folder called 2. */
class FileNames {
  private readonly counts = new Map<string, number>();

  of(path: string): string {
    const file = path.replaceAll('\\', '/');
    if (!file.includes('/')) return path;
    const library = libraryPath(file);
    if (library !== undefined) return library.replace(GENERATED, '/torchinductor_');
    const name = nameIn(file);
    const count = (this.counts.get(name) ?? 0) + 1;
    this.counts.set(name, count);
    return count === 1 ? name : `${count}/${name}`;
  }
}

function stripSetting(value: SettingValue): SettingValue {
  if (typeof value === 'string') return stripText(value);
  return value instanceof Map ? new Map([...value].map(([name, inner]) => [name, stripSetting(inner)])) : value;
}

/** Paths in a text become the names of their files. */
export function stripText(text: string): string {
  return text.includes('/') || text.includes('\\') ? text.replace(PATHS, (path) => nameIn(path.replaceAll('\\', '/'))) : text;
}

function nameIn(path: string): string {
  return path.split('/').at(-1) ?? path;
}
