// A picture of the run for the terminal: live and reserved memory over its events, with a mark where requests failed.
import { formatBytes } from '../../base/bytes.ts';
import { endsOf } from '../../trace/ends.ts';
import { liveSize } from '../../trace/summary.ts';
import { EventKind, type Trace } from '../../trace/trace.ts';

const ROWS = 7;
const MOST_COLUMNS = 84;
const LABEL_WIDTH = 11;
/** A narrower picture shows nothing. */
export const LEAST_WIDTH = 60;
const BARS = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const RESERVED = '░';

/** Lines of the picture, `width` characters wide at most; none if there is nothing to draw. */
export function timelinePicture(trace: Trace, width: number): string[] {
  const columns = Math.min(MOST_COLUMNS, width - LABEL_WIDTH - 4, Math.max(1, trace.events.count));
  const { live, reserved, failed, hasReserved } = levels(trace, columns);
  const top = Math.max(...live, ...reserved);
  if (top === 0) return [];
  const lines: string[] = [];
  for (let row = ROWS - 1; row >= 0; row--) {
    const cells = Array.from({ length: columns }, (_, column) => {
      const filled = Math.round(Math.max(0, Math.min(1, (live[column]! / top) * ROWS - row)) * (BARS.length - 1));
      if (filled > 0) return BARS[filled]!;
      return (reserved[column]! / top) * ROWS - row >= 0.5 ? RESERVED : ' ';
    });
    lines.push(`${(row === ROWS - 1 ? formatBytes(top) : '').padStart(LABEL_WIDTH)} │${cells.join('').trimEnd()}`);
  }
  const axis = Array.from(failed, (isFailed) => (isFailed ? '×' : '─')).join('');
  const legend = ['█ live', ...(hasReserved ? [`${RESERVED} reserved`] : []), ...(failed.includes(1) ? ['× a request failed'] : [])];
  return [
    ...lines,
    `${'0'.padStart(LABEL_WIDTH)} └${axis}`,
    `${' '.repeat(LABEL_WIDTH + 2)}${legend.join('   ')}   (left to right: events)`,
  ];
}

/** The most live and reserved memory in each column, as recorded. */
function levels(trace: Trace, columns: number) {
  const { events, allocations, startSegments } = trace;
  const live = new Float64Array(columns);
  const reserved = new Float64Array(columns);
  const failed = new Uint8Array(columns);
  let liveNow = 0;
  for (let index = 0; index < allocations.liveAtStart; index++) liveNow += liveSize(allocations.requested[index]!);
  let reservedNow = startSegments.reduce((sum, segment) => sum + segment.size, 0);
  let hasReserved = reservedNow > 0;
  const ends = endsOf(trace);
  const note = (column: number) => {
    live[column] = Math.max(live[column]!, liveNow);
    reserved[column] = Math.max(reserved[column]!, reservedNow);
  };
  note(0);
  for (let event = 0; event < events.count; event++) {
    const column = Math.floor((event / events.count) * columns);
    const ending = ends.at(event);
    if (ending >= 0) liveNow -= liveSize(allocations.requested[ending]!);
    const size = events.size[event]!;
    switch (events.kind[event]) {
      case EventKind.Alloc:
        liveNow += liveSize(size);
        break;
      case EventKind.SegmentAlloc:
      case EventKind.SegmentMap:
        reservedNow += size;
        hasReserved = true;
        break;
      case EventKind.SegmentFree:
      case EventKind.SegmentUnmap:
        reservedNow -= size;
        break;
      case EventKind.Reserved:
        reservedNow = size;
        hasReserved = true;
        break;
      case EventKind.Oom:
        failed[column] = 1;
        break;
    }
    note(column);
  }
  return { live, reserved, failed, hasReserved };
}
