// `.weir` files are cut at their records and at the words in them. Mutants are sealed again: a reader stops at the first
// record whose CRC is wrong.
import { crc32 } from '../../../src/base/crc32.ts';
import { FILE_HEADER_BYTES, RECORD_HEADER_BYTES } from '../../../src/trace/weir/format.ts';
import { sealRecord } from '../../../src/trace/weir/framing.ts';
import { type Format, joined, type Subject } from '../mutate.ts';
import type { Random } from '../random.ts';

export const WEIR: Format = { cuts: wordCuts, mutations: [setWord, setWord, setLong, changeType, moveRecord, changeHead], mend: seal };

const WORDS = [0, 1, 2, 3, 7, 0x7f, 0xff, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff, 0xfffffffe];
/** Both halves of a u64 or of a double: 2^32, 2^53, 2^63, NaN, infinity, 1e308. */
const LONGS: readonly (readonly [number, number])[] = [
  [0, 0],
  [0, 1],
  [0, 0x200000],
  [0xffffffff, 0x1fffff],
  [1, 0x200000],
  [0, 0x80000000],
  [0xffffffff, 0xffffffff],
  [0, 0x10000],
  [0, 0x7ff80000],
  [0, 0x7ff00000],
  [0, 0xfff00000],
  [0x85ebc8a0, 0x7fe1ccf3],
  [0, 0xbff00000],
];

function setWord({ bytes, cuts }: Subject, random: Random): Uint8Array {
  const changed = Uint8Array.from(bytes);
  const at = random.pick(cuts);
  if (at + 4 <= changed.length) viewOf(changed).setUint32(at, random.chance(0.7) ? random.pick(WORDS) : random.below(64), true);
  return changed;
}

function setLong({ bytes, cuts }: Subject, random: Random): Uint8Array {
  const changed = Uint8Array.from(bytes);
  const at = random.pick(cuts);
  const [low, high] = random.pick(LONGS);
  if (at + 8 > changed.length) return changed;
  viewOf(changed).setUint32(at, low, true);
  viewOf(changed).setUint32(at + 4, high, true);
  return changed;
}

function changeType({ bytes }: Subject, random: Random): Uint8Array {
  const changed = Uint8Array.from(bytes);
  const records = recordsOf(changed);
  if (records.length > 0) viewOf(changed).setUint16(random.pick(records) + 8, random.below(16), true);
  return changed;
}

/** Moves, repeats or leaves out whole records. */
function moveRecord({ bytes }: Subject, random: Random): Uint8Array {
  const starts = recordsOf(bytes);
  if (starts.length < 2) return bytes;
  const records = starts.map((start, index) => bytes.subarray(start, starts[index + 1] ?? bytes.length));
  const index = random.below(records.length);
  const [taken] = random.chance(0.5) ? records.splice(index, 1) : [records[index]!];
  if (random.chance(0.8)) records.splice(random.below(records.length + 1), 0, taken!);
  return joined(bytes.subarray(0, FILE_HEADER_BYTES), ...records);
}

/** Changes a length: of a record, or of the payload's first index, device or flags. */
function changeHead({ bytes }: Subject, random: Random): Uint8Array {
  const changed = Uint8Array.from(bytes);
  const records = recordsOf(changed);
  if (records.length === 0) return changed;
  const at = random.pick(records) + random.pick([4, 16, 20]);
  if (at + 4 <= changed.length) viewOf(changed).setUint32(at, random.chance(0.5) ? random.below(256) : random.pick(WORDS), true);
  return changed;
}

/** Numbers and checksums of all records are right again. A record that is longer than the file is cut. */
function seal(bytes: Uint8Array, random: Random): Uint8Array {
  const sealed = Uint8Array.from(bytes);
  const view = viewOf(sealed);
  if (sealed.length >= FILE_HEADER_BYTES) view.setUint32(12, crc32(sealed, 0, 12), true);
  recordsOf(sealed).forEach((start, number) => {
    const room = sealed.length - start - RECORD_HEADER_BYTES;
    const length = Math.min(view.getUint32(start + 4, true), room - (room % 8));
    const end = start + RECORD_HEADER_BYTES + Math.ceil(length / 8) * 8;
    sealRecord(sealed.subarray(start, end), (view.getUint16(start + 8, true) || 12) as Parameters<typeof sealRecord>[1], length, number);
  });
  // A partial word behind the last record stays now and then: the file was cut there.
  return random.chance(0.9) ? sealed.subarray(0, sealed.length - ((sealed.length - FILE_HEADER_BYTES) % 8)) : sealed;
}

/** Where records begin, as far as their lengths make sense. */
function recordsOf(bytes: Uint8Array): number[] {
  const view = viewOf(bytes);
  const starts: number[] = [];
  for (let at = FILE_HEADER_BYTES; at + RECORD_HEADER_BYTES <= bytes.length; ) {
    starts.push(at);
    at += RECORD_HEADER_BYTES + Math.ceil(view.getUint32(at + 4, true) / 8) * 8;
  }
  return starts;
}

function wordCuts(bytes: Uint8Array): number[] {
  return Array.from({ length: Math.ceil(bytes.length / 4) }, (_, word) => word * 4);
}

function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
