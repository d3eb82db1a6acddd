// Segments that a recording gives back in front of a request or a call: whose they were, and which private pools had ended.
import { EventKind, type Trace } from '../trace/trace.ts';

export class SegmentEvents {
  private readonly events: Trace['events'];

  constructor(events: Trace['events']) {
    this.events = events;
  }

  /** Only the recording says which private pools nothing used any more. */
  releasablePools(segments: readonly number[]): number[] {
    return [...new Set(this.releasedPools(segments).filter((pool) => pool > 0))];
  }

  /** How many of these events belong to private pools that ended before the default pool gave memory back; 0 if it gave none. */
  endedFirst(segments: readonly number[]): number {
    const { events } = this;
    const first = segments.findIndex((segment) => !isRelease(events.kind[segment]!) || events.pool[segment]! <= 0);
    return first > 0 && this.releasedPools(segments).includes(0) ? first : 0;
  }

  /** A private pool that is asked has not ended. It gives back its own blocks that may not be split, if they are in the way. */
  releasesOwn(segments: readonly number[], pool: number): boolean {
    return pool > 0 && this.releasedPools(segments).includes(pool);
  }

  /** The pools whose memory these events give back. */
  releasedPools(segments: readonly number[]): number[] {
    const { events } = this;
    return segments.filter((segment) => isRelease(events.kind[segment]!)).map((segment) => Math.max(0, events.pool[segment]!));
  }

  /** Memory goes back, and all of it from private pools: they ended, since a retry and empty_cache() begin with the default pool. */
  endsPools(segments: readonly number[]): boolean {
    const pools = this.releasedPools(segments);
    return pools.length > 0 && !pools.includes(0);
  }
}

export function isSegmentEvent(kind: number): boolean {
  return isGrowth(kind) || isRelease(kind);
}

export function isGrowth(kind: number): boolean {
  return kind === EventKind.SegmentAlloc || kind === EventKind.SegmentMap;
}

export function isRelease(kind: number): boolean {
  return kind === EventKind.SegmentFree || kind === EventKind.SegmentUnmap;
}
