// Reads a recording in the browser piece by piece: src/io and src/trace, with the browser's own gunzip.
import { formatBytes } from '../../src/base/bytes.ts';
import { InputError } from '../../src/base/errors.ts';
import { GrowingBuffer } from '../../src/io/growing-buffer.ts';
import { MOST_RATIO, tooDense, unpack } from '../../src/io/unpack.ts';
import { RecordingReader } from '../../src/trace/detect.ts';
import type { Recording } from '../../src/trace/trace.ts';

/** Chromium's limit for one array buffer; a larger recording needs `weir serve`. */
const MOST_BYTES = 2 ** 31 - 1;
const STEP = 2 ** 20;
/** A member of a gzip file is held as a whole until its end is known. */
const FREE_BYTES = 2 ** 26;
/** Ends of members that are tried: `weir convert` writes few. */
const MOST_TRIES = 10_000;

export async function readInBrowser(content: Blob, onProgress: (fraction: number) => void): Promise<Recording> {
  const { isPacked, pieces } = await unpack(steps(content, onProgress), gunzip);
  const reader = new RecordingReader(isPacked ? 0 : content.size);
  let total = 0;
  for await (const piece of pieces) {
    total += piece.length;
    if (total > MOST_BYTES) throw tooLarge();
    reader.push(piece);
    if (reader.isDone) break;
  }
  return reader.finish();
}

/** The browser reads a step while the one before is decoded. */
async function* steps(content: Blob, onProgress: (fraction: number) => void): AsyncGenerator<Uint8Array> {
  const read = (from: number) => {
    const step = content.slice(from, from + STEP).arrayBuffer();
    // Its error is thrown where it is waited for, if it still is.
    step.catch(() => {});
    return step;
  };
  let next = read(0);
  for (let from = 0; from < content.size; from += STEP) {
    const step = new Uint8Array(await next);
    next = read(from + STEP);
    yield step;
    onProgress(Math.min(1, (from + STEP) / content.size));
  }
}

/** Browsers read one gzip member and refuse what follows. A file may have several, so each end is found by trying. */
async function* gunzip(packed: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const buffer = new GrowingBuffer({ mostBytes: MOST_BYTES, tooLarge });
  for await (const piece of packed) buffer.add(piece);
  const raw = buffer.bytes();
  let start = 0;
  let tries = 0;
  while (start < raw.length) {
    let end = raw.length;
    let chunks = await inflate(raw.subarray(start));
    for (let next = nextMember(raw, start + 18); !chunks && next >= 0; next = nextMember(raw, next + 1)) {
      if (++tries > MOST_TRIES) throw new InputError('the gzip file has too many members for a browser; open it with weir serve FILE');
      chunks = await inflate(raw.subarray(start, next));
      end = next;
    }
    if (!chunks) throw new Error('it does not end as gzip does');
    yield* chunks;
    start = end;
  }
}

/** Undefined if the bytes are not exactly one member. */
async function inflate(bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array[] | undefined> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  try {
    const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip')).getReader();
    for (let read = await reader.read(); !read.done; read = await reader.read()) {
      chunks.push(read.value);
      length += read.value.length;
      if (length > MOST_BYTES) throw tooLarge();
      if (length > FREE_BYTES && length > bytes.length * MOST_RATIO) throw tooDense(length, bytes.length);
    }
  } catch (error) {
    if (error instanceof InputError) throw error;
    return undefined;
  }
  return chunks;
}

function nextMember(raw: Uint8Array, from: number): number {
  for (let at = raw.indexOf(0x1f, from); at >= 0; at = raw.indexOf(0x1f, at + 1)) {
    if (raw[at + 1] === 0x8b && raw[at + 2] === 8 && raw[at + 3]! < 32) return at;
  }
  return -1;
}

function tooLarge(): InputError {
  return new InputError(
    `the recording is larger than ${formatBytes(MOST_BYTES)}, the most a browser can hold; open it with weir serve FILE`,
  );
}
