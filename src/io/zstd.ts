// Unpacks zstd: cuts the stream into frames and blocks. A block unpacks to at most 128 KiB, however small it is packed,
// so limits are checked in time.
import { InputError } from '../base/errors.ts';
import type { PieceReader } from './pieces.ts';
import { Xxh64 } from './xxh64.ts';
import { BlockDecoder, MAX_BLOCK_BYTES } from './zstd-block.ts';
import { Damaged } from './zstd-entropy.ts';

/** The limit of the zstd command too, without --long. */
const MAX_WINDOW_BYTES = 2 ** 27;
const MAX_HEADER_BYTES = 18;

const MAGIC = 0xfd2fb528;
const FIRST_SKIPPABLE = 0x184d2a50;
const RLE_BLOCK = 1;

/** Whether the next four bytes, which must be there, begin a frame. */
export function isZstd(reader: PieceReader): boolean {
  const magic = u32(reader, 0);
  return magic === MAGIC || (magic & ~15) >>> 0 === FIRST_SKIPPABLE;
}

/** The content of all frames. */
export async function* unzstd(reader: PieceReader): AsyncGenerator<Uint8Array> {
  const decoder = new BlockDecoder();
  const checksum = new Xxh64();
  while (reader.available > 0 || (await reader.need(1))) {
    await require(reader, 8);
    if (u32(reader, 0) !== MAGIC) {
      await skip(reader);
      continue;
    }
    const { windowBytes, contentBytes, hasChecksum } = await readHeader(reader);
    decoder.begin(windowBytes);
    checksum.reset();
    let unpacked = 0;
    for (let isLast = false; !isLast; ) {
      if (reader.available < 3) await require(reader, 3);
      const header = reader.peek(0) | (reader.peek(1) << 8) | (reader.peek(2) << 16);
      reader.take(3);
      isLast = (header & 1) === 1;
      const type = (header >> 1) & 3;
      const size = header >> 3;
      if (size > MAX_BLOCK_BYTES) throw new Damaged('a block is too long');
      const length = type === RLE_BLOCK ? 1 : size;
      if (reader.available < length) await require(reader, length);
      const content = decoder.decode(type, reader.take(length), size);
      unpacked += content.length;
      if (hasChecksum) checksum.push(content);
      yield content;
    }
    if (contentBytes !== undefined && contentBytes !== unpacked) throw new Damaged('a frame does not hold what it says');
    if (hasChecksum) {
      await require(reader, 4);
      if (u32(reader, 0) !== checksum.low()) throw new Damaged('its checksum is wrong');
      reader.take(4);
    }
  }
}

async function readHeader(reader: PieceReader): Promise<{ windowBytes: number; contentBytes: number | undefined; hasChecksum: boolean }> {
  await reader.need(MAX_HEADER_BYTES);
  const flags = reader.peek(4);
  if ((flags & 8) !== 0) throw new Damaged('a reserved bit is set');
  const isSingle = (flags & 32) !== 0;
  const idBytes = [0, 1, 2, 4][flags & 3]!;
  const sizeBytes = [isSingle ? 1 : 0, 2, 4, 8][flags >> 6]!;
  const idAt = isSingle ? 5 : 6;
  const sizeAt = idAt + idBytes;
  await require(reader, sizeAt + sizeBytes);
  for (let at = idAt; at < sizeAt; at++) {
    if (reader.peek(at) !== 0) throw new InputError('it was packed with a dictionary; pack it again without one');
  }
  let contentBytes: number | undefined;
  if (sizeBytes > 0) {
    contentBytes = sizeBytes === 2 ? 256 : 0;
    for (let at = 0; at < sizeBytes; at++) contentBytes += reader.peek(sizeAt + at) * 256 ** at;
  }
  const base = 2 ** (10 + (reader.peek(5) >> 3));
  const windowBytes = isSingle ? contentBytes! : base + (base / 8) * (reader.peek(5) & 7);
  if (windowBytes > MAX_WINDOW_BYTES) {
    throw new InputError(
      `it was packed with a window of ${windowBytes} bytes, and Weir reads up to ${MAX_WINDOW_BYTES}: pack it again with zstd, without --long`,
    );
  }
  reader.take(sizeAt + sizeBytes);
  return { windowBytes, contentBytes, hasChecksum: (flags & 4) !== 0 };
}

async function skip(reader: PieceReader): Promise<void> {
  if (!isZstd(reader)) throw new Damaged('something else follows it');
  let left = u32(reader, 4);
  reader.take(8);
  while (left > 0) {
    await require(reader, 1);
    left -= reader.take(Math.min(left, reader.available)).length;
  }
}

async function require(reader: PieceReader, count: number): Promise<void> {
  if (!(await reader.need(count))) throw new Damaged('it ends early');
}

function u32(reader: PieceReader, at: number): number {
  return (reader.peek(at) | (reader.peek(at + 1) << 8) | (reader.peek(at + 2) << 16) | (reader.peek(at + 3) << 24)) >>> 0;
}
