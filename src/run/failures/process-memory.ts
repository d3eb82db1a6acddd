// What one process has live, and its last events: what is needed to write a file when a request fails.
// The tables are as old as the first row of the window, so table and window together are the state of now.
import { RING_DEVICES } from '../../abi/ring.ts';
import { EventKind } from '../../trace/trace.ts';
import { EVENT_BYTES, EventField, EventOffset } from '../../trace/weir/format.ts';
import { u64 } from '../rings/ring-layout.ts';
import { EventWindow } from './event-window.ts';
import { type LiveBlocks, LiveTable } from './live-table.ts';

/** Rows of a window: 0.9 MB. A training step of a large model has some ten thousand. */
export const WINDOW_ROWS: number = 1 << 14;
/** Rows that are looked at after a failure for what the process says about its live memory. */
const MOST_LATE_ROWS = 1 << 17;

/** All that was live when a request failed. */
export interface FailureState {
  /** By GPU: what was live before the first row of `window`. */
  readonly live: ReadonlyMap<number, LiveBlocks>;
  /** The last marks before the window, oldest first. */
  readonly marks: Buffer;
  /** The last rows. The failure is the last of them. */
  readonly window: Buffer;
}

/** A request that failed. */
export interface Failure {
  /** Which failure of its process, from 1. */
  readonly number: number;
  readonly gpu: number;
  readonly timeUs: number;
  /** As the allocator rounded it. */
  readonly asked: number;
  /** Free memory of the GPU, as the driver told. */
  readonly deviceFree: number;
  readonly stack: number;
  /** Undefined until `ProcessMemory.capture`, and once it is no longer needed. */
  state: FailureState | undefined;
  /** Rows about categories that the process told after the failure. */
  readonly late: Buffer[];
  /** Whether all that belongs to the failure has come. */
  isWhole: boolean;
}

export class ProcessMemory {
  failures = 0;
  private readonly tables: LiveTable[] = [];
  private readonly window: EventWindow;
  private readonly windowRows: number;
  /** The last row of each of our marks that left the window, by its text. */
  private readonly marks = new Map<number, Buffer>();
  private readonly isOurMark: (text: number) => boolean;
  private readonly isEndMark: (text: number) => boolean;
  /** Failures about which the process may say more: the oldest and the newest, since threads may fail at once. */
  private open: Failure[] = [];
  /** Addresses that were allocated or freed since, by the last failure before. Rows about them are not about that failure. */
  private readonly touched = new Map<number, number>();
  private lateRows = 0;
  /** The last failure, and rows of the window that came after it. */
  private last: Failure | undefined;
  private rowsAfter = 0;

  /** `isOurMark` and `isEndMark` judge numbers of strings: a mark of a phase, and the one that ends what is told after a failure. */
  constructor(isOurMark: (text: number) => boolean, isEndMark: (text: number) => boolean, windowRows: number = WINDOW_ROWS) {
    this.isOurMark = isOurMark;
    this.isEndMark = isEndMark;
    this.windowRows = windowRows;
    this.window = new EventWindow(windowRows, (view, at) => this.leave(view, at));
  }

  /** Takes valid rows. Calls `onFailure` for each request that failed. */
  take(rows: Buffer, onFailure: (failure: Failure) => void): void {
    const view = new DataView(rows.buffer, rows.byteOffset, rows.length);
    let from = 0;
    for (let at = 0; at < rows.length; at += EVENT_BYTES) {
      const kind = view.getUint8(at + EventOffset.kind);
      if (this.open.length > 0) this.follow(rows, view, at, kind);
      if (kind !== EventKind.Oom) continue;
      // The failure before is no longer the last one, so nobody needs its state.
      this.last = undefined;
      this.window.push(rows, view, from, at + EVENT_BYTES);
      from = at + EVENT_BYTES;
      onFailure(this.fail(view, at));
    }
    if (from < rows.length) this.push(rows, view, from);
  }

  /**
   * Copies all that was live. This takes long if much is live, and a program may fail thousands of times. So it is done for the
   * first and the last failure only: the first at once, the last when it is written or is about to leave the window.
   */
  capture(failure: Failure): FailureState | undefined {
    if (failure !== this.last) return failure.state;
    failure.state ??= {
      live: copies(this.tables),
      marks: Buffer.concat([...this.marks.values()].sort((a, b) => timeOf(a) - timeOf(b))),
      window: this.window.copy(this.rowsAfter),
    };
    this.last = undefined;
    return failure.state;
  }

  /** Nothing more is expected about this failure, or about any. */
  close(only?: Failure): void {
    for (const failure of this.open) if (only === undefined || failure === only) failure.isWhole = true;
    this.open = this.open.filter(({ isWhole }) => !isWhole);
    if (this.open.length === 0) this.touched.clear();
  }

  private push(rows: Buffer, view: DataView, from: number): void {
    this.rowsAfter += (rows.length - from) / EVENT_BYTES;
    if (this.last && this.rowsAfter > this.windowRows / 2) {
      this.rowsAfter -= (rows.length - from) / EVENT_BYTES;
      this.capture(this.last);
    }
    this.window.push(rows, view, from, rows.length);
  }

  private fail(view: DataView, at: number): Failure {
    const failure: Failure = {
      number: ++this.failures,
      gpu: view.getUint16(at + EventOffset.device, true),
      timeUs: view.getFloat64(at + EventOffset.time_us, true),
      asked: u64(view, at + EventOffset.size),
      deviceFree: u64(view, at + EventOffset.address),
      stack: view.getInt32(at + EventOffset.stack, true),
      state: undefined,
      late: [],
      isWhole: false,
    };
    const newest = this.open[1];
    if (newest) this.close(newest);
    if (this.open.length === 0) this.lateRows = 0;
    this.open.push(failure);
    this.last = failure;
    this.rowsAfter = 0;
    return failure;
  }

  private follow(rows: Buffer, view: DataView, at: number, kind: number): void {
    const address = u64(view, at + EventOffset.address);
    switch (kind) {
      case EventKind.Alloc:
      case EventKind.FreeRequested:
        this.touched.set(address, this.failures);
        break;
      case EventKind.Category: {
        const row = Buffer.from(rows.subarray(at, at + EVENT_BYTES));
        for (const failure of this.open) if ((this.touched.get(address) ?? 0) < failure.number) failure.late.push(row);
        break;
      }
      case EventKind.Mark:
        if (hasDetail(view, at) && this.isEndMark(view.getInt32(at + EventOffset.detail, true))) this.close();
        break;
    }
    if (++this.lateRows >= MOST_LATE_ROWS) this.close();
  }

  private leave(view: DataView, at: number): void {
    if (view.getUint8(at + EventOffset.kind) === EventKind.Mark) {
      const text = view.getInt32(at + EventOffset.detail, true);
      if (!hasDetail(view, at) || !this.isOurMark(text)) return;
      this.marks.set(text, Buffer.from(new Uint8Array(view.buffer, view.byteOffset + at, EVENT_BYTES)));
      return;
    }
    const gpu = view.getUint16(at + EventOffset.device, true);
    if (gpu >= RING_DEVICES) return;
    this.tables[gpu] ??= new LiveTable();
    this.tables[gpu].apply(view, at);
  }
}

/** Tables of GPUs that were not used are missing. */
function copies(tables: readonly (LiveTable | undefined)[]): Map<number, LiveBlocks> {
  const found = new Map<number, LiveBlocks>();
  for (const [gpu, table] of tables.entries()) if (table) found.set(gpu, table.copy());
  return found;
}

function hasDetail(view: DataView, at: number): boolean {
  return (view.getUint8(at + EventOffset.fields) & EventField.Detail) !== 0;
}

function timeOf(row: Buffer): number {
  return row.readDoubleLE(EventOffset.time_us);
}
