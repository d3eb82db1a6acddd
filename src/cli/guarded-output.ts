// Standard output and standard error: no control character from a file reaches the terminal, and no failed write is lost.
import { fstatSync, writeSync } from 'node:fs';
import { printableLines } from '../base/printable.ts';

/** What weir itself sends to a terminal: colours (paint.ts) and the progress line (progress.ts). */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
const OWN_CODES = /(\r?\x1b\[(?:K|(?:0|1|2|22|31|32|39)m))/;

let failure: NodeJS.ErrnoException | undefined;

/** Guards both streams. Must come before the first output. */
export function guardOutput(): void {
  guard(process.stdout, 1);
  guard(process.stderr, 2);
}

/** Why standard output could not be written; undefined if it could. */
export function outputFailure(): NodeJS.ErrnoException | undefined {
  return failure;
}

export function noteOutputFailure(error: NodeJS.ErrnoException): void {
  failure ??= error;
}

type Callback = (error?: Error | null) => void;

function guard(stream: NodeJS.WriteStream, fd: 1 | 2): void {
  const original = stream.write.bind(stream) as (chunk: string | Uint8Array, done?: Callback) => boolean;
  const isPlain = !stream.isTTY && isFileOrDevice(fd);
  stream.write = (chunk: string | Uint8Array, encoding?: BufferEncoding | Callback, callback?: Callback): boolean => {
    const done = typeof encoding === 'function' ? encoding : callback;
    const safe = typeof chunk === 'string' ? safeFor(stream.isTTY, chunk) : chunk;
    if (!isPlain) return original(safe, done);
    try {
      writeWhole(fd, Buffer.from(safe as Uint8Array));
    } catch (error) {
      if (fd === 1) noteOutputFailure(error as NodeJS.ErrnoException);
    }
    if (done) process.nextTick(done);
    return true;
  };
}

function safeFor(isTerminal: boolean, text: string): string {
  if (!isTerminal) return printableLines(text);
  return text
    .split(OWN_CODES)
    .map((part, index) => (index % 2 === 1 ? part : printableLines(part)))
    .join('');
}

/** Node takes a short write for a whole one, as on a full disk. */
function writeWhole(fd: number, bytes: Uint8Array): void {
  for (let written = 0; written < bytes.length; ) written += writeSync(fd, bytes, written);
}

function isFileOrDevice(fd: number): boolean {
  try {
    const stat = fstatSync(fd);
    return stat.isFile() || stat.isCharacterDevice();
  } catch {
    return false;
  }
}
