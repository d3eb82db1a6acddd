// Supervises a process that runs without `weir run`: weir_gpu.enable(), or WEIR=1. The process has started us at its first use of a
// GPU, and made the folder. We end after it, however it ends, and never make it wait.
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { FORK_FILE, SUPERVISOR_FILE } from '../abi/exchange.ts';
import { type FolderOwner, isAlive, ownIdentity } from './child/folder-owner.ts';
import { RunError } from './child/run-error.ts';
import { removeFolder } from './child/run-folder.ts';
import { ENDING_SIGNALS, onSignals } from './child/signals.ts';
import { isMapped, removeStaleFolders } from './child/stale-folders.ts';
import { metricsUrl } from './summary/metrics.ts';
import type { RunSummary } from './summary/summary.ts';
import { type RunVoice, type RunWatcher, Supervision, type SupervisionOptions } from './supervision.ts';

export interface AttendOptions extends Omit<SupervisionOptions, 'command'> {
  readonly folder: string;
  /** The process that started us. */
  readonly job: FolderOwner;
  /** Whether the summary after the end needs what other allocators would have needed. */
  readonly replayAtEnd: boolean;
}

const LOOK_EVERY_MS = 75;
/** Forked children of the process may use its folder longer than it does. */
const LOOK_FOR_OTHERS_MS = 500;

/** What becomes of a summary. */
export interface Conclusion {
  /** The process is about to end, and waits for its summary. */
  farewell(summary: RunSummary): void;
  /** All processes have ended. `isTold`: a farewell has said the same. */
  end(summary: RunSummary, isTold: boolean): void;
}

/** Resolves when the process and all children that it forked have ended. */
export async function attend(options: AttendOptions, voice: RunVoice, conclusion: Conclusion, watcher?: RunWatcher): Promise<void> {
  const { folder, job, environment } = options;
  const afterwards = new AbortController();
  let isRunning = true;
  let isOurs = true;
  // A cluster ends a job by a signal to all of its processes. We stay until the job has ended, and what it did is written.
  const stopListening = onSignals([...ENDING_SIGNALS, 'SIGUSR1', 'SIGUSR2'], () => {
    if (!isRunning) afterwards.abort();
  });
  let supervision: Supervision | undefined;
  try {
    announce(folder);
    removeStaleFolders(environment);
    let isTold = false;
    const farewell = (summary: RunSummary) => {
      isTold = true;
      conclusion.farewell(summary);
    };
    supervision = new Supervision({ ...options, command: commandOf(job.pid) }, environment, folder, voice, watcher, farewell);
    await listen(supervision, options.metricsHost, voice);
    supervision.start();
    while (isAlive(job)) await pause(LOOK_EVERY_MS);
    while (isUsed(folder)) {
      announce(folder);
      isTold = false;
      await pause(LOOK_FOR_OTHERS_MS);
    }
    isRunning = false;
    await supervision.finish(afterwards.signal);
    // Later forks make it anew, and have a supervisor of their own. The replay may take long.
    removeFolder(folder);
    isOurs = false;
    const whatIf = options.replayAtEnd ? await supervision.replay(afterwards.signal) : new Map();
    conclusion.end(supervision.summary({ code: null, signal: null }, whatIf), isTold);
  } finally {
    if (isOurs) removeFolder(folder);
    if (supervision?.scratch) removeFolder(supervision.scratch);
    stopListening();
  }
}

/** Other processes of the job may have the same ports. The job goes on without. */
async function listen(supervision: Supervision, host: string, voice: RunVoice): Promise<void> {
  try {
    const port = await supervision.listen();
    if (port !== undefined) voice.say(`metrics at ${metricsUrl(host, port)}`);
  } catch (error) {
    if (!(error instanceof RunError)) throw error;
    voice.trouble(`${error.message} (the job goes on without)`);
  }
}

/** Forks see by this file that somebody reads their rings. */
function announce(folder: string): void {
  const { pid, started } = ownIdentity();
  writeFileSync(join(folder, SUPERVISOR_FILE), `${pid} ${started}`, { mode: 0o600 });
}

/** Whether a fork relies on us. First we withdraw: a fork that comes in between waits until the folder is gone. */
function isUsed(folder: string): boolean {
  rmSync(join(folder, SUPERVISOR_FILE), { force: true });
  try {
    return isMapped(folder) || readdirSync(folder).some((name) => name.endsWith(FORK_FILE) && isFork(join(folder, name)));
  } catch {
    return false; // Somebody has removed the folder.
  }
}

function isFork(path: string): boolean {
  const [pid, started = ''] = readFileSync(path, 'latin1').split(' ');
  return isAlive({ pid: Number(pid), started });
}

function commandOf(pid: number): readonly string[] {
  try {
    const words = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
    return words.at(-1) === '' ? words.slice(0, -1) : words;
  } catch {
    return [];
  }
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
