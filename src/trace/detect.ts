// Detects the format of a recording from its first bytes, never from its name, and reads it.
// Opening the wrong file is the most common mistake, so the error names what the file looks like.
import type { ColumnMemory } from '../base/columns.ts';
import { InputError } from '../base/errors.ts';
import { PIECE_BYTES } from './byte-window.ts';
import { SnapshotReader } from './snapshot/read.ts';
import type { Recording } from './trace.ts';
import { WEIR_MAGIC } from './weir/format.ts';
import { WeirReader } from './weir/reader.ts';

const EXPECTED = 'Weir reads PyTorch memory snapshots (pickle or JSON, from torch.cuda.memory._dump_snapshot) and .weir recordings';

/** First bytes of other files that are often found beside a snapshot. */
const FOREIGN: readonly (readonly [readonly number[], string])[] = [
  [[0x1f, 0x8b], 'gzip-compressed; decompress it with gzip -d first'],
  [[0x28, 0xb5, 0x2f, 0xfd], 'zstd-compressed; decompress it with zstd -d first'],
  [[0xfd, 0x37, 0x7a, 0x58, 0x5a], 'xz-compressed; decompress it with xz -d first'],
  [[0x42, 0x5a, 0x68], 'bzip2-compressed; decompress it with bzip2 -d first'],
  [[0x04, 0x22, 0x4d, 0x18], 'lz4-compressed; decompress it with lz4 -d first'],
  [[0x37, 0x7a, 0xbc, 0xaf], 'a 7-zip archive'],
  [[0x50, 0x4b, 0x03, 0x04], 'a zip archive, such as a checkpoint written by torch.save'],
  [[0x50, 0x4b, 0x05, 0x06], 'an empty zip archive'],
  [[0x7f, 0x45, 0x4c, 0x46], 'an ELF program or library'],
  [[0x89, 0x48, 0x44, 0x46], 'an HDF5 file'],
  [[0x89, 0x50, 0x4e, 0x47], 'a PNG image'],
  [[0x25, 0x50, 0x44, 0x46], 'a PDF'],
  [[0x53, 0x51, 0x4c, 0x69, 0x74, 0x65], 'an SQLite database, such as an Nsight Systems export'],
  [[0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59], 'a NumPy array'],
];

const PROTO = 0x80;

/** JSON that Weir itself writes. */
export const START_OF_PLAN: RegExp = /^\ufeff?\s*\{\s*"weir"\s*:\s*"plan"/;
const START_OF_RESULT = /^\ufeff?\s*\{\s*"schema"\s*:\s*\d/;

/** The format is detected when this many bytes are there, or the whole file. */
const START_BYTES = 2 ** 14;
/** What follows the end of a pickle is read this far, so that a gzip stream gets to its checksum. */
const MAX_REST = 2 ** 20;

export interface ReadOptions {
  /** Called now and then with the fraction of the input read so far, 0 to 1. */
  readonly onProgress?: ((fraction: number) => void) | undefined;
}

/** Reads a recording of any format. The input must be decompressed. */
export function readRecording(bytes: Uint8Array, options: ReadOptions = {}): Recording {
  const reader = new RecordingReader(bytes.length);
  for (let from = 0; from < bytes.length && !reader.isDone; from += PIECE_BYTES) {
    reader.push(bytes.subarray(from, from + PIECE_BYTES));
    options.onProgress?.(Math.min(1, (from + PIECE_BYTES) / bytes.length));
  }
  return reader.finish();
}

/** Reads a recording of any format that comes in pieces. Keeps none of them. */
export class RecordingReader {
  private readonly expectedBytes: number;
  private readonly memory: ColumnMemory | undefined;
  private start = new Uint8Array(0);
  private reader: SnapshotReader | WeirReader | undefined;
  private rest = 0;
  /** Undefined until the beginning of the file is there. */
  format: Recording['format'] | undefined;

  /** `expectedBytes` is a guess at the size of the file, for the first size of tables. It may be wrong. `memory` takes the columns. */
  constructor(expectedBytes = 0, memory?: ColumnMemory) {
    this.memory = memory;
    this.expectedBytes = expectedBytes;
  }

  /** Whether the rest of the file is of no interest. */
  get isDone(): boolean {
    return this.rest > MAX_REST || (this.reader instanceof WeirReader && this.reader.isDone);
  }

  /** Throws InputError as soon as the file turns out not to be a recording. */
  push(bytes: Uint8Array): void {
    if (this.reader) {
      this.read(this.reader, bytes);
      return;
    }
    const start = new Uint8Array(this.start.length + bytes.length);
    start.set(this.start);
    start.set(bytes, this.start.length);
    this.start = start;
    if (start.length >= START_BYTES) this.begin();
  }

  finish(): Recording {
    return (this.reader ?? this.begin()).finish();
  }

  private begin(): SnapshotReader | WeirReader {
    const { start, expectedBytes, memory } = this;
    const format = detectFormat(start);
    this.format = format;
    this.reader = format === 'weir' ? new WeirReader(expectedBytes, memory) : new SnapshotReader(format, expectedBytes, memory);
    this.start = new Uint8Array(0);
    this.read(this.reader, start);
    return this.reader;
  }

  private read(reader: SnapshotReader | WeirReader, bytes: Uint8Array): void {
    for (let from = 0; from < bytes.length; from += PIECE_BYTES) {
      const piece = bytes.subarray(from, from + PIECE_BYTES);
      if (reader instanceof SnapshotReader && reader.isDone) this.rest += piece.length;
      reader.push(piece);
    }
  }
}

/** The format of a recording. The first few hundred bytes are enough. Throws InputError if it is none. */
export function detectFormat(bytes: Uint8Array): Recording['format'] {
  if (bytes.length === 0) throw new InputError(`the file is empty; ${EXPECTED}`);
  if (startsWith(bytes, WEIR_MAGIC)) return 'weir';
  if (bytes[0] === PROTO && (bytes.length === 1 || (bytes[1]! >= 2 && bytes[1]! <= 5))) return 'pickle';
  const first = firstVisible(bytes);
  if (first === 0x7b || first === 0x5b) {
    const start = new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes.subarray(0, 512));
    if (START_OF_PLAN.test(start))
      throw new InputError(
        'the file is a plan, not a recording: name the recording that it was made from, or check the plan with weir verify PLAN FILE',
      );
    if (START_OF_RESULT.test(start))
      throw new InputError('the file is a result that a weir command printed with --json; name the recording that it is about');
    return 'json';
  }
  throw new InputError(`the file ${lookOf(bytes, first)}; ${EXPECTED}`);
}

/** What a file that is no recording looks like, as the end of a sentence. */
export function lookOf(bytes: Uint8Array, first: number = firstVisible(bytes)): string {
  if (bytes[0] === PROTO) return `looks like a pickle of protocol ${bytes[1]}, but snapshots use protocols 2 to 5`;
  for (const [magic, look] of FOREIGN) {
    if (startsWith(bytes, magic)) return `is ${look}`;
  }
  if (bytes.length < WEIR_MAGIC.length && startsWith(WEIR_MAGIC, bytes))
    return 'is the first few bytes of a .weir recording: it is truncated';
  const start = new TextDecoder().decode(bytes.subarray(0, 512)).trimStart();
  if (/^<(!doctype html|html)/i.test(start))
    return 'is a web page (HTML): the download failed, or it is a report and not the snapshot behind it';
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what tells text from binary data
  const isText = !/[\x00-\x08\x0e-\x1a\x1c-\x1f\ufffd]/.test(start.slice(0, -1));
  if (/^\([dl]p\d+\n|^c(copy_reg|__\w+__|builtins|collections|torch[\w.]*)\n|^[}\]]q./s.test(start)) {
    return 'looks like a pickle of protocol 0 or 1, but snapshots use protocols 2 to 5';
  }
  if (first < 0) return bytes.length < START_BYTES ? 'holds only white space' : `begins with ${bytes.length} bytes of white space`;
  if (isText) return `is text that begins with ${JSON.stringify(start.slice(0, 30).split('\n')[0])}`;
  if (bytes.subarray(0, 512).every((byte) => byte === 0)) return 'begins with zeros: the copy or the disk failed';
  const hex = [...bytes.subarray(0, 8)].map((byte) => byte.toString(16).padStart(2, '0')).join(' ');
  return `is of no known kind (it begins with the bytes ${hex})`;
}

/** The first byte that is neither white space nor a byte-order mark, or -1. */
function firstVisible(bytes: Uint8Array): number {
  let at = startsWith(bytes, [0xef, 0xbb, 0xbf]) ? 3 : 0;
  while (at < bytes.length && (bytes[at] === 0x20 || (bytes[at]! >= 0x09 && bytes[at]! <= 0x0d))) at++;
  return bytes[at] ?? -1;
}

function startsWith(bytes: Uint8Array, magic: ArrayLike<number>): boolean {
  if (bytes.length < magic.length) return false;
  for (let at = 0; at < magic.length; at++) {
    if (bytes[at] !== magic[at]) return false;
  }
  return true;
}
