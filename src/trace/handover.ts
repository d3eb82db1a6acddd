// A recording as a message from one thread to another. Columns in shared memory are not copied, and symbols become
// tables again on the other side.
import { type PackedSymbols, Symbols } from './symbols.ts';
import type { Recording, Trace } from './trace.ts';

export interface PackedRecording {
  readonly format: Recording['format'];
  /** `symbols` is an index into the list below. */
  readonly traces: readonly (Omit<Trace, 'symbols'> & { readonly symbols: number })[];
  readonly symbols: readonly PackedSymbols[];
}

export function packRecording({ format, traces }: Recording): PackedRecording {
  const tables = [...new Set(traces.map(({ symbols }) => symbols))];
  return {
    format,
    traces: traces.map((trace) => ({ ...trace, symbols: tables.indexOf(trace.symbols) })),
    symbols: tables.map((symbols) => symbols.pack()),
  };
}

export function unpackRecording({ format, traces, symbols }: PackedRecording): Recording {
  const tables = symbols.map((packed) => new Symbols(packed));
  return { format, traces: traces.map((trace) => ({ ...trace, symbols: tables[trace.symbols]! })) };
}
