// Rings as the supervisor reads them: whole, overflowing, truncated and invalid.
import { existsSync, mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { CATEGORY_NAMES } from '../../src/abi/events.ts';
import { RING_HEADER_BYTES, RingOffset } from '../../src/abi/ring.ts';
import { categoryOfAllocation } from '../../src/report/categories.ts';
import { Recorder } from '../../src/run/rings/recorder.ts';
import { TraceFile } from '../../src/run/rings/trace-file.ts';
import { summarizeTrace } from '../../src/trace/summary.ts';
import { EventKind, type Recording } from '../../src/trace/trace.ts';
import { readWeir } from '../../src/trace/weir/reader.ts';
import { RingWriter, type Row } from './ring-writer.ts';

const ADDRESS = 0x7f00_0000_0000;
let folder: string;
let traces: string;
let troubles: string[];
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'weir-ring-'));
  traces = mkdtempSync(join(tmpdir(), 'weir-traces-'));
  troubles = [];
});
afterEach(() => {
  rmSync(folder, { recursive: true });
  rmSync(traces, { recursive: true });
});

function createRecorder(mostEvents = Number.POSITIVE_INFINITY): Recorder {
  let files = 0;
  return new Recorder({
    folder,
    fileFor: () => new TraceFile(join(traces, `${files++}.weir`), false),
    recordingFor: () => ({ meta: {}, settings: new Map(), mostEvents, whatIfEvents: mostEvents }),
    onTrouble: (sentence) => troubles.push(sentence),
  });
}

function readTrace(index = 0): Recording {
  return readWeir(readFileSync(join(traces, `${index}.weir`)));
}

function openRing(options: ConstructorParameters<typeof RingWriter>[1] = {}): RingWriter {
  const ring = new RingWriter(folder, options);
  ring.gauges(0, { total: 2 ** 37, limit: 40 * 2 ** 30 });
  ring.stream(0, 0, 0);
  ring.pool(0, 0, [0, 0]);
  return ring;
}

const alloc = (index: number): Row => ({ kind: EventKind.Alloc, address: ADDRESS + index * 512, size: 100 + index });
const free = (index: number): Row => ({ kind: EventKind.FreeRequested, address: ADDRESS + index * 512, size: 100 + index });

describe('a recorder', () => {
  it('writes what a process put into its ring, around the ring several times', async () => {
    const ring = openRing({ capacity: 64, rank: 3 });
    const recorder = createRecorder();
    for (let index = 0; index < 1000; index++) {
      ring.put(alloc(index));
      ring.put(free(index));
      if (index % 30 === 0) recorder.look();
    }
    ring.put({ kind: EventKind.Reserved, size: 12 * 2 ** 20 });
    ring.close();
    await recorder.finish();
    const [process] = recorder.processes;
    expect([process!.events, process!.dropped, process!.owner.rank, troubles]).toEqual([2001, 0, 3, []]);
    const [trace] = readTrace().traces;
    expect(trace!.warnings).toEqual([]);
    expect(trace!.events.count).toBe(2001);
    expect(summarizeTrace(trace!)).toMatchObject({ allocs: 1000, recordedPeakReserved: 12 * 2 ** 20, recordedAllocator: 'weir' });
    expect(trace!.limits.deviceBytes).toBe(2 ** 37);
    expect(Math.floor(trace!.limits.memoryFraction! * 2 ** 37)).toBe(40 * 2 ** 30);
    expect(existsSync(ring.path)).toBe(false);
  });

  it('counts what was dropped, and says it in the file', async () => {
    const ring = openRing({ capacity: 64 });
    const recorder = createRecorder();
    for (let index = 0; index < 100; index++) ring.put(alloc(index));
    recorder.look();
    for (let index = 100; index < 110; index++) ring.put(alloc(index));
    await recorder.finish();
    const [process] = recorder.processes;
    expect([process!.events, process!.dropped, process!.gaps]).toEqual([74, 36, 1]);
    const codes = readTrace().traces[0]!.warnings.map(({ code }) => code);
    expect(codes).toEqual(['gap', 'dropped-events']);
  });

  it('takes all that was written before a process was killed in mid-write', async () => {
    const ring = openRing();
    const recorder = createRecorder();
    for (let index = 0; index < 10; index++) ring.put(alloc(index));
    ring.putHalf(alloc(10));
    await recorder.finish();
    expect(readTrace().traces[0]!.events.count).toBe(10);
    expect(readTrace().traces[0]!.warnings).toEqual([]);
  });

  it('keeps the settings that a process tells, and puts the strings where they belong', async () => {
    const ring = openRing({ allocator: 'expandable' });
    ring.string('twice');
    ring.string('twice');
    ring.put({ kind: EventKind.Settings, detail: ring.string('{"max_split_size":1048576}') });
    ring.put({ kind: EventKind.Mark, detail: ring.string('step 1') });
    ring.put({ kind: EventKind.Mark, detail: 99 });
    const recorder = createRecorder();
    await recorder.finish();
    const [trace] = readTrace().traces;
    expect(Object.fromEntries(trace!.settings)).toMatchObject({
      allocator: 'expandable',
      expandable_segments: true,
      max_split_size: 1048576,
      torch: expect.any(String),
    });
    expect(trace!.symbols.strings[trace!.events.detail![1]!]).toBe('step 1');
    expect(trace!.events.detail![2]).toBe(0);
  });

  it('keeps what a process tells of its memory', async () => {
    const ring = openRing();
    ring.put(alloc(1));
    ring.put({ kind: EventKind.Category, address: alloc(1).address!, detail: CATEGORY_NAMES.indexOf('gradient') });
    const recorder = createRecorder();
    await recorder.finish();
    const [trace] = readTrace().traces;
    expect(categoryOfAllocation(trace!, 0)).toEqual({ category: 'gradient', way: 'told' });
  });

  it('writes the call stacks that events use, and no others', async () => {
    const ring = openRing();
    const file = ring.frameString('train.py');
    const [main, step, unused] = ['<module>', 'Trainer.step', 'unused'].map((name) => ring.frame(ring.frameString(name), file, 7));
    const outer = ring.stack(-1, main!);
    const inner = ring.stack(outer, step!);
    ring.put({ ...alloc(1), stack: inner });
    const recorder = createRecorder();
    recorder.look();
    // Known by now, and new ones on top.
    const deeper = ring.stack(inner, ring.frame(ring.frameString('backward of AddmmBackward0'), 0, 0));
    ring.stack(-1, unused!);
    for (const stack of [deeper, outer, -1, 3000, -7]) ring.put({ ...alloc(stack & 15), stack });
    await recorder.finish();
    const [trace] = readTrace().traces;
    const { events, symbols } = trace!;
    const shown = [...events.stack].map((stack) => [...symbols.framesOf(stack)].map(({ name }) => name).join(' < '));
    const known = 'Trainer.step < <module>';
    expect(shown).toEqual([known, `backward of AddmmBackward0 < ${known}`, '<module>', '', '', '']);
    expect([...symbols.framesOf(events.stack[0]!)][0]).toEqual({ name: 'Trainer.step', filename: 'train.py', line: 7 });
    expect(symbols.strings).not.toContain('unused');
    expect(recorder.processes[0]!.counts.damaged).toBe(0);
  });

  it('says how many requests have no call stack for want of room', async () => {
    const ring = openRing();
    ring.put(alloc(1));
    ring.u64(RingOffset.stacks_lost, 12);
    await createRecorder().finish();
    expect(readTrace().traces[0]!.warnings).toEqual([
      { code: 'lost-stacks', message: '12 requests have no call stack, because there was no room for more' },
    ]);
  });

  it('begins anew when a process replaces itself by another program', async () => {
    const first = openRing({ pid: 77 });
    const recorder = createRecorder();
    first.put(alloc(1));
    recorder.look();
    first.put(free(1));
    const second = openRing({ pid: 77 });
    second.put(alloc(2));
    second.close();
    await recorder.finish();
    expect(recorder.processes.map((process) => process.events)).toEqual([2, 1]);
    expect([readTrace(0).traces[0]!.events.count, readTrace(1).traces[0]!.events.count]).toEqual([2, 1]);
  });

  it('stops writing where it was told to, and says so', async () => {
    const ring = openRing();
    for (let index = 0; index < 100; index++) ring.put(alloc(index));
    const recorder = createRecorder(60);
    await recorder.finish();
    const [process] = recorder.processes;
    expect([process!.events, process!.writtenEvents, process!.isCut]).toEqual([100, 60, true]);
    expect(readTrace().traces[0]!.warnings.map(({ code }) => code)).toEqual(['cut']);
  });

  it('says once that it cannot write, and goes on emptying the ring', async () => {
    const recorder = new Recorder({
      folder,
      fileFor: () => new TraceFile('/dev/full', true),
      recordingFor: () => ({ meta: {}, settings: new Map(), mostEvents: 1e9, whatIfEvents: 1e9 }),
      onTrouble: (sentence) => troubles.push(sentence),
    });
    const rings = [openRing({ capacity: 64, pid: 1 }), openRing({ capacity: 64, pid: 2 })];
    for (let round = 0; round < 5; round++) {
      for (const ring of rings) for (let index = 0; index < 60; index++) ring.put(alloc(index));
      recorder.look();
    }
    await recorder.finish();
    expect(troubles).toEqual(['recording to /dev/full stopped, the job goes on: the disk is full']);
    expect(recorder.processes.map(({ events, dropped }) => [events, dropped])).toEqual([
      [300, 0],
      [300, 0],
    ]);
  });

  it('reads why a process refused', async () => {
    writeFileSync(join(folder, '5.refused.json'), '{"reason":"no-gpu","message":"there is no GPU"}');
    writeFileSync(join(folder, '6.refused.json'), '{"reason":');
    const recorder = createRecorder();
    await recorder.finish();
    expect(recorder.refusals).toEqual([{ reason: 'no-gpu', message: 'there is no GPU' }]);
  });
});

/** Tells of a stack, lets the supervisor see it, and takes it back. */
function stacksVanish(ring: RingWriter, look: () => void): void {
  ring.stack(-1, ring.frame(0, 0, 0));
  look();
  ring.u64(RingOffset.stack_count, 0);
}

describe('a ring that is invalid', () => {
  it.each<[string, (ring: RingWriter) => void, string]>([
    ['foreign magic', (ring) => ring.bytes(0, Buffer.from('ELEPHANT')), 'does not begin with the magic number'],
    ['another version', (ring) => ring.u32(RingOffset.version, 9), 'version 9'],
    ['no power of two', (ring) => ring.u32(RingOffset.capacity, 4095), 'room for 4095 rows'],
    ['no rows', (ring) => ring.u32(RingOffset.capacity, 0), 'room for 0 rows'],
    ['absurd size', (ring) => ring.u32(RingOffset.capacity, 2 ** 31), 'room for 2147483648 rows'],
    ['rows outside', (ring) => ring.u32(RingOffset.rows_at, 0xffffff00), 'rows of its ring lie outside'],
    ['rows in the header', (ring) => ring.u32(RingOffset.rows_at, 8), 'rows of its ring lie outside'],
    ['stacks outside', (ring) => ring.u32(RingOffset.stacks_at, 0xffffff00), 'call stacks of its ring lie outside'],
    ['stacks in the header', (ring) => ring.u32(RingOffset.stacks_at, 8), 'call stacks of its ring lie outside'],
    ['stacks beyond the end', (ring) => ring.u32(RingOffset.stack_room, 70), 'call stacks of its ring lie outside'],
    ['absurd room for stacks', (ring) => ring.u32(RingOffset.stack_room, 2 ** 31), 'room for 2147483648 call stacks'],
    ['absurd room for frames', (ring) => ring.u32(RingOffset.frame_room, 2 ** 31), '2147483648 frames'],
    ['absurd room for names', (ring) => ring.u32(RingOffset.frame_string_room, 2 ** 31), '2147483648 bytes of names'],
    ['strings outside', (ring) => ring.u32(RingOffset.strings_at, 0xffffff00), 'strings of its ring lie outside'],
  ])('is refused in one sentence: %s', async (_, damage, words) => {
    const ring = openRing();
    ring.put(alloc(1));
    damage(ring);
    const recorder = createRecorder();
    recorder.look();
    await recorder.finish();
    expect(troubles).toHaveLength(1);
    expect(troubles[0]).toContain(words);
    expect(recorder.processes).toEqual([]);
  });

  it.each<[string, (ring: RingWriter, look: () => void) => void, string]>([
    ['tail before', (ring) => ring.u64(RingOffset.tail, 1), 'declares 1 rows after 3'],
    ['tail far ahead', (ring) => ring.u64(RingOffset.tail, 2 ** 40), 'declares 1099511627776 rows'],
    ['tail beyond numbers', (ring) => ring.u64(RingOffset.tail, 2n ** 64n - 1n), 'rows after 3'],
    ['streams vanish', (ring) => ring.u32(RingOffset.stream_count, 0), 'declares 0 streams of GPU 0'],
    ['too many pools', (ring) => ring.u32(RingOffset.pool_count + 4, 241), 'declares 241 pools of GPU 1'],
    ['strings too long', (ring) => ring.u64(RingOffset.string_bytes, 2 ** 30), 'bytes of strings'],
    ['a string without end', (ring) => ring.u64(RingOffset.string_bytes, 2), 'has no end'],
    ['too many stacks', (ring) => ring.u64(RingOffset.stack_count, 65), 'declares 65 call stacks'],
    ['too many frames', (ring) => ring.u64(RingOffset.frame_count, 2n ** 63n), 'frames'],
    ['names too long', (ring) => ring.u64(RingOffset.frame_string_bytes, 1025), 'declares 1025 bytes of names'],
    ['a name without end', (ring) => ring.u64(RingOffset.frame_string_bytes, 3), 'has no end'],
    ['a frame without a name', (ring) => void ring.frame(1, 0, 0), 'a frame of its ring has no name'],
    ['a negative line', (ring) => void ring.frame(0, 0, -1), 'a frame of its ring has no name'],
    ['a stack without a frame', (ring) => void ring.stack(-1, 0), 'refers to what is not there'],
    ['a stack on itself', (ring) => void ring.stack(0, ring.frame(0, 0, 0)), 'refers to what is not there'],
    ['a stack on a negative one', (ring) => void ring.stack(-2, ring.frame(0, 0, 0)), 'refers to what is not there'],
    ['stacks vanish', stacksVanish, 'declares 0 call stacks'],
    [
      'scattered streams',
      (ring) => {
        for (let index = 1; index < 60; index++) ring.u64(RingOffset.streams + index * 8, BigInt(index) << 48n);
        ring.u32(RingOffset.stream_count, 60);
      },
      'scattered',
    ],
    ['truncated', (ring) => truncateSync(ring.path, RING_HEADER_BYTES - 5), 'truncated'],
  ])('keeps what came before: %s', async (_, damage, words) => {
    const ring = openRing();
    for (let index = 0; index < 3; index++) ring.put(alloc(index));
    const recorder = createRecorder();
    recorder.look();
    damage(ring, () => recorder.look());
    recorder.look();
    recorder.look();
    await recorder.finish();
    expect(troubles).toHaveLength(1);
    expect(troubles[0]).toContain(words);
    const [trace] = readTrace().traces;
    expect(trace!.events.count).toBe(3);
    expect(trace!.warnings.map(({ code }) => code)).toEqual(['damaged-ring']);
  });

  it('drops invalid rows and counts them', async () => {
    const ring = openRing();
    const bad: Row[] = [
      { kind: 0 },
      { kind: Math.max(...Object.values(EventKind)) + 1 },
      { ...alloc(1), device: 16 },
      { ...alloc(1), device: 1 },
      { ...alloc(1), stream: 7 },
      { ...alloc(1), stream: -5 },
      { ...alloc(1), pool: 3 },
      { ...alloc(1), pool: -2 },
      { ...alloc(1), size: 2 ** 60 },
      { ...alloc(1), address: 2 ** 60 },
      { ...alloc(1), address: 2 ** 48 - 512, size: 1024 },
      { kind: EventKind.SegmentAlloc, address: 512, size: 0 },
      { kind: EventKind.SegmentMap, address: 512, size: 0 },
      { kind: EventKind.Category, address: 512 },
      { kind: EventKind.Category, address: 512, detail: CATEGORY_NAMES.length },
      { kind: EventKind.Category, address: 512, detail: -1 },
      { kind: EventKind.Operator, size: 2 ** 63 },
    ];
    for (const row of bad) {
      ring.put(alloc(2));
      ring.put(row);
    }
    ring.put({ ...alloc(3), time: Number.NaN });
    ring.put({ ...alloc(4), time: 5 });
    const recorder = createRecorder();
    await recorder.finish();
    const [trace] = readTrace().traces;
    expect(recorder.processes[0]!.counts.damaged).toBe(bad.length - 1);
    // The sign bit alone is minus zero: a duration like any other.
    expect(trace!.events.count).toBe(bad.length + 3);
    expect([...trace!.events.timeUs].every((time, index, times) => index === 0 || time >= times[index - 1]!)).toBe(true);
  });

  it('never brings the supervisor down, whatever bytes it holds', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(fc.nat(RING_HEADER_BYTES + 4096), fc.uint8Array({ minLength: 1, maxLength: 64 }))),
        async (patches) => {
          const ring = openRing({ pid: 9 });
          const recorder = createRecorder();
          const named = ring.frame(ring.frameString('f'), ring.frameString('x.py'), 3);
          ring.put({ ...alloc(1), stack: ring.stack(ring.stack(-1, named), named) });
          for (const [index, [at, bytes]] of patches.entries()) {
            const places = [at, at % 512, at % 512, ring.stacksAt + (at % 64), ring.framesAt + (at % 64)];
            ring.bytes(places[(at * 7 + index) % places.length]!, bytes);
            ring.put({ ...alloc(index), stack: index % 3 });
            if (index % 2 === 0) recorder.look();
          }
          recorder.look();
          for (const process of recorder.processes) process.finish();
          for (const { file } of recorder.processes) {
            // A file of a damaged ring is a file all the same, or one that says it holds nothing.
            try {
              readWeir(readFileSync(file.path!));
            } catch (error) {
              expect((error as Error).message).toMatch(/holds no recording|no such/);
            }
            rmSync(file.path!);
          }
          rmSync(ring.path, { force: true });
        },
      ),
      { numRuns: 150 },
    );
  });
});
