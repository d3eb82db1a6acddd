// A job's memory while it runs, rank by rank, for the live page. `Playback` plays recordings as if they ran now.
// Supervised jobs implement the same interface.
import type { JobOver, LiveSample, OpensSource } from '../view/live-sample.ts';

export interface LiveFeed {
  readonly ranks: readonly string[];
  /** Seconds of the run per second of playback. */
  readonly speed: number;
  /** How the job ended; undefined: it has not. */
  readonly over: JobOver | undefined;
  /** The recording that `over` opens. To be told when a page has it, or has gone away. */
  recording?(): { readonly content: ReadableStream<Uint8Array>; readonly sent: () => void };
  /** Sends all past samples at once, then each new one. Returns a function that ends the subscription. */
  subscribe(listener: (sample: LiveSample) => void): () => void;
}

export type Levels = Pick<LiveSample, 'allocated' | 'reserved' | 'live' | 'highLive' | 'highReserved'>;

/** A recorded rank, as far as playback needs it. */
export interface PlayedRank {
  readonly name: string;
  /** Microseconds since 1970. */
  readonly startUs: number;
  readonly durationUs: number;
  readonly limit: number | undefined;
  /** The recording of this rank among the server's. */
  readonly origin: Omit<OpensSource, 'rank'>;
  readonly oomTimesUs: readonly number[];
  readonly events: number;
  /** Splits a span of the run into equal parts and returns the levels of each. */
  levels(fromUs: number, toUs: number, parts: number): Promise<readonly Levels[]>;
}

const TICK_MS = 100;
/** Samples per tick. With one, charts would look like stairs. */
const PARTS = 5;

export class Playback implements LiveFeed {
  readonly ranks: readonly string[];
  readonly speed: number;
  over: JobOver | undefined;
  private readonly played: readonly PlayedRank[];
  private readonly past: LiveSample[] = [];
  private readonly listeners = new Set<(sample: LiveSample) => void>();
  private readonly reachedUs: number[];
  private startedAt: number | undefined;
  private timer: NodeJS.Timeout | undefined;
  private isTicking = false;

  constructor(played: readonly PlayedRank[], speed: number) {
    this.played = played;
    this.ranks = played.map((rank) => rank.name);
    this.reachedUs = played.map(() => 0);
    this.speed = speed;
  }

  /** Playback starts with the first subscriber. */
  subscribe(listener: (sample: LiveSample) => void): () => void {
    for (const sample of this.past) listener(sample);
    this.listeners.add(listener);
    if (this.startedAt === undefined) {
      this.startedAt = performance.now();
      this.timer = setInterval(() => void this.tick(), TICK_MS);
    }
    return () => this.listeners.delete(listener);
  }

  stop(): void {
    clearInterval(this.timer);
    const rank = this.firstToOpen();
    const origin = this.played[rank]?.origin;
    this.over ??= {
      end: { kind: 'played', code: null, signal: null },
      atUs: Date.now() * 1000,
      opens: origin ? { rank, ...origin } : undefined,
      reason: undefined,
    };
  }

  /** The rank that failed first, else the one that reserved the most. */
  private firstToOpen(): number {
    const failedAt = ({ startUs, oomTimesUs }: PlayedRank) =>
      oomTimesUs.length === 0 ? Number.POSITIVE_INFINITY : startUs + Math.min(...oomTimesUs);
    const peaks = this.played.map(() => 0);
    for (const { rank, highReserved } of this.past) peaks[rank] = Math.max(peaks[rank]!, highReserved);
    const order = [...this.played.keys()].sort((a, b) => {
      const [first, second] = [failedAt(this.played[a]!), failedAt(this.played[b]!)];
      return first === second ? peaks[b]! - peaks[a]! : first - second;
    });
    return order[0] ?? 0;
  }

  private async tick(): Promise<void> {
    if (this.isTicking || this.startedAt === undefined) return;
    this.isTicking = true;
    const nowUs = (performance.now() - this.startedAt) * 1000 * this.speed;
    for (const [index, rank] of this.played.entries()) {
      const from = this.reachedUs[index]!;
      const to = Math.min(nowUs, rank.durationUs);
      if (to <= from) continue;
      const parts = await rank.levels(from, to, PARTS);
      this.reachedUs[index] = to;
      for (const [part, levels] of parts.entries()) {
        const timeUs = from + ((to - from) * (part + 1)) / parts.length;
        this.send({
          rank: index,
          startUs: rank.startUs,
          timeUs,
          event: Math.round((rank.events * timeUs) / rank.durationUs),
          ...levels,
          ooms: rank.oomTimesUs.filter((time) => time <= timeUs).length,
          limit: rank.limit,
          state: part === parts.length - 1 && to >= rank.durationUs ? 'ended' : 'running',
        });
      }
    }
    this.isTicking = false;
    if (this.played.every((rank, index) => this.reachedUs[index]! >= rank.durationUs)) this.stop();
  }

  private send(sample: LiveSample): void {
    this.past.push(sample);
    for (const listener of this.listeners) listener(sample);
  }
}
