// Unpacks what the command or the page was given: gzip, zstd or neither, told by the first bytes and never by the name.
// Runs in Node and in the browser; only gunzip is the platform's own, since both bring a fast one.
import { Decompress } from 'fzstd';
import { InputError } from '../base/errors.ts';
import { type BufferLimit, GrowingBuffer } from './growing-buffer.ts';

const GZIP_MAGIC = [0x1f, 0x8b];
const ZSTD_MAGIC = [0x28, 0xb5, 0x2f, 0xfd];
const ZSTD_CHUNK = 8 * 1024 * 1024;
/** Recordings pack to about this part of their size. */
const USUAL_RATIO = 8;

export interface UnpackOptions extends BufferLimit {
  /** Must read all members of a gzip file: `weir convert` writes several. */
  gunzip(raw: Uint8Array): AsyncIterable<Uint8Array>;
  /** Sees the first unpacked bytes and may throw an InputError before the rest is unpacked. */
  examine?(start: Uint8Array): void;
}

/** The unpacked content, or `raw` itself if it is not packed. */
export async function unpack<Raw extends Uint8Array>(raw: Raw, options: UnpackOptions): Promise<Raw | Uint8Array<ArrayBuffer>> {
  if (startsWith(raw, GZIP_MAGIC)) return collect(options.gunzip(raw), raw.length, options);
  if (startsWith(raw, ZSTD_MAGIC)) return collect(unzstd(raw), raw.length, options);
  return raw;
}

async function collect(chunks: AsyncIterable<Uint8Array>, packedBytes: number, options: UnpackOptions): Promise<Uint8Array<ArrayBuffer>> {
  const buffer = new GrowingBuffer(options, packedBytes * USUAL_RATIO);
  let isFirst = true;
  try {
    for await (const chunk of chunks) {
      if (isFirst) options.examine?.(chunk);
      isFirst = false;
      buffer.add(chunk);
    }
  } catch (error) {
    if (error instanceof InputError) throw new InputError(`unpacked, ${error.message}`);
    const reason = error instanceof Error ? error.message : String(error);
    throw new InputError(`the file cannot be unpacked (${reason}): it is truncated or damaged; copy it again`);
  }
  return buffer.bytes();
}

async function* unzstd(raw: Uint8Array): AsyncGenerator<Uint8Array> {
  let ready: Uint8Array[] = [];
  const stream = new Decompress((chunk) => ready.push(chunk));
  for (let start = 0; start < raw.length; start += ZSTD_CHUNK) {
    stream.push(raw.subarray(start, start + ZSTD_CHUNK), start + ZSTD_CHUNK >= raw.length);
    yield* ready;
    ready = [];
  }
}

function startsWith(bytes: Uint8Array, magic: readonly number[]): boolean {
  return magic.every((byte, at) => bytes[at] === byte);
}
