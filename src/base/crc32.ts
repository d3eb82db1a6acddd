// CRC-32 as in gzip, PNG and zlib's crc32(): the reflected polynomial 0xEDB88320.
// It reads eight bytes per step through eight tables, about four times as fast as byte by byte.

const SLICES = 8;
const TABLES: Int32Array = makeTables();

/** The CRC-32 of `bytes[from..to)`. `previous` is the CRC of the bytes before, to continue it. */
export function crc32(bytes: Uint8Array, from = 0, to: number = bytes.length, previous = 0): number {
  const tables = TABLES;
  let crc = ~previous;
  let at = from;
  for (const stop = to - (SLICES - 1); at < stop; at += SLICES) {
    const first = crc ^ (bytes[at]! | (bytes[at + 1]! << 8) | (bytes[at + 2]! << 16) | (bytes[at + 3]! << 24));
    crc =
      tables[0x700 + (first & 0xff)]! ^
      tables[0x600 + ((first >>> 8) & 0xff)]! ^
      tables[0x500 + ((first >>> 16) & 0xff)]! ^
      tables[0x400 + (first >>> 24)]! ^
      tables[0x300 + bytes[at + 4]!]! ^
      tables[0x200 + bytes[at + 5]!]! ^
      tables[0x100 + bytes[at + 6]!]! ^
      tables[bytes[at + 7]!]!;
  }
  for (; at < to; at++) crc = (crc >>> 8) ^ tables[(crc ^ bytes[at]!) & 0xff]!;
  return ~crc >>> 0;
}

/** Table k, at 256 * k, holds the CRC of each byte value followed by k zero bytes. */
function makeTables(): Int32Array {
  const tables = new Int32Array(256 * SLICES);
  for (let value = 0; value < 256; value++) {
    let crc = value;
    for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1;
    tables[value] = crc;
  }
  for (let entry = 256; entry < tables.length; entry++) {
    const shorter = tables[entry - 256]!;
    tables[entry] = (shorter >>> 8) ^ tables[shorter & 0xff]!;
  }
  return tables;
}
