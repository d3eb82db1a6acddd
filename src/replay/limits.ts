// How much memory the recorded job could have, read from its failures where nothing says it outright.
import type { PyTorchSettings } from '../allocator/pytorch/settings.ts';
import { roundRequest, segmentSizeFor } from '../allocator/pytorch/sizes.ts';
import { EventKind, type Trace } from '../trace/trace.ts';

export interface MemoryLimits {
  /** Physical memory the job could have; undefined when unknown. */
  readonly capacity: number | undefined;
  /** Reserved bytes the job was allowed, by a memory fraction or as far as its failures show; undefined when unknown. */
  readonly allowedBytes: number | undefined;
  /** Where `allowedBytes` is inferred, it is what the job could have at most; this is what it surely could. */
  readonly grantedBytes?: number | undefined;
  readonly origin: 'recorded' | 'inferred' | 'unknown';
}

export function findLimits(trace: Trace, settings: PyTorchSettings): MemoryLimits {
  const { deviceBytes, memoryFraction = 1 } = trace.limits;
  if (deviceBytes !== undefined) {
    const allowedBytes = memoryFraction < 1 ? Math.floor(memoryFraction * deviceBytes) : undefined;
    // A job never has all of its GPU: where the driver refused it more, that says how much it had.
    const shown = allowedBytes === undefined ? inferLimits(trace, settings).capacity : undefined;
    return { capacity: Math.min(deviceBytes, shown ?? deviceBytes), allowedBytes, origin: 'recorded' };
  }
  return inferLimits(trace, settings);
}

/**
 * An oom tells what the driver had free: if that was less than a new segment, the GPU was full; if not, a memory
 * fraction said no, and lies below what was refused. Pages mapped right before others are given back are a request
 * that got stuck half way: one more page did not fit.
 */
function inferLimits(trace: Trace, settings: PyTorchSettings): MemoryLimits {
  const { events } = trace;
  let reserved = reservedAtStart(trace);
  let mostReserved = reserved;
  let capacity = Number.POSITIVE_INFINITY;
  let refused = Number.POSITIVE_INFINITY;
  let mappedLast = false;
  for (let event = 0; event < events.count; event++) {
    const size = events.size[event]!;
    const kind = events.kind[event];
    switch (kind) {
      case EventKind.SegmentAlloc:
      case EventKind.SegmentMap:
        reserved += size;
        mostReserved = Math.max(mostReserved, reserved);
        break;
      case EventKind.SegmentFree:
      case EventKind.SegmentUnmap:
        if (mappedLast) capacity = Math.min(capacity, reserved + settings.largeSegmentSize - 1);
        reserved -= size;
        break;
      case EventKind.Reserved:
        reserved = size;
        mostReserved = Math.max(mostReserved, reserved);
        break;
      case EventKind.Oom: {
        const needed = segmentSizeFor(size, settings);
        const deviceFree = events.address[event]!;
        if (deviceFree < needed) capacity = Math.min(capacity, reserved + deviceFree);
        else refused = Math.min(refused, reserved + needed);
        break;
      }
    }
    mappedLast = kind === EventKind.SegmentMap;
  }
  // Without recorded segments nothing says how much the job held when it was refused more.
  const isFull = capacity !== Number.POSITIVE_INFINITY && mostReserved > 0;
  const isRefused = refused !== Number.POSITIVE_INFINITY;
  const granted = grantedBytes(trace, settings);
  return {
    capacity: isFull ? Math.max(capacity, mostReserved) : undefined,
    allowedBytes: isRefused ? Math.max(refused - 1, granted) : undefined,
    grantedBytes: isRefused ? granted : undefined,
    origin: isFull || isRefused ? 'inferred' : 'unknown',
  };
}

/** The most that any request which got new memory was checked against: the job was allowed at least that. */
export function grantedBytes(trace: Trace, settings: PyTorchSettings): number {
  const { events } = trace;
  let reserved = reservedAtStart(trace);
  let granted = reserved;
  let beforeGrowth = -1;
  for (let event = 0; event < events.count; event++) {
    switch (events.kind[event]) {
      case EventKind.SegmentAlloc:
      case EventKind.SegmentMap:
        if (beforeGrowth < 0) beforeGrowth = reserved;
        reserved += events.size[event]!;
        break;
      case EventKind.SegmentFree:
      case EventKind.SegmentUnmap:
        reserved -= events.size[event]!;
        beforeGrowth = -1;
        break;
      case EventKind.Alloc:
        if (beforeGrowth >= 0) {
          granted = Math.max(granted, beforeGrowth + segmentSizeFor(roundRequest(events.size[event]!, settings), settings));
        }
        beforeGrowth = -1;
        break;
    }
  }
  return granted;
}

function reservedAtStart(trace: Trace): number {
  return trace.startSegments.reduce((sum, segment) => sum + segment.size, 0);
}
