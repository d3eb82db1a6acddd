// The file named by --check-output, over several runs of the command. Each run starts from the original file,
// and its result is kept as a copy. Originals are copied, never moved, so a crash of ours cannot lose them.
import { type BigIntStats, copyFileSync, existsSync, lstatSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { RunError } from '../child/run-error.ts';
import { removeFolder } from '../child/run-folder.ts';
import type { RunVoice } from '../supervision.ts';
import { type FoundNumbers, readText } from './number-comparison.ts';

export interface Contents extends FoundNumbers {
  readonly bytes?: Uint8Array | undefined;
  readonly isMissing?: boolean;
}

export class CheckedFile {
  private readonly path: string;
  private readonly folder: string;
  private readonly before: string;
  /** State of the file before the run, to see whether the run writes it. */
  private found: BigIntStats | undefined;
  /** The copy to restore at the end; undefined to leave what the last run wrote. */
  private final: string | undefined;
  private count = 0;
  private taken: string | undefined;

  constructor(path: string) {
    this.path = path;
    const there = lstatSync(path, { throwIfNoEntry: false });
    if (there && !there.isFile()) throw new RunError(`${path} is not a regular file; --check-output needs a file that the command writes`);
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

  /** Keeps a copy of what the run wrote and restores the original. */
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

  /** At the end, restore the copy taken last. */
  keepTaken(): void {
    if (this.taken !== undefined) this.final = this.taken;
  }

  /** At the end, leave the file as it is now. */
  keep(): void {
    this.final = undefined;
  }

  close(voice: RunVoice): void {
    try {
      if (this.final !== undefined) this.putBack(this.final);
    } catch (error) {
      // The last copy must survive the removal of the folder.
      const beside = join(tmpdir(), `weir-check-${process.pid}-${basename(this.path)}`);
      copyFileSync(this.final!, beside);
      voice.trouble(
        `${this.path} could not be restored (${error instanceof Error ? error.message : String(error)}); its content is in ${beside}`,
      );
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
