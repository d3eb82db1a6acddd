// Where a result comes from. Every result file says it, and docs/results.md shows it (scripts/results.mjs).
import { execFileSync } from 'node:child_process';
import { cpus } from 'node:os';

export interface Provenance {
  /** The day, which is also part of the file's name. */
  readonly date: string;
  readonly command: string;
  readonly hardware: string;
  readonly commit: string;
}

export function provenanceOf(command: string, hardware: string = thisMachine()): Provenance {
  return { date: new Date().toISOString().slice(0, 10), command, hardware, commit: commitOfTree() };
}

export function thisMachine(): string {
  return `${cpus()[0]?.model.trim() ?? 'unknown processor'}, ${cpus().length} cores, Node ${process.version}`;
}

/** A plus marks uncommitted changes. `unknown`: there is no git repository. */
function commitOfTree(): string {
  const git = (...parameters: string[]) =>
    execFileSync('git', parameters, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim();
  try {
    return (
      git('rev-parse', '--short', 'HEAD') + (git('status', '--porcelain', '--untracked-files=no', '--', '.', ':!bench/results') ? '+' : '')
    );
  } catch {
    return 'unknown';
  }
}
