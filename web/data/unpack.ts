// Reads a dropped file in the browser: gzip by the browser's own means, zstd by fzstd, anything else as it is.
import { Decompress } from 'fzstd';
import { formatBytes } from '../../src/base/bytes.ts';
import { InputError } from '../../src/base/errors.ts';

/** Chromium's limit for one array buffer; a larger recording needs `weir serve`. */
const MOST_BYTES = 2 ** 31 - 1;
const CHUNK = 4 * 1024 * 1024;

export async function unpack(raw: Uint8Array<ArrayBuffer>): Promise<Uint8Array<ArrayBuffer>> {
  if (raw[0] === 0x1f && raw[1] === 0x8b) return gunzip(raw);
  if (raw[0] === 0x28 && raw[1] === 0xb5 && raw[2] === 0x2f && raw[3] === 0xfd) return unzstd(raw);
  return raw;
}

/** Browsers read one gzip member and refuse what follows; a file may have several, so each end is found by trying. */
async function gunzip(raw: Uint8Array<ArrayBuffer>): Promise<Uint8Array<ArrayBuffer>> {
  const parts: Uint8Array<ArrayBuffer>[] = [];
  let start = 0;
  while (start < raw.length) {
    let end = raw.length;
    let part = await inflate(raw.subarray(start));
    for (let next = nextMember(raw, start + 18); !part && next >= 0; next = nextMember(raw, next + 1)) {
      part = await inflate(raw.subarray(start, next));
      end = next;
    }
    if (!part) throw new InputError('the file cannot be unpacked: it is truncated or damaged; copy it again');
    parts.push(part);
    start = end;
  }
  return join(parts);
}

async function inflate(bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array<ArrayBuffer> | undefined> {
  const chunks: Uint8Array<ArrayBuffer>[] = [];
  let length = 0;
  try {
    const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip')).getReader();
    for (let read = await reader.read(); !read.done; read = await reader.read()) {
      chunks.push(read.value as Uint8Array<ArrayBuffer>);
      length += read.value.length;
      if (length > MOST_BYTES) throw tooLarge();
    }
  } catch (error) {
    if (error instanceof InputError) throw error;
    return undefined;
  }
  return join(chunks);
}

function nextMember(raw: Uint8Array, from: number): number {
  for (let at = raw.indexOf(0x1f, from); at >= 0; at = raw.indexOf(0x1f, at + 1)) {
    if (raw[at + 1] === 0x8b && raw[at + 2] === 8 && raw[at + 3]! < 32) return at;
  }
  return -1;
}

function unzstd(raw: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  try {
    const stream = new Decompress((chunk) => {
      length += chunk.length;
      if (length > MOST_BYTES) throw tooLarge();
      chunks.push(chunk);
    });
    for (let start = 0; start < raw.length; start += CHUNK) {
      stream.push(raw.subarray(start, start + CHUNK), start + CHUNK >= raw.length);
    }
  } catch (error) {
    if (error instanceof InputError) throw error;
    throw new InputError('the file cannot be unpacked: it is truncated or damaged; copy it again');
  }
  return join(chunks);
}

function join(chunks: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const whole = new Uint8Array(chunks.reduce((sum, chunk) => sum + chunk.length, 0));
  let at = 0;
  for (const chunk of chunks) {
    whole.set(chunk, at);
    at += chunk.length;
  }
  return whole;
}

function tooLarge(): InputError {
  return new InputError(
    `the unpacked recording is larger than ${formatBytes(MOST_BYTES)}, the most a browser can hold; open it with weir serve FILE`,
  );
}
