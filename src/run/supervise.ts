// One run from start to end: folder, environment, command, recording, what-if, summary. We exit as the command did.
import { accessSync, constants, existsSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { dirname, join } from 'node:path';
import type { RunAllocator } from '../abi/allocators.ts';
import { formatBytes } from '../base/bytes.ts';
import { type ChildEnd, runChild } from './child/child.ts';
import { changedVariables, environmentWith, obstacleIn, settingsOf } from './child/environment.ts';
import { endingSignals } from './child/hang-up.ts';
import type { RunningCommand } from './child/posix-process.ts';
import { RunError } from './child/run-error.ts';
import { createRunFolder, createScratchFolder, removeFolder } from './child/run-folder.ts';
import { onSignals } from './child/signals.ts';
import { removeStaleFolders } from './child/stale-folders.ts';
import { RunPlanner } from './planning/run-planner.ts';
import { processName } from './rings/levels.ts';
import type { ProcessRecording } from './rings/process-recording.ts';
import { Recorder, type Refusal } from './rings/recorder.ts';
import { TraceFile } from './rings/trace-file.ts';
import { freeName, linkLatest, traceName } from './rings/trace-names.ts';
import { serveMetrics } from './summary/metrics.ts';
import type { RunSummary } from './summary/summary.ts';
import { type GpuWhatIf, runWhatIf } from './summary/what-if.ts';
import { RunSwapper } from './swapping/run-swapper.ts';

export interface RunOptions {
  readonly command: readonly string[];
  readonly allocator: RunAllocator;
  readonly limit: number | undefined;
  /** Pattern of the recordings' names; undefined to keep none. */
  readonly record: string | undefined;
  readonly force: boolean;
  readonly whatIf: boolean;
  readonly whatIfEvents: number;
  readonly metricsPort: number | undefined;
  readonly metricsHost: string;
  readonly lend: boolean;
  /** Plan the steps of the job while it runs. */
  readonly plan: boolean;
  /** Swap idle tensors out to the host: down to this many bytes, or (`auto`) as far as it costs hardly any time. */
  readonly swap: number | 'auto' | undefined;
  readonly swapHost: number | undefined;
  readonly allowUntested: boolean;
  readonly ringRows: number;
  readonly quiet: boolean;
  readonly version: string;
  readonly environment: NodeJS.ProcessEnv;
  /** If set, receives the command's output, which then goes through a pipe. */
  readonly onOutput?: ((child: RunningCommand) => void) | undefined;
}

/** How a run reports to the user. Nothing goes to the command's output. */
export interface RunVoice {
  /** A line for all users. */
  say(sentence: string): void;
  /** A line for --verbose. */
  detail(sentence: string): void;
  /** A problem. Shown even with --quiet. */
  trouble(sentence: string): void;
  progress(fraction: number, doing: string): void;
  clearProgress(): void;
}

/** Follows a run, for the live page. */
export interface RunWatcher {
  begin(processes: readonly ProcessRecording[]): Promise<void>;
  levels(): void;
  end(): void;
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
  removeStaleFolders(options.environment);
  const folder = createRunFolder(options.ringRows, options.environment);
  const scratch = options.record === undefined && options.whatIf ? createScratch(voice) : undefined;
  // While the command runs, signals go to it. Afterwards a signal skips the rest. In both cases the folders are
  // removed.
  const afterwards = new AbortController();
  let isRunning = true;
  const stopListening = onSignals(endingSignals(options.environment), () => {
    if (!isRunning) afterwards.abort();
  });
  const stopIgnoring = onSignals(USER_SIGNALS, () => {});
  try {
    const changed = changedVariables(options.environment, { ...options, folder });
    const environment = environmentWith(options.environment, changed);
    const swapper = options.swap === undefined ? undefined : new RunSwapper(folder, voice);
    const planner = options.plan ? new RunPlanner(folder, voice, swapper !== undefined) : undefined;
    const recorder = createRecorder(options, environment, folder, scratch, voice, watcher, planner);
    const metrics =
      options.metricsPort === undefined ? undefined : await serveMetrics(options.metricsPort, options.metricsHost, recorder.processes);
    await watcher?.begin(recorder.processes);
    sayStart(options, changed, metrics?.address(), voice);
    recorder.start();
    const started = performance.now();
    let end: ChildEnd;
    try {
      const { onOutput } = options;
      end = await runChild({
        command: options.command,
        environment,
        onTrouble: (sentence) => voice.trouble(sentence),
        ...(onOutput ? { stdio: ['inherit', 'pipe', 'inherit'], onStart: onOutput } : {}),
      });
    } finally {
      isRunning = false;
      await recorder.finish();
      planner?.finish();
      swapper?.finish();
      metrics?.close();
      metrics?.closeAllConnections();
      watcher?.end();
    }
    const wallMs = performance.now() - started;
    const whatIf = options.whatIf ? await replayAll(recorder.processes, afterwards.signal, voice) : new Map();
    const summary: RunSummary = {
      allocator: options.allocator,
      command: options.command,
      end,
      wallMs,
      limit: options.limit,
      processes: recorder.processes,
      idleProcesses: recorder.idle.size,
      whatIf,
      planner,
      swapper,
      keepsTraces: options.record !== undefined,
      recorderMs: recorder.busyMs,
      refusals: recorder.refusals,
    };
    return { summary, end, refusals: recorder.refusals };
  } finally {
    removeFolder(folder);
    if (scratch) removeFolder(scratch);
    stopListening();
    stopIgnoring();
  }
}

/** Creates a folder for the what-if's recordings. If that fails, the job still runs. */
function createScratch(voice: RunVoice): string | undefined {
  try {
    return createScratchFolder();
  } catch (error) {
    voice.trouble(
      `the summary will not say what other allocators would have needed: ${error instanceof Error ? error.message : String(error)}`,
    );
    return undefined;
  }
}

/** Refuses a long job early if its recording cannot be written. A folder with placeholders is not known yet. */
function checkRecordFolder(pattern: string): void {
  if (!/%[phrq]/.test(dirname(pattern))) checkWritable(dirname(pattern));
}

/** The same for the summary, which may also go to an existing file such as /dev/stdout. */
export function checkSummaryFile(path: string): void {
  checkWritable(existsSync(path) ? path : dirname(path));
}

function checkWritable(folder: string): void {
  try {
    accessSync(folder, constants.W_OK);
  } catch (error) {
    const isMissing = (error as NodeJS.ErrnoException).code === 'ENOENT';
    throw new RunError(
      isMissing ? `${folder}: no such folder; create it first` : `${folder}: you may not write there; choose another place`,
    );
  }
}

function createRecorder(
  options: RunOptions,
  environment: NodeJS.ProcessEnv,
  folder: string,
  scratch: string | undefined,
  voice: RunVoice,
  watcher: RunWatcher | undefined,
  planner: RunPlanner | undefined,
): Recorder {
  const used = new Set<string>();
  const settings = settingsOf(environment);
  return new Recorder({
    folder,
    fileFor(owner) {
      if (options.record === undefined) {
        const name = scratch === undefined ? undefined : join(scratch, `${used.size}.weir`);
        if (name !== undefined) used.add(name);
        return new TraceFile(name, false);
      }
      const name = freeName(traceName(options.record, owner, environment), owner, options.force, used);
      used.add(name);
      const file = new TraceFile(name, options.force);
      if (file.isOpen && (used.size === 1 || owner.rank === 0)) linkLatest(name);
      voice.detail(`recording ${processName({ owner })} to ${name}`);
      return file;
    },
    recordingFor: () => ({
      meta: { tool: 'weir', version: options.version, host: hostname(), command: options.command[0] },
      settings,
      // If no file is kept, write only what the what-if replays.
      mostEvents: options.record === undefined ? options.whatIfEvents : Number.POSITIVE_INFINITY,
      whatIfEvents: options.whatIfEvents,
      onRows: planner && ((recording, rows) => planner.rows(recording, rows)),
    }),
    onTrouble: (sentence) => voice.trouble(sentence),
    onLevels: () => {
      planner?.levels();
      watcher?.levels();
    },
  });
}

function sayStart(
  options: RunOptions,
  changed: Readonly<Record<string, string>>,
  metrics: ReturnType<import('node:net').Server['address']> | undefined,
  voice: RunVoice,
): void {
  const parts = [
    options.record === undefined
      ? `running on ${options.allocator}`
      : `recording to ${describePattern(options.record)}, on ${options.allocator}`,
  ];
  if (options.plan) parts.push('watching its steps to plan them');
  if (options.swap !== undefined)
    parts.push(options.swap === 'auto' ? 'swapping what costs hardly any time' : `swapping down to ${formatBytes(options.swap)}`);
  if (options.limit !== undefined) parts.push(`within ${formatBytes(options.limit)}`);
  if (typeof metrics === 'object' && metrics)
    parts.push(
      `metrics at http://${options.metricsHost.includes(':') ? `[${options.metricsHost}]` : options.metricsHost}:${metrics.port}/metrics`,
    );
  const extended = Object.keys(changed).filter((name) => !name.startsWith('WEIR_'));
  voice.say(`${parts.join(', ')} (extends ${extended.join(', ')} for the command)`);
  for (const [name, value] of Object.entries(changed)) voice.detail(`${name}=${value}`);
}

function describePattern(pattern: string): string {
  return /%[phrq]/.test(pattern) ? pattern : `${pattern.replace(/\.weir$/, '')}.*.weir`;
}

async function replayAll(
  processes: readonly ProcessRecording[],
  signal: AbortSignal,
  voice: RunVoice,
): Promise<Map<ProcessRecording, readonly GpuWhatIf[] | string>> {
  const answers = new Map<ProcessRecording, readonly GpuWhatIf[] | string>();
  const replayable = processes.filter(({ file, writtenEvents }) => file.path !== undefined && writtenEvents > 0);
  for (const [index, recording] of replayable.entries()) {
    const doing = `replaying what ${replayable.length === 1 ? 'the job' : `process ${recording.owner.pid}`} did on other allocators (Ctrl-C skips it)`;
    voice.detail(doing);
    voice.progress(index / replayable.length, doing);
    const answer = await runWhatIf({ path: recording.file.path!, bytes: recording.whatIfBytes }, signal, (done) =>
      voice.progress((index + done) / replayable.length, doing),
    );
    if (answer === undefined) {
      voice.clearProgress();
      voice.say('the replay on other allocators was skipped');
      break;
    }
    answers.set(recording, answer);
  }
  voice.clearProgress();
  return answers;
}

/** Writes the summary as JSON. A failure is reported and changes nothing else. */
export function writeSummary(path: string, json: unknown, voice: RunVoice): void {
  try {
    writeFileSync(path, `${JSON.stringify(json)}\n`);
  } catch (error) {
    voice.trouble(`the summary could not be written: ${error instanceof Error ? error.message : String(error)}`);
  }
}
