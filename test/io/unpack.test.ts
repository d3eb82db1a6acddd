// Unpacking: told by content, in pieces, and refused early where no recording would unpack to so much.
import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { InputError } from '../../src/base/errors.ts';
import { gunzip } from '../../src/cli/input-pieces.ts';
import { GrowingBuffer } from '../../src/io/growing-buffer.ts';
import { unpack } from '../../src/io/unpack.ts';
import { Xxh64 } from '../../src/io/xxh64.ts';
import { readSample } from '../support/samples.ts';
import { skippableFrame, zstdFrame } from '../support/zstd.ts';

const file = (path: string) => new Uint8Array(readFileSync(new URL(`../../${path}`, import.meta.url)));
const PLAIN = file('samples/exact/s1.pickle');
const ZSTD = file('test/cli/s1.pickle.zst');

/** Pieces whose memory is used again, as a file is read. */
function* lent(bytes: Uint8Array, size: number): Generator<Uint8Array> {
  const buffer = new Uint8Array(size);
  for (let from = 0; from < bytes.length; from += size) {
    const piece = bytes.subarray(from, from + size);
    buffer.set(piece);
    yield buffer.subarray(0, piece.length);
    buffer.fill(0xee);
  }
}

async function unpacked(bytes: Uint8Array, size = 2 ** 16): Promise<Buffer> {
  const out: Buffer[] = [];
  for await (const piece of (await unpack(lent(bytes, size), gunzip)).pieces) out.push(Buffer.from(piece));
  return Buffer.concat(out);
}

/** How much came out before the file was refused, and how much of it was read. */
async function refusalOf(bytes: Uint8Array): Promise<{ message: string; out: number; read: number }> {
  let out = 0;
  let read = 0;
  const counted = function* () {
    for (const piece of lent(bytes, 2 ** 16)) {
      read += piece.length;
      yield piece;
    }
  };
  try {
    for await (const piece of (await unpack(counted(), gunzip)).pieces) out += piece.length;
  } catch (error) {
    expect(error).toBeInstanceOf(InputError);
    return { message: (error as Error).message, out, read };
  }
  throw new Error('it was unpacked without complaint');
}

describe('unpack', () => {
  it('gives back what is not packed', async () => {
    expect([...(await unpacked(Uint8Array.of(1, 2, 3)))]).toEqual([1, 2, 3]);
    expect(await unpacked(new Uint8Array())).toHaveLength(0);
    expect((await unpack([PLAIN], gunzip)).isPacked).toBe(false);
  });

  it.each([1, 7, 2 ** 16])('unpacks gzip and zstd to the same bytes, in pieces of %i', async (size) => {
    expect(Buffer.compare(await unpacked(gzipSync(PLAIN), size), PLAIN)).toBe(0);
    expect(Buffer.compare(await unpacked(ZSTD, size), PLAIN)).toBe(0);
  });

  it('reads all members of gzip, and all frames of zstd', async () => {
    const half = PLAIN.length >> 1;
    const members = Buffer.concat([gzipSync(PLAIN.subarray(0, half)), gzipSync(''), gzipSync(PLAIN.subarray(half))]);
    expect(Buffer.compare(await unpacked(members), PLAIN)).toBe(0);
    const frames = Buffer.concat([
      skippableFrame(100_000),
      zstdFrame([{ raw: PLAIN.subarray(0, half) }], { hasChecksum: true }),
      zstdFrame([]),
      skippableFrame(0),
      zstdFrame([{ raw: PLAIN.subarray(half) }]),
    ]);
    for (const size of [1, 2 ** 16]) expect(Buffer.compare(await unpacked(frames, size), PLAIN)).toBe(0);
    expect(await unpacked(zstdFrame([{ repeat: 7, count: 3 }]))).toEqual(Buffer.alloc(3 * 2 ** 17, 7));
  });

  it('says that a cut or damaged file is damaged', async () => {
    const damaged = /truncated or damaged; copy it again/;
    await expect(unpacked(gzipSync(PLAIN).subarray(0, 1000))).rejects.toThrow(damaged);
    for (const length of [5, 9, 500, ZSTD.length - 1]) await expect(unpacked(ZSTD.subarray(0, length))).rejects.toThrow(damaged);
    await expect(unpacked(Buffer.concat([ZSTD, Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8, 9)]))).rejects.toThrow(damaged);
  });
});

describe('bombs', () => {
  const GIB = 2 ** 30;
  const blocks = (3 * GIB) / 2 ** 17;

  it('are refused after 64 MiB, with most of the file unread', async () => {
    const members = Buffer.concat(Array.from({ length: 40 }, () => gzipSync(Buffer.alloc(2 ** 24), { level: 9 })));
    for (const bomb of [zstdFrame([{ repeat: 0, count: blocks }]), members]) {
      const { message, out } = await refusalOf(bomb);
      expect(message).toMatch(/^its first .* unpack to 64\.\d MiB, which no recording does/);
      expect(out).toBeLessThan(66 * 2 ** 20);
    }
    expect((await refusalOf(members)).read).toBeLessThan(members.length / 2);
  });

  it('with a window that no machine has are refused before it is there', async () => {
    const { message, out } = await refusalOf(zstdFrame([{ repeat: 0, count: blocks }], { window: 0xa8 }));
    expect(message).toBe(
      'it was packed with a window of 2147483648 bytes, and Weir reads up to 134217728: pack it again with zstd, without --long',
    );
    expect(out).toBe(0);
  });

  it('of very many blocks and frames with large windows cost no more than their content', async () => {
    const tiny = zstdFrame(
      Array.from({ length: 20_000 }, () => ({ raw: Uint8Array.of(65) })),
      { window: 0x88 },
    );
    expect(await unpacked(tiny)).toEqual(Buffer.alloc(20_000, 65));
    const frames = Buffer.concat(Array.from({ length: 20_000 }, () => zstdFrame([{ raw: Uint8Array.of(66) }], { window: 0x88 })));
    const before = process.memoryUsage().arrayBuffers;
    expect(await unpacked(frames)).toEqual(Buffer.alloc(20_000, 66));
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(2 ** 26);
  });

  it('of blocks that claim more than a block may hold are refused', async () => {
    // No literals, 32512 sequences, all tables of one code: the longest match.
    const long = zstdFrame([{ raw: Uint8Array.of(65) }, { packed: Uint8Array.of(0, 255, 0, 0, 0x54, 0, 0, 52, 255, 255, 255) }]);
    await expect(unpacked(long)).rejects.toThrow(/cannot be unpacked \(a block is too long|sequences are cut off/);
    const word = ((2 ** 18) << 3) | 3;
    const rle = Uint8Array.of(0x28, 0xb5, 0x2f, 0xfd, 0, 0x58, word & 255, (word >> 8) & 255, word >> 16, 1);
    await expect(unpacked(rle)).rejects.toThrow('a block is too long');
  });
});

describe('checksums of zstd', () => {
  it('are those of XXH64, however the content is cut', () => {
    const hashOf = (content: Uint8Array, cut: number) => {
      const checksum = new Xxh64();
      checksum.push(Uint8Array.of(1, 2, 3));
      checksum.reset();
      for (let from = 0; from < content.length; from += cut) checksum.push(content.subarray(from, from + cut));
      return checksum.low();
    };
    expect(hashOf(new Uint8Array(), 1)).toBe(0x51d8e999);
    expect(hashOf(new TextEncoder().encode('abc'), 1)).toBe(0xad770999);
    const stored = new DataView(ZSTD.buffer, ZSTD.byteOffset + ZSTD.length - 4).getUint32(0, true);
    for (const cut of [1, 31, 32, 33, 1000, PLAIN.length]) expect(hashOf(PLAIN, cut)).toBe(stored);
  });

  it('are compared: a changed byte in raw content is found', async () => {
    const frame = zstdFrame([{ raw: PLAIN.subarray(0, 1000) }], { hasChecksum: true });
    expect(await unpacked(frame)).toHaveLength(1000);
    for (const at of [9, 500, 1008, frame.length - 1]) {
      const damaged = frame.slice();
      damaged[at]! ^= 1;
      await expect(unpacked(damaged)).rejects.toThrow('cannot be unpacked (its checksum is wrong)');
    }
    const second = Buffer.concat([frame, frame]);
    second[frame.length + 500]! ^= 1;
    await expect(unpacked(second)).rejects.toThrow('its checksum is wrong');
  });
});

describe('damaged zstd', () => {
  it('with weights that no table has is refused', async () => {
    // Compressed literals whose Huffman table is described directly: 1, 1 and a weight of 15.
    const packed = Uint8Array.of(0x02 | (4 << 4), 4 << 6, 1, 128 + 2, 0x11, 0xf0, 1, 0);
    await expect(unpacked(zstdFrame([{ packed }]))).rejects.toThrow('a weight is too large');
  });

  it('raises nothing but InputError, and never gives more than it may', async () => {
    let seed = 7;
    const random = (below: number) => {
      seed = (Math.imul(seed, 1103515245) + 12345) & 0x7fffffff;
      return (seed >> 8) % below;
    };
    for (let round = 0; round < 1500; round++) {
      const bytes = ZSTD.slice();
      for (let changes = 1 + random(3); changes > 0; changes--) bytes[random(bytes.length)] = random(256);
      try {
        expect((await unpacked(bytes)).length).toBeLessThan(2 ** 20);
      } catch (error) {
        if (!(error instanceof InputError)) throw error;
      }
    }
  });
});

const hasZstd = spawnSync('zstd', ['--version']).status === 0;
describe.skipIf(!hasZstd)('what the zstd command packs (skipped: there is no zstd command)', () => {
  const skewed = (count: number, power: number) => {
    let seed = 1;
    return Uint8Array.from({ length: count }, () => {
      seed = (Math.imul(seed, 1103515245) + 12345) & 0x7fffffff;
      return Math.floor((seed / 0x7fffffff) ** power * 256);
    });
  };
  const CONTENTS: readonly (readonly [string, Uint8Array])[] = [
    ['nothing', new Uint8Array()],
    ['one byte', Uint8Array.of(65)],
    ['noise', skewed(300_000, 1)],
    ['skewed noise', skewed(300_000, 6)],
    ['few symbols', skewed(300_000, 1).map((byte) => byte & 3)],
    ['a recording', readSample('vgg16-b100.native.pickle.gz')],
    ['a recording with stacks', readSample('gpt2xl-oom.pickle.gz')],
  ];
  it.each(CONTENTS)('%s', async (_, content) => {
    for (const options of [['-1'], ['-3', '--no-check'], ['-9'], ['-19'], ['--fast=5']]) {
      const packed = execFileSync('zstd', [...options, '-q', '-c'], { input: content, maxBuffer: 2 ** 28 });
      expect(Buffer.compare(await unpacked(packed), content)).toBe(0);
    }
  });
});

it('a growing buffer keeps all pieces in order, up to its limit', () => {
  const buffer = new GrowingBuffer({ mostBytes: 2 ** 25, tooLarge: () => new InputError('too large') });
  for (let index = 0; index < 20; index++) buffer.add(new Uint8Array(2 ** 20).fill(index));
  expect(buffer.bytes()).toHaveLength(20 * 2 ** 20);
  expect(buffer.bytes()[19 * 2 ** 20]).toBe(19);
  expect(() => buffer.add(new Uint8Array(2 ** 24))).toThrow('too large');
});
