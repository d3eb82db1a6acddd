// A running job for the page: one rank per process and GPU, sampled from their gauges, and how the job ended.
import { createReadStream, existsSync, openSync, statSync } from 'node:fs';
import { Readable } from 'node:stream';
import { formatBytes, GIB } from '../../base/bytes.ts';
import type { LiveFeed } from '../../server/live-feed.ts';
import { fileName } from '../../view/job-names.ts';
import type { JobOver, LiveSample, OpensRecording, RankState } from '../../view/live-sample.ts';
import type { ChildEnd } from '../child/child.ts';
import { signalNumber } from '../child/signals.ts';
import { type Level, levelName, levelsOf } from '../rings/levels.ts';
import type { ProcessRecording } from '../rings/process-recording.ts';

const SAMPLE_EVERY_MS = 250;
const LOOK_EVERY_MS = 50;
/** Samples kept for pages that open later; beyond this, every second one is dropped. */
const MOST_SAMPLES = 2000;
/** A page takes a recording of this size at the end of a job; larger ones are for `weir serve`. */
const MOST_RECORDING_BYTES = 1 * GIB;

interface Rank {
  readonly process: ProcessRecording;
  readonly gpu: number;
  readonly name: string;
  past: LiveSample[];
  peakLive: number;
  peakReserved: number;
  /** Only a process that was seen can be seen to be gone: its number may count elsewhere, as in a container. */
  wasSeen: boolean;
  hasEnded: boolean;
}

/** The end of a job, as its supervisor knows it. */
export interface RunEnd {
  /** Undefined: the command could not be started, or was not started by this supervisor. */
  readonly end: ChildEnd | undefined;
  /** The process whose request failed first, if one did. */
  readonly failed: ProcessRecording | undefined;
  /** Files about the failures of a process. */
  failureFiles(process: ProcessRecording): readonly string[];
  /** Whether recordings outlive the run, so that their names mean something. */
  readonly keepsTraces: boolean;
}

export class RunFeed implements LiveFeed {
  readonly speed = 1;
  over: JobOver | undefined;
  private readonly processes: readonly ProcessRecording[];
  private readonly known: Rank[] = [];
  private readonly listeners = new Set<(sample: LiveSample) => void>();
  private sampledAt = Number.NEGATIVE_INFINITY;
  private handle: number | undefined;
  /** Pages that are about to ask for the recording, and that are getting it. */
  private toSend = 0;
  private sending = 0;

  constructor(processes: readonly ProcessRecording[]) {
    this.processes = processes;
  }

  get ranks(): readonly string[] {
    return this.known.map((rank) => rank.name);
  }

  subscribe(listener: (sample: LiveSample) => void): () => void {
    for (const { past } of this.known) for (const sample of past) listener(sample);
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Samples the gauges, if the last sample is old enough. */
  sample(isLast = false): void {
    const now = performance.now();
    if (!isLast && now - this.sampledAt < SAMPLE_EVERY_MS) return;
    this.sampledAt = now;
    for (const level of levelsOf(this.processes)) this.sampleRank(level, isLast);
  }

  /** The job has ended. */
  end(how: RunEnd): void {
    this.sample(true);
    this.toSend = this.listeners.size;
    const { code = null, signal = null } = how.end ?? {};
    const opens = this.worstRecording(how);
    this.over = {
      end: { kind: 'ended', code, signal, signalNumber: signal === null ? undefined : signalNumber(signal) || undefined },
      atUs: Date.now() * 1000,
      ...(typeof opens === 'string' ? { opens: undefined, reason: opens } : { opens, reason: undefined }),
    };
  }

  /** The file was opened when the job ended: it may be removed before the page has it. */
  recording(): { readonly content: ReadableStream<Uint8Array>; readonly sent: () => void } {
    const stream = createReadStream('', { fd: this.handle!, start: 0, autoClose: false });
    this.sending++;
    this.toSend = Math.max(0, this.toSend - 1);
    return { content: Readable.toWeb(stream) as ReadableStream<Uint8Array>, sent: () => this.sending-- };
  }

  /** Resolves when every page that followed the job to its end has heard of it and has the recording, or takes too long. */
  async untilSent(mostAskingMs: number, mostSendingMs: number): Promise<void> {
    if (this.toSend === 0 && this.sending === 0) return;
    const started = performance.now();
    const isWaiting = () => {
      const waited = performance.now() - started;
      const isAsking = this.listeners.size > 0 || (this.handle !== undefined && this.toSend > 0);
      return (isAsking && waited < mostAskingMs) || (this.sending > 0 && waited < mostSendingMs);
    };
    do await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS));
    while (isWaiting());
    // The last message is on its way to the socket.
    await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS));
  }

  private sampleRank(level: Level, isLast: boolean): void {
    const { process, gpu, gauges } = level;
    let index = this.known.findIndex((candidate) => candidate.process === process && candidate.gpu === gpu);
    if (index < 0)
      index =
        this.known.push({
          process,
          gpu,
          name: levelName(level),
          past: [],
          peakLive: 0,
          peakReserved: 0,
          wasSeen: false,
          hasEnded: false,
        }) - 1;
    const rank = this.known[index]!;
    if (rank.hasEnded) return;
    const state = this.stateOf(rank, isLast);
    rank.hasEnded = state !== 'running';
    const before = rank.past.at(-1);
    const sample: LiveSample = {
      rank: index,
      name: rank.name,
      startUs: process.owner.startedUs,
      timeUs: Math.max(0, Date.now() * 1000 - process.owner.startedUs),
      event: process.events,
      allocated: gauges.allocated,
      reserved: gauges.reserved,
      live: gauges.live,
      // A new peak happened since the previous sample. Otherwise only the two levels are known.
      highLive: gauges.peak_live > rank.peakLive ? gauges.peak_live : Math.max(gauges.live, before?.live ?? 0),
      highReserved: gauges.peak_reserved > rank.peakReserved ? gauges.peak_reserved : Math.max(gauges.reserved, before?.reserved ?? 0),
      limit: gauges.limit > 0 ? gauges.limit : gauges.total > 0 ? gauges.total : undefined,
      ooms: gauges.ooms,
      state,
    };
    rank.peakLive = Math.max(rank.peakLive, gauges.peak_live);
    rank.peakReserved = Math.max(rank.peakReserved, gauges.peak_reserved);
    rank.past.push(sample);
    if (rank.past.length > MOST_SAMPLES) rank.past = rank.past.filter((_, at) => at % 2 === 1);
    for (const listener of this.listeners) listener(sample);
  }

  /** A process that ends by itself closes its ring. */
  private stateOf(rank: Rank, isLast: boolean): RankState {
    if (rank.process.isClosed) return rank.process.isFinished ? 'ended' : 'running';
    const isThere = existsSync(`/proc/${rank.process.owner.pid}`);
    rank.wasSeen ||= isThere;
    // At the end of the job it does not matter where its number counts.
    if ((rank.wasSeen || isLast) && !isThere) return 'gone';
    return isLast || rank.process.isFinished ? 'ended' : 'running';
  }

  /** The recording of the rank that failed first, else of the one that reserved the most; or why there is none. */
  private worstRecording({ failed, failureFiles, keepsTraces }: RunEnd): OpensRecording | string {
    const [worst] = [...this.known].sort((a, b) => b.peakReserved - a.peakReserved);
    const rank = this.known.find(({ process }) => process === failed) ?? worst;
    if (!rank) return 'No process of the job used GPU memory under Weir.';
    const { process } = rank;
    const own = process.writtenEvents > 0 ? process.file.path : undefined;
    const whole = process.isCut ? undefined : own;
    const path = [whole, failureFiles(process).at(-1), own].find((candidate) => candidate !== undefined && existsSync(candidate));
    if (path === undefined) return 'No recording was kept. With --record run.weir, the analysis would be here.';
    try {
      const { size } = statSync(path);
      if (size > MOST_RECORDING_BYTES) return `The recording has ${formatBytes(size)}, too much for a browser: weir serve ${path}`;
      this.handle = openSync(path, 'r');
      const name = path === own && !keepsTraces ? `${rank.name}.weir` : fileName(path);
      return { rank: this.known.indexOf(rank), name, bytes: size, gpu: rank.gpu };
    } catch (error) {
      return `The recording cannot be read: ${error instanceof Error ? error.message : String(error)}`;
    }
  }
}
