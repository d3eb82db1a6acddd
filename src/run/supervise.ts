// One run of a command from start to end: folder, environment, command, supervision, summary. We exit as the command did.

import { setImmediate as immediate } from 'node:timers/promises';
import { formatBytes } from '../base/bytes.ts';
import { type ChildEnd, runChild } from './child/child.ts';
import { changedVariables, environmentWith, obstacleIn } from './child/environment.ts';
import { endingSignals } from './child/hang-up.ts';
import type { RunningCommand } from './child/posix-process.ts';
import { RunError } from './child/run-error.ts';
import { createRunFolder, removeFolder } from './child/run-folder.ts';
import { onSignals } from './child/signals.ts';
import { removeStaleFolders } from './child/stale-folders.ts';
import type { Refusal } from './rings/recorder.ts';
import { metricsUrl } from './summary/metrics.ts';
import type { RunSummary } from './summary/summary.ts';
import {
  checkFailureFolder,
  checkRecordFolder,
  type RunVoice,
  type RunWatcher,
  Supervision,
  type SupervisionOptions,
} from './supervision.ts';

export interface RunOptions extends SupervisionOptions {
  readonly lend: boolean;
  readonly swapHost: number | undefined;
  readonly allowUntested: boolean;
  readonly ringRows: number;
  /** Call stacks to record, as the processes are told; undefined for none. */
  readonly stacks: string | undefined;
  readonly quiet: boolean;
  /** If set, receives the command's output, which then goes through a pipe. */
  readonly onOutput?: ((child: RunningCommand) => void) | undefined;
  /** The same for output and errors, and the command has no input. */
  readonly onCaptured?: ((child: RunningCommand) => void) | undefined;
  /** Steps after which processes end by themselves; 0: they go to their end. */
  readonly endAfter?: number | undefined;
}

export interface RunOutcome {
  readonly summary: RunSummary;
  readonly end: ChildEnd;
  readonly refusals: readonly Refusal[];
}

/** Meant for the command. Late ones must not end us. */
const USER_SIGNALS: readonly NodeJS.Signals[] = ['SIGUSR1', 'SIGUSR2'];

export async function supervise(options: RunOptions, voice: RunVoice, watcher?: RunWatcher): Promise<RunOutcome> {
  const obstacle = obstacleIn(options.environment);
  if (obstacle) throw new RunError(obstacle);
  if (options.record !== undefined) checkRecordFolder(options.record);
  if (options.oomDir !== undefined && options.oomDir !== 'none') checkFailureFolder(options.oomDir);
  removeStaleFolders(options.environment);
  let folder: string | undefined;
  let supervision: Supervision | undefined;
  // While the command runs, signals go to it. Afterwards a signal skips the rest. In both cases the folders are
  // removed.
  const afterwards = new AbortController();
  let isRunning = true;
  let isStarted = false;
  let early: NodeJS.Signals | undefined;
  const stopListening = onSignals(endingSignals(options.environment), (signal) => {
    if (!isStarted) early ??= signal;
    if (!isRunning) afterwards.abort();
  });
  const stopIgnoring = onSignals(USER_SIGNALS, () => {});
  try {
    folder = createRunFolder(options.ringRows, options.environment);
    const changed = changedVariables(options.environment, { ...options, folder });
    const environment = environmentWith(options.environment, changed);
    supervision = new Supervision(options, environment, folder, voice, watcher);
    sayStart(options, changed, await supervision.listen(), voice);
    supervision.start();
    let end: ChildEnd | undefined;
    try {
      const { onOutput, onCaptured } = options;
      // Signals that came so far are heard now. One that ends programs came before there was a command to end.
      await immediate();
      isStarted = true;
      end = early
        ? { code: null, signal: early }
        : await runChild({
            command: options.command,
            environment,
            onTrouble: (sentence) => voice.trouble(sentence),
            ...(onOutput ? { stdio: ['inherit', 'pipe', 'inherit'], onStart: onOutput } : {}),
            ...(onCaptured ? { stdio: ['ignore', 'pipe', 'pipe'], onStart: onCaptured } : {}),
          });
    } finally {
      isRunning = false;
      await supervision.finish(afterwards.signal, end);
    }
    const summary = supervision.summary(end, await supervision.replay(afterwards.signal));
    return { summary, end, refusals: supervision.refusals };
  } finally {
    if (folder !== undefined) removeFolder(folder);
    if (supervision?.scratch) removeFolder(supervision.scratch);
    stopListening();
    stopIgnoring();
  }
}

function sayStart(options: RunOptions, changed: Readonly<Record<string, string>>, metricsPort: number | undefined, voice: RunVoice): void {
  const parts = [
    options.record === undefined
      ? `running on ${options.allocator}`
      : `recording to ${describePattern(options.record)}, on ${options.allocator}`,
  ];
  if (options.plan) parts.push('watching its steps to plan them');
  if (options.swap !== undefined)
    parts.push(options.swap === 'auto' ? 'swapping what costs hardly any time' : `swapping down to ${formatBytes(options.swap)}`);
  if (options.limit !== undefined) parts.push(`within ${formatBytes(options.limit)}`);
  if (metricsPort !== undefined) parts.push(`metrics at ${metricsUrl(options.metricsHost, metricsPort)}`);
  const extended = Object.keys(changed).filter((name) => !name.startsWith('WEIR_'));
  voice.say(`${parts.join(', ')} (extends ${extended.join(', ')} for the command)`);
  for (const [name, value] of Object.entries(changed)) voice.detail(`${name}=${value}`);
}

function describePattern(pattern: string): string {
  return /%[phrq]/.test(pattern) ? pattern : `${pattern.replace(/\.weir$/, '')}.*.weir`;
}
