// Writes a file so that it is there whole or not at all: a full disk or a kill leaves nothing that looks like a recording.
import { randomBytes } from 'node:crypto';
import { closeSync, existsSync, fsyncSync, linkSync, openSync, renameSync, unlinkSync, writeSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { reasonOf } from '../rings/trace-file.ts';

/** Somebody has a file of this name. */
export const TAKEN = 'a file of this name exists';

/** Returns why the file could not be written, or undefined. A file of that name stays as it is, unless `replaces`. */
export function writeWhole(path: string, bytes: Uint8Array, replaces = false): string | undefined {
  // Processes of several containers have the same numbers.
  const beside = join(dirname(path), `.${basename(path)}.${randomBytes(6).toString('hex')}.new`);
  let file: number | undefined;
  try {
    if (!replaces && existsSync(path)) return TAKEN;
    file = openSync(beside, 'wx', 0o644);
    for (let written = 0; written < bytes.length; ) written += writeSync(file, bytes, written);
    fsyncSync(file);
    // Closed once, even if closing tells of an error.
    const whole = file;
    file = undefined;
    closeSync(whole);
    if (replaces || !linkNew(beside, path)) renameSync(beside, path);
    else unlinkSync(beside);
    return undefined;
  } catch (error) {
    if (file !== undefined) closeSync(file);
    try {
      unlinkSync(beside);
    } catch {}
    return (error as NodeJS.ErrnoException).code === 'EEXIST' ? TAKEN : reasonOf(error);
  }
}

/** Unlike a rename, a link never replaces a file that came meanwhile. Returns false where there are no links. */
function linkNew(from: string, to: string): boolean {
  try {
    linkSync(from, to);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') throw error;
    return false;
  }
}
