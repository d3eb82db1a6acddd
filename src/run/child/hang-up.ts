// Whether SIGHUP was ignored when we were started, as `nohup` does. Node resets that before any code of ours runs, so signs have to tell.
import { readFileSync, readlinkSync } from 'node:fs';
import { constants } from 'node:os';
import { basename } from 'node:path';
import { ignoreHangUp } from './posix-process.ts';
import { ENDING_SIGNALS } from './signals.ts';

let isIgnored: boolean | undefined;

/** Decides once, at the start of a run. If so, this process and programs that it starts ignore SIGHUP from then on. */
export function ignoresHangUp(environment: NodeJS.ProcessEnv): boolean {
  isIgnored ??= (isStartedByNohup(environment) || parentIgnoresHangUp()) && ignoreHangUp();
  return isIgnored;
}

/** Signals that end this process, or would if it did not listen. */
export function endingSignals(environment: NodeJS.ProcessEnv): readonly NodeJS.Signals[] {
  return ENDING_SIGNALS.filter((signal) => signal !== 'SIGHUP' || !ignoresHangUp(environment));
}

/** Bash, zsh and ksh put the program that they start into `_`. */
function isStartedByNohup(environment: NodeJS.ProcessEnv): boolean {
  return basename(environment['_'] ?? '') === 'nohup' || hasInputOfNohup();
}

/** At a terminal, nohup replaces the input by a file that can only be written. */
function hasInputOfNohup(): boolean {
  try {
    const flags = /^flags:\s*([0-7]+)/m.exec(readFileSync('/proc/self/fdinfo/0', 'latin1'))?.[1];
    const mode = Number.parseInt(flags ?? '0', 8) & 3;
    return mode === 1 && readlinkSync('/proc/self/fd/0') === '/dev/null';
  } catch {
    return false;
  }
}

/** A script under nohup, or with `trap '' HUP`: programs that it starts ignore the signal too. */
function parentIgnoresHangUp(): boolean {
  try {
    const ignored = /^SigIgn:\s*([0-9a-f]+)/m.exec(readFileSync(`/proc/${process.ppid}/status`, 'latin1'))?.[1];
    return ((BigInt(`0x${ignored ?? '0'}`) >> BigInt(constants.signals.SIGHUP - 1)) & 1n) === 1n;
  } catch {
    return false;
  }
}
