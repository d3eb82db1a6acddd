// A file that a command writes, over several runs of it: each finds what lay there before the first, and what it makes is kept apart.
// What lay there is copied, never moved: whatever ends us, it is there, or what the command wrote over it.
import { type BigIntStats, copyFileSync, existsSync, lstatSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { RunError } from '../child/run-error.ts';
import { removeFolder } from '../child/run-folder.ts';
import type { RunVoice } from '../supervise.ts';
import { readText, type Said } from './number-comparison.ts';

export interface Contents extends Said {
  readonly bytes?: Uint8Array | undefined;
  readonly isMissing?: boolean;
}

export class CheckedFile {
  private readonly path: string;
  private readonly folder: string;
  private readonly before: string;
  /** What the next run finds, so that it is seen whether it writes. */
  private found: BigIntStats | undefined;
  /** What is to lie there in the end: a copy, or undefined for what the last run left. */
  private final: string | undefined;
  private count = 0;
  private taken: string | undefined;

  constructor(path: string) {
    this.path = path;
    const there = lstatSync(path, { throwIfNoEntry: false });
    if (there && !there.isFile()) throw new RunError(`${path} is no file; --check-output names a file that the command writes`);
    this.folder = mkdtempSync(join(tmpdir(), 'weir-check-'));
    this.before = join(this.folder, '0');
    this.final = this.before;
    try {
      if (there) copyFileSync(path, this.before);
    } catch (error) {
      removeFolder(this.folder);
      throw error;
    }
    this.found = this.stat();
  }

  /** What the run wrote, kept apart; and what it found is there again. */
  take(): Contents {
    const made = this.stat();
    const { found } = this;
    const isWritten = made?.isFile() && !(found && found.mtimeNs === made.mtimeNs && found.ino === made.ino && found.size === made.size);
    this.taken = undefined;
    if (!isWritten) return { values: [], isMissing: true };
    const copy = join(this.folder, String(++this.count));
    this.taken = copy;
    copyFileSync(this.path, copy);
    this.putBack(this.before);
    this.found = this.stat();
    const bytes = readFileSync(copy);
    return { ...(readText(bytes) ?? { values: [] }), bytes };
  }

  /** In the end, what was taken last lies there. */
  keepTaken(): void {
    if (this.taken !== undefined) this.final = this.taken;
  }

  /** In the end, what is there now lies there. */
  keep(): void {
    this.final = undefined;
  }

  close(voice: RunVoice): void {
    try {
      if (this.final !== undefined) this.putBack(this.final);
    } catch (error) {
      // The last copy must not go with the folder.
      const beside = join(tmpdir(), `weir-check-${process.pid}-${basename(this.path)}`);
      copyFileSync(this.final!, beside);
      voice.trouble(`${this.path} could not be put back (${error instanceof Error ? error.message : String(error)}); it is ${beside} now`);
    }
    removeFolder(this.folder);
  }

  private putBack(copy: string): void {
    if (existsSync(copy)) copyFileSync(copy, this.path);
    else rmSync(this.path, { force: true });
  }

  private stat(): BigIntStats | undefined {
    return lstatSync(this.path, { bigint: true, throwIfNoEntry: false });
  }
}
