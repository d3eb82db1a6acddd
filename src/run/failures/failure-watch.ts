// Watches all processes of a run for requests that fail. Of each process it keeps a file about the first failure and one about the last.
// It prints who failed first, where, and who held the memory, also if the script catches the error.
import { existsSync } from 'node:fs';
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
import { freeName } from '../rings/trace-names.ts';
import { failureFile } from './failure-file.ts';
import { explainInThread } from './failure-task.ts';
import { type Failure, ProcessMemory } from './process-memory.ts';
import { writeWhole } from './whole-file.ts';

/** So long a process may take to say what its memory holds. */
const MOST_WAIT_MS = 2000;
/** A script that tries batch sizes may fail hundreds of times a second. Its last failure is written at most so often. */
const REWRITE_MS = 2000;
const OUR_MARKS: ReadonlySet<string> = new Set(Object.values(PhaseMark));

export interface FailureOptions {
  /** Where files go; undefined: beside the recording of the process, or in the current folder. `none`: no files. */
  readonly folder: string | undefined;
  /** Whether the recording stays, so that files may lie beside it. */
  readonly keepsTraces: boolean;
  say(line: string): void;
  /** A problem, shown even with --quiet. */
  trouble(line: string): void;
  /** Memory that is not PyTorch's, with what the driver has free. */
  otherMemory(process: ProcessRecording, gpu: number, deviceFree: number | undefined): OtherMemory | undefined;
  hostMemory(process: ProcessRecording): HostMemory | undefined;
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
  failure: Failure;
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
  wroteLastAt: number;
}

export class FailureWatch {
  private readonly options: FailureOptions;
  private readonly watched = new Map<ProcessRecording, Watched>();
  private readonly used = new Set<string>();
  private telling: Promise<void> = Promise.resolve();
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
      const isDue = isLast || performance.now() - last.seenAt > MOST_WAIT_MS || watched.recording.isFinished;
      if (isDue) memory.close();
      if (!watched.hasTold) {
        if (first.failure.isWhole) this.write(watched, first);
        untold.push(watched);
      }
      const mayWrite = isLast || performance.now() - watched.wroteLastAt > REWRITE_MS;
      if (last !== first && last.failure.isWhole && mayWrite) this.writeLast(watched, last);
    }
    // Rings are read one after the other, so the first failure that was seen need not be the first that happened. One more look tells.
    untold.sort((a, b) => a.first!.failure.timeUs - b.first!.failure.timeUs);
    const waits = untold.findIndex(({ first }) => !isLast && (!first!.failure.isWhole || first!.look === this.looks));
    for (const watched of waits < 0 ? untold : untold.slice(0, waits)) this.tell(watched);
    this.looks++;
  }

  /** Tells all that there is to tell, as when processes have ended. */
  async finish(): Promise<void> {
    this.look(true);
    await this.telling;
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
        wroteLastAt: Number.NEGATIVE_INFINITY,
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
    // At once: we may be killed before the process has said more.
    this.write(watched, found);
  }

  private writeLast(watched: Watched, last: Case): void {
    if (last.writtenLate === last.failure.late.length) return;
    this.write(watched, last);
    watched.wroteLastAt = performance.now();
  }

  private write(watched: Watched, found: Case): void {
    const { failure } = found;
    if (this.options.folder === 'none' || found.writtenLate === failure.late.length || watched.problem !== undefined) return;
    found.writtenLate = failure.late.length;
    const { recording } = watched;
    found.path ??= this.nameFor(recording, failure.number > 1);
    const bytes = this.bytesOf(recording, failure);
    if (found === watched.first && !watched.hasTold) found.bytes = bytes;
    const problem = writeWhole(found.path, bytes);
    if (problem === undefined) return;
    watched.problem = problem;
    if (!this.hasToldProblem)
      this.options.trouble(`the out-of-memory error of ${processName(recording)} is not in ${found.path}: ${problem}`);
    this.hasToldProblem = true;
    if (!existsSync(found.path)) found.path = undefined;
  }

  private bytesOf(recording: ProcessRecording, failure: Failure): Uint8Array {
    return failureFile(failure, {
      symbols: recording.symbols,
      meta: recording.meta,
      settings: recording.allSettings,
      streamsOf: (gpu) => recording.streamsOf(gpu).map((handle) => recording.symbols.addresses.encode(handle)),
      poolsOf: (gpu) => recording.poolsOf(gpu),
      limitsOf: (gpu) => limitsOf(recording.gauges.get(gpu)),
      otherMemoryOf: (gpu) => this.options.otherMemory(recording, gpu, gpu === failure.gpu ? failure.deviceFree : undefined),
      hostMemory: this.options.hostMemory(recording),
      lost: recording.dropped + recording.counts.damaged,
    });
  }

  private nameFor(recording: ProcessRecording, isLast: boolean): string {
    const { owner, file } = recording;
    const beside = this.options.keepsTraces && file.path !== undefined ? dirname(file.path) : '';
    const rank = owner.rank >= 0 ? `${owner.rank}.` : '';
    const name = join(this.options.folder ?? beside, `oom.${rank}${owner.pid}${isLast ? '.last' : ''}.weir`);
    const free = freeName(name, owner, false, this.used);
    this.used.add(free);
    return free;
  }

  /** Ten lines about the first process that failed, one about each other. */
  private tell(watched: Watched): void {
    watched.hasTold = true;
    const { recording, first } = watched;
    const { failure, path } = first!;
    const isFirst = !this.hasToldFirst;
    this.hasToldFirst = true;
    const who = `${processName(recording)}${recording.owner.rank >= 0 ? ` (process ${recording.owner.pid})` : ''}`;
    const bytes = first!.bytes ?? this.bytesOf(recording, failure);
    first!.bytes = undefined;
    // One after the other: with many ranks, and in the order in which they failed.
    this.telling = this.telling.then(async () => {
      const answer = await explainInThread({ bytes, gpu: failure.gpu });
      if (typeof answer !== 'string') watched.facts = answer;
      const lines = typeof answer === 'string' ? briefLines(failure, who, answer) : failureLines(answer, who, path && shellWord(path));
      const [headline, ...rest] = (isFirst ? lines : [`${lines[0]}${path === undefined ? '' : `; see ${path}`}`]).map(printable);
      // An out-of-memory error is a problem, so that its first line is shown even with --quiet.
      this.options.trouble(headline!);
      for (const line of rest) this.options.say(line);
    });
    // What was live is in the file and with the thread.
    first!.failure = { ...failure, live: new Map(), window: NOTHING, marks: NOTHING, late: [] };
    first!.writtenLate = 0;
  }
}

const NOTHING: Buffer = Buffer.alloc(0);

function briefLines(failure: Failure, who: string, why: string): string[] {
  return [
    `out of memory: ${who}, GPU ${failure.gpu}: a request for ${formatBytes(failure.asked)} failed`,
    `  who held the memory is unknown: ${why}`,
  ];
}
