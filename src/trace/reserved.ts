// Memory held from the driver, followed from event to event.
import { EventKind } from './trace.ts';

/** What is reserved after an event, if `reserved` was before. If events were lost, more may be given back than was taken. */
export function reservedAfter(reserved: number, kind: number, size: number): number {
  switch (kind) {
    case EventKind.Reserved:
      return size;
    case EventKind.SegmentAlloc:
    case EventKind.SegmentMap:
      return reserved + size;
    case EventKind.SegmentFree:
    case EventKind.SegmentUnmap:
      return Math.max(0, reserved - size);
    default:
      return reserved;
  }
}
