// Files that are small or valid and say nothing: each is refused with one sentence, early and without taking memory.
import { closeSync, ftruncateSync, mkdtempSync, openSync, rmSync, writeFileSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, describe, expect, it } from 'vitest';
import { fileHeader } from '../../src/trace/weir/framing.ts';
import { weirPeak } from '../support/peak-memory.ts';
import { zstdFrame } from '../support/zstd.ts';

const MIB = 2 ** 20;
const MOST_MEMORY = 300 * MIB;
const folder = mkdtempSync(join(tmpdir(), 'weir-bombs-'));
afterAll(() => rmSync(folder, { recursive: true }));

const text = (value: string): number[] => [0x8c, value.length, ...new TextEncoder().encode(value)];
const PICKLE = Uint8Array.of(0x80, 4);
const ascii = (value: string): Uint8Array => new TextEncoder().encode(value);

function file(name: string, ...parts: readonly Uint8Array[]): string {
  const path = join(folder, name);
  writeFileSync(path, Buffer.concat(parts));
  return path;
}

/** A file of 3 GiB that takes no room on the disk. */
function sparse(name: string, start: Uint8Array = new Uint8Array()): string {
  const path = join(folder, name);
  const opened = openSync(path, 'w');
  ftruncateSync(opened, 3 * 2 ** 30);
  writeSync(opened, start, 0, start.length, 0);
  closeSync(opened);
  return path;
}

/** About `count` times 128 KiB of one byte, after a start. */
const repeated = (start: Uint8Array, byte: number, count: number): Uint8Array => zstdFrame([{ raw: start }, { repeat: byte, count }]);

/** `pattern` over and over, with four random bytes in each if it has room for them. It packs badly. */
function noise(mebibytes: number, pattern: readonly number[], randomAt?: number): Uint8Array {
  const bytes = Buffer.alloc(mebibytes * MIB, Uint8Array.from(pattern));
  if (randomAt === undefined) return bytes;
  for (let at = randomAt, seed = 1; at + 4 < bytes.length; at += pattern.length) {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    bytes.writeUInt32LE(seed, at);
  }
  return bytes;
}

function gzipOf(count: number, byte: number): Uint8Array {
  const member = gzipSync(Buffer.alloc(16 * MIB, byte), { level: 9 });
  return Buffer.concat([gzipSync(PICKLE), ...Array.from({ length: count }, () => member)]);
}

const MEMO = (words: readonly string[]) => Uint8Array.from(words.flatMap((word) => [...text(word), 0x94, 0x30]));
const LOOSE_EVENT = [0x7d, 0x28, 0x68, 0, 0x68, 1, 0x68, 2, 0x4a, 0, 0, 0, 1, 0x68, 3, 0x4b, 8, 0x75, 0x30];
/** A snapshot with one expandable segment of `size` bytes. */
const segmentOf = (size: number, segment_type: string) => {
  const address = 2 ** 33;
  const blocks = [{ address, size, requested_size: 0, state: 'inactive', frames: [] }];
  const segment = { device: 0, address, total_size: size, stream: 0, segment_type, is_expandable: true, blocks };
  const event = { action: 'alloc', addr: address, size: 1000, stream: 0, time_us: 1 };
  return ascii(JSON.stringify({ segments: [segment], device_traces: [[event]] }));
};
const streamsOf = (count: number) => {
  const events = Array.from({ length: count }, (_, at) => ({ action: 'alloc', addr: at * 512, size: 512, stream: at, time_us: at }));
  return ascii(JSON.stringify({ segments: [], device_traces: [events] }));
};
const poolsOf = (count: number) => {
  const segments = Array.from({ length: count }, (_, at) => {
    const address = 2 ** 33 + at * 2 ** 21;
    return { device: 0, address, total_size: 2 ** 21, stream: 0, segment_type: 'small', segment_pool_id: [0, at + 1], blocks: [] };
  });
  return ascii(JSON.stringify({ segments, device_traces: [[]] }));
};
const NOTHING = /hold \d+ events and blocks: the file is damaged or not a recording/;
const MEMORY = /takes .* of memory for \d+ events and blocks: the file is damaged or not a recording/;

describe.skipIf(process.platform !== 'linux')('bombs (skipped: memory is watched in /proc)', () => {
  it.each<[string, () => string, RegExp]>([
    ['zeros without end', () => '/dev/zero', /begins with zeros/],
    ['noise without end', () => '/dev/urandom', /the file /],
    ['a sparse file of 3 GiB', () => sparse('sparse'), /begins with zeros/],
    ['3 GiB of nothing in JSON', () => sparse('sparse.json', ascii('{')), NOTHING],
    ['3 GiB of nothing in .weir', () => sparse('sparse.weir', fileHeader()), NOTHING],
    ['96 KB of zstd that unpack to 3 GiB of zeros', () => file('zeros.zst', repeated(new Uint8Array(), 0, 24_000)), /begins with zeros/],
    ['32 KB of zstd with a billion marks', () => file('marks.zst', repeated(PICKLE, 0x28, 8_000)), MEMORY],
    ['320 KB of zstd with 10 billion marks', () => file('more-marks.zst', repeated(PICKLE, 0x28, 80_000)), MEMORY],
    ['a billion empty lists', () => file('lists.zst', repeated(PICKLE, 0x5d, 8_000)), MEMORY],
    ['a billion levels of JSON', () => file('levels.zst', repeated(ascii('{"a":'), 0x5b, 8_000)), MEMORY],
    ['a JSON text of 1 GiB', () => file('text.zst', repeated(ascii('{"a":"'), 0x61, 8_000)), /a text of more than 1048576 bytes/],
    ['a JSON number of 1 GiB', () => file('number.zst', repeated(ascii('{"a":'), 0x31, 8_000)), /an integer of \d+ digits/],
    ['1 GiB of white space', () => file('space.zst', repeated(ascii('{'), 0x20, 8_000)), NOTHING],
    ['gzip that unpacks to 1 GiB of zeros', () => file('zeros.gz', gzipOf(64, 0)), /is not an opcode/],
    ['gzip that unpacks to a billion marks', () => file('marks.gz', gzipOf(64, 0x28)), MEMORY],
    [
      '100,000 empty members of gzip',
      () => file('members.gz', ...Array.from({ length: 100_000 }, () => gzipSync(''))),
      /the file is empty/,
    ],
    ['gzip in gzip', () => file('twice.gz', gzipSync(gzipSync(new Uint8Array(MIB)))), /unpacked, the file is gzip-compressed/],
    ['numbers that are dropped', () => file('numbers.pickle', PICKLE, noise(48, [0x4a, 0, 0, 0, 0, 0x30], 1)), NOTHING],
    ['texts that are dropped', () => file('texts.pickle', PICKLE, noise(96, [0x8c, 6, 0, 0, 0, 0, 65, 65, 0x94, 0x30], 2)), MEMORY],
    [
      'huge integers that are dropped',
      () => file('huge.pickle', PICKLE, noise(96, [0x8a, 9, 0, 0, 0, 0, 9, 9, 9, 9, 9, 0x30], 2)),
      /events and blocks/,
    ],
    ['bytes that are dropped', () => sparse('bytes.pickle', Uint8Array.of(0x80, 4, 0x8e, 0, 0, 0, 0xbf, 0, 0, 0, 0)), NOTHING],
    ['tuples in tuples', () => file('tuples.pickle', PICKLE, Uint8Array.of(0x4e), noise(64, [0x85])), MEMORY],
    [
      'events that are dropped',
      () => file('loose.pickle', PICKLE, MEMO(['action', 'alloc', 'addr', 'size']), noise(64, LOOSE_EVENT)),
      /events and blocks of the file are in no list/,
    ],
    ['a stream for every event', () => file('streams.json', streamsOf(300_000)), /has 300000 streams, and no job has more than 2048/],
    ['a pool for every segment', () => file('pools.json', poolsOf(20_000)), /has 20001 memory pools, and no job has more than 4096/],
    ['a segment of 17 TiB', () => file('large.json', segmentOf(17 * 2 ** 40, 'large')), /larger than any GPU \(17.00 TiB in one piece\)/],
  ])('%s', async (_, make, expected) => {
    const { code, stdout, stderr, peak } = await weirPeak(['analyze', make()]);
    expect(stderr).toMatch(expected);
    expect(stderr.trim().split('\n')).toHaveLength(1);
    expect(stdout).toBe('');
    expect(code).toBe(3);
    expect(peak).toBeGreaterThan(0);
    expect(peak).toBeLessThan(MOST_MEMORY);
  });

  it('2 TiB of small pages do not take memory for each', async () => {
    const { code, stdout, peak } = await weirPeak(['analyze', file('small.json', segmentOf(2 ** 41 - 2 ** 30, 'small'))]);
    expect(stdout).toMatch(/Replay error 100.0 %/);
    expect(code).toBe(0);
    expect(peak).toBeLessThan(MOST_MEMORY);
  });

  it.each(['plan', 'replay', 'report', 'convert'])('weir %s refuses them too', async (command) => {
    const more = command === 'report' ? ['-o', join(folder, 'x.html')] : command === 'convert' ? [join(folder, 'x.weir')] : [];
    for (const path of ['/dev/zero', file('marks.zst', repeated(PICKLE, 0x28, 8_000))]) {
      const { code, stderr, peak } = await weirPeak([command, path, ...more]);
      expect(stderr).toMatch(/^weir: .*\n$/);
      expect(code).toBe(3);
      expect(peak).toBeLessThan(MOST_MEMORY);
    }
  });

  it.each<[string, string, string]>([
    ['lists in lists', '{"weir":"plan","version":1,"kind":"step","blocks":', '['],
    ['objects', '{"weir":"plan","version":1,"kind":"offsets","buffers":[', '{},'],
    ['zeros', '{"weir":"plan","version":1,"kind":"offsets","offsets":[', '0,'],
  ])('weir verify refuses a plan of very many %s', async (_, start, item) => {
    const { code, stderr, peak } = await weirPeak([
      'verify',
      file('many.plan', ascii(start + item.repeat(2e7))),
      'samples/exact/s1.pickle',
    ]);
    expect(stderr).toMatch(/the text has more than 1048576 lines and lists or 8388608 values/);
    expect(code).toBe(3);
    expect(peak).toBeLessThan(MOST_MEMORY);
  });

  it('weir plan refuses very many buffers, and very long lines', async () => {
    for (const row of ['a,0,1,1\n', 'a,0,1,1,']) {
      const { code, stderr, peak } = await weirPeak(['plan', file('many.csv', ascii(`id,lower,upper,size\n${row.repeat(7e6)}`))]);
      expect(stderr).toMatch(/the text has more than/);
      expect(code).toBe(3);
      expect(peak).toBeLessThan(MOST_MEMORY);
    }
  });

  it('weir verify refuses plans without end', async () => {
    for (const path of ['/dev/zero', file('space.zst', repeated(ascii('{'), 0x20, 8_000))]) {
      const { code, stderr, peak } = await weirPeak(['verify', path, 'samples/exact/s1.pickle']);
      expect(stderr).toMatch(/mostly white space|begins with zeros/);
      expect(code).toBe(3);
      expect(peak).toBeLessThan(MOST_MEMORY);
    }
  });
});
