// Reads files, pipes and standard input in steps, and unpacks them with Node's own means.
// The first step is small: most wrong files are known by their beginning.
import { closeSync, fstatSync, openSync, readSync, statSync } from 'node:fs';
import type { Transform } from 'node:stream';
import { isatty } from 'node:tty';
import { createGunzip } from 'node:zlib';
import { InputError, UsageError } from '../base/errors.ts';
import type { Progress } from './progress.ts';

const FIRST_STEP = 2 ** 16;
const LARGEST_STEP = 2 ** 18;
const STANDARD_INPUT = new Set(['-', '/dev/stdin', '/dev/fd/0', '/proc/self/fd/0']);
/** How long to wait for a pipe that another program has made non-blocking. */
const RETRY_MS = 5;

export function isStandardInput(path: string): boolean {
  return STANDARD_INPUT.has(path);
}

/** Whether the content is gone once it was read: standard input, pipes, process substitution. */
export function isReadOnce(path: string): boolean {
  if (isStandardInput(path)) return true;
  const stat = statSync(path, { throwIfNoEntry: false });
  return stat !== undefined && !stat.isFile() && !stat.isDirectory();
}

/** Refuses a command line that reads standard input more than once. */
export function requireOneInput(paths: readonly string[]): void {
  if (paths.filter(isStandardInput).length > 1) throw new UsageError('standard input can be read only once; name a file instead');
}

/** The size of the file, if it has one. Packed files hold more. */
export interface FilePieces {
  readonly size: number | undefined;
  readonly pieces: Generator<Uint8Array>;
}

/** The content of `path` (`-` is standard input). Each piece is valid until the next one is asked for. */
export function openPieces(path: string, progress: Progress): FilePieces {
  const file = opened(path);
  try {
    const stat = fstatSync(file);
    if (stat.isDirectory()) throw new InputError(`${nameOf(path)} is a folder; name the snapshot file in it`);
    if (isatty(file)) throw new InputError(`${nameOf(path)} is a terminal; name a file, or pipe one in`);
    const size = stat.isFile() ? stat.size : undefined;
    return { size, pieces: readSteps(file, path, size, progress) };
  } catch (error) {
    if (file !== 0) closeSync(file);
    throw error;
  }
}

export function nameOf(path: string): string {
  return path === '-' ? 'standard input' : path;
}

/** What comes out of Node's gunzip, which is fed with `packed`. */
export async function* gunzip(packed: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const stream = createGunzip({ chunkSize: LARGEST_STEP });
  const feed = async () => {
    // A piece may be overwritten once the next is asked for, so each write is waited for.
    for await (const piece of packed) await written(stream, piece);
    stream.end();
  };
  feed().catch((error: Error) => stream.destroy(error));
  yield* stream;
}

function opened(path: string): number {
  // Worker threads have no stream of their own for standard input, but may read the descriptor.
  if (path === '-') return 0;
  try {
    return openSync(path, 'r');
  } catch (error) {
    throw new InputError(`${path}: ${problemOf(error)}`);
  }
}

function* readSteps(file: number, path: string, size: number | undefined, progress: Progress): Generator<Uint8Array> {
  const buffer = Buffer.allocUnsafeSlow(LARGEST_STEP);
  let total = 0;
  try {
    for (let step = FIRST_STEP; ; step = LARGEST_STEP) {
      const read = readStep(file, buffer, step);
      if (read === 0) return;
      total += read;
      progress.update(size ? Math.min(1, total / size) : 0, `reading ${nameOf(path)}`);
      yield buffer.subarray(0, read);
    }
  } finally {
    if (file !== 0) closeSync(file);
  }
}

function readStep(file: number, buffer: Buffer, length: number): number {
  for (;;) {
    try {
      return readSync(file, buffer, 0, length, null);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === 'EOF') return 0;
      if (code !== 'EAGAIN') throw new InputError(problemOf(error));
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, RETRY_MS);
    }
  }
}

function written(stream: Transform, piece: Uint8Array): Promise<void> {
  return new Promise((resolve, reject) => {
    stream.write(piece, (error) => (error ? reject(error) : resolve()));
  });
}

/** What the operating system says, in words. */
function problemOf(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException;
  if (code === 'ENOENT') return 'there is no such file';
  if (code === 'EACCES') return 'permission denied';
  return message;
}
