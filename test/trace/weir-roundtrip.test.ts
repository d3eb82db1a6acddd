import { readdirSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { assembleTrace } from '../../src/trace/assemble.ts';
import { readRecording } from '../../src/trace/detect.ts';
import { EventStore } from '../../src/trace/event-store.ts';
import { writeSnapshotJson } from '../../src/trace/snapshot-json.ts';
import { Symbols } from '../../src/trace/symbols.ts';
import { EventKind, type Recording, type Segment, type Trace } from '../../src/trace/trace.ts';
import { readWeir } from '../../src/trace/weir/reader.ts';
import { WeirWriter, writeWeir } from '../../src/trace/weir/writer.ts';
import { readSample } from '../support/samples.ts';
import { bytesOf, expectSame, recordings, smallRecording, weirBytes } from './weir-support.ts';

const SAMPLES = new URL('../../samples/', import.meta.url);
const sampleNames = readdirSync(SAMPLES, { recursive: true, encoding: 'utf8' }).filter((name) => /\.(pickle|pkl)(\.gz)?$/.test(name));

function sample(name: string): Recording {
  return readRecording(readSample(name));
}

describe('a recording written to .weir and read back', () => {
  it('is the same, whatever is in it', () => {
    fc.assert(
      fc.property(recordings, (recording) => {
        expectSame(readWeir(weirBytes(recording)), recording);
      }),
      { numRuns: 300 },
    );
  });

  it('gives the same bytes when written again', () => {
    fc.assert(
      fc.property(recordings, (recording) => {
        const bytes = weirBytes({ ...recording, format: 'weir' });
        expect(weirBytes(readWeir(bytes))).toEqual(bytes);
      }),
    );
  });

  it.each(sampleNames)('is the same for %s', (name) => {
    const recording = sample(name);
    expectSame(readWeir(weirBytes(recording)), recording);
  });

  it('does not depend on where its bytes lie in memory', () => {
    const bytes = weirBytes(smallRecording());
    const shifted = new Uint8Array(bytes.length + 3).subarray(3);
    shifted.set(bytes);
    expectSame(readWeir(shifted), smallRecording());
  });

  it('may be larger than one record in every part', () => {
    const symbols = new Symbols();
    for (let index = 0; index < 100_000; index++) {
      const frame = symbols.frames.intern(symbols.internString(`function ${index}`), 0, index);
      symbols.stacks.push(index % 7 === 0 ? -1 : index - 1, frame);
    }
    const store = new EventStore(50_000);
    for (let index = 0; index < 50_000; index++) store.append(EventKind.Alloc, index * 512, 512, index / 3, 0, 0, index, 0);
    const blocks = Array.from({ length: 20_000 }, (_, index) => ({
      address: index * 512,
      size: 512,
      requested: 512,
      state: 'live' as const,
      stack: -1,
    }));
    const common = { size: 20_000 * 512, stream: 0, pool: 0, small: true, expandable: false, stack: -1 };
    const endSegments: Segment[] = [0, 1, 2].map((index) => ({
      ...common,
      address: index * common.size,
      blocks: blocks.map((block) => ({ ...block, address: block.address + index * common.size })),
    }));
    const annotations = Array.from({ length: 10_000 }, (_, index) => ({
      name: `${index}`,
      stage: 'MARK' as const,
      device: 0,
      timeUs: index,
    }));
    const recording: Recording = {
      format: 'pickle',
      traces: [assembled({ symbols, events: store.view(), endSegments, annotations })],
    };
    const chunks: number[] = [];
    writeWeir(recording, (chunk) => chunks.push(chunk.length));
    expect(Math.max(...chunks)).toBeLessThan(2 ** 21);
    expectSame(readWeir(weirBytes(recording)), recording);
  });

  it('keeps a start that was recorded, with what was live then', () => {
    const base = 0x7f00_0000_0000;
    const start: Segment = { address: base, size: 4096, stream: 0, pool: 0, small: true, expandable: false, stack: -1, blocks: [] };
    const blocks = [
      { address: base, size: 1024, requested: 1000, state: 'live' as const, stack: -1 },
      { address: base + 1024, size: 512, requested: 512, state: 'pending' as const, stack: -1 },
    ];
    const store = new EventStore();
    store.append(EventKind.FreeRequested, base, 1000, 1, 0, 0, -1, 0);
    const recording: Recording = {
      format: 'weir',
      traces: [assembled({ events: store.view(), startSegments: [{ ...start, blocks }] })],
    };
    expect(recording.traces[0]!.allocations.liveAtStart).toBe(2);
    expectSame(readWeir(weirBytes(recording)), recording);
  });

  it('keeps warnings of the reader it came from, and finds the others again', () => {
    const base = 4096;
    const store = new EventStore();
    store.append(EventKind.Alloc, base, 512, 1, 0, 0, -1, 0);
    store.append(EventKind.Alloc, base, 512, 2, 0, 0, -1, 0);
    const trace = assembled({ events: store.view(), warnings: [{ code: 'unknown-actions', message: '3 entries were left out' }] });
    expect(trace.warnings.length).toBeGreaterThan(1);
    expect(readWeir(weirBytes({ format: 'pickle', traces: [trace] })).traces[0]!.warnings).toEqual(trace.warnings);
  });

  it('reports progress up to the end', () => {
    const seen: number[] = [];
    readWeir(weirBytes(sample('exact/tdef.pkl.gz')), { onProgress: (fraction) => seen.push(fraction) });
    expect(seen.at(-1)).toBe(1);
    expect(seen).toEqual([...seen].sort((a, b) => a - b));
  });

  it('may hold nothing at all', () => {
    expect(readWeir(weirBytes({ format: 'pickle', traces: [] })).traces).toEqual([]);
  });
});

describe('a recording written as it happens', () => {
  it('may intern symbols and add streams between events', () => {
    const bytes = bytesOf((sink) => {
      const writer = new WeirWriter(sink, { tool: 'test' });
      const { symbols } = writer;
      writer.device(0, {});
      writer.device(1, {});
      for (let step = 0; step < 3; step++) {
        for (const device of [0, 1]) {
          writer.streams(device, [step * 16]);
          const store = new EventStore();
          store.append(EventKind.Mark, 0, 0, step, step, -1, -1, 0);
          store.setOptional(0, 'detail', symbols.internString(`step ${step}`));
          writer.events(device, store.view());
        }
      }
      writer.end();
    });
    const { traces } = readWeir(bytes);
    expect(traces.map((trace) => trace.streams)).toEqual([
      [0, 16, 32],
      [0, 16, 32],
    ]);
    for (const { events, symbols } of traces) {
      expect(Array.from(events.detail!, (detail) => symbols.strings[detail])).toEqual(['step 0', 'step 1', 'step 2']);
    }
  });
});

describe('a recording written as snapshot JSON', () => {
  it.each(sampleNames)('is read back the same for %s', (name) => {
    const recording = sample(name);
    const back = throughJson(recording);
    expect(back.leftOut).toBe(0);
    expectSameSnapshot(back.recording, recording);
  });

  it('leaves out what a snapshot cannot hold, and counts it', () => {
    const { leftOut, recording } = throughJson(smallRecording());
    expect(leftOut).toBe(2);
    expect(Array.from(recording.traces[0]!.events.kind)).toEqual([
      EventKind.SegmentAlloc,
      EventKind.Alloc,
      EventKind.FreeRequested,
      EventKind.FreeCompleted,
    ]);
    expect(recording.traces[0]!.limits).toEqual(smallRecording().traces[0]!.limits);
    expect(recording.traces[0]!.settings).toEqual(smallRecording().traces[0]!.settings);
    expect(recording.traces[0]!.annotations).toEqual(smallRecording().traces[0]!.annotations);
  });

  it('is valid JSON in pieces of bounded size, with exact addresses', () => {
    fc.assert(
      fc.property(recordings, (recording) => {
        const pieces: string[] = [];
        writeSnapshotJson(recording, (piece) => pieces.push(piece));
        const snapshot = JSON.parse(pieces.join(''));
        expect(Object.keys(snapshot).slice(0, 4)).toEqual(['segments', 'device_traces', 'allocator_settings', 'external_annotations']);
        for (const trace of recording.traces) {
          const { events, symbols } = trace;
          for (let event = 0; event < events.count; event++) {
            if (events.kind[event] === EventKind.Alloc) {
              expect(pieces.join('')).toContain(`"action":"alloc","addr":${symbols.addresses.decode(events.address[event]!)},`);
            }
          }
        }
      }),
    );
    const lengths: number[] = [];
    writeSnapshotJson(sample('exact/tdef.pkl.gz'), (piece) => lengths.push(piece.length));
    expect(Math.max(...lengths)).toBeLessThan(1 << 17);
  });
});

function throughJson(recording: Recording): { leftOut: number; recording: Recording } {
  let leftOut = 0;
  const bytes = bytesOf((sink) => {
    leftOut = writeSnapshotJson(recording, (piece) => sink(Buffer.from(piece)));
  });
  return { leftOut, recording: readRecording(bytes) };
}

/** As `expectSame`, for readers that may number strings, frames and stacks differently. */
function expectSameSnapshot(actual: Recording, expected: Recording): void {
  const plain = (recording: Recording) => recording.traces.map(describeTrace);
  expect(plain(actual)).toEqual(plain(expected));
}

function describeTrace(trace: Trace): unknown {
  const { events, symbols } = trace;
  const stackText = (stack: number) => [...symbols.framesOf(stack)].map((frame) => `${frame.name}@${frame.filename}:${frame.line}`).join();
  const segments = (list: readonly Segment[] | undefined) =>
    list?.map((segment) => ({
      ...segment,
      stream: trace.streams[segment.stream],
      pool: trace.pools[segment.pool],
      stack: stackText(segment.stack),
      blocks: segment.blocks.map((block) => ({ ...block, stack: stackText(block.stack) })),
    }));
  const rows = Array.from({ length: events.count }, (_, event) => [
    events.kind[event],
    events.address[event],
    events.size[event],
    events.timeUs[event],
    trace.streams[events.stream[event]!],
    trace.pools[events.pool[event]!],
    stackText(events.stack[event]!),
    symbols.strings[events.metadata[event]!],
    symbols.strings[events.compileContext?.[event] ?? 0],
  ]);
  return {
    device: trace.device,
    rows,
    start: segments(trace.startSegments),
    end: segments(trace.endSegments),
    allocationOf: Array.from(trace.allocationOf),
    settings: trace.settings,
    limits: trace.limits,
    annotations: trace.annotations,
    warnings: trace.warnings,
  };
}

function assembled(parts: Partial<Parameters<typeof assembleTrace>[0]> & Pick<Trace, 'events'>): Trace {
  return assembleTrace({
    device: 0,
    startSegments: undefined,
    endSegments: undefined,
    streams: [0],
    pools: [[0, 0]],
    symbols: new Symbols(),
    settings: new Map(),
    limits: {},
    annotations: [],
    warnings: [],
    ...parts,
  });
}
