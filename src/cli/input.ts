// Reads a recording from a file or from stdin, unpacking gzip and zstd, with progress on long work.
import { constants } from 'node:buffer';
import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
import { totalmem } from 'node:os';
import { createGunzip } from 'node:zlib';
import { Decompress } from 'fzstd';
import { formatBytes } from '../base/bytes.ts';
import { InputError } from '../base/errors.ts';
import { NO_DEMAND } from '../trace/assemble.ts';
import { detectFormat, readRecording } from '../trace/detect.ts';
import type { Recording, Trace } from '../trace/trace.ts';
import type { Progress } from './progress.ts';

const CHUNK = 8 * 1024 * 1024;
/** A small file can unpack to more than any machine has: stop at what this one can hold beside the work itself. */
const MOST_BYTES = Math.min(constants.MAX_LENGTH, Math.floor(totalmem() * 0.5));

/** Reads `path` (`-` is stdin) and understands it; errors name the file. */
export async function loadRecording(path: string, progress: Progress): Promise<Recording> {
  const bytes = await readBytes(path, progress, detectFormat);
  return naming(path, () => readRecording(bytes, { onProgress: (done) => progress.update(done, `reading ${path}`) }));
}

/**
 * The content of `path`, unpacked if it is packed. A small file can unpack to very much: `examine` sees the beginning and
 * may refuse it before the rest is unpacked.
 */
export async function readBytes(path: string, progress: Progress, examine: (start: Uint8Array) => void = () => {}): Promise<Uint8Array> {
  const raw = path === '-' ? await readStdin() : readWhole(path, progress);
  if (raw[0] === 0x1f && raw[1] === 0x8b) return unpack(path, raw, gunzipChunks(raw), examine);
  if (raw[0] === 0x28 && raw[1] === 0xb5 && raw[2] === 0x2f && raw[3] === 0xfd) return unpack(path, raw, unzstdChunks(raw), examine);
  return raw;
}

/** Runs something that may not like the content of `path`, and has its error name the file. */
export function naming<Result>(path: string, act: () => Result): Result {
  try {
    return act();
  } catch (error) {
    if (error instanceof InputError) throw new InputError(`${nameOf(path)}: ${error.message}`);
    throw error;
  }
}

/** The trace of one GPU, or of all when none is named. */
export function pickGpus(recording: Recording, gpu: number | undefined, path: string): readonly Trace[] {
  if (gpu === undefined) return recording.traces;
  const trace = recording.traces.find((candidate) => candidate.device === gpu);
  if (trace) return [trace];
  const known = recording.traces.map((candidate) => candidate.device).join(', ');
  throw new InputError(`${nameOf(path)} has nothing about GPU ${gpu}; it has GPU ${known}`);
}

/** Refuses a recording in which no GPU has what the command needs: requests, or for `memory` at least segments. The error names `path`. */
export function requireDemand(traces: readonly Trace[], path: string | undefined, needs: 'requests' | 'memory'): void {
  const lacks = traces.map(({ warnings, endSegments = [], startSegments }) =>
    needs === 'memory' && endSegments.length + startSegments.length > 0 ? undefined : warnings.find(({ code }) => code === NO_DEMAND),
  );
  if (lacks.every((warning) => warning !== undefined))
    throw new InputError(`${path === undefined ? '' : `${nameOf(path)}: `}${lacks[0]!.message}`);
}

function readWhole(path: string, progress: Progress): Uint8Array {
  let file: number;
  try {
    file = openSync(path, 'r');
  } catch (error) {
    throw new InputError(`${path}: ${describeSystemError(error)}`);
  }
  try {
    const stat = fstatSync(file);
    if (stat.isDirectory()) throw new InputError(`${path} is a folder; name the snapshot file in it`);
    // Pipes and /dev/stdin have no size: they are read until they end.
    if (!stat.isFile()) return readUntilEnd(file);
    if (stat.size > MOST_BYTES) throw tooLarge(path);
    const bytes = Buffer.allocUnsafeSlow(stat.size);
    let length = 0;
    while (length < bytes.length) {
      const read = readSync(file, bytes, length, Math.min(CHUNK, bytes.length - length), null);
      if (read === 0) break;
      length += read;
      progress.update(0, `reading ${path}`);
    }
    return bytes.subarray(0, length);
  } catch (error) {
    if (error instanceof InputError) throw error;
    throw new InputError(`${path}: ${describeSystemError(error)}`);
  } finally {
    closeSync(file);
  }
}

function readUntilEnd(file: number): Uint8Array {
  const buffer = new GrowingBuffer();
  const chunk = Buffer.allocUnsafe(CHUNK);
  for (let read = readSync(file, chunk); read > 0; read = readSync(file, chunk)) buffer.add(chunk.subarray(0, read));
  return buffer.bytes();
}

async function readStdin(): Promise<Uint8Array> {
  if (process.stdin.isTTY) throw new InputError('nothing comes from standard input; name a file, or pipe one in');
  const buffer = new GrowingBuffer();
  for await (const chunk of process.stdin) buffer.add(chunk as Buffer);
  return buffer.bytes();
}

async function unpack(
  path: string,
  raw: Uint8Array,
  chunks: AsyncIterable<Uint8Array>,
  examine: (start: Uint8Array) => void,
): Promise<Uint8Array> {
  const buffer = new GrowingBuffer(raw.length * 8);
  let isFirst = true;
  try {
    for await (const chunk of chunks) {
      if (isFirst) examine(chunk);
      isFirst = false;
      buffer.add(chunk);
    }
  } catch (error) {
    if (error instanceof InputError) throw new InputError(`${nameOf(path)}: unpacked, ${error.message}`);
    const reason = error instanceof Error ? error.message : String(error);
    throw new InputError(`${nameOf(path)} cannot be unpacked (${reason}): it is truncated or damaged; copy it again`);
  }
  return buffer.bytes();
}

async function* gunzipChunks(raw: Uint8Array): AsyncGenerator<Uint8Array> {
  const gunzip = createGunzip({ chunkSize: 1024 * 1024 });
  gunzip.end(raw);
  yield* gunzip;
}

async function* unzstdChunks(raw: Uint8Array): AsyncGenerator<Uint8Array> {
  let ready: Uint8Array[] = [];
  const stream = new Decompress((chunk) => ready.push(chunk));
  for (let start = 0; start < raw.length; start += CHUNK) {
    stream.push(raw.subarray(start, start + CHUNK), start + CHUNK >= raw.length);
    yield* ready;
    ready = [];
  }
}

/** Collects chunks into one buffer without keeping them twice. */
class GrowingBuffer {
  private buffer: Buffer;
  private length = 0;

  constructor(expected = CHUNK) {
    this.buffer = Buffer.allocUnsafeSlow(Math.min(MOST_BYTES, Math.max(CHUNK, expected)));
  }

  add(chunk: Uint8Array): void {
    const needed = this.length + chunk.length;
    if (needed > MOST_BYTES) throw tooLarge('the unpacked recording');
    if (needed > this.buffer.length) {
      const grown = Buffer.allocUnsafeSlow(Math.min(MOST_BYTES, Math.max(needed, this.buffer.length * 2)));
      this.buffer.copy(grown, 0, 0, this.length);
      this.buffer = grown;
    }
    this.buffer.set(chunk, this.length);
    this.length = needed;
  }

  bytes(): Uint8Array {
    return this.buffer.subarray(0, this.length);
  }
}

function tooLarge(what: string): InputError {
  return new InputError(
    `${what} is larger than ${formatBytes(MOST_BYTES)}, the most that can be read at once on this machine; record with fewer max_entries`,
  );
}

function nameOf(path: string): string {
  return path === '-' ? 'standard input' : path;
}

function describeSystemError(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException;
  if (code === 'ENOENT') return 'there is no such file';
  if (code === 'EACCES') return 'permission denied';
  return message ?? String(error);
}
