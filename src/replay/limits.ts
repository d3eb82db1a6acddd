// The memory limit of the recorded job: as recorded, or inferred from its failures.
import type { PyTorchSettings } from '../allocator/pytorch/settings.ts';
import { roundRequest, segmentSizeFor } from '../allocator/pytorch/sizes.ts';
import { DEFAULT_RULES, type PyTorchRules } from '../allocator/pytorch/versions.ts';
import { EventKind, type Trace } from '../trace/trace.ts';

export interface MemoryLimits {
  /** Memory that the driver could give the job; undefined: unknown. */
  readonly capacity: number | undefined;
  /** Most bytes the job could reserve, by a memory fraction or as its failures show; undefined: unknown. */
  readonly allowedBytes: number | undefined;
  /** If `allowedBytes` is inferred, it is an upper bound, and this is a lower bound. */
  readonly grantedBytes?: number | undefined;
  readonly origin: 'recorded' | 'inferred' | 'unknown';
}

export function findLimits(trace: Trace, settings: PyTorchSettings, rules: PyTorchRules = DEFAULT_RULES): MemoryLimits {
  const { deviceBytes } = trace.limits;
  if (deviceBytes !== undefined) {
    const allowedBytes = allowedByFraction(trace.limits, rules);
    // A job never gets all memory of its GPU. If the driver refused a request, that shows how much it got.
    const shown = allowedBytes === undefined ? inferLimits(trace, settings).capacity : undefined;
    return { capacity: Math.min(deviceBytes, shown ?? deviceBytes), allowedBytes, origin: 'recorded' };
  }
  return inferLimits(trace, settings);
}

/** Reserved bytes that the recorded memory fraction allows; undefined: no fraction, or the GPU's size is unknown. */
export function allowedByFraction(
  { deviceBytes, memoryFraction = 1 }: Trace['limits'],
  rules: PyTorchRules = DEFAULT_RULES,
): number | undefined {
  return deviceBytes !== undefined && memoryFraction < 1 ? rules.allows(memoryFraction, deviceBytes) : undefined;
}

/**
 * An out-of-memory event records what the driver had free. If that is less than a new segment, the GPU was full. If not, a
 * memory fraction refused the request, and its limit is below the refused total. Pages that are mapped right before others
 * are unmapped belong to a request that got only a part of its pages: one more page did not fit.
 */
function inferLimits(trace: Trace, settings: PyTorchSettings): MemoryLimits {
  if (trace.segmentsUnknown) return { capacity: undefined, allowedBytes: undefined, origin: 'unknown' };
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

/** The largest total that PyTorch checked before a request got new memory. The limit is at least that. */
export function grantedBytes(trace: Trace, settings: PyTorchSettings): number {
  if (trace.segmentsUnknown) return Number.POSITIVE_INFINITY;
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

export function reservedAtStart(trace: Trace): number {
  return trace.startSegments.reduce((sum, segment) => sum + segment.size, 0);
}
