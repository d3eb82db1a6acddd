// One request that is out of proportion: larger than the GPU, or far larger than all live memory. Such a request is
// usually a mistake in the program, such as an accidental broadcast, and no allocator and no smaller batch is the answer.
import { liveSize, type TraceSummary } from '../trace/summary.ts';
import { NO_STACK } from '../trace/symbols.ts';
import { EventKind, type Trace } from '../trace/trace.ts';
import { labelOf } from './sites.ts';

export interface OversizedRequest {
  readonly event: number;
  readonly bytes: number;
  /** The call site; undefined: no stack was recorded. */
  readonly site: string | undefined;
  /** The peak of live memory without this request. */
  readonly peakLive: number;
  /** The most that the job can get, if the request alone exceeds it: the size of the GPU, or the job's limit. */
  readonly capacity: number | undefined;
}

/** A failed request this many times as large as the peak of live memory is out of proportion on any GPU. */
const OUT_OF_PROPORTION = 4;

export function oversizedRequest(trace: Trace, summary: TraceSummary, capacity: number | undefined): OversizedRequest | undefined {
  const { events, symbols } = trace;
  const most = capacity ?? Number.POSITIVE_INFINITY;
  let event = -1;
  for (let at = 0; at < events.count; at++) {
    const size = liveSize(events.size[at]!);
    const isFailed = events.kind[at] === EventKind.Oom;
    if (!isFailed && events.kind[at] !== EventKind.Alloc) continue;
    const isOversized = size > most || (isFailed && summary.peakLive > 0 && size > OUT_OF_PROPORTION * summary.peakLive);
    if (isOversized && (event < 0 || events.size[at]! > events.size[event]!)) event = at;
  }
  if (event < 0) return undefined;
  const bytes = events.size[event]!;
  const stack = events.stack[event]!;
  return {
    event,
    bytes,
    site: stack === NO_STACK || symbols.frames.count === 0 ? undefined : labelOf(trace, stack, false),
    peakLive: summary.peakLive,
    capacity: liveSize(bytes) > most ? capacity : undefined,
  };
}
