// What a supervisor does beside a job, whoever started the job: reads its rings, records, plans, swaps, answers for a summary.
// supervise.ts starts a command and supervises it; attend.ts supervises a process that has started its supervisor itself.
import { accessSync, constants, existsSync, statSync, writeFileSync } from 'node:fs';
import type { Server } from 'node:http';
import { hostname } from 'node:os';
import { dirname, join } from 'node:path';
import type { RunAllocator } from '../abi/allocators.ts';
import { UsageError } from '../base/errors.ts';
import type { ChildEnd } from './child/child.ts';
import { settingsOf } from './child/environment.ts';
import { RunError } from './child/run-error.ts';
import { createScratchFolder } from './child/run-folder.ts';
import { FailureWatch } from './failures/failure-watch.ts';
import { OtherMemoryWatch } from './failures/other-memory-watch.ts';
import { PinnedMemory } from './failures/pinned-memory.ts';
import { RunPlanner } from './planning/run-planner.ts';
import { processName } from './rings/levels.ts';
import type { ProcessRecording } from './rings/process-recording.ts';
import { Recorder, type Refusal } from './rings/recorder.ts';
import { TraceFile } from './rings/trace-file.ts';
import { freeName, linkLatest, traceName } from './rings/trace-names.ts';
import { type OtherFigures, serveMetrics } from './summary/metrics.ts';
import type { RunEnd } from './summary/run-feed.ts';
import type { RunSummary } from './summary/summary.ts';
import { SummaryRequests } from './summary/summary-requests.ts';
import { type GpuWhatIf, runWhatIf } from './summary/what-if.ts';
import { RunSwapper } from './swapping/run-swapper.ts';

export interface SupervisionOptions {
  readonly command: readonly string[];
  readonly allocator: RunAllocator;
  readonly limit: number | undefined;
  /** Pattern of the recordings' names; undefined to keep none. */
  readonly record: string | undefined;
  readonly force: boolean;
  /** Steps whose operators are recorded; undefined: none. */
  readonly accesses?: number | undefined;
  /** Folder for files about out-of-memory errors, or `none`; undefined: beside the recordings, or the current folder. */
  readonly oomDir: string | undefined;
  readonly whatIf: boolean;
  readonly whatIfEvents: number;
  readonly metricsPort: number | undefined;
  readonly metricsHost: string;
  /** Plan the steps of the job while it runs. */
  readonly plan: boolean;
  /** Swap idle tensors out to the host: down to this many bytes, or (`auto`) as far as it costs hardly any time. */
  readonly swap: number | 'auto' | undefined;
  readonly version: string;
  readonly environment: NodeJS.ProcessEnv;
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
  end(how: RunEnd): void;
}

export type WhatIfAnswers = ReadonlyMap<ProcessRecording, readonly GpuWhatIf[] | string>;

export class Supervision {
  /** For recordings that only the what-if needs; undefined if recordings are kept, or nothing is replayed. */
  readonly scratch: string | undefined;
  readonly recorder: Recorder;
  private readonly options: SupervisionOptions;
  private readonly voice: RunVoice;
  private readonly watcher: RunWatcher | undefined;
  private readonly swapper: RunSwapper | undefined;
  private readonly planner: RunPlanner | undefined;
  private readonly requests: SummaryRequests;
  private readonly failures: FailureWatch;
  private readonly otherMemory: OtherMemoryWatch;
  private readonly pinned: PinnedMemory;
  private metrics: Server | undefined;
  private started = performance.now();
  private ended: number | undefined;

  /** `environment` is that of the processes of the job. `onFarewell` is called when one that has no `weir run` is about to end. */
  constructor(
    options: SupervisionOptions,
    environment: NodeJS.ProcessEnv,
    folder: string,
    voice: RunVoice,
    watcher?: RunWatcher,
    onFarewell: (summary: RunSummary) => void = () => {},
  ) {
    this.options = options;
    this.voice = voice;
    this.watcher = watcher;
    this.scratch = options.record === undefined && options.whatIf ? createScratch(voice) : undefined;
    this.swapper = options.swap === undefined ? undefined : new RunSwapper(folder, voice);
    this.planner = options.plan ? new RunPlanner(folder, voice, this.swapper !== undefined) : undefined;
    this.requests = new SummaryRequests(folder, { summaryOf: (whatIf) => this.summaryNow(whatIf), onFarewell });
    this.otherMemory = new OtherMemoryWatch(environment);
    this.pinned = new PinnedMemory(folder);
    this.failures = new FailureWatch({
      folder: options.oomDir,
      keepsTraces: options.record !== undefined,
      say: (line) => voice.say(line),
      trouble: (line) => voice.trouble(line),
      otherMemory: (process, gpu, moment) => this.otherMemory.of(process, gpu, moment),
      hostMemory: (process) => this.pinned.of(process),
    });
    this.recorder = this.createRecorder(folder, environment);
  }

  get refusals(): readonly Refusal[] {
    return this.recorder.refusals;
  }

  /** Opens the ports that the options ask for. Throws RunError if one is taken. Returns the port of the metrics. */
  async listen(): Promise<number | undefined> {
    const { metricsPort, metricsHost } = this.options;
    const figures: OtherFigures = {
      otherMemory: (process, gpu) => this.otherMemory.of(process, gpu),
      pinned: (process) => this.pinned.of(process),
    };
    if (metricsPort !== undefined) this.metrics = await serveMetrics(metricsPort, metricsHost, this.recorder.processes, figures);
    await this.watcher?.begin(this.recorder.processes);
    const address = this.metrics?.address();
    return typeof address === 'object' && address ? address.port : undefined;
  }

  start(): void {
    this.recorder.start();
    this.started = performance.now();
  }

  /** The job has ended: reads the rest and closes everything. `signal` skips explanations. `end`: undefined if nobody knows. */
  async finish(signal?: AbortSignal, end?: ChildEnd): Promise<void> {
    await this.recorder.finish();
    await this.failures.finish(signal);
    this.planner?.finish();
    this.swapper?.finish();
    this.metrics?.close();
    this.metrics?.closeAllConnections();
    const { failures, recorder } = this;
    this.watcher?.end({
      end,
      failed: failures.firstOf(recorder.processes),
      failureFiles: (process) => failures.reportOf(process)?.files ?? [],
      keepsTraces: this.options.record !== undefined,
    });
    this.ended = performance.now();
  }

  summary(end: ChildEnd, whatIf: WhatIfAnswers): RunSummary {
    const { options, recorder, planner, swapper } = this;
    return {
      allocator: options.allocator,
      command: options.command,
      end,
      wallMs: (this.ended ?? performance.now()) - this.started,
      limit: options.limit,
      processes: recorder.processes,
      idleProcesses: recorder.idle.size,
      whatIf,
      planner,
      swapper,
      failures: this.failures,
      otherMemory: this.otherMemory,
      pinned: this.pinned,
      keepsTraces: options.record !== undefined,
      expectsAccesses: options.accesses !== undefined,
      recorderMs: recorder.busyMs,
      refusals: recorder.refusals,
    };
  }

  /** What other allocators would have needed for what was recorded so far; no answers if the run is not to be replayed. */
  async replay(signal: AbortSignal, voice: RunVoice = this.voice): Promise<WhatIfAnswers> {
    return this.options.whatIf ? replayAll(this.recorder.processes, signal, voice) : new Map();
  }

  private async summaryNow(whatIf: boolean): Promise<RunSummary> {
    this.recorder.look();
    this.swapper?.readReports();
    // A process that ends because of a failure has its summary after what is told of the failure.
    await this.failures.finish();
    const answers = whatIf ? await this.replay(new AbortController().signal, SILENT) : new Map();
    return this.summary({ code: null, signal: null }, answers);
  }

  private createRecorder(folder: string, environment: NodeJS.ProcessEnv): Recorder {
    const { options, voice, planner, watcher, scratch, failures } = this;
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
        onRows: (recording, rows) => {
          failures.rows(recording, rows);
          planner?.rows(recording, rows);
        },
        otherMemory: (recording, gpu) => this.otherMemory.of(recording, gpu),
        hostMemory: (recording) => this.pinned.of(recording),
      }),
      onTrouble: (sentence) => voice.trouble(sentence),
      onFile: (name) => {
        this.requests.see(name);
        this.pinned.see(name);
      },
      onLevels: () => {
        this.otherMemory.look(this.recorder.processes);
        failures.look();
        planner?.levels();
        watcher?.levels();
      },
    });
  }
}

const SILENT: RunVoice = { say() {}, detail() {}, trouble() {}, progress() {}, clearProgress() {} };

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
export function checkRecordFolder(pattern: string): void {
  if (!/%[phrq]/.test(dirname(pattern))) checkWritable(dirname(pattern));
}

/** The same for the summary, which may also go to an existing file such as /dev/stdout. */
export function checkSummaryFile(path: string): void {
  checkWritable(existsSync(path) ? path : dirname(path));
}

/** Refuses a long job early if files about out-of-memory errors cannot be written. */
export function checkFailureFolder(folder: string): void {
  const isOther = statSync(folder, { throwIfNoEntry: false })?.isDirectory() === false;
  const obstacle = isOther ? 'is no folder; name one' : obstacleOf(folder);
  if (obstacle !== undefined) throw new UsageError(`--oom-dir ${folder}: ${obstacle}`);
}

function checkWritable(folder: string): void {
  const obstacle = obstacleOf(folder);
  if (obstacle !== undefined) throw new RunError(`${folder}: ${obstacle}`);
}

/** Why nothing can be written there; undefined: it can. */
function obstacleOf(folder: string): string | undefined {
  try {
    accessSync(folder, constants.W_OK);
    return undefined;
  } catch (error) {
    const isMissing = (error as NodeJS.ErrnoException).code === 'ENOENT';
    return isMissing ? 'no such folder; create it first' : 'you may not write there; choose another place';
  }
}

async function replayAll(processes: readonly ProcessRecording[], signal: AbortSignal, voice: RunVoice): Promise<WhatIfAnswers> {
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
