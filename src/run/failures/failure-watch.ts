// Watches all processes of a run for requests that fail. Of each process it keeps a file about the first failure and one about the last.
// It prints who failed first, where, and who held the memory, also if the script catches the error.
import { dirname, join } from 'node:path';
import { PhaseMark } from '../../abi/events.ts';
import { formatBytes } from '../../base/bytes.ts';
import { printable } from '../../base/printable.ts';
import type { FailureFacts } from '../../report/failure.ts';
import { failureLines } from '../../report/words/failure.ts';
import { shellWord } from '../../report/words/shell.ts';
import type { HostMemory, OtherMemory } from '../../trace/trace.ts';
import { processName } from '../rings/levels.ts';
import { limitsOf, type ProcessRecording } from '../rings/process-recording.ts';
import { failureFile } from './failure-file.ts';
import { type Explanation, type ExplanationLimits, explainInThread } from './failure-task.ts';
import type { GpuMoment } from './other-memory-watch.ts';
import { type Failure, type FailureState, ProcessMemory } from './process-memory.ts';
import { TAKEN, writeWhole } from './whole-file.ts';

/** So long a process may take to say what its memory holds. */
const MOST_WAIT_MS = 2000;
/** A script that tries batch sizes may fail hundreds of times a second. Its last failure is written at most so often. */
const REWRITE_MS = 2000;
/** The last failure is written for this share of the time at most, however large the file is. */
const MOST_SHARE = 0.02;
/** So long an explanation may take, and so long the end of a run waits for all. */
const MOST_EXPLAIN_MS = 10_000;
/** Names that are tried for a file. */
const MOST_NAMES = 1000;
const OUR_MARKS: ReadonlySet<string> = new Set(Object.values(PhaseMark));

export interface FailureOptions {
  /** Where files go; undefined: beside the recording of the process, or in the current folder. `none`: no files. */
  readonly folder: string | undefined;
  /** Whether the recording stays, so that files may lie beside it. */
  readonly keepsTraces: boolean;
  say(line: string): void;
  /** A problem, shown even with --quiet. */
  trouble(line: string): void;
  /** Memory that is not PyTorch's: at a moment of which the rows tell, else now. */
  otherMemory(process: ProcessRecording, gpu: number, moment: GpuMoment | undefined): OtherMemory | undefined;
  hostMemory(process: ProcessRecording): HostMemory | undefined;
  /** Other than the usual ones, for tests. */
  readonly limits?: Partial<ExplanationLimits> | undefined;
}

/** What is told of the failures of one process. */
export interface FailureReport {
  readonly count: number;
  /** The first failure, when it happened and on which GPU. */
  readonly timeUs: number;
  readonly gpu: number;
  readonly asked: number;
  /** Call site of the first failure; undefined: not recorded, or not yet looked at. */
  readonly site: string | undefined;
  /** Files about the first and the last failure; fewer if they are the same or could not be written. */
  readonly files: readonly string[];
  /** Why a file could not be written. */
  readonly problem: string | undefined;
}

/** One failure on its way into a file. */
interface Case {
  readonly failure: Failure;
  readonly seenAt: number;
  /** Number of the look that saw it. */
  readonly look: number;
  path: string | undefined;
  /** The file, until it is told what is in it. */
  bytes: Uint8Array | undefined;
  /** Rows about categories in the file. */
  writtenLate: number;
}

interface Watched {
  readonly recording: ProcessRecording;
  readonly memory: ProcessMemory;
  first: Case | undefined;
  last: Case | undefined;
  hasTold: boolean;
  facts: FailureFacts | undefined;
  problem: string | undefined;
  /** When the last failure may be written again. */
  nextWriteAt: number;
}

export class FailureWatch {
  private readonly options: FailureOptions;
  private readonly watched = new Map<ProcessRecording, Watched>();
  private telling: Promise<void> = Promise.resolve();
  /** Cuts off explanations that are under way. */
  private cut = new AbortController();
  private looks = 0;
  private hasToldFirst = false;
  private hasToldProblem = false;

  constructor(options: FailureOptions) {
    this.options = options;
  }

  /** Takes valid rows of a process. */
  rows(recording: ProcessRecording, rows: Buffer): void {
    const watched = this.watchedOf(recording);
    watched.memory.take(rows, (failure) => this.fail(watched, failure));
  }

  /** To be called at every look: writes what has become whole, and tells of it. */
  look(isLast = false): void {
    const untold: Watched[] = [];
    for (const watched of this.watched.values()) {
      const { first, last, memory } = watched;
      if (!first || !last) continue;
      for (const { failure, seenAt } of [first, last])
        if (isLast || performance.now() - seenAt > MOST_WAIT_MS || watched.recording.isFinished) memory.close(failure);
      if (!watched.hasTold) {
        if (first.failure.isWhole) this.write(watched, first);
        untold.push(watched);
      }
      if (last !== first && last.failure.isWhole && (isLast || performance.now() > watched.nextWriteAt)) this.writeLast(watched, last);
    }
    // Rings are read one after the other, so the first failure that was seen need not be the first that happened. One more look tells.
    untold.sort((a, b) => a.first!.failure.timeUs - b.first!.failure.timeUs);
    const waits = untold.findIndex(({ first }) => !isLast && (!first!.failure.isWhole || first!.look === this.looks));
    const ready = waits < 0 ? untold : untold.slice(0, waits);
    if (ready.length > 0) this.tell(ready);
    this.looks++;
  }

  /** Tells all that there is to tell, as when processes have ended. `signal` cuts explanations off. */
  async finish(signal?: AbortSignal): Promise<void> {
    this.look(true);
    const { cut } = this;
    const stop = () => cut.abort('by a signal');
    const timer = setTimeout(() => cut.abort(`after ${MOST_EXPLAIN_MS / 1000} s`), MOST_EXPLAIN_MS);
    if (signal?.aborted) stop();
    signal?.addEventListener('abort', stop);
    await this.telling;
    clearTimeout(timer);
    signal?.removeEventListener('abort', stop);
    this.cut = new AbortController();
  }

  reportOf(process: ProcessRecording): FailureReport | undefined {
    const watched = this.watched.get(process);
    if (!watched?.first) return undefined;
    const { failure } = watched.first;
    const paths = [watched.first.path, watched.last?.path].filter((path) => path !== undefined);
    return {
      count: watched.memory.failures,
      timeUs: failure.timeUs,
      gpu: failure.gpu,
      asked: failure.asked,
      site: watched.facts?.site,
      files: [...new Set(paths)],
      problem: watched.problem,
    };
  }

  /** The process whose request failed first. */
  firstOf(processes: readonly ProcessRecording[]): ProcessRecording | undefined {
    const failed = processes.filter((process) => this.watched.get(process)?.first);
    const timeOf = (process: ProcessRecording) => this.watched.get(process)!.first!.failure.timeUs;
    return failed.reduce<ProcessRecording | undefined>(
      (first, process) => (first === undefined || timeOf(process) < timeOf(first) ? process : first),
      undefined,
    );
  }

  private watchedOf(recording: ProcessRecording): Watched {
    let watched = this.watched.get(recording);
    if (!watched) {
      const memory = new ProcessMemory(
        (text) => OUR_MARKS.has(recording.textOf(text)),
        (text) => recording.textOf(text) === PhaseMark.failure,
      );
      watched = {
        recording,
        memory,
        first: undefined,
        last: undefined,
        hasTold: false,
        facts: undefined,
        problem: undefined,
        nextWriteAt: Number.NEGATIVE_INFINITY,
      };
      this.watched.set(recording, watched);
    }
    return watched;
  }

  private fail(watched: Watched, failure: Failure): void {
    const found: Case = {
      failure,
      seenAt: performance.now(),
      look: this.looks,
      path: watched.last?.path,
      bytes: undefined,
      writtenLate: -1,
    };
    if (watched.first) {
      if (watched.last === watched.first) found.path = undefined;
      watched.last = found;
      return;
    }
    watched.first = found;
    watched.last = found;
    watched.memory.capture(failure);
    // At once: we may be killed before the process has said more.
    this.write(watched, found);
  }

  private writeLast(watched: Watched, last: Case): void {
    if (last.writtenLate === last.failure.late.length) return;
    const began = performance.now();
    watched.memory.capture(last.failure);
    this.write(watched, last);
    last.failure.state = undefined;
    const now = performance.now();
    watched.nextWriteAt = now + Math.max(REWRITE_MS, (now - began) / MOST_SHARE);
  }

  private write(watched: Watched, found: Case): void {
    const { failure } = found;
    if (this.options.folder === 'none' || found.writtenLate === failure.late.length || !failure.state) return;
    found.writtenLate = failure.late.length;
    const { recording } = watched;
    const bytes = this.bytesOf(recording, failure, failure.state);
    if (found === watched.first && !watched.hasTold) found.bytes = bytes;
    watched.problem = this.put(recording, found, bytes);
    if (watched.problem === undefined || this.hasToldProblem) return;
    this.hasToldProblem = true;
    const name = this.nameFor(recording, failure, 1);
    this.options.trouble(`the out-of-memory error of ${processName(recording)} is not in ${name}: ${watched.problem}. The job goes on`);
  }

  /** Writes the file: over our own of before, else under a name that nobody has. Returns why not. */
  private put(recording: ProcessRecording, found: Case, bytes: Uint8Array): string | undefined {
    if (found.path !== undefined) return writeWhole(found.path, bytes, true);
    for (let attempt = 1; attempt <= MOST_NAMES; attempt++) {
      const name = this.nameFor(recording, found.failure, attempt);
      const problem = writeWhole(name, bytes, false);
      if (problem === TAKEN) continue;
      if (problem === undefined) found.path = name;
      return problem;
    }
    return 'all names for it are taken';
  }

  private bytesOf(recording: ProcessRecording, failure: Failure, state: FailureState): Uint8Array {
    return failureFile(failure, state, {
      symbols: recording.symbols,
      meta: recording.meta,
      settings: recording.allSettings,
      streamsOf: (gpu) => recording.streamsOf(gpu).map((handle) => recording.symbols.addresses.encode(handle)),
      poolsOf: (gpu) => recording.poolsOf(gpu),
      limitsOf: (gpu) => limitsOf(recording.gauges.get(gpu)),
      otherMemoryOf: (gpu, reserved) =>
        this.options.otherMemory(recording, gpu, gpu === failure.gpu ? { deviceFree: failure.deviceFree, reserved } : undefined),
      hostMemory: this.options.hostMemory(recording),
      lost: recording.dropped + recording.counts.damaged,
    });
  }

  /** Ranks in two containers may have the same number and write to the same folder. */
  private nameFor({ owner, file }: ProcessRecording, failure: Failure, attempt: number): string {
    const beside = this.options.keepsTraces && file.path !== undefined ? dirname(file.path) : '';
    const rank = owner.rank >= 0 ? `${owner.rank}.` : '';
    const again = attempt === 1 ? '' : `-${attempt}`;
    return join(this.options.folder ?? beside, `oom.${rank}${owner.pid}${again}${failure.number > 1 ? '.last' : ''}.weir`);
  }

  /** Ten lines about the first process that failed, one about each other. */
  private tell(untold: readonly Watched[]): void {
    const hasToldFirst = this.hasToldFirst;
    this.hasToldFirst = true;
    const tasks = untold.map((watched, index) => {
      watched.hasTold = true;
      const { failure, bytes } = watched.first!;
      const task = { bytes: bytes ?? this.bytesOf(watched.recording, failure, failure.state!), gpu: failure.gpu };
      watched.first!.bytes = undefined;
      // What was live is in the file and with the thread.
      failure.state = undefined;
      return { ...task, replays: index === 0 && !hasToldFirst };
    });
    // One after the other: in the order in which they failed.
    this.telling = this.telling.then(async () => {
      const answers = await explainInThread(tasks, { mostMs: MOST_EXPLAIN_MS, ...this.options.limits, signal: this.cut.signal });
      for (const [index, watched] of untold.entries()) this.sayLines(watched, answers[index]!, tasks[index]!.replays);
    });
  }

  private sayLines(watched: Watched, { facts, problem }: Explanation, isFirst: boolean): void {
    watched.facts = facts;
    const { owner } = watched.recording;
    const { failure, path } = watched.first!;
    const who = `${processName(watched.recording)}${owner.rank >= 0 ? ` (process ${owner.pid})` : ''}`;
    const file = path && shellWord(path);
    const lines = facts ? failureLines(facts, who, file, problem) : briefLines(failure, who, file, problem);
    const [headline, ...rest] = (isFirst ? lines : [`${lines[0]}${path === undefined ? '' : `; see ${file}`}`]).map(printable);
    // An out-of-memory error is a problem, so that its first line is shown even with --quiet.
    this.options.trouble(headline!);
    for (const line of rest) this.options.say(line);
  }
}

function briefLines(failure: Failure, who: string, file: string | undefined, problem: string | undefined): string[] {
  return [
    `out of memory: ${who}, GPU ${failure.gpu}: a request for ${formatBytes(failure.asked)} failed`,
    `  who held the memory is not known here: ${problem}`,
    ...(file === undefined ? [] : [`  next: weir analyze ${file}`]),
  ];
}
