// What a reader holds and reads is weighed against what it finds. Valid files that say nothing are refused early.
import { describe, expect, it } from 'vitest';
import { InputError } from '../../src/base/errors.ts';
import { RecordingReader } from '../../src/trace/detect.ts';
import { RecordType } from '../../src/trace/weir/format.ts';
import { fileHeader, openRecord, sealRecord } from '../../src/trace/weir/framing.ts';
import { Worth } from '../../src/trace/worth.ts';
import { readSample } from '../support/samples.ts';

const MIB = 2 ** 20;
const MEMORY = /takes .* of memory for 0 events and blocks/;
const text = (value: string): number[] => [0x8c, value.length, ...new TextEncoder().encode(value)];

/** Gives `start`, then `piece` over and over. Returns the refusal, and how many bytes were read before it. */
function refusalOf(start: Uint8Array, pieceAt: (index: number) => Uint8Array, most = 4000): { message: string; read: number } {
  const reader = new RecordingReader();
  let read = start.length;
  try {
    reader.push(start);
    for (let index = 0; index < most; index++) {
      const piece = pieceAt(index);
      read += piece.length;
      reader.push(piece);
    }
  } catch (error) {
    expect(error).toBeInstanceOf(InputError);
    return { message: (error as Error).message, read };
  }
  throw new Error('it was read without complaint');
}

describe('the balance', () => {
  it('grows with rows, and with frames only as far as there are rows', () => {
    const worth = new Worth();
    expect(() => worth.check(32 * MIB, 64 * MIB)).not.toThrow();
    expect(() => worth.check(33 * MIB, 0)).toThrow('its first 33 MiB hold 0 events and blocks');
    expect(() => worth.check(0, 65 * MIB)).toThrow('it takes 65 MiB of memory for 0 events and blocks');
    worth.frames = 1e9;
    worth.texts = 1e9;
    expect(() => worth.check(0, 128 * MIB)).toThrow(InputError);
    worth.rows = 1e6;
    expect(() => worth.check(1e9, 180 * MIB)).not.toThrow();
  });
});

describe('pickles that say nothing', () => {
  const start = Uint8Array.of(0x80, 4, ...text('x'), 0x30);
  const filled = (pattern: readonly number[]) => {
    const piece = Buffer.alloc(Math.floor(MIB / pattern.length) * pattern.length, Uint8Array.from(pattern));
    return () => piece;
  };

  it.each<[string, readonly number[]]>([
    ['marks that are dropped', [0x28, 0x30]],
    ['lists that are dropped', [0x5d, 0x30]],
    ['values stored in one place', [0x4e, 0x71, 1, 0x30]],
    ['values stored over and over', [0x4e, 0x94, 0x30]],
    ['empty dicts', [0x7d]],
    ['a dict in a dict in a dict', [0x7d, 0x4e]],
    ['repeated values', [0x4e, 0x32, 0x32]],
    ['byte strings', [0x43, 3, 1, 2, 3, 0x30]],
    ['empty frames', [0x95, 0, 0, 0, 0, 0, 0, 0, 0]],
    ['protocols', [0x80, 4]],
    ['pairs that are dropped', [0x4b, 1, 0x4b, 2, 0x86, 0x30]],
  ])('%s', (_, pattern) => {
    expect(refusalOf(start, filled(pattern)).read).toBeLessThan(70 * MIB);
  });

  it('a call stack that a few bytes repeat', () => {
    const frame = [0x7d, 0x28, ...text('name'), ...text('f'), ...text('filename'), ...text('x'), ...text('line'), 0x4b, 1, 0x75, 0x94];
    const long = Buffer.alloc(2 * 200_000, Uint8Array.of(0x68, 0));
    const stack = Buffer.concat([Uint8Array.of(0x80, 4), Uint8Array.from(frame), Uint8Array.of(0x28), long, Uint8Array.of(0x74)]);
    // Each repeats the stack, and appends to a copy of it.
    const copies = Buffer.alloc(MIB, Uint8Array.of(0x32, 0x4e, 0x61, 0x30));
    const before = process.memoryUsage().arrayBuffers;
    expect(refusalOf(new Uint8Array(stack), () => copies).message).toMatch(MEMORY);
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(300 * MIB);
  });
});

describe('.weir files that say nothing', () => {
  const record = (type: number, payload: Uint8Array, number: number): Uint8Array => {
    const bytes = openRecord(payload.length);
    bytes.set(payload, 16);
    sealRecord(bytes, type as RecordType, payload.length, number);
    return bytes;
  };
  const scoped = (first: number, body: Uint8Array): Uint8Array => {
    const payload = new Uint8Array(8 + body.length);
    new DataView(payload.buffer).setUint32(0, first, true);
    payload.set(body, 8);
    return payload;
  };

  it('records of unknown types', () => {
    const padding = new Uint8Array(MIB);
    expect(refusalOf(fileHeader(), (index) => record(9999, padding, index)).read).toBeLessThan(40 * MIB);
  });

  it('tables of empty strings', () => {
    const count = MIB / 4;
    const body = new Uint8Array(MIB);
    expect(refusalOf(fileHeader(), (index) => record(RecordType.Strings, scoped(1 + index * count, body), index)).read).toBeLessThan(
      40 * MIB,
    );
  });

  it('a record that is longer than any', () => {
    const head = new Uint8Array(16);
    new DataView(head.buffer).setUint32(4, 0xfffffff0, true);
    const reader = new RecordingReader();
    reader.push(fileHeader());
    reader.push(head);
    expect(() => reader.finish()).toThrow('the .weir file holds no recording: the file ends within a record');
  });
});

it('a real recording may have some padding', () => {
  const sample = readSample('vgg16-b100.native.pickle.gz');
  const reader = new RecordingReader();
  reader.push(sample.subarray(0, 2));
  reader.push(new Uint8Array(Buffer.alloc(8 * MIB, Uint8Array.of(0x4e, 0x30))));
  reader.push(sample.subarray(2));
  expect(() => reader.finish()).not.toThrow();
});
