// An event of a trace in a few words.
import { formatBytes } from '../base/bytes.ts';
import { EventKind, type Trace } from '../trace/trace.ts';

export function describeEvent({ events }: Trace, event: number): string {
  if (event < 0) return 'before the first event';
  const size = formatBytes(events.size[event]!);
  switch (events.kind[event]) {
    case EventKind.Alloc:
      return `alloc of ${size}`;
    case EventKind.FreeRequested:
    case EventKind.FreeCompleted:
      return `free of ${size}`;
    case EventKind.SegmentAlloc:
    case EventKind.SegmentMap:
      return `${size} taken from the driver`;
    case EventKind.SegmentFree:
    case EventKind.SegmentUnmap:
      return `${size} given back to the driver`;
    case EventKind.Oom:
      return `out of memory: a request for ${size} failed`;
    case EventKind.Snapshot:
      return 'snapshot';
    case EventKind.EmptyCache:
      return 'empty_cache()';
    case EventKind.Annotate:
      return `annotation of ${size}`;
    case EventKind.Category:
      return 'category of memory';
    case EventKind.Reserved:
      return `reserved memory is now ${size}`;
    default:
      return 'event';
  }
}
