// Formats are detected from the first bytes. For other files, the error says what the file looks like.
import { gzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { InputError } from '../../src/base/errors.ts';
import { readRecording } from '../../src/trace/detect.ts';
import { WEIR_MAGIC } from '../../src/trace/weir/format.ts';
import { writePickle } from '../support/pickle-writer.ts';

const text = (value: string): Uint8Array => new TextEncoder().encode(value);
const snapshot = { segments: [{ address: 512, total_size: 512 }] };

describe('formats', () => {
  it.each([2, 3, 4, 5] as const)('a pickle of protocol %i', (protocol) => {
    expect(readRecording(writePickle(snapshot, { protocol })).format).toBe('pickle');
  });

  it.each(['', '\ufeff', ' \r\n\t', '\ufeff\n'])('JSON after %j', (before) => {
    expect(readRecording(text(before + JSON.stringify(snapshot))).format).toBe('json');
    expect(readRecording(text(before + JSON.stringify(snapshot.segments))).format).toBe('json');
  });

  it('a .weir file goes to its own reader', () => {
    expect(() => readRecording(WEIR_MAGIC)).toThrow(/\.weir/);
  });
});

describe('other files', () => {
  it.each([
    ['the file is empty', new Uint8Array(0)],
    ['is gzip-compressed', gzipSync('x')],
    ['is zstd-compressed', Uint8Array.of(0x28, 0xb5, 0x2f, 0xfd, 0)],
    ['is xz-compressed', Uint8Array.of(0xfd, 0x37, 0x7a, 0x58, 0x5a, 0)],
    ['is bzip2-compressed', text('BZh91AY')],
    ['a checkpoint written by torch.save', text('PK\x03\x04....')],
    ['is an ELF program or library', text('\x7fELF....')],
    ['is a web page (HTML)', text('\n<!DOCTYPE html><html>')],
    ['is text that begins with "hello world"', text('hello world\nmore')],
    ['holds only white space', text(' \n ')],
    ['begins with zeros', new Uint8Array(100)],
    ['looks like a pickle of protocol 0 or 1', text('(dp0\nVsegments\np1\n(lp2\ns.')],
    ['looks like a pickle of protocol 0 or 1', text('}q\x00(X\x08\x00')],
    ['looks like a pickle of protocol 9', Uint8Array.of(0x80, 9, 0x4e)],
    ['the first few bytes of a .weir recording', WEIR_MAGIC.subarray(0, 5)],
    ['is of no known kind (it begins with the bytes 01 02 03)', Uint8Array.of(1, 2, 3)],
  ])('%s', (expected, bytes) => {
    expect(() => readRecording(bytes)).toThrow(InputError);
    expect(() => readRecording(bytes)).toThrow(expected);
    expect(() => readRecording(bytes)).toThrow('Weir reads PyTorch memory snapshots');
  });
});
