// The file of a recording, written record by record. If the disk is full, only the recording ends.
import { closeSync, ftruncateSync, openSync, writeSync } from 'node:fs';

export class TraceFile {
  /** Undefined if nothing is kept. */
  readonly path: string | undefined;
  /** Length of the whole records written so far. */
  bytes = 0;
  /** Why writing stopped. */
  problem: string | undefined;
  private file: number | undefined;

  constructor(path: string | undefined, overwrite: boolean) {
    this.path = path;
    if (path === undefined) return;
    try {
      this.file = openSync(path, overwrite ? 'w' : 'wx', 0o644);
    } catch (error) {
      this.problem = reasonOf(error);
    }
  }

  write(record: Uint8Array): void {
    if (this.file === undefined) return;
    try {
      for (let written = 0; written < record.length; )
        written += writeSync(this.file, record, written, record.length - written, this.bytes + written);
      this.bytes += record.length;
    } catch (error) {
      this.problem = reasonOf(error);
      this.close();
    }
  }

  get isOpen(): boolean {
    return this.file !== undefined;
  }

  close(): void {
    if (this.file === undefined) return;
    const file = this.file;
    this.file = undefined;
    try {
      // Removes a record that was written in part.
      if (this.problem !== undefined) ftruncateSync(file, this.bytes);
    } catch {}
    closeSync(file);
  }
}

/** Why a file could not be written, in words. */
export function reasonOf(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException;
  if (code === 'ENOSPC') return 'the disk is full';
  if (code === 'EDQUOT') return 'the disk quota is used up';
  if (code === 'EACCES' || code === 'EPERM' || code === 'EROFS') return 'you may not write there';
  if (code === 'ENOENT') return 'its folder does not exist';
  return message ?? String(error);
}
