// Unpacking: told by content, bounded, and refused early where the beginning says that it is the wrong file.
import { readFileSync } from 'node:fs';
import { gunzipSync, gzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { InputError } from '../../src/base/errors.ts';
import { GrowingBuffer } from '../../src/io/growing-buffer.ts';
import { type UnpackOptions, unpack } from '../../src/io/unpack.ts';

const OPTIONS: UnpackOptions = {
  mostBytes: 2 ** 24,
  tooLarge: () => new InputError('too large'),
  gunzip: async function* (raw) {
    yield gunzipSync(raw);
  },
};
const file = (path: string) => new Uint8Array(readFileSync(new URL(`../../${path}`, import.meta.url)));

describe('unpack', () => {
  it('gives back what is not packed', async () => {
    const raw = Uint8Array.of(1, 2, 3);
    expect(await unpack(raw, OPTIONS)).toBe(raw);
    expect(await unpack(new Uint8Array(), OPTIONS)).toHaveLength(0);
  });

  it('unpacks gzip and zstd to the same bytes', async () => {
    const plain = file('samples/exact/s1.pickle');
    expect(Buffer.compare(await unpack(gzipSync(plain), OPTIONS), plain)).toBe(0);
    expect(Buffer.compare(await unpack(file('test/cli/s1.pickle.zst'), OPTIONS), plain)).toBe(0);
  });

  it('stops at the limit and at what the examiner refuses', async () => {
    const zeros = gzipSync(new Uint8Array(2 ** 20));
    await expect(unpack(zeros, { ...OPTIONS, mostBytes: 2 ** 10 })).rejects.toThrow('too large');
    const refuse = () => {
      throw new InputError('the file is a picture');
    };
    await expect(unpack(zeros, { ...OPTIONS, examine: refuse })).rejects.toThrow('unpacked, the file is a picture');
  });

  it('says that a cut file is damaged', async () => {
    const cut = gzipSync(file('samples/exact/s1.pickle')).subarray(0, 1000);
    await expect(unpack(cut, OPTIONS)).rejects.toThrow(/truncated or damaged; copy it again/);
    await expect(unpack(file('test/cli/s1.pickle.zst').subarray(0, 500), OPTIONS)).rejects.toThrow(InputError);
  });
});

it('a growing buffer keeps all chunks in order', () => {
  const buffer = new GrowingBuffer({ mostBytes: 2 ** 26, tooLarge: OPTIONS.tooLarge });
  for (let index = 0; index < 20; index++) buffer.add(new Uint8Array(2 ** 20).fill(index));
  expect(buffer.bytes()).toHaveLength(20 * 2 ** 20);
  expect(buffer.bytes()[19 * 2 ** 20]).toBe(19);
});
