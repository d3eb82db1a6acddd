// The requests that did not fit: those that failed, and one that made reserved memory rise to its peak.
import { SMALL_REQUEST } from '../allocator/pytorch/sizes.ts';
import { askerAt } from '../report/moment.ts';
import { labelOf } from '../report/sites.ts';
import { NO_STACK } from '../trace/symbols.ts';
import { EventKind, type Trace } from '../trace/trace.ts';
import type { Asker } from './fit-strip.ts';
import type { History } from './history.ts';

export interface Misfit {
  readonly kind: 'failed' | 'peak';
  /** The event of the request. */
  readonly event: number;
  /** After this event memory is as the request found it. */
  readonly at: number;
  readonly bytes: number;
  /** `file.py:123 function`; undefined: no stack was recorded. */
  readonly site: string | undefined;
  /** The call stack, innermost frame first. */
  readonly frames: readonly string[];
}

export interface Misfits {
  /** Requests that failed, the last ones if there are very many. */
  readonly failed: readonly Misfit[];
  /** How many failed in all. */
  readonly failures: number;
  /** Undefined: memory was never taken, or only before the first event. */
  readonly peak: Misfit | undefined;
}

const MOST_FAILED = 100;
const MOST_FRAMES = 64;

export function findMisfits(trace: Trace, history: History): Misfits {
  const { events } = trace;
  const failed: number[] = [];
  for (let event = 0; event < events.count; event++) if (events.kind[event] === EventKind.Oom) failed.push(event);
  return {
    failed: failed.slice(-MOST_FAILED).map((event) => misfitOf(trace, 'failed', event, event)),
    failures: failed.length,
    peak: peakOf(trace, history),
  };
}

/** Growth below this share of the peak explains nothing: a new small segment may be what makes the peak. */
const WORTH_SHOWING = 0.02;

/** The last request before the peak for which much memory was taken from the driver, or the one that took most. */
function peakOf(trace: Trace, { reserved, peakReserved, peakReservedEvent }: History): Misfit | undefined {
  const { events } = trace;
  let most = 0;
  let found: Misfit | undefined;
  for (let event = Math.min(peakReservedEvent, events.count - 1); event > 0; ) {
    // Pages of one request are mapped one after the other.
    let first = event;
    while (first > 0 && reserved[first - 1]! < reserved[first]!) first--;
    const taken = reserved[event]! - reserved[first]!;
    if (taken > most) {
      const request = requestFrom(trace, event);
      if (request >= 0) {
        most = taken;
        found = misfitOf(trace, 'peak', request, first);
        if (taken >= WORTH_SHOWING * peakReserved) break;
      }
    }
    event = Math.min(first, event - 1);
  }
  return found;
}

/** The request whose growth ends at this event; -1: none. */
function requestFrom({ events }: Trace, event: number): number {
  let request = event;
  while (request < events.count && isGrowth(events.kind[request]!)) request++;
  return events.kind[request] === EventKind.Alloc ? request : -1;
}

/** Weir's engine records what it holds, right before the request for which that changed. */
function isGrowth(kind: number): boolean {
  return kind === EventKind.SegmentAlloc || kind === EventKind.SegmentMap || kind === EventKind.Reserved;
}

function misfitOf(trace: Trace, kind: Misfit['kind'], event: number, at: number): Misfit {
  const stack = trace.events.stack[event]!;
  const frames = stack === NO_STACK ? [] : [...trace.symbols.framesOf(stack)].slice(0, MOST_FRAMES);
  return {
    kind,
    event,
    at,
    bytes: trace.events.size[event]!,
    site: stack === NO_STACK ? undefined : labelOf(trace, stack, false),
    frames: frames.map(({ name, filename, line }) => (filename === '' ? name : `${name}  ${filename}:${line}`)),
  };
}

/** Whoever asks at the event, or asked last before it. */
export function askerOf(trace: Trace, event: number, isStitched: boolean): Asker {
  const { stream, pool } = askerAt(trace, event) ?? { stream: 0, pool: 0 };
  const { events } = trace;
  const isRequest = events.kind[event] === EventKind.Alloc || events.kind[event] === EventKind.Oom;
  return { stream, pool, isSmall: isRequest && events.size[event]! <= SMALL_REQUEST, isStitched };
}
