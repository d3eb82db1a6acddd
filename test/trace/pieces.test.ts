// A recording may come in pieces of any size. The pieces must not change what is read, nor what is refused.
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { InputError } from '../../src/base/errors.ts';
import { RecordingReader, readRecording } from '../../src/trace/detect.ts';
import type { Recording } from '../../src/trace/trace.ts';
import { readSample } from '../support/samples.ts';
import { contentOf, smallRecording, weirBytes } from './weir-support.ts';

const JSON_TEXT = new TextEncoder().encode(
  '\ufeff {"segments": [{"address": 512, "total_size": 512, "blocks": [{"size": 512, "state": "inactive"}]}], "device_traces": [[' +
    '{"action": "alloc", "addr": 18446603336221196288, "size": 12, "user_metadata": "a\\n\\u00e9\\"", "time_us": 1.5e3, "pool_id": [0, 0],' +
    '"frames": [{"name": "f", "filename": "x", "line": -3}]}]], "frac": -0.5e-1, "none": null, "yes": true, "not": NaN}  ',
);
const FILES: readonly (readonly [string, Uint8Array])[] = [
  ['pickle', readSample('exact/s1.pickle')],
  ['JSON', JSON_TEXT],
  ['.weir', weirBytes(smallRecording())],
];

function readIn(pieces: Iterable<Uint8Array>): Recording {
  const reader = new RecordingReader();
  // Whoever gives a piece may use its memory again.
  for (const piece of pieces) {
    const lent = new Uint8Array(piece);
    reader.push(lent);
    lent.fill(0xff);
  }
  return reader.finish();
}

function* cut(bytes: Uint8Array, sizes: readonly number[]): Generator<Uint8Array> {
  let from = 0;
  for (let turn = 0; from < bytes.length; turn++) {
    const to = from + sizes[turn % sizes.length]!;
    yield bytes.subarray(from, to);
    from = to;
  }
}

function outcomeOf(read: () => Recording): unknown {
  try {
    return contentOf(read());
  } catch (error) {
    if (!(error instanceof InputError)) throw error;
    return error.message;
  }
}

/** The format is known after 16 KiB, so a short file would come to its decoder in one piece. */
function longer(name: string, bytes: Uint8Array): Uint8Array {
  if (name === 'JSON') return new Uint8Array(Buffer.concat([bytes.subarray(0, 5), Buffer.alloc(2 ** 14, ' '), bytes.subarray(5)]));
  if (name === 'pickle')
    return new Uint8Array(Buffer.concat([bytes.subarray(0, 2), Buffer.alloc(2 ** 14, Uint8Array.of(0x4e, 0x30)), bytes.subarray(2)]));
  return bytes;
}

describe.each(FILES)('%s', (name, bytes) => {
  it('is the same in pieces of any size', () => {
    const whole = contentOf(readRecording(bytes));
    const long = longer(name, bytes);
    for (let size = 1; size < 40; size++) expect(contentOf(readIn(cut(long, [size])))).toEqual(whole);
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 1, max: 3000 }), { minLength: 1 }), (sizes) => {
        expect(contentOf(readIn(cut(long, sizes)))).toEqual(whole);
      }),
      { numRuns: 200 },
    );
  });

  it('is refused with the same words, however it was damaged', () => {
    const long = longer(name, bytes);
    fc.assert(
      fc.property(fc.nat(bytes.length - 1), fc.nat(255), fc.integer({ min: 1, max: 200 }), (back, value, size) => {
        const damaged = long.slice();
        damaged[long.length - 1 - back] = value;
        const whole = outcomeOf(() => readRecording(damaged));
        expect(outcomeOf(() => readIn(cut(damaged, [size])))).toEqual(whole);
      }),
      { numRuns: 400 },
    );
  });
});

it('large samples are the same in pieces', () => {
  for (const name of ['gpt2xl-oom.pickle.gz', 'vgg16-b100.native.pickle.gz']) {
    const bytes = readSample(name);
    const whole = contentOf(readRecording(bytes));
    for (const size of [1000, 65_537]) expect(contentOf(readIn(cut(bytes, [size])))).toEqual(whole);
  }
});

it('the kind of a file is told by its beginning, and the rest is not asked for', () => {
  const reader = new RecordingReader();
  expect(() => reader.push(new Uint8Array(2 ** 16))).toThrow('begins with zeros');
  expect(() => new RecordingReader().push(new Uint8Array(2 ** 16).fill(0x20))).toThrow('white space');
  expect(() => new RecordingReader().push(Buffer.concat([gzipSync('x'), Buffer.alloc(2 ** 16)]))).toThrow('gzip');
});
