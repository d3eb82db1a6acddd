// How much memory the recorded job could have, read from its out-of-memory events where nothing says it outright.

import type { PyTorchSettings } from '../allocator/pytorch/settings.ts';
import { segmentSizeFor } from '../allocator/pytorch/sizes.ts';
import { EventKind, type Trace } from '../trace/trace.ts';

export interface MemoryLimits {
  /** Physical memory the job could have; undefined when unknown. */
  readonly capacity: number | undefined;
  /** Reserved bytes a memory fraction allowed; undefined when there was none or it is unknown. */
  readonly allowedBytes: number | undefined;
  readonly origin: 'recorded' | 'inferred' | 'unknown';
}

export function findLimits(trace: Trace, settings: PyTorchSettings): MemoryLimits {
  const { deviceBytes, memoryFraction = 1 } = trace.limits;
  if (deviceBytes !== undefined) {
    const allowedBytes = memoryFraction < 1 ? Math.floor(memoryFraction * deviceBytes) : undefined;
    return { capacity: deviceBytes, allowedBytes, origin: 'recorded' };
  }
  return inferLimits(trace, settings);
}

/**
 * An oom tells what the driver had free: if that was less than a new segment, the GPU was full; if not, a memory
 * fraction said no, and lies between the most that was ever reserved and what was refused. Pages mapped right before
 * others are given back are a request that got stuck half way: one more page did not fit.
 */
function inferLimits(trace: Trace, settings: PyTorchSettings): MemoryLimits {
  const { events } = trace;
  let reserved = trace.startSegments.reduce((sum, segment) => sum + segment.size, 0);
  let capacity = Number.POSITIVE_INFINITY;
  let refused = Number.POSITIVE_INFINITY;
  let granted = reserved;
  let mappedLast = false;
  for (let event = 0; event < events.count; event++) {
    const size = events.size[event]!;
    const kind = events.kind[event];
    switch (kind) {
      case EventKind.SegmentAlloc:
      case EventKind.SegmentMap:
        reserved += size;
        granted = Math.max(granted, reserved);
        break;
      case EventKind.SegmentFree:
      case EventKind.SegmentUnmap:
        if (mappedLast) capacity = Math.min(capacity, reserved + settings.largeSegmentSize - 1);
        reserved -= size;
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
  const isFull = capacity !== Number.POSITIVE_INFINITY;
  const isRefused = refused !== Number.POSITIVE_INFINITY;
  return {
    capacity: isFull ? Math.max(capacity, granted) : undefined,
    allowedBytes: isRefused ? Math.max(granted, refused - 1) : undefined,
    origin: isFull || isRefused ? 'inferred' : 'unknown',
  };
}

/**
 * Sharpens inferred limits by requests that gave back memory before they grew: if that much was never reserved at any
 * time, the first try was refused. (A program that calls empty_cache() right before such a request looks the same.)
 */
export function refineLimits(limits: MemoryLimits, grownAfterRelease: readonly number[], peakReserved: number): MemoryLimits | undefined {
  if (limits.origin === 'recorded') return undefined;
  const refused = Math.min(...grownAfterRelease.filter((bytes) => bytes > peakReserved));
  if (refused === Number.POSITIVE_INFINITY || refused > (limits.allowedBytes ?? limits.capacity ?? Number.POSITIVE_INFINITY))
    return undefined;
  return { capacity: limits.capacity, allowedBytes: refused - 1, origin: 'inferred' };
}
