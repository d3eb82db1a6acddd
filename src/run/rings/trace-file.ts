// The file a recording goes to, record by record. A disk that is full ends the recording and nothing else.
import { closeSync, ftruncateSync, openSync, writeSync } from 'node:fs';

export class TraceFile {
  /** Undefined: nothing is kept. */
  readonly path: string | undefined;
  /** Whole records in the file so far. */
  bytes = 0;
  /** Why it could not go on. */
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
      // A record that was cut off is taken away: what is left is whole.
      if (this.problem !== undefined) ftruncateSync(file, this.bytes);
    } catch {}
    closeSync(file);
  }
}

function reasonOf(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException;
  if (code === 'ENOSPC') return 'the disk is full';
  if (code === 'EDQUOT') return 'the quota of the disk is used up';
  if (code === 'EACCES' || code === 'EPERM' || code === 'EROFS') return 'writing there is not allowed';
  if (code === 'ENOENT') return 'its folder does not exist';
  return message ?? String(error);
}
