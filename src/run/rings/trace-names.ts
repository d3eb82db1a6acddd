// File names of recordings: different for every process, and never that of an existing file.
import { existsSync, lstatSync, renameSync, symlinkSync, unlinkSync } from 'node:fs';
import { hostname } from 'node:os';
import { basename, dirname, extname, join } from 'node:path';
import { UsageError } from '../../base/errors.ts';

/** What a name is made from. */
export interface NamedProcess {
  readonly pid: number;
  /** -1 if the process has none. */
  readonly rank: number;
}

const PLACEHOLDER = /%(?:([phr%])|q\{([^}]*)\})/g;

/** `NAME.<host>.r<RANK>.<pid>.ext`, or `NAME.<pid>.ext` without a rank. A pattern with placeholders is used as it is. */
export function traceName(pattern: string, process: NamedProcess, environment: NodeJS.ProcessEnv): string {
  const placeholders = [...pattern.matchAll(PLACEHOLDER)].filter(([text]) => text !== '%%');
  if (placeholders.length > 0) return expand(pattern, process, environment);
  const extension = extname(pattern) || '.weir';
  const stem = join(dirname(pattern), basename(expand(pattern, process, environment), extname(pattern)));
  const who = process.rank >= 0 ? `${hostname()}.r${process.rank}.${process.pid}` : String(process.pid);
  return `${stem}.${who}${extension}`;
}

/** The name, or a similar one that is free. With `overwrite`, existing files count as free unless this run wrote them. */
export function freeName(name: string, process: NamedProcess, overwrite: boolean, used: ReadonlySet<string>): string {
  const isFree = (candidate: string) => !used.has(candidate) && (overwrite || !existsSync(candidate));
  if (isFree(name)) return name;
  const extension = extname(name);
  const stem = name.slice(0, name.length - extension.length);
  for (let count = 1; ; count++) {
    const candidate = `${stem}.${process.pid}${count === 1 ? '' : `.${count}`}${extension}`;
    if (isFree(candidate)) return candidate;
  }
}

export function checkPattern(pattern: string): void {
  if (/%q(?!\{[^}]*\})/.test(pattern)) throw new UsageError(`'${pattern}': %q needs the name of a variable, like %q{SLURM_JOB_ID}`);
  const unknown = /%(?![phrq])(.?)/.exec(pattern.replaceAll('%%', ''));
  if (unknown) throw new UsageError(`'${pattern}': %${unknown[1]} is not a placeholder; use %p, %h, %r or %q{VARIABLE}`);
}

/** The name of a command in file names: its script without the extension, else the program. */
export function commandName(command: readonly string[]): string {
  const script = command.find((word) => /\.py$/.test(word)) ?? command[0] ?? 'run';
  return basename(script).replace(/\.py$/, '') || 'run';
}

/** Links `latest.weir`, beside the recording, to it. Failures are ignored. */
export function linkLatest(trace: string): void {
  const link = join(dirname(trace), 'latest.weir');
  try {
    const known = lstatSync(link, { throwIfNoEntry: false });
    if (known && !known.isSymbolicLink()) return;
    const beside = `${link}.${process.pid}`;
    symlinkSync(basename(trace), beside);
    try {
      renameSync(beside, link);
    } catch (error) {
      unlinkSync(beside);
      throw error;
    }
  } catch {}
}

function expand(pattern: string, { pid, rank }: NamedProcess, environment: NodeJS.ProcessEnv): string {
  return pattern.replace(PLACEHOLDER, (_, letter: string | undefined, variable: string | undefined) => {
    switch (letter) {
      case 'p':
        return String(pid);
      case 'h':
        return hostname();
      case 'r':
        return String(Math.max(0, rank));
      case '%':
        return '%';
      default:
        // A value may contain anything, but must stay one part of a path.
        return (environment[variable ?? ''] ?? '').replaceAll(/[/\0]/g, '_');
    }
  });
}
