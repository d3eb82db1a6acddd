// Reads a recording from a file or from standard input, unpacks it, and shows progress if that takes a while.
import { constants } from 'node:buffer';
import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
import { totalmem } from 'node:os';
import { createGunzip } from 'node:zlib';
import { formatBytes } from '../base/bytes.ts';
import { InputError } from '../base/errors.ts';
import { type BufferLimit, GrowingBuffer } from '../io/growing-buffer.ts';
import { unpack } from '../io/unpack.ts';
import { NO_DEMAND } from '../trace/assemble.ts';
import { detectFormat, readRecording } from '../trace/detect.ts';
import type { Recording, Trace } from '../trace/trace.ts';
import type { Progress } from './progress.ts';

const CHUNK = 8 * 1024 * 1024;
/** A small file can unpack to more than any machine has. Half of this machine's memory is left for the work itself. */
const MOST_BYTES = Math.min(constants.MAX_LENGTH, Math.floor(totalmem() * 0.5));

/** Reads and parses `path` (`-` is standard input); errors name the file. */
export async function loadRecording(path: string, progress: Progress): Promise<Recording> {
  const bytes = await readBytes(path, progress, detectFormat);
  return naming(path, () => readRecording(bytes, { onProgress: (done) => progress.update(done, `reading ${path}`) }));
}

/** The content of `path`, unpacked if it is packed. A small file can unpack to a huge one, so `examine` may refuse its beginning. */
export async function readBytes(path: string, progress: Progress, examine: (start: Uint8Array) => void = () => {}): Promise<Uint8Array> {
  const raw = path === '-' ? await readStdin() : readWhole(path, progress);
  try {
    return await unpack(raw, { ...limitOf('the unpacked recording'), gunzip: gunzipChunks, examine });
  } catch (error) {
    throw named(path, error);
  }
}

/** Runs `act`, and puts the file's name in front of the InputError that it may throw. */
export function naming<Result>(path: string, act: () => Result): Result {
  try {
    return act();
  } catch (error) {
    throw named(path, error);
  }
}

function named(path: string, error: unknown): unknown {
  return error instanceof InputError ? new InputError(`${nameOf(path)}: ${error.message}`) : error;
}

/** The trace of one GPU, or of all if `gpu` is undefined. */
export function pickGpus(recording: Recording, gpu: number | undefined, path: string): readonly Trace[] {
  if (gpu === undefined) return recording.traces;
  const trace = recording.traces.find((candidate) => candidate.device === gpu);
  if (trace) return [trace];
  const known = recording.traces.map((candidate) => candidate.device).join(', ');
  throw new InputError(`${nameOf(path)} has no events of GPU ${gpu}; it has GPU ${known}`);
}

/** Refuses a recording in which no GPU has what the command needs: requests, or for `memory` at least segments. The error names `path`. */
export function requireDemand(traces: readonly Trace[], path: string | undefined, needs: 'requests' | 'memory'): void {
  const lacks = traces.map(({ warnings, endSegments = [], startSegments }) =>
    needs === 'memory' && endSegments.length + startSegments.length > 0 ? undefined : warnings.find(({ code }) => code === NO_DEMAND),
  );
  if (!lacks.every((warning) => warning !== undefined)) return;
  // What was ignored may be what is missing.
  const ignored = traces[0]!.warnings.find(({ code }) => code === 'unknown-actions' || code === 'unknown-events');
  throw new InputError(`${path === undefined ? '' : `${nameOf(path)}: `}${lacks[0]!.message}${ignored ? `; ${ignored.message}` : ''}`);
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
    // Pipes and /dev/stdin have no size.
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
  const buffer = new GrowingBuffer(limitOf('the input'));
  const chunk = Buffer.allocUnsafe(CHUNK);
  for (let read = readSync(file, chunk); read > 0; read = readSync(file, chunk)) buffer.add(chunk.subarray(0, read));
  return buffer.bytes();
}

async function readStdin(): Promise<Uint8Array> {
  if (process.stdin.isTTY) throw new InputError('standard input is a terminal; name a file, or pipe one in');
  const buffer = new GrowingBuffer(limitOf('the input'));
  for await (const chunk of process.stdin) buffer.add(chunk as Buffer);
  return buffer.bytes();
}

async function* gunzipChunks(raw: Uint8Array): AsyncGenerator<Uint8Array> {
  const gunzip = createGunzip({ chunkSize: 1024 * 1024 });
  gunzip.end(raw);
  yield* gunzip;
}

function limitOf(what: string): BufferLimit {
  return { mostBytes: MOST_BYTES, tooLarge: () => tooLarge(what) };
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
