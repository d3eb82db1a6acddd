// How much memory the recorded job could have, read from its out-of-memory events where nothing says it outright.
import { segmentSizeFor } from '../allocator/pytorch/sizes.ts';
import type { PyTorchSettings } from '../allocator/pytorch/settings.ts';
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
 * fraction said no, and lies between the most that was ever reserved and what was refused.
 */
function inferLimits(trace: Trace, settings: PyTorchSettings): MemoryLimits {
  const { events } = trace;
  let reserved = trace.startSegments.reduce((sum, segment) => sum + segment.size, 0);
  let capacity = Number.POSITIVE_INFINITY;
  let refused = Number.POSITIVE_INFINITY;
  let granted = reserved;
  for (let event = 0; event < events.count; event++) {
    const size = events.size[event]!;
    switch (events.kind[event]) {
      case EventKind.SegmentAlloc:
      case EventKind.SegmentMap:
        reserved += size;
        granted = Math.max(granted, reserved);
        break;
      case EventKind.SegmentFree:
      case EventKind.SegmentUnmap:
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
  }
  const isFull = capacity !== Number.POSITIVE_INFINITY;
  const isRefused = refused !== Number.POSITIVE_INFINITY;
  return {
    capacity: isFull ? Math.max(capacity, granted) : undefined,
    allowedBytes: isRefused ? Math.max(granted, refused - 1) : undefined,
    origin: isFull || isRefused ? 'inferred' : 'unknown',
  };
}
