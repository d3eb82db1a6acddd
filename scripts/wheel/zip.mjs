// A zip file as bytes. The same entries give the same bytes: no times, no users, nothing of the machine.
// Wheels are small, so there is no zip64.
import { crc32, deflateRawSync } from 'node:zlib';

/** 1980-01-01 00:00, the earliest time that zip has. */
const DATE = 0x0021;
const VERSION = 20;
const UTF8_NAMES = 0x0800;
const DEFLATED = 8;
const UNIX = 3 << 8;
/** A file that its owner may write and everybody may read; wheels say themselves what is run. */
const MODE = 0o100644;

/**
 * `entries` in the order in which they shall lie in the file.
 * @param {readonly { name: string, data: Uint8Array }[]} entries
 * @returns {Buffer}
 */
export function zip(entries) {
  const files = [];
  const directory = [];
  let offset = 0;
  for (const { name, data } of entries) {
    const path = Buffer.from(name);
    const packed = deflateRawSync(data, { level: 9 });
    const common = Buffer.alloc(26);
    common.writeUInt16LE(VERSION, 0);
    common.writeUInt16LE(UTF8_NAMES, 2);
    common.writeUInt16LE(DEFLATED, 4);
    common.writeUInt16LE(DATE, 8);
    common.writeUInt32LE(crc32(data), 10);
    common.writeUInt32LE(packed.length, 14);
    common.writeUInt32LE(data.length, 18);
    common.writeUInt16LE(path.length, 22);
    files.push(signature(0x04034b50), common, path, packed);

    const rest = Buffer.alloc(14);
    rest.writeUInt32LE(MODE * 0x10000, 6);
    rest.writeUInt32LE(offset, 10);
    directory.push(signature(0x02014b50), word(UNIX | VERSION), common, rest, path);
    offset += 30 + path.length + packed.length;
  }
  const index = Buffer.concat(directory);
  const end = Buffer.alloc(18);
  end.writeUInt16LE(entries.length, 4);
  end.writeUInt16LE(entries.length, 6);
  end.writeUInt32LE(index.length, 8);
  end.writeUInt32LE(offset, 12);
  if (entries.length > 0xffff || offset + index.length > 0xffffffff) throw new Error('too many files, or too large, for a zip file');
  return Buffer.concat([...files, index, signature(0x06054b50), end]);
}

/** @param {number} value */
function signature(value) {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
}

/** @param {number} value */
function word(value) {
  const bytes = Buffer.alloc(2);
  bytes.writeUInt16LE(value);
  return bytes;
}
