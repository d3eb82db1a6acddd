// A ring of shared memory, read from outside while its process writes it.
// Its process may crash in the middle of a write, so every number is checked: the supervisor must survive any content.
import { closeSync, constants, fstatSync, openSync, readSync, writeSync } from 'node:fs';
import { Format } from '../../abi/formats.ts';
import {
  RING_ALLOCATOR_BYTES,
  RING_DEVICES,
  RING_HEADER_BYTES,
  RING_MAGIC_BYTES,
  RING_POOLS,
  RING_STREAMS,
  RING_STRING_BYTES,
  RING_TORCH_VERSION_BYTES,
  RingOffset,
  RingState,
} from '../../abi/ring.ts';
import { EVENT_BYTES } from '../../trace/weir/format.ts';
import { RingDamage } from './ring-damage.ts';
import { type Gauges, readGauges, textAt, u64 } from './ring-layout.ts';
import { RingStacks, stringsIn } from './ring-stacks.ts';

/** Most rows read at once: 3.5 MiB. */
const ROWS_AT_ONCE = 1 << 16;
const MOST_ROWS = 1 << 26;

export { RingDamage };

/** The process that writes the ring. */
export interface RingOwner {
  readonly pid: number;
  /** -1 if the process has none. */
  readonly rank: number;
  readonly localRank: number;
  readonly worldSize: number;
  readonly startedUs: number;
  readonly allocator: string;
  readonly torchVersion: string;
}

export class Ring {
  readonly owner: RingOwner;
  /** Identifies the file: a process that replaces itself (exec) makes a new one with the same name. */
  readonly inode: number;
  dropped = 0;
  gaps = 0;
  /** Requests whose call stack found no room. */
  stacksLost = 0;
  /** Call stacks; undefined if the process records none. */
  readonly stacks: RingStacks | undefined;
  isClosed = false;
  gauges: ReadonlyMap<number, Gauges> = new Map();
  private readonly file: number;
  private readonly header: Buffer = Buffer.alloc(RING_HEADER_BYTES);
  private readonly view: DataView;
  private readonly stringsAt: number;
  private readonly rowsAt: number;
  private readonly capacity: number;
  private rows: Buffer = Buffer.alloc(0);
  private head = 0;
  private tail = 0;
  private stringBytes = 0;
  private readonly streamCounts = new Int32Array(RING_DEVICES);
  private readonly poolCounts = new Int32Array(RING_DEVICES);

  /** Returns undefined while the process is still creating the ring. Throws RingDamage if the file is not a ring. */
  static open(path: string): Ring | undefined {
    const file = openSync(path, constants.O_RDWR | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    try {
      const stat = fstatSync(file);
      if (!stat.isFile()) throw new RingDamage('its ring is not a regular file');
      const first = Buffer.alloc(RingOffset.tail);
      if (readSync(file, first, 0, first.length, 0) < first.length || first.readBigUInt64LE(0) === 0n) {
        closeSync(file);
        return undefined;
      }
      return new Ring(file, first, stat.size, stat.ino);
    } catch (error) {
      closeSync(file);
      throw error;
    }
  }

  private constructor(file: number, first: Buffer, size: number, inode: number) {
    this.file = file;
    this.inode = inode;
    this.view = new DataView(this.header.buffer, this.header.byteOffset, this.header.length);
    const view = new DataView(first.buffer, first.byteOffset, first.length);
    if (textAt(view, RingOffset.magic, RING_MAGIC_BYTES) !== Format.ring.magic)
      throw new RingDamage('its ring does not begin with the magic number');
    const version = view.getUint32(RingOffset.version, true);
    if (version !== Format.ring.version)
      throw new RingDamage(`its ring has version ${version}, but this weir reads ${Format.ring.version}: use one version of weir`);
    this.stringsAt = view.getUint32(RingOffset.strings_at, true);
    this.rowsAt = view.getUint32(RingOffset.rows_at, true);
    this.capacity = view.getUint32(RingOffset.capacity, true);
    const isPowerOfTwo = this.capacity > 0 && (this.capacity & (this.capacity - 1)) === 0;
    if (!isPowerOfTwo || this.capacity > MOST_ROWS) throw new RingDamage(`its ring declares room for ${this.capacity} rows`);
    if (this.stringsAt < RING_HEADER_BYTES || this.stringsAt + RING_STRING_BYTES > size)
      throw new RingDamage('the strings of its ring lie outside of the file');
    if (this.rowsAt < RING_HEADER_BYTES || this.rowsAt + this.capacity * EVENT_BYTES > size)
      throw new RingDamage('the rows of its ring lie outside of the file');
    this.stacks = RingStacks.of(view, size, (into, at) => this.readAt(into, at));
    const startedUs = view.getFloat64(RingOffset.started_us, true);
    this.owner = {
      pid: view.getUint32(RingOffset.pid, true),
      rank: view.getInt32(RingOffset.rank, true),
      localRank: view.getInt32(RingOffset.local_rank, true),
      worldSize: view.getInt32(RingOffset.world_size, true),
      startedUs: Number.isFinite(startedUs) ? startedUs : 0,
      allocator: textAt(view, RingOffset.allocator, RING_ALLOCATOR_BYTES),
      torchVersion: textAt(view, RingOffset.torch_version, RING_TORCH_VERSION_BYTES),
    };
  }

  /**
   * Reads the header again: the number of rows first, then the rest. The writer declares what rows refer to before it
   * counts them, so it is there for all counted rows.
   */
  refresh(): void {
    const counters = Buffer.alloc(RingOffset.gauges - RingOffset.tail);
    this.readAt(counters, RingOffset.tail);
    this.readAt(this.header, 0);
    const view = new DataView(counters.buffer, counters.byteOffset, counters.length);
    const tail = u64(view, 0);
    if (!Number.isSafeInteger(tail) || tail < this.tail || tail - this.head > this.capacity)
      throw new RingDamage(`its ring declares ${tail} rows after ${this.tail}, of which ${this.head} were read`);
    this.tail = tail;
    this.dropped = Math.min(u64(view, RingOffset.dropped - RingOffset.tail), Number.MAX_SAFE_INTEGER);
    this.gaps = Math.min(u64(view, RingOffset.gaps - RingOffset.tail), Number.MAX_SAFE_INTEGER);
    this.stacksLost = Math.min(u64(view, RingOffset.stacks_lost - RingOffset.tail), Number.MAX_SAFE_INTEGER);
    this.stacks?.refresh(this.view);
    this.isClosed = this.view.getUint32(RingOffset.state, true) === RingState.Closed;
    this.gauges = readGauges(this.view);
  }

  /** Rows that can be read. */
  get waiting(): number {
    return this.tail - this.head;
  }

  /** Reads the next rows. The buffer is valid until the next call. The process may overwrite the rows from now on. */
  take(): Buffer {
    const from = this.head % this.capacity;
    const count = Math.min(this.waiting, this.capacity - from, ROWS_AT_ONCE);
    const bytes = count * EVENT_BYTES;
    if (this.rows.length < bytes) this.rows = Buffer.alloc(bytes);
    const rows = this.rows.subarray(0, bytes);
    this.readAt(rows, this.rowsAt + from * EVENT_BYTES);
    this.head += count;
    const head = Buffer.alloc(8);
    head.writeBigUInt64LE(BigInt(this.head));
    writeSync(this.file, head, 0, 8, RingOffset.head);
    return rows;
  }

  /** Handles of streams of a GPU that were added since the last call, as 64-bit values. */
  newStreams(device: number): bigint[] {
    const count = this.countAt(RingOffset.stream_count, device, RING_STREAMS, 'streams');
    const found: bigint[] = [];
    for (let index = this.streamCounts[device]!; index < count; index++)
      found.push(this.view.getBigUint64(RingOffset.streams + (device * RING_STREAMS + index) * 8, true));
    this.streamCounts[device] = count;
    return found;
  }

  newPools(device: number): [number, number][] {
    const count = this.countAt(RingOffset.pool_count, device, RING_POOLS, 'pools');
    const found: [number, number][] = [];
    for (let index = this.poolCounts[device]!; index < count; index++) {
      const at = RingOffset.pools + (device * RING_POOLS + index) * 16;
      found.push([u64(this.view, at), u64(this.view, at + 8)]);
    }
    this.poolCounts[device] = count;
    return found;
  }

  /** Strings added since the last call, in the order of their numbers. */
  newStrings(): string[] {
    const used = u64(this.view, RingOffset.string_bytes);
    if (used < this.stringBytes || used > RING_STRING_BYTES) throw new RingDamage(`its ring declares ${used} bytes of strings`);
    const area = Buffer.alloc(used - this.stringBytes);
    if (area.length > 0) this.readAt(area, this.stringsAt + this.stringBytes);
    this.stringBytes = used;
    return stringsIn(area);
  }

  /** Tells the process that plan file `generation` is ready. */
  announcePlan(generation: number): void {
    const word = Buffer.alloc(4);
    word.writeUInt32LE(generation);
    writeSync(this.file, word, 0, 4, RingOffset.plan_generation);
  }

  close(): void {
    closeSync(this.file);
  }

  private countAt(offset: number, device: number, most: number, what: string): number {
    const count = this.view.getUint32(offset + device * 4, true);
    const before = (what === 'streams' ? this.streamCounts : this.poolCounts)[device]!;
    if (count > most || count < before) throw new RingDamage(`its ring declares ${count} ${what} of GPU ${device}`);
    return count;
  }

  private readAt(into: Buffer, at: number): void {
    if (readSync(this.file, into, 0, into.length, at) < into.length) throw new RingDamage('its ring was truncated while it was read');
  }
}
