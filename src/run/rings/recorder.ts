// Records all processes of a run: finds their rings in the run folder, empties them into files, and reads refusals.

import { type FSWatcher, readdirSync, readFileSync, statSync, unlinkSync, watch } from 'node:fs';
import { join } from 'node:path';
import { EXCHANGE_FILES } from '../../abi/exchange.ts';
import type { FolderOwner } from '../child/folder-owner.ts';
import { ProcessRecording, type RecordingOptions } from './process-recording.ts';
import { Ring, RingDamage, type RingOwner } from './ring.ts';
import { hasEnded, processOfRing } from './ring-process.ts';
import type { TraceFile } from './trace-file.ts';

/** Full rings drop events. At 100 ms, the usual ring holds 2.6 million events a second. */
const LOOK_EVERY_MS = 75;
/** Pause between looks after the command has ended, while its last processes may still write. */
const SETTLE_MS = 60;
const MOST_SETTLING = 20;

/** Looks between two at which processes are asked for. */
const LOOKS_PER_QUESTION = 8;

/** A process that refused to run on Weir. */
export interface Refusal {
  readonly reason: string;
  readonly message: string;
}

export interface RecorderOptions {
  readonly folder: string;
  /** The file for a process. Its path is undefined if nothing is kept. */
  fileFor(owner: RingOwner): TraceFile;
  recordingFor(owner: RingOwner): RecordingOptions;
  /** Called with a sentence that the user should see now. */
  onTrouble(sentence: string): void;
  /** Called with the name of every other file in the folder, at every look. */
  onFile?(name: string): void;
  /** Called when levels may have changed. */
  onLevels?(): void;
}

export class Recorder {
  readonly processes: ProcessRecording[] = [];
  readonly refusals: Refusal[] = [];
  /** Processes that loaded Weir but used no GPU yet: helpers and launchers. No file is kept for them. */
  readonly idle: Set<number> = new Set();
  /** Time spent emptying rings and writing files. */
  busyMs = 0;
  private readonly options: RecorderOptions;
  private readonly current = new Map<string, ProcessRecording>();
  /** Files that are not rings, and refusals already read. */
  private readonly done = new Set<string>();
  /** Who writes, where that is known. */
  private readonly writers = new Map<ProcessRecording, FolderOwner>();
  private looks = 0;
  private hasToldTrouble = false;
  private isBroken = false;
  private timer: NodeJS.Timeout | undefined;
  private watcher: FSWatcher | undefined;
  private isAboutToLook = false;

  constructor(options: RecorderOptions) {
    this.options = options;
  }

  start(): void {
    this.timer = setInterval(() => this.lookOrStop(), LOOK_EVERY_MS);
    try {
      // The watcher reports new files only. Writes into them are found by the timer.
      this.watcher = watch(this.options.folder, (event) => {
        if (event !== 'rename' || this.isAboutToLook) return;
        // If a thousand processes start together, that is one look.
        this.isAboutToLook = true;
        setImmediate(() => {
          this.isAboutToLook = false;
          if (this.watcher) this.lookOrStop();
        });
      });
      // Without a watcher, rings are found at the next look.
      this.watcher.on('error', () => this.watcher?.close());
    } catch {}
  }

  /** Looks once for new rings, new rows and refusals. Nothing that a process did makes it throw. */
  look(): void {
    const started = performance.now();
    let names: string[];
    try {
      names = readdirSync(this.options.folder);
    } catch {
      // The folder was removed. Processes go on with the rings they have mapped.
      names = [];
    }
    for (const name of names) {
      if (name.endsWith('.ring')) this.findRing(name);
      else if (name.endsWith(EXCHANGE_FILES.Refusal)) this.readRefusal(name);
      else this.options.onFile?.(name);
    }
    const asks = this.looks++ % LOOKS_PER_QUESTION === 0;
    for (const [name, recording] of this.current) this.empty(name, recording, asks);
    this.options.onLevels?.();
    this.busyMs += performance.now() - started;
  }

  /** The command has ended: reads the rest and closes all files. */
  async finish(): Promise<void> {
    this.watcher?.close();
    this.watcher = undefined;
    clearInterval(this.timer);
    let before = -1;
    for (let round = 0; round < MOST_SETTLING && !this.isBroken; round++) {
      this.lookOrStop();
      const events = this.processes.reduce((sum, { events, dropped }) => sum + events + dropped, 0);
      const isQuiet = events === before || this.processes.every((recording) => recording.isFinished);
      if (isQuiet && round > 0) break;
      before = events;
      await new Promise((resolve) => setTimeout(resolve, SETTLE_MS));
    }
    for (const recording of this.current.values()) recording.finish();
    this.current.clear();
  }

  /** A defect of ours ends the recording. The command must not notice. */
  private lookOrStop(): void {
    if (this.isBroken) return;
    try {
      this.look();
    } catch (error) {
      this.isBroken = true;
      const reason = error instanceof Error ? error.stack : String(error);
      this.options.onTrouble(`recording stopped, the job goes on; this is a defect in weir, please report it: ${reason}`);
    }
  }

  private findRing(name: string): void {
    const path = join(this.options.folder, name);
    const known = this.current.get(name);
    try {
      const { ino } = statSync(path);
      if (known && known.inode === ino) return;
      const key = `${name} ${ino}`;
      if (this.done.has(key)) return;
      const ring = Ring.open(path);
      if (!ring) return;
      if (isIdle(ring)) {
        this.idle.add(ring.owner.pid);
        return;
      }
      // First of all, since a short process may end meanwhile.
      const writer = processOfRing(ring.owner.pid, ino);
      // A process that replaced itself (exec) keeps its pid and begins a new ring.
      while (known?.drain());
      known?.finish();
      const file = this.options.fileFor(ring.owner);
      const recording = new ProcessRecording(ring, file, this.options.recordingFor(ring.owner));
      this.idle.delete(ring.owner.pid);
      this.processes.push(recording);
      this.current.set(name, recording);
      if (writer) this.writers.set(recording, writer);
      this.tellFile(recording);
    } catch (error) {
      if (error instanceof RingDamage) this.refuseRing(name, path, error.message);
      // Otherwise the ring was removed before it could be opened.
    }
  }

  private refuseRing(name: string, path: string, why: string): void {
    const key = `${name} ${statSync(path, { throwIfNoEntry: false })?.ino}`;
    if (this.done.has(key)) return;
    this.done.add(key);
    this.options.onTrouble(`process ${name.replace('.ring', '')} is not recorded: ${why}`);
  }

  private empty(name: string, recording: ProcessRecording, asks: boolean): void {
    const wasOpen = recording.file.isOpen;
    // The second drain reads rows that were written between the count and the end of the process, or the closing of the ring.
    if (!recording.drain() && this.isOver(recording, asks) && !recording.drain()) recording.finish();
    if (wasOpen) this.tellFile(recording);
    if (!recording.isFinished) return;
    this.current.delete(name);
    this.writers.delete(recording);
    if (recording.damage !== undefined)
      this.options.onTrouble(`recording of process ${recording.owner.pid} stopped, the job goes on: ${recording.damage}`);
    this.done.add(`${name} ${recording.inode}`);
    // Frees shared memory now: a job may start many short processes.
    try {
      unlinkSync(join(this.options.folder, name));
    } catch {}
  }

  private isOver(recording: ProcessRecording, asks: boolean): boolean {
    return recording.isClosed || (asks && hasEnded(this.writers.get(recording)));
  }

  private tellFile({ file }: ProcessRecording): void {
    if (file.problem === undefined || this.hasToldTrouble) return;
    this.hasToldTrouble = true;
    this.options.onTrouble(`recording to ${file.path} stopped, the job goes on: ${file.problem}`);
  }

  private readRefusal(name: string): void {
    if (this.done.has(name)) return;
    try {
      const said: unknown = JSON.parse(readFileSync(join(this.options.folder, name), 'utf8').slice(0, 65536));
      const { reason, message } = said as Record<string, unknown>;
      this.done.add(name);
      this.refusals.push({
        reason: typeof reason === 'string' ? reason : 'unknown',
        message: typeof message === 'string' ? message : 'a process refused to run on Weir and did not say why',
      });
    } catch {
      // The file is not complete yet. The last look reads it again.
    }
  }
}

/** Whether a process has done nothing yet. Then its ring is closed, and opened again at a later look. */
function isIdle(ring: Ring): boolean {
  try {
    ring.refresh();
  } catch (error) {
    ring.close();
    throw error;
  }
  if (ring.waiting > 0 || ring.dropped > 0 || ring.gauges.size > 0) return false;
  ring.close();
  return true;
}
