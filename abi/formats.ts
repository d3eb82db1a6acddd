// Magic bytes and versions of all files that Weir writes and reads.
import type { Entry } from './table.ts';

export interface Format extends Entry {
  readonly magic?: string;
  readonly version: number;
  readonly minor?: number;
}

export const FORMATS: readonly Format[] = [
  // The first byte of the magic is no text in any encoding. The line end and ^Z show a transfer that rewrote the file as text.
  { name: 'recording', magic: '\x89WEIR\r\n\x1a', version: 1, minor: 3, doc: 'A .weir file (docs/trace-format.md).' },
  { name: 'ring', magic: 'WEIRRING', version: 1, doc: 'DIR/<pid>.ring: the recording of a process while it is made.' },
  { name: 'processPlan', magic: 'WEIRPLAN', version: 1, doc: 'DIR/<pid>.<generation>.plan: a plan on its way to a process.' },
  { name: 'planFile', version: 1, doc: 'The JSON of `weir plan -o` (docs/plan-format.md).' },
  { name: 'exchange', version: 1, doc: 'The JSON files between a process and its supervisor (exchange.ts).' },
  { name: 'output', version: 1, doc: 'The JSON that commands print (docs/json.md): its key `schema`.' },
];
