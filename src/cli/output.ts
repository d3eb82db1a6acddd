// Writes files, whole or not at all: an unfinished file has another name.
import { closeSync, existsSync, fsyncSync, openSync, renameSync, rmSync, statSync, writeFileSync, writeSync } from 'node:fs';
import { dirname } from 'node:path';
import { gzipSync } from 'node:zlib';
import { InputError } from '../base/errors.ts';

export interface Output {
  write(chunk: Uint8Array): void;
  /** Returns the size of the file in bytes. */
  finish(): number;
}

/** The name of an unfinished file. Throws if there can be no file of that name. */
export function temporaryName(path: string): string {
  if (existsSync(path) && statSync(path).isDirectory()) throw new InputError(`${path} is a folder; name a file in it`);
  const folder = dirname(path);
  if (!existsSync(folder)) throw new InputError(`${path} cannot be written: there is no folder ${folder}`);
  return `${path}.${process.pid}.part`;
}

/** Writes a file that is either complete or not there. Pipes and devices are written as they are. */
export function writeWhole(path: string, content: string | Uint8Array): void {
  if (existsSync(path) && !statSync(path).isFile() && !statSync(path).isDirectory()) {
    writeFileSync(path, content);
    return;
  }
  const temporary = temporaryName(path);
  try {
    writeFileSync(temporary, content);
    renameSync(temporary, path);
  } catch (error) {
    rmSync(temporary, { force: true });
    throw naming(error, path);
  }
}

/** A system error about the file that the user named, not about the temporary one. */
export function naming(error: unknown, path: string): unknown {
  if (!(error instanceof Error) || !('syscall' in error)) return error;
  return new InputError(`${path} cannot be written: ${error.message.replace(/^\w+: |,? (open|write|rename|fsync).*$/g, '')}`);
}

const FLUSH_AT = 4 * 1024 * 1024;

export function openOutput(path: string, gzip: boolean): Output {
  const file = openSync(path, 'wx');
  let bytesWritten = 0;
  let waiting: Uint8Array[] = [];
  let waitingBytes = 0;
  const flush = () => {
    if (waitingBytes === 0) return;
    // A gzip file may have several members. One per chunk keeps memory small.
    const chunk = gzip ? gzipSync(Buffer.concat(waiting)) : Buffer.concat(waiting);
    waiting = [];
    waitingBytes = 0;
    for (let written = 0; written < chunk.length; ) written += writeSync(file, chunk, written);
    bytesWritten += chunk.length;
  };
  return {
    write(chunk) {
      waiting.push(chunk.slice());
      waitingBytes += chunk.length;
      if (waitingBytes >= FLUSH_AT) flush();
    },
    finish() {
      flush();
      fsyncSync(file);
      closeSync(file);
      return bytesWritten;
    },
  };
}
