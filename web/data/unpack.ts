// src/io/unpack.ts in the browser: gunzip by the browser's own means, and the limit of its buffers.
import { formatBytes } from '../../src/base/bytes.ts';
import { InputError } from '../../src/base/errors.ts';
import { type UnpackOptions, unpack } from '../../src/io/unpack.ts';

/** Chromium's limit for one array buffer; a larger recording needs `weir serve`. */
const MOST_BYTES = 2 ** 31 - 1;

const OPTIONS: UnpackOptions = {
  mostBytes: MOST_BYTES,
  tooLarge: () =>
    new InputError(`the recording is larger than ${formatBytes(MOST_BYTES)}, the most a browser can hold; open it with weir serve FILE`),
  gunzip,
};

export function unpackInBrowser(raw: Uint8Array<ArrayBuffer>): Promise<Uint8Array<ArrayBuffer>> {
  return unpack(raw, OPTIONS);
}

/** Browsers read one gzip member and refuse what follows. A file may have several, so each end is found by trying. */
async function* gunzip(raw: Uint8Array): AsyncGenerator<Uint8Array> {
  let start = 0;
  while (start < raw.length) {
    let end = raw.length;
    let chunks = await inflate(raw.subarray(start));
    for (let next = nextMember(raw, start + 18); !chunks && next >= 0; next = nextMember(raw, next + 1)) {
      chunks = await inflate(raw.subarray(start, next));
      end = next;
    }
    if (!chunks) throw new Error('it does not end as gzip does');
    yield* chunks;
    start = end;
  }
}

/** Undefined if the bytes are not exactly one member. */
async function inflate(bytes: Uint8Array): Promise<Uint8Array[] | undefined> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  try {
    const reader = new Blob([bytes as Uint8Array<ArrayBuffer>]).stream().pipeThrough(new DecompressionStream('gzip')).getReader();
    for (let read = await reader.read(); !read.done; read = await reader.read()) {
      chunks.push(read.value);
      length += read.value.length;
      if (length > MOST_BYTES) throw OPTIONS.tooLarge();
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
