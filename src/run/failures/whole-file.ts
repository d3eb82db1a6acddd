// Writes a file so that it is there whole or not at all: a full disk or a kill leaves nothing that looks like a recording.
import { closeSync, fsyncSync, openSync, renameSync, unlinkSync, writeSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { reasonOf } from '../rings/trace-file.ts';

/** Returns why the file could not be written, or undefined. A file of that name is replaced. */
export function writeWhole(path: string, bytes: Uint8Array): string | undefined {
  const beside = join(dirname(path), `.${basename(path)}.${process.pid}.new`);
  let file: number | undefined;
  try {
    file = openSync(beside, 'w', 0o644);
    for (let written = 0; written < bytes.length; ) written += writeSync(file, bytes, written);
    fsyncSync(file);
    closeSync(file);
    file = undefined;
    renameSync(beside, path);
    return undefined;
  } catch (error) {
    if (file !== undefined) closeSync(file);
    try {
      unlinkSync(beside);
    } catch {}
    return reasonOf(error);
  }
}
