// Writes a file chunk by chunk, packed if asked, and makes sure it is on the disk when it is finished.
import { closeSync, fsyncSync, openSync, writeSync } from 'node:fs';
import { gzipSync } from 'node:zlib';

export interface Output {
  write(chunk: Uint8Array): void;
  /** Gives back the number of bytes in the file. */
  finish(): number;
}

const FLUSH_AT = 4 * 1024 * 1024;

export function openOutput(path: string, gzip: boolean): Output {
  const file = openSync(path, 'wx');
  let bytesWritten = 0;
  let waiting: Uint8Array[] = [];
  let waitingBytes = 0;
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
