// A running job for the page: one rank per process and GPU, sampled from their gauges.
import type { LiveFeed } from '../../server/live-feed.ts';
import type { LiveSample } from '../../view/live-sample.ts';
import { type Level, levelName, levelsOf } from '../rings/levels.ts';
import type { ProcessRecording } from '../rings/process-recording.ts';

const SAMPLE_EVERY_MS = 250;
/** Samples kept for pages that open later; beyond this, every second one is dropped. */
const MOST_SAMPLES = 2000;

interface Rank {
  readonly process: ProcessRecording;
  readonly gpu: number;
  readonly name: string;
  past: LiveSample[];
  peakAllocated: number;
  peakReserved: number;
  hasEnded: boolean;
}

export class RunFeed implements LiveFeed {
  readonly speed = 1;
  isOver = false;
  private readonly processes: readonly ProcessRecording[];
  private readonly known: Rank[] = [];
  private readonly listeners = new Set<(sample: LiveSample) => void>();
  private sampledAt = Number.NEGATIVE_INFINITY;

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
    if (isLast) this.isOver = true;
  }

  private sampleRank(level: Level, isLast: boolean): void {
    const { process, gpu, gauges } = level;
    let index = this.known.findIndex((candidate) => candidate.process === process && candidate.gpu === gpu);
    if (index < 0)
      index = this.known.push({ process, gpu, name: levelName(level), past: [], peakAllocated: 0, peakReserved: 0, hasEnded: false }) - 1;
    const rank = this.known[index]!;
    if (rank.hasEnded) return;
    rank.hasEnded = process.isFinished || isLast;
    const before = rank.past.at(-1);
    const sample: LiveSample = {
      rank: index,
      name: rank.name,
      timeUs: Math.max(0, Date.now() * 1000 - process.owner.startedUs),
      event: process.events,
      allocated: gauges.allocated,
      reserved: gauges.reserved,
      live: gauges.live,
      // A new peak happened since the previous sample. Otherwise only the two levels are known.
      highAllocated:
        gauges.peak_allocated > rank.peakAllocated ? gauges.peak_allocated : Math.max(gauges.allocated, before?.allocated ?? 0),
      highReserved: gauges.peak_reserved > rank.peakReserved ? gauges.peak_reserved : Math.max(gauges.reserved, before?.reserved ?? 0),
      ooms: gauges.ooms,
      isOver: rank.hasEnded,
    };
    rank.peakAllocated = Math.max(rank.peakAllocated, gauges.peak_allocated);
    rank.peakReserved = Math.max(rank.peakReserved, gauges.peak_reserved);
    rank.past.push(sample);
    if (rank.past.length > MOST_SAMPLES) rank.past = rank.past.filter((_, at) => at % 2 === 1);
    for (const listener of this.listeners) listener(sample);
  }
}
