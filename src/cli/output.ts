// Writes a file so that it is either whole or not there: under another name until it is finished, then renamed.
import { closeSync, existsSync, fsyncSync, openSync, renameSync, unlinkSync, writeSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import { UsageError } from '../base/errors.ts';

export interface Output {
  readonly bytesWritten: number;
  write(chunk: Uint8Array): void;
  finish(): Promise<void>;
  /** Removes what was written so far. */
  abandon(): void;
}

const FLUSH_AT = 4 * 1024 * 1024;

export function openOutput(path: string, { force, gzip }: { force: boolean; gzip: boolean }): Output {
  if (!force && existsSync(path)) throw new UsageError(`${path} is already there; -f overwrites it`);
  const temporary = `${path}.${process.pid}.part`;
  const file = openSync(temporary, 'wx');
  let open = true;
  let bytesWritten = 0;
  let waiting: Uint8Array[] = [];
  let waitingBytes = 0;

  const abandon = () => {
    if (!open) return;
    open = false;
    process.off('SIGINT', interrupted).off('SIGTERM', interrupted);
    closeSync(file);
    unlinkSync(temporary);
  };
  const interrupted = (signal: NodeJS.Signals) => {
    abandon();
    process.kill(process.pid, signal);
  };
  process.once('SIGINT', interrupted).once('SIGTERM', interrupted);

  const flush = () => {
    if (waitingBytes === 0) return;
    // Several gzip members one after the other are one gzip file, so packing needs no more memory than a chunk.
    const chunk = gzip ? gzipSync(Buffer.concat(waiting)) : Buffer.concat(waiting);
    waiting = [];
    waitingBytes = 0;
    for (let written = 0; written < chunk.length; ) written += writeSync(file, chunk, written);
    bytesWritten += chunk.length;
  };
  return {
    get bytesWritten() {
      return bytesWritten;
    },
    write(chunk) {
      waiting.push(chunk.slice());
      waitingBytes += chunk.length;
      if (waitingBytes >= FLUSH_AT) flush();
    },
    async finish() {
      flush();
      fsyncSync(file);
      closeSync(file);
      open = false;
      process.off('SIGINT', interrupted).off('SIGTERM', interrupted);
      renameSync(temporary, path);
    },
    abandon,
  };
}
