// Cuts a zstd stream into frames and blocks. A block unpacks to at most 128 KiB, however small it is packed, so limits
// are checked in time. What a frame asks of its decoder is checked before the decoder sees it.
import { InputError } from '../base/errors.ts';
import type { PieceReader } from './pieces.ts';

/** The limit of the zstd command too, without --long. */
const MAX_WINDOW_BYTES = 2 ** 27;
const MAX_BLOCK_BYTES = 2 ** 17;
const MAX_HEADER_BYTES = 18;

const MAGIC = 0xfd2fb528;
const FIRST_SKIPPABLE = 0x184d2a50;
const RLE_BLOCK = 1;

/**
 * A decoder may do work for the whole window with each block and with each frame. Real packers write few small blocks,
 * so this work is limited, in bytes of windows: in all, and for each byte that comes out.
 */
const FREE_WORK = 2 ** 33;
const WORK_PER_BYTE = 2 ** 11;
const WORK_PER_FRAME = 2 ** 16;

/** Unpacks one frame. */
export interface FrameDecoder {
  /** Takes the frame's header with its first block, then one block at a time; the checksum comes with the last. */
  push(bytes: Uint8Array, isLast: boolean): Iterable<Uint8Array> | Promise<Iterable<Uint8Array>>;
  close?(): void;
}

export function isZstd(reader: PieceReader): boolean {
  const magic = u32(reader, 0);
  return magic === MAGIC || (magic & ~15) >>> 0 === FIRST_SKIPPABLE;
}

export async function* unzstd(reader: PieceReader, newDecoder: () => FrameDecoder): AsyncGenerator<Uint8Array> {
  let work = 0;
  let unpacked = 0;
  while (await reader.need(1)) {
    await require(reader, 8);
    if (u32(reader, 0) !== MAGIC) {
      await skip(reader);
      continue;
    }
    const frame = await readHeader(reader);
    const decoder = newDecoder();
    try {
      for (let pending = frame.header, isLast = false; !isLast; pending = new Uint8Array(0)) {
        const block = await readBlock(reader, frame.hasChecksum);
        isLast = block.isLast;
        for (const piece of await decoder.push(pending.length > 0 ? joined(pending, block.bytes) : block.bytes, isLast)) {
          unpacked += piece.length;
          yield piece;
        }
        work += frame.windowBytes + WORK_PER_FRAME;
        if (work > FREE_WORK + unpacked * WORK_PER_BYTE)
          throw new InputError('its zstd blocks are smaller than any packer writes: the file is damaged; pack it again');
      }
    } finally {
      decoder.close?.();
    }
  }
}

async function readHeader(reader: PieceReader): Promise<{ header: Uint8Array; windowBytes: number; hasChecksum: boolean }> {
  await reader.need(MAX_HEADER_BYTES);
  const flags = reader.peek(4);
  const isSingle = (flags & 32) !== 0;
  const idBytes = [0, 1, 2, 4][flags & 3]!;
  const sizeBytes = [isSingle ? 1 : 0, 2, 4, 8][flags >> 6]!;
  const sizeAt = 5 + (isSingle ? 0 : 1) + idBytes;
  await require(reader, sizeAt + sizeBytes);
  let windowBytes = 0;
  if (isSingle) {
    for (let at = sizeBytes - 1; at >= 0; at--) windowBytes = windowBytes * 256 + reader.peek(sizeAt + at);
    if (sizeBytes === 2) windowBytes += 256;
  } else {
    const base = 2 ** (10 + (reader.peek(5) >> 3));
    windowBytes = base + (base / 8) * (reader.peek(5) & 7);
  }
  if (windowBytes > MAX_WINDOW_BYTES) {
    throw new InputError(
      `it was packed with a window of ${windowBytes} bytes, and Weir reads up to ${MAX_WINDOW_BYTES}: pack it again with zstd, without --long`,
    );
  }
  return { header: reader.take(sizeAt + sizeBytes), windowBytes, hasChecksum: (flags & 4) !== 0 };
}

async function readBlock(reader: PieceReader, hasChecksum: boolean): Promise<{ bytes: Uint8Array; isLast: boolean }> {
  await require(reader, 3);
  const header = reader.peek(0) | (reader.peek(1) << 8) | (reader.peek(2) << 16);
  const isLast = (header & 1) === 1;
  const size = header >> 3;
  if (size > MAX_BLOCK_BYTES) throw new Error(`a block of ${size} bytes`);
  const length = 3 + (((header >> 1) & 3) === RLE_BLOCK ? 1 : size) + (isLast && hasChecksum ? 4 : 0);
  await require(reader, length);
  return { bytes: reader.take(length), isLast };
}

async function skip(reader: PieceReader): Promise<void> {
  if (!isZstd(reader)) throw new Error('something else follows it');
  let left = u32(reader, 4);
  reader.take(8);
  while (left > 0) {
    await require(reader, 1);
    left -= reader.take(Math.min(left, reader.available)).length;
  }
}

async function require(reader: PieceReader, count: number): Promise<void> {
  if (!(await reader.need(count))) throw new Error('unexpected end');
}

function u32(reader: PieceReader, at: number): number {
  return (reader.peek(at) | (reader.peek(at + 1) << 8) | (reader.peek(at + 2) << 16) | (reader.peek(at + 3) << 24)) >>> 0;
}

function joined(first: Uint8Array, second: Uint8Array): Uint8Array {
  const both = new Uint8Array(first.length + second.length);
  both.set(first);
  both.set(second, first.length);
  return both;
}
