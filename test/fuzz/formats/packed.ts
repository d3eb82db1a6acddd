// Packed recordings. Either the packed bytes are damaged, or a damaged recording is packed, or both.
import { gzipSync } from 'node:zlib';
import { crc32 } from '../../../src/base/crc32.ts';
import { type Format, flipBits, joined, type Subject } from '../mutate.ts';
import type { Random } from '../random.ts';

const GZIP_HEADER = 10;
const ZSTD_MAGIC = 0xfd2fb528;
const ZSTD_MOST_BLOCK = 1 << 17;

export const GZIP: Format = { cuts: byteCuts, mutations: [flipBits, gzipFlags, gzipTrailer, appendPacked] };
export const ZSTD: Format = { cuts: byteCuts, mutations: [flipBits, zstdHead, zstdBlock, appendPacked] };

export function packGzip(bytes: Uint8Array, random: Random): Uint8Array {
  // A small window: most of the time would go into clearing a large one.
  return gzipSync(bytes, { level: random.pick([0, 1, 6]), memLevel: 1, windowBits: 9 });
}

/** A frame of raw and repeated blocks. Compressed blocks come from the corpus. */
export function packZstd(bytes: Uint8Array, random: Random): Uint8Array {
  const parts: Uint8Array[] = [zstdFrameHead(bytes.length, random)];
  for (let at = 0; at < bytes.length; ) {
    const length = Math.min(bytes.length - at, 1 + random.below(random.pick([16, 1000, 60_000])));
    const isLast = at + length >= bytes.length;
    parts.push(zstdBlockHead(length, 0, isLast), bytes.subarray(at, at + length));
    at += length;
    if (random.chance(0.002)) parts.push(zstdBlockHead(random.below(ZSTD_MOST_BLOCK), 1, isLast), Uint8Array.of(random.below(256)));
  }
  return joined(...parts);
}

/** The four ways of writing the size, with or without a window. */
function zstdFrameHead(size: number, random: Random): Uint8Array {
  const way = random.below(4);
  const single = way > 0 && random.chance(0.7);
  const told = random.chance(0.9) ? size : random.pick([0, 1, 0xffffffff, random.below(1 << 30)]);
  const head = new Uint8Array(16);
  const view = new DataView(head.buffer);
  view.setUint32(0, ZSTD_MAGIC, true);
  head[4] = (way << 6) | (single ? 0x20 : 0) | (random.chance(0.1) ? 4 : 0) | (random.chance(0.05) ? random.below(4) : 0);
  let at = 5;
  if (!single) head[at++] = random.chance(0.8) ? 0x38 : random.below(256);
  if (way === 1) view.setUint16(at, told - 256, true);
  else if (way > 1) view.setUint32(at, told, true);
  at += [0, 2, 4, 8][way]!;
  return head.subarray(0, at);
}

function zstdBlockHead(size: number, type: number, isLast: boolean): Uint8Array {
  const word = (size << 3) | (type << 1) | (isLast ? 1 : 0);
  return Uint8Array.of(word, word >>> 8, word >>> 16);
}

/** Header flags: text, CRC, extra field, name, comment. */
function gzipFlags({ bytes }: Subject, random: Random): Uint8Array {
  const changed = Uint8Array.from(bytes);
  if (changed.length > 3) changed[3] = random.below(256);
  if (!random.chance(0.5)) return changed;
  const extra = Uint8Array.from({ length: random.below(40) }, () => random.pick([0, 65, 255, 2]));
  return joined(changed.subarray(0, GZIP_HEADER), extra, changed.subarray(GZIP_HEADER));
}

/** A wrong CRC or size; now and then the right one of nothing. */
function gzipTrailer({ bytes }: Subject, random: Random): Uint8Array {
  const changed = Uint8Array.from(bytes);
  if (changed.length < GZIP_HEADER + 8) return changed;
  const view = new DataView(changed.buffer);
  const at = changed.length - random.pick([8, 4]);
  view.setUint32(at, random.pick([0, 1, 0xffffffff, crc32(changed, 0, 0), random.below(1 << 20)]), true);
  return changed;
}

function zstdHead({ bytes }: Subject, random: Random): Uint8Array {
  const changed = Uint8Array.from(bytes);
  const at = 4 + random.below(Math.max(1, Math.min(10, changed.length - 4)));
  if (at < changed.length) changed[at] = random.pick([0, 0x20, 0x40, 0x60, 0xa0, 0xc0, 0xe0, 0xff, random.below(256)]);
  return changed;
}

/** Puts a block before the last bytes: repeated, raw or compressed, with any size. */
function zstdBlock({ bytes, cuts }: Subject, random: Random): Uint8Array {
  const at = random.pick(cuts);
  // Rarely a large one: unpacking many of them takes most of the time.
  const size = random.chance(0.9) ? random.pick([0, 1, 100, 1000]) : random.pick([ZSTD_MOST_BLOCK, ZSTD_MOST_BLOCK + 1, (1 << 21) - 1]);
  const head = zstdBlockHead(size, random.below(4), random.chance(0.2));
  return joined(bytes.subarray(0, at), head, Uint8Array.of(random.below(256)), bytes.subarray(at));
}

/** Another member or frame behind it, a skippable frame, or garbage. */
function appendPacked({ bytes }: Subject, random: Random, corpus: readonly Uint8Array[]): Uint8Array {
  const length = random.below(20);
  const skippable = Uint8Array.of(0x50 + random.below(16), 0x2a, 0x4d, 0x18, length, 0, 0, random.chance(0.1) ? 0xff : 0);
  const tail = random.pick([random.pick(corpus), joined(skippable, new Uint8Array(length)), new Uint8Array(length), bytes]);
  return random.chance(0.8) ? joined(bytes, tail) : joined(tail, bytes);
}

function byteCuts(bytes: Uint8Array): number[] {
  return Array.from({ length: bytes.length }, (_, at) => at);
}
