// Records as bytes: sealing a record with length, number and CRC, and walking over the records of a file
// up to the last one that is whole.
import { crc32 } from '../../base/crc32.ts';
import { InputError } from '../../base/errors.ts';
import { ByteWindow } from '../byte-window.ts';
import { EVENT_BYTES, FILE_HEADER_BYTES, MAJOR_VERSION, MINOR_VERSION, RECORD_HEADER_BYTES, RecordType, WEIR_MAGIC } from './format.ts';

export interface RecordHead {
  /** Offset of the record in the file. */
  readonly offset: number;
  readonly type: number;
  readonly payload: number;
  readonly length: number;
  /** Offset of the next record. */
  readonly next: number;
}

/** The part of a file that is intact. */
export interface WholePart {
  /** Records before this offset are whole. */
  readonly end: number;
  readonly events: number;
  /** Why the walk stopped: at the End record, at the end of the file, at a torn record, a corrupt one or one that is too long. */
  readonly stop: 'end' | 'unfinished' | 'truncated' | 'corrupt' | 'oversized';
  /** Bytes of the file that were seen. */
  readonly total: number;
}

/** A record is held as a whole, since its CRC says whether it can be used. */
export const MAX_RECORD_BYTES: number = 2 ** 26;
/** What follows the last whole record is looked at this far. */
const MAX_REST = 2 ** 26;

export function fileHeader(): Uint8Array {
  const header = new Uint8Array(FILE_HEADER_BYTES);
  const view = viewOf(header);
  header.set(WEIR_MAGIC);
  view.setUint16(8, MAJOR_VERSION, true);
  view.setUint16(10, MINOR_VERSION, true);
  view.setUint32(12, crc32(header, 0, 12), true);
  return header;
}

/** An empty record with `length` bytes of payload, to be filled in and sealed. */
export function openRecord(length: number): Uint8Array {
  return new Uint8Array(RECORD_HEADER_BYTES + padded(length));
}

export function sealRecord(record: Uint8Array, type: RecordType, length: number, number: number): void {
  const view = viewOf(record);
  view.setUint32(4, length, true);
  view.setUint16(8, type, true);
  view.setUint32(12, number, true);
  view.setUint32(0, crc32(record, 4), true);
}

export function checkFileHeader(bytes: Uint8Array): void {
  if (bytes.length < WEIR_MAGIC.length || WEIR_MAGIC.some((byte, at) => bytes[at] !== byte))
    throw new InputError('this is not a .weir file');
  if (bytes.length < FILE_HEADER_BYTES) throw new InputError('the .weir file ends within its header: nothing was recorded');
  const view = viewOf(bytes);
  const major = view.getUint16(8, true);
  const damaged = view.getUint32(12, true) !== crc32(bytes, 0, 12);
  if (major > MAJOR_VERSION && !damaged) {
    throw new InputError(`the file has version ${major} of the .weir format, and this weir reads up to ${MAJOR_VERSION}: update weir`);
  }
  if (damaged || major === 0) throw new InputError('the header of the .weir file is damaged: copy the file again');
}

/** Walks over the records of a file that comes in pieces, and stops before the first one that is torn or corrupt. */
export class RecordWalk {
  events = 0;
  private readonly window = new ByteWindow();
  private readonly visit: (head: RecordHead, bytes: Uint8Array, view: DataView) => void;
  private number = 0;
  private end = 0;
  private total = 0;
  /** Set once the walk has stopped before the end of the file. */
  private stop: 'end' | 'unsound' | 'oversized' | undefined;
  /** Where the record that stopped the walk says that it ends, and whether only zeros came since its beginning. */
  private stopNext = 0;
  private restIsZero = true;

  /** `visit` sees each sound record. Its positions are those in `bytes`, only `offset` is the one in the file. */
  constructor(visit: (head: RecordHead, bytes: Uint8Array, view: DataView) => void) {
    this.visit = visit;
  }

  /** Whether the rest of the file is of no interest. */
  get isDone(): boolean {
    return this.stop !== undefined && this.total - this.end > MAX_REST;
  }

  get pending(): number {
    return this.window.pending;
  }

  push(piece: Uint8Array): void {
    this.total += piece.length;
    this.window.feed(piece, (bytes) => this.walk(bytes));
  }

  finish(): WholePart {
    const { end, events, total } = this;
    if (end === 0) this.window.feed(new Uint8Array(0), (bytes) => checkedHeader(bytes));
    let stop: WholePart['stop'];
    if (this.stop === 'end' || this.stop === undefined) stop = this.stop ?? (this.window.pending > 0 ? 'truncated' : 'unfinished');
    // After a crash, file systems leave zeros where data was not yet written.
    else if (this.restIsZero || (this.stop === 'unsound' ? this.stopNext === total : this.stopNext > total)) stop = 'truncated';
    else stop = this.stop === 'unsound' ? 'corrupt' : 'oversized';
    return { end, events, stop, total };
  }

  private walk(bytes: Uint8Array): number {
    const { offset: base } = this.window;
    let at = 0;
    if (base === 0 && this.end === 0) {
      if (bytes.length < FILE_HEADER_BYTES) return 0;
      at = checkedHeader(bytes);
      this.end = at;
    }
    const view = viewOf(bytes);
    while (this.stop === undefined) {
      if (bytes.length - at < RECORD_HEADER_BYTES) return at;
      const head = recordAt(view, at);
      if (head.length <= MAX_RECORD_BYTES && head.next > bytes.length) return at;
      if (head.length > MAX_RECORD_BYTES) this.stop = 'oversized';
      else if (view.getUint32(at + 12, true) !== this.number >>> 0 || view.getUint32(at, true) !== crc32(bytes, at + 4, head.next))
        this.stop = 'unsound';
      if (this.stop) this.stopNext = base + head.next;
      else {
        this.number++;
        if (head.type === RecordType.Events) this.events += Math.floor(head.length / EVENT_BYTES);
        this.visit({ ...head, offset: base + at }, bytes, view);
        if (head.type === RecordType.End) this.stop = 'end';
        at = head.next;
        this.end = base + at;
      }
    }
    if (this.restIsZero && this.stop !== 'end') this.restIsZero = isZero(bytes, at);
    return bytes.length;
  }
}

/** The records of a file, which must be whole up to `end`. */
export function* recordsOf(view: DataView, end: number): Generator<RecordHead> {
  for (let offset = FILE_HEADER_BYTES; offset < end; ) {
    const head = recordAt(view, offset);
    yield head;
    offset = head.next;
  }
}

export function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

function checkedHeader(bytes: Uint8Array): number {
  checkFileHeader(bytes);
  return FILE_HEADER_BYTES;
}

function padded(length: number): number {
  return Math.ceil(length / 8) * 8;
}

function recordAt(view: DataView, offset: number): RecordHead {
  const length = view.getUint32(offset + 4, true);
  const payload = offset + RECORD_HEADER_BYTES;
  return { offset, type: view.getUint16(offset + 8, true), payload, length, next: payload + padded(length) };
}

function isZero(bytes: Uint8Array, from: number): boolean {
  for (let at = from; at < bytes.length; at++) if (bytes[at] !== 0) return false;
  return true;
}
