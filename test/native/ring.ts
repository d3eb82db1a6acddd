// A ring read the plain way, by the offsets the compiler prints, and what its rows must tell.
import { readFileSync } from 'node:fs';
import { EVENT_BYTES, EventKind, EventOffset } from '../../src/abi/events.ts';
import { GAUGE_NAMES, GAUGES_BYTES, type GaugeName, RingOffset } from '../../src/abi/ring.ts';

export interface Row {
  readonly time: number;
  readonly address: number;
  readonly size: number;
  readonly kind: number;
  readonly fields: number;
  readonly device: number;
  readonly stream: number;
  readonly pool: number;
  readonly stack: number;
  readonly detail: number;
  readonly thread: number;
}

export class Ring {
  private readonly bytes: DataView;

  constructor(path: string) {
    const file = readFileSync(path);
    this.bytes = new DataView(file.buffer, file.byteOffset, file.byteLength);
  }

  u32(field: keyof typeof RingOffset): number {
    return this.bytes.getUint32(RingOffset[field], true);
  }

  u64(field: keyof typeof RingOffset): number {
    return Number(this.bytes.getBigUint64(RingOffset[field], true));
  }

  text(field: keyof typeof RingOffset, length: number): string {
    const at = RingOffset[field];
    const text = new TextDecoder().decode(new Uint8Array(this.bytes.buffer, this.bytes.byteOffset + at, length));
    return text.replace(/\0.*$/s, '');
  }

  gauge(name: GaugeName, device = 0): number {
    const at = RingOffset.gauges + device * GAUGES_BYTES + 8 * GAUGE_NAMES.indexOf(name);
    return Number(this.bytes.getBigUint64(at, true));
  }

  /** Handles of the streams of GPU 0. */
  streams(): number[] {
    const count = this.u32('stream_count');
    return Array.from({ length: count }, (_, index) => Number(this.bytes.getBigUint64(RingOffset.streams + 8 * index, true)));
  }

  get fileBytes(): number {
    return this.bytes.byteLength;
  }

  /** Rows by their numbers; the end is not included. */
  rows(from: number, to: number): Row[] {
    const rows: Row[] = [];
    for (let number = from; number < to; number++) {
      const at = this.u32('rows_at') + (number % this.u32('capacity')) * EVENT_BYTES;
      rows.push({
        time: this.bytes.getFloat64(at + EventOffset.time_us, true),
        address: Number(this.bytes.getBigUint64(at + EventOffset.address, true)),
        size: Number(this.bytes.getBigUint64(at + EventOffset.size, true)),
        kind: this.bytes.getUint8(at + EventOffset.kind),
        fields: this.bytes.getUint8(at + EventOffset.fields),
        device: this.bytes.getUint16(at + EventOffset.device, true),
        stream: this.bytes.getInt32(at + EventOffset.stream, true),
        pool: this.bytes.getInt32(at + EventOffset.pool, true),
        stack: this.bytes.getInt32(at + EventOffset.stack, true),
        detail: this.bytes.getInt32(at + EventOffset.detail, true),
        thread: this.bytes.getInt32(at + EventOffset.thread, true),
      });
    }
    return rows;
  }
}

/** What rows without a gap lead to. */
export interface Told {
  /** Bytes of requests that were never freed. */
  readonly live: number;
  /** Blocks freed but never complete. */
  readonly parked: number;
  /** Frees that were complete only after something else had happened. */
  readonly late: number;
  readonly reserved: number;
  readonly allocations: number;
  readonly ooms: number;
  readonly streamRecords: number;
}

/** Follows the rows from the process' start; throws where they contradict themselves. */
export function follow(rows: readonly Row[]): Told {
  const blocks = new Map<number, { size: number; stream: number; freed: boolean }>();
  const told = { late: 0, reserved: 0, allocations: 0, ooms: 0, streamRecords: 0 };
  let time = 0;
  let before: Row | undefined;
  for (const row of rows) {
    if (row.time < time) throw new Error('rows are not in the order of time');
    if ((row.fields & 2) === 0 || row.thread === 0) throw new Error('a row without a thread');
    time = row.time;
    const block = blocks.get(row.address);
    if (row.kind === EventKind.Alloc) {
      for (const [address, other] of blocks) {
        if (address < row.address + row.size && row.address < address + other.size) throw new Error('memory given out twice');
      }
      blocks.set(row.address, { size: row.size, stream: row.stream, freed: false });
      told.allocations++;
    } else if (row.kind === EventKind.FreeRequested || row.kind === EventKind.FreeCompleted) {
      const completes = row.kind === EventKind.FreeCompleted;
      if (!block || block.freed !== completes || block.size !== row.size || block.stream !== row.stream) {
        throw new Error(`a free (${row.kind}) of what is not there`);
      }
      block.freed = true;
      if (completes && before?.address !== row.address) told.late++;
      if (completes) blocks.delete(row.address);
    } else if (row.kind === EventKind.RecordStream) {
      if (!block || block.freed || (row.fields & 1) === 0 || row.detail < 0) throw new Error('record_stream of what is not live');
      told.streamRecords++;
    } else if (row.kind === EventKind.Oom) told.ooms++;
    else if (row.kind === EventKind.Reserved) told.reserved = row.size;
    before = row;
  }
  const left = [...blocks.values()];
  return {
    ...told,
    live: left.filter((block) => !block.freed).reduce((sum, block) => sum + block.size, 0),
    parked: left.filter((block) => block.freed).length,
  };
}
