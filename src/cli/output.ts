// Writes a file chunk by chunk, packed on request, and syncs it to the disk at the end.
import { closeSync, fsyncSync, openSync, writeSync } from 'node:fs';
import { gzipSync } from 'node:zlib';

export interface Output {
  write(chunk: Uint8Array): void;
  /** Returns the size of the file in bytes. */
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
