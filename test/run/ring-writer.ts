// Writes rings as a training process does (native/runtime/recorder.c), for tests without one. Also writes invalid rings.
import { closeSync, ftruncateSync, openSync, readSync, renameSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { Format } from '../../src/abi/formats.ts';
import {
  GAUGE_NAMES,
  GAUGES_BYTES,
  RING_FRAME_BYTES,
  RING_HEADER_BYTES,
  RING_POOLS,
  RING_STACK_BYTES,
  RING_STREAMS,
  RING_STRING_BYTES,
  RingOffset,
  RingState,
} from '../../src/abi/ring.ts';
import type { Gauges } from '../../src/run/rings/ring-layout.ts';
import { EVENT_BYTES, EventOffset } from '../../src/trace/weir/format.ts';

export interface Row {
  readonly kind: number;
  readonly address?: number;
  readonly size?: number;
  readonly device?: number;
  readonly stream?: number;
  readonly pool?: number;
  readonly detail?: number;
  readonly stack?: number;
  readonly time?: number;
}

const STRINGS_AT = Math.ceil(RING_HEADER_BYTES / 4096) * 4096;
const ROWS_AT = STRINGS_AT + RING_STRING_BYTES;

/** Room of the tables of call stacks. */
const STACKS = 64;
const FRAMES = 32;
const FRAME_STRING_BYTES = 1024;

export class RingWriter {
  readonly path: string;
  dropped = 0;
  private readonly file: number;
  private readonly capacity: number;
  private tail = 0;
  private gaps = 0;
  private isDropping = false;
  private stringBytes = 0;
  private strings = 0;
  private time: number;
  /** Where the tables of call stacks begin. */
  readonly stacksAt: number;
  private frameStringBytes = 0;
  private frameStrings = 0;
  private frames = 0;
  private stacks = 0;

  constructor(folder: string, options: { pid?: number; rank?: number; capacity?: number; allocator?: string; torch?: string } = {}) {
    const pid = options.pid ?? process.pid;
    this.capacity = options.capacity ?? 1 << 12;
    this.path = join(folder, `${pid}.ring`);
    this.time = Date.now() * 1000;
    const hidden = join(folder, `.${pid}.new`);
    this.file = openSync(hidden, 'w+', 0o600);
    this.stacksAt = ROWS_AT + this.capacity * EVENT_BYTES;
    const stackBytes = STACKS * RING_STACK_BYTES + FRAMES * RING_FRAME_BYTES + FRAME_STRING_BYTES;
    ftruncateSync(this.file, this.stacksAt + stackBytes);
    this.u32(RingOffset.stacks_at, this.stacksAt);
    this.u32(RingOffset.stack_room, STACKS);
    this.u32(RingOffset.frame_room, FRAMES);
    this.u32(RingOffset.frame_string_room, FRAME_STRING_BYTES);
    this.text(RingOffset.magic, Format.ring.magic);
    this.u32(RingOffset.version, Format.ring.version);
    this.u32(RingOffset.bytes, this.stacksAt + stackBytes);
    this.u32(RingOffset.strings_at, STRINGS_AT);
    this.u32(RingOffset.rows_at, ROWS_AT);
    this.u32(RingOffset.capacity, this.capacity);
    this.u32(RingOffset.pid, pid);
    this.u32(RingOffset.rank, (options.rank ?? -1) >>> 0);
    this.u32(RingOffset.local_rank, (options.rank ?? -1) >>> 0);
    this.u32(RingOffset.world_size, -1 >>> 0);
    this.u32(RingOffset.state, RingState.Active);
    const started = Buffer.alloc(8);
    started.writeDoubleLE(this.time);
    this.bytes(RingOffset.started_us, started);
    this.text(RingOffset.allocator, options.allocator ?? 'weir');
    this.text(RingOffset.torch_version, options.torch ?? '2.11.0+cu130');
    renameSync(hidden, this.path);
  }

  stream(device: number, index: number, handle: number): void {
    this.u64(RingOffset.streams + (device * RING_STREAMS + index) * 8, handle);
    this.u32(RingOffset.stream_count + device * 4, index + 1);
  }

  pool(device: number, index: number, id: readonly [number, number]): void {
    this.u64(RingOffset.pools + (device * RING_POOLS + index) * 16, id[0]);
    this.u64(RingOffset.pools + (device * RING_POOLS + index) * 16 + 8, id[1]);
    this.u32(RingOffset.pool_count + device * 4, index + 1);
  }

  string(text: string): number {
    const bytes = Buffer.from(text);
    const length = Buffer.alloc(4);
    length.writeUInt32LE(bytes.length);
    this.bytes(STRINGS_AT + this.stringBytes, Buffer.concat([length, bytes]));
    this.stringBytes += 4 + bytes.length;
    this.u64(RingOffset.string_bytes, this.stringBytes);
    return ++this.strings;
  }

  frameString(text: string): number {
    const bytes = Buffer.from(text);
    const length = Buffer.alloc(4);
    length.writeUInt32LE(bytes.length);
    this.bytes(this.framesAt + FRAMES * RING_FRAME_BYTES + this.frameStringBytes, Buffer.concat([length, bytes]));
    this.frameStringBytes += 4 + bytes.length;
    this.u64(RingOffset.frame_string_bytes, this.frameStringBytes);
    return ++this.frameStrings;
  }

  frame(name: number, filename: number, line: number): number {
    this.i32s(this.framesAt + this.frames * RING_FRAME_BYTES, name, filename, line);
    this.u64(RingOffset.frame_count, this.frames + 1);
    return this.frames++;
  }

  stack(parent: number, frame: number): number {
    this.i32s(this.stacksAt + this.stacks * RING_STACK_BYTES, parent, frame);
    this.u64(RingOffset.stack_count, this.stacks + 1);
    return this.stacks++;
  }

  get framesAt(): number {
    return this.stacksAt + STACKS * RING_STACK_BYTES;
  }

  gauges(device: number, gauges: Partial<Gauges>): void {
    for (const [name, value] of Object.entries({ in_use: 1, ...gauges }))
      this.u64(RingOffset.gauges + device * GAUGES_BYTES + GAUGE_NAMES.indexOf(name as keyof Gauges) * 8, value);
  }

  /** Adds a row; drops it if the reader is too far behind. */
  put(row: Row): void {
    const head = Buffer.alloc(8);
    readSync(this.file, head, 0, 8, RingOffset.head);
    if (this.tail - Number(head.readBigUInt64LE()) >= this.capacity) {
      this.u64(RingOffset.dropped, ++this.dropped);
      if (!this.isDropping) this.u64(RingOffset.gaps, ++this.gaps);
      this.isDropping = true;
      return;
    }
    this.isDropping = false;
    this.bytes(ROWS_AT + (this.tail % this.capacity) * EVENT_BYTES, this.encode(row));
    this.u64(RingOffset.tail, ++this.tail);
  }

  /** Writes half a row without counting it, as a process does that is killed in the middle of a write. */
  putHalf(row: Row): void {
    this.bytes(ROWS_AT + (this.tail % this.capacity) * EVENT_BYTES, this.encode(row).subarray(0, 20));
  }

  close(): void {
    this.u32(RingOffset.state, RingState.Closed);
    closeSync(this.file);
  }

  i32s(at: number, ...values: number[]): void {
    const bytes = Buffer.alloc(4 * values.length);
    for (const [index, value] of values.entries()) bytes.writeInt32LE(value, 4 * index);
    this.bytes(at, bytes);
  }

  u32(at: number, value: number): void {
    const bytes = Buffer.alloc(4);
    bytes.writeUInt32LE(value);
    this.bytes(at, bytes);
  }

  u64(at: number, value: number | bigint): void {
    const bytes = Buffer.alloc(8);
    bytes.writeBigUInt64LE(BigInt(value));
    this.bytes(at, bytes);
  }

  bytes(at: number, bytes: Uint8Array): void {
    writeSync(this.file, bytes, 0, bytes.length, at);
  }

  private text(at: number, text: string): void {
    this.bytes(at, Buffer.from(text, 'latin1'));
  }

  private encode(row: Row): Buffer {
    const bytes = Buffer.alloc(EVENT_BYTES);
    bytes.writeDoubleLE(row.time ?? ++this.time, EventOffset.time_us);
    bytes.writeBigUInt64LE(BigInt(row.address ?? 0), EventOffset.address);
    bytes.writeBigUInt64LE(BigInt(row.size ?? 0), EventOffset.size);
    bytes.writeUInt8(row.kind, EventOffset.kind);
    bytes.writeUInt8(row.detail === undefined ? 2 : 3, EventOffset.fields);
    bytes.writeUInt16LE(row.device ?? 0, EventOffset.device);
    bytes.writeInt32LE(row.stream ?? 0, EventOffset.stream);
    bytes.writeInt32LE(row.pool ?? 0, EventOffset.pool);
    bytes.writeInt32LE(row.stack ?? -1, EventOffset.stack);
    bytes.writeInt32LE(row.detail ?? 0, EventOffset.detail);
    bytes.writeInt32LE(4711, EventOffset.thread);
    return bytes;
  }
}
