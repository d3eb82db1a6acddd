// What is live on one GPU of one process, kept from the rows of its ring: one row of typed columns for each block.
// Each event costs one look into a hash map, and nothing is allocated for it.
import { AddressMap } from '../../base/address-map.ts';
import { EventKind } from '../../trace/trace.ts';
import { EventField, EventOffset } from '../../trace/weir/format.ts';
import { u64 } from '../rings/ring-layout.ts';
import { type HeldSegment, HeldSegments } from './held-segments.ts';

/** Blocks that are kept. Some 100 MB of our memory; jobs have some ten thousand. */
export const MOST_BLOCKS: number = 1 << 21;
const FIRST_ROWS = 1 << 10;

export const LiveState = { None: 0, Live: 1, Pending: 2 } as const;

/** Blocks at one moment, in no order. */
export interface LiveBlocks {
  readonly count: number;
  readonly address: Float64Array;
  readonly requested: Float64Array;
  /** Counts up with every request, so that of two blocks the newer one is known. */
  readonly order: Float64Array;
  readonly stream: Int32Array;
  readonly pool: Int32Array;
  readonly stack: Int32Array;
  readonly category: Uint8Array;
  readonly state: Uint8Array;
  readonly segments: readonly HeldSegment[];
  /** All memory held from the driver; undefined: no event has said so. */
  readonly reserved: number | undefined;
  /** Blocks and segments that were not kept because there are too many. */
  readonly omitted: number;
}

export class LiveTable {
  private readonly most: number;
  private readonly rows = new AddressMap(FIRST_ROWS);
  private readonly segments = new HeldSegments();
  private address = new Float64Array(FIRST_ROWS);
  private requested = new Float64Array(FIRST_ROWS);
  private order = new Float64Array(FIRST_ROWS);
  private stream = new Int32Array(FIRST_ROWS);
  private pool = new Int32Array(FIRST_ROWS);
  /** Of a free row: the next free one, or -1. */
  private stack = new Int32Array(FIRST_ROWS);
  private category = new Uint8Array(FIRST_ROWS);
  private state = new Uint8Array(FIRST_ROWS);
  private used = 0;
  private firstFree = -1;
  private requests = 0;
  private reserved: number | undefined;
  private omitted = 0;

  constructor(most: number = MOST_BLOCKS) {
    this.most = most;
  }

  get size(): number {
    return this.rows.size;
  }

  /** Takes the event at `at` of the rows, which must be valid. */
  apply(view: DataView, at: number): void {
    const address = u64(view, at + EventOffset.address);
    switch (view.getUint8(at + EventOffset.kind)) {
      case EventKind.Alloc:
        this.add(view, at, address);
        break;
      case EventKind.FreeRequested: {
        const row = this.rows.get(address);
        if (row >= 0) this.state[row] = LiveState.Pending;
        break;
      }
      case EventKind.FreeCompleted:
        this.remove(this.rows.delete(address));
        break;
      case EventKind.Category:
        if (view.getUint8(at + EventOffset.fields) & EventField.Detail)
          this.categorize(address, view.getInt32(at + EventOffset.detail, true));
        break;
      case EventKind.SegmentAlloc:
      case EventKind.SegmentMap:
      case EventKind.SegmentFree:
      case EventKind.SegmentUnmap:
        this.applySegment(view, at, address);
        break;
      case EventKind.Reserved:
        this.reserved = u64(view, at + EventOffset.size);
        break;
    }
  }

  /** The live block at the address holds this category, a number of CATEGORIES. Others are ignored. */
  categorize(address: number, category: number): void {
    const row = this.rows.get(address);
    if (row >= 0 && category >= 0 && category < 256) this.category[row] = category;
  }

  /** A copy, which later events do not change. */
  copy(): LiveBlocks {
    const { used, segments } = this;
    return {
      count: used,
      address: this.address.slice(0, used),
      requested: this.requested.slice(0, used),
      order: this.order.slice(0, used),
      stream: this.stream.slice(0, used),
      pool: this.pool.slice(0, used),
      stack: this.stack.slice(0, used),
      category: this.category.slice(0, used),
      state: this.state.slice(0, used),
      segments: segments.list(),
      reserved: this.reserved,
      omitted: this.omitted + segments.omitted,
    };
  }

  private add(view: DataView, at: number, address: number): void {
    // If its free was lost, the address has a row.
    let row = this.rows.get(address);
    if (row < 0) {
      row = this.newRow();
      if (row < 0) return;
      this.rows.set(address, row);
    }
    this.address[row] = address;
    this.requested[row] = u64(view, at + EventOffset.size);
    this.order[row] = ++this.requests;
    this.stream[row] = view.getInt32(at + EventOffset.stream, true);
    this.pool[row] = view.getInt32(at + EventOffset.pool, true);
    this.stack[row] = view.getInt32(at + EventOffset.stack, true);
    this.category[row] = 0;
    this.state[row] = LiveState.Live;
  }

  private newRow(): number {
    if (this.firstFree >= 0) {
      const row = this.firstFree;
      this.firstFree = this.stack[row]!;
      return row;
    }
    if (this.used === this.most) {
      this.omitted++;
      return -1;
    }
    if (this.used === this.address.length) this.grow();
    return this.used++;
  }

  private remove(row: number): void {
    if (row < 0) return;
    this.state[row] = LiveState.None;
    this.stack[row] = this.firstFree;
    this.firstFree = row;
  }

  private applySegment(view: DataView, at: number, address: number): void {
    const { segments } = this;
    const size = u64(view, at + EventOffset.size);
    const stream = view.getInt32(at + EventOffset.stream, true);
    const pool = Math.max(0, view.getInt32(at + EventOffset.pool, true));
    const stack = view.getInt32(at + EventOffset.stack, true);
    switch (view.getUint8(at + EventOffset.kind)) {
      case EventKind.SegmentAlloc:
        segments.allocated(address, size, stream, pool, stack);
        break;
      case EventKind.SegmentMap:
        segments.mappedAt(address, size, stream, pool, stack);
        break;
      case EventKind.SegmentFree:
        segments.freed(address);
        break;
      default:
        segments.unmapped(address, size);
    }
  }

  private grow(): void {
    const room = this.address.length * 2;
    this.address = grown(new Float64Array(room), this.address);
    this.requested = grown(new Float64Array(room), this.requested);
    this.order = grown(new Float64Array(room), this.order);
    this.stream = grown(new Int32Array(room), this.stream);
    this.pool = grown(new Int32Array(room), this.pool);
    this.stack = grown(new Int32Array(room), this.stack);
    this.category = grown(new Uint8Array(room), this.category);
    this.state = grown(new Uint8Array(room), this.state);
  }
}

function grown<Column extends Float64Array | Int32Array | Uint8Array>(into: Column, from: Column): Column {
  into.set(from as never);
  return into;
}
