// Records as bytes: sealing a record with length, number and CRC, and walking over the records of a file
// up to the last one that is whole.
import { crc32 } from '../../base/crc32.ts';
import { InputError } from '../../base/errors.ts';
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
  /** Why the walk stopped: at the End record, at the end of the file, at a torn record or at a corrupt one. */
  readonly stop: 'end' | 'unfinished' | 'truncated' | 'corrupt';
}

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

/** Checks every record and stops before the first one that is torn or corrupt. */
export function findWholePart(bytes: Uint8Array, onProgress: (offset: number) => void): WholePart {
  const view = viewOf(bytes);
  let events = 0;
  let offset = FILE_HEADER_BYTES;
  for (let number = 0; ; number++) {
    if (offset === bytes.length) return { end: offset, events, stop: 'unfinished' };
    if (bytes.length - offset < RECORD_HEADER_BYTES) return { end: offset, events, stop: 'truncated' };
    const head = recordAt(view, offset);
    if (head.next > bytes.length) return { end: offset, events, stop: 'truncated' };
    const sound =
      view.getUint32(offset + 12, true) === number >>> 0 && view.getUint32(offset, true) === crc32(bytes, offset + 4, head.next);
    if (!sound) {
      // After a crash, file systems leave zeros where data was not yet written.
      const torn = head.next === bytes.length || isZero(bytes, offset);
      return { end: offset, events, stop: torn ? 'truncated' : 'corrupt' };
    }
    if (head.type === RecordType.Events) events += Math.floor(head.length / EVENT_BYTES);
    offset = head.next;
    if (head.type === RecordType.End) return { end: offset, events, stop: 'end' };
    onProgress(offset);
  }
}

/** The records before `end`, as found by `findWholePart`. */
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
