// Makes the rows of a ring fit for a file: corrects invalid numbers or drops their rows.
// A single invalid row would make the whole file unreadable.
import { CATEGORY_NAMES } from '../../abi/events.ts';
import { RING_DEVICES } from '../../abi/ring.ts';
import { EventKind } from '../../trace/trace.ts';
import { EVENT_BYTES, EventField, EventOffset } from '../../trace/weir/format.ts';
import { u64 } from './ring-layout.ts';

const MOST_KIND = Math.max(...Object.values(EventKind));
/** CUDA's addresses are below 2^48. */
const ADDRESS_HIGH_LIMIT = 2 ** 16;
const ADDRESS_LIMIT = 2 ** 48;
/** Sizes must be below 2^53. */
const SIZE_HIGH_LIMIT = 2 ** 21;

const ABOUT_BLOCKS: ReadonlySet<number> = new Set([EventKind.Alloc, EventKind.FreeRequested, EventKind.FreeCompleted, EventKind.Oom]);

const ABOUT_SEGMENTS: ReadonlySet<number> = new Set([
  EventKind.SegmentAlloc,
  EventKind.SegmentFree,
  EventKind.SegmentMap,
  EventKind.SegmentUnmap,
]);

/** Their address and size are a range of memory. */
const ABOUT_MEMORY: ReadonlySet<number> = new Set([...ABOUT_SEGMENTS, EventKind.Alloc]);

export interface Declared {
  /** Number of streams and pools of each GPU. The arrays are only read. */
  readonly streams: ArrayLike<number>;
  readonly pools: ArrayLike<number>;
  /** Number in the file of each string of the ring. Entry 0 is 0. */
  readonly strings: readonly number[];
  /** Number in the file of a call stack of the ring; -1 if there is no such stack. */
  stackOf(stack: number): number;
}

/** What was found beside valid rows. */
export interface RowCounts {
  /** Invalid rows. */
  damaged: number;
  /** Operators and what they access. */
  operators: number;
  /** Settings events: the GPU, and the number of the string in the file. */
  readonly settings: { device: number; text: number }[];
}

export class RowChecker {
  private readonly latest = new Float64Array(RING_DEVICES);

  /** Corrects rows and moves the valid ones to the front. Returns their length in bytes. */
  check(rows: Buffer, declared: Declared, counts: RowCounts): number {
    const view = new DataView(rows.buffer, rows.byteOffset, rows.length);
    let kept = 0;
    for (let row = 0; row + EVENT_BYTES <= rows.length; row += EVENT_BYTES) {
      const verdict = this.correct(view, row, declared, counts);
      if (verdict === 'damaged') counts.damaged++;
      if (verdict !== 'good') continue;
      if (view.getUint8(row + EventOffset.kind) === EventKind.Operator) counts.operators++;
      if (kept !== row) rows.copyWithin(kept, row, row + EVENT_BYTES);
      kept += EVENT_BYTES;
    }
    return kept;
  }

  private correct(view: DataView, row: number, declared: Declared, counts: RowCounts): 'good' | 'damaged' | 'early' {
    const kind = view.getUint8(row + EventOffset.kind);
    const device = view.getUint16(row + EventOffset.device, true);
    if (kind === 0 || kind > MOST_KIND || device >= RING_DEVICES) return 'damaged';
    // Before the first stream of a GPU is declared, a file cannot hold its rows. Only settings are kept.
    if (declared.streams[device] === 0 && !ABOUT_BLOCKS.has(kind)) {
      if (kind === EventKind.Settings) correctDetail(view, row, kind, device, declared, counts);
      return 'early';
    }
    let stream = view.getInt32(row + EventOffset.stream, true);
    // A recorder that has no numbers left for streams writes -1.
    if (stream === -1) {
      stream = 0;
      view.setInt32(row + EventOffset.stream, 0, true);
    }
    const pool = view.getInt32(row + EventOffset.pool, true);
    if (stream < 0 || stream >= declared.streams[device]!) return 'damaged';
    if (pool < -1 || pool >= declared.pools[device]!) return 'damaged';
    if (!hasPossibleSize(view, row, kind)) return 'damaged';
    if (kind === EventKind.Category && !hasCategory(view, row)) return 'damaged';
    this.setTime(view, row, device);
    view.setInt32(row + EventOffset.stack, declared.stackOf(view.getInt32(row + EventOffset.stack, true)), true);
    const metadata = declared.strings[view.getUint32(row + EventOffset.metadata, true)] ?? 0;
    view.setUint32(row + EventOffset.metadata, metadata, true);
    let fields = view.getUint8(row + EventOffset.fields) & (EventField.Detail | EventField.Thread | EventField.CompileContext);
    if (fields & EventField.Detail && !correctDetail(view, row, kind, device, declared, counts)) fields &= ~EventField.Detail;
    if (fields & EventField.CompileContext) {
      const context = declared.strings[view.getUint32(row + EventOffset.compile_context, true)] ?? 0;
      view.setUint32(row + EventOffset.compile_context, context, true);
    }
    view.setUint8(row + EventOffset.fields, fields);
    return 'good';
  }

  /** A file needs rows in order of time for each GPU. In a damaged ring they may not be. */
  private setTime(view: DataView, row: number, device: number): void {
    const time = view.getFloat64(row + EventOffset.time_us, true);
    const latest = this.latest[device]!;
    if (time >= latest && time < Number.POSITIVE_INFINITY) this.latest[device] = time;
    else view.setFloat64(row + EventOffset.time_us, latest, true);
  }
}

function hasPossibleSize(view: DataView, row: number, kind: number): boolean {
  if (kind === EventKind.Operator) {
    const duration = view.getFloat64(row + EventOffset.size, true);
    if (!(duration >= 0 && duration < Number.POSITIVE_INFINITY)) return false;
  } else if (view.getUint32(row + EventOffset.size + 4, true) >= SIZE_HIGH_LIMIT) return false;
  if (kind === EventKind.Oom) return Number.isSafeInteger(u64(view, row + EventOffset.address));
  if (view.getUint32(row + EventOffset.address + 4, true) >= ADDRESS_HIGH_LIMIT) return false;
  if (!ABOUT_MEMORY.has(kind)) return true;
  const size = u64(view, row + EventOffset.size);
  return u64(view, row + EventOffset.address) + size <= ADDRESS_LIMIT && (size > 0 || !ABOUT_SEGMENTS.has(kind));
}

function hasCategory(view: DataView, row: number): boolean {
  const category = view.getInt32(row + EventOffset.detail, true);
  return (view.getUint8(row + EventOffset.fields) & EventField.Detail) !== 0 && category >= 0 && category < CATEGORY_NAMES.length;
}

/** Whether the detail is valid. Numbers of strings are replaced by those in the file. */
function correctDetail(view: DataView, row: number, kind: number, device: number, declared: Declared, counts: RowCounts): boolean {
  const at = row + EventOffset.detail;
  switch (kind) {
    case EventKind.RecordStream: {
      const stream = view.getInt32(at, true);
      return stream >= 0 && stream < declared.streams[device]!;
    }
    case EventKind.Settings:
    case EventKind.Operator:
    case EventKind.Mark: {
      const text = declared.strings[view.getUint32(at, true)];
      if (text === undefined) return false;
      view.setUint32(at, text, true);
      if (kind === EventKind.Settings) counts.settings.push({ device, text });
      return true;
    }
    default:
      return true;
  }
}
