// Supervises a process that runs without `weir run`: weir_gpu.enable(), or WEIR=1. The process has started us at its first use of a
// GPU, and made the folder. We end after it, however it ends, and never make it wait.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { SUPERVISOR_FILE } from '../abi/exchange.ts';
import { type FolderOwner, isAlive, ownIdentity } from './child/folder-owner.ts';
import { RunError } from './child/run-error.ts';
import { removeFolder } from './child/run-folder.ts';
import { ENDING_SIGNALS, onSignals } from './child/signals.ts';
import { isMapped, removeStaleFolders } from './child/stale-folders.ts';
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

/** Resolves when the process and all children that it forked have ended. `hasSaid`: the summary was printed as the process ended. */
export async function attend(
  options: AttendOptions,
  voice: RunVoice,
  watcher?: RunWatcher,
): Promise<{ readonly summary: RunSummary; readonly hasSaid: boolean }> {
  const { folder, job, environment } = options;
  const afterwards = new AbortController();
  let isRunning = true;
  // A cluster ends a job by a signal to all of its processes. We stay until the job has ended, and what it did is written.
  const stopListening = onSignals([...ENDING_SIGNALS, 'SIGUSR1', 'SIGUSR2'], () => {
    if (!isRunning) afterwards.abort();
  });
  let supervision: Supervision | undefined;
  try {
    const { pid, started } = ownIdentity();
    writeFileSync(join(folder, SUPERVISOR_FILE), `${pid} ${started}`, { mode: 0o600 });
    removeStaleFolders(environment);
    supervision = new Supervision({ ...options, command: commandOf(job.pid) }, environment, folder, voice, watcher);
    await listen(supervision, voice);
    supervision.start();
    while (isAlive(job)) await pause(LOOK_EVERY_MS);
    while (isMapped(folder)) await pause(LOOK_FOR_OTHERS_MS);
    isRunning = false;
    await supervision.finish();
    const whatIf = options.replayAtEnd ? await supervision.replay(afterwards.signal) : new Map();
    return { summary: supervision.summary({ code: null, signal: null }, whatIf), hasSaid: supervision.hasSaid };
  } finally {
    removeFolder(folder);
    if (supervision?.scratch) removeFolder(supervision.scratch);
    stopListening();
  }
}

/** Other processes of the job may have the same ports. The job goes on without. */
async function listen(supervision: Supervision, voice: RunVoice): Promise<void> {
  try {
    const port = await supervision.listen();
    if (port !== undefined) voice.say(`metrics at port ${port}`);
  } catch (error) {
    if (!(error instanceof RunError)) throw error;
    voice.trouble(`${error.message} (the job goes on without)`);
  }
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
