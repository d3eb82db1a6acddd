// Positions of events on the x axis: their number, or the microseconds since the first event.
import type { Trace } from '../trace/trace.ts';

export type AxisKind = 'event' | 'time';

export class Clock {
  readonly count: number;
  /** Microseconds from the first event to the last; 0: the recording has no times. */
  readonly durationUs: number;
  readonly startUs: number;
  private readonly times: Float64Array;

  constructor({ events }: Trace) {
    this.count = events.count;
    this.startUs = events.count > 0 ? events.timeUs[0]! : 0;
    // Times of several threads may go back a little; the axis must not.
    this.times = new Float64Array(events.count);
    let latest = 0;
    for (let event = 0; event < events.count; event++) {
      latest = Math.max(latest, events.timeUs[event]! - this.startUs);
      this.times[event] = latest;
    }
    this.durationUs = latest;
  }

  /** Length of the axis. */
  span(axis: AxisKind): number {
    return axis === 'event' ? this.count : this.durationUs;
  }

  /** Position of an event; -1 is the start and `count` the end. */
  position(axis: AxisKind, event: number): number {
    if (event < 0) return 0;
    if (axis === 'event') return Math.min(event, this.count);
    return event >= this.count ? this.durationUs : this.times[event]!;
  }

  /** The first event at or after a position; `count` if there is none. */
  firstFrom(axis: AxisKind, position: number): number {
    if (axis === 'event') return Math.min(this.count, Math.max(0, Math.ceil(position)));
    let low = 0;
    let high = this.count;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.times[middle]! < position) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** The last event at or before a position; -1: before the first. */
  lastAt(axis: AxisKind, position: number): number {
    if (axis === 'event') return Math.min(this.count - 1, Math.max(-1, Math.floor(position)));
    let low = 0;
    let high = this.count;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.times[middle]! <= position) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }
}
