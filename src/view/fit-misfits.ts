// The requests that did not fit: those that failed, and the one for which reserved memory rose to its peak.
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
  /** Undefined: memory was at its peak before the first event. */
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

/** The last time that reserved memory rose to its peak, a request needed more than what was reserved. */
function peakOf(trace: Trace, { reserved, peakReserved, peakReservedEvent }: History): Misfit | undefined {
  const { events } = trace;
  let rise = Math.min(peakReservedEvent, events.count - 1);
  while (rise > 0 && reserved[rise - 1] === peakReserved) rise--;
  if (rise <= 0) return undefined;
  let request = rise;
  while (request < events.count && isGrowth(events.kind[request]!)) request++;
  if (events.kind[request] !== EventKind.Alloc) return undefined;
  // Pages of one request are mapped one after the other.
  let first = rise;
  while (first > 0 && isGrowth(events.kind[first - 1]!)) first--;
  return misfitOf(trace, 'peak', request, first - 1);
}

function isGrowth(kind: number): boolean {
  return kind === EventKind.SegmentAlloc || kind === EventKind.SegmentMap;
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
