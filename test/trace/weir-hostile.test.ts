import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { crc32 } from '../../src/base/crc32.ts';
import { InputError } from '../../src/base/errors.ts';
import { EventKind } from '../../src/trace/trace.ts';
import {
  EVENT_BYTES,
  EVERY_DEVICE,
  EventField,
  EventOffset,
  FILE_HEADER_BYTES,
  MAX_DEVICES,
  RECORD_HEADER_BYTES,
  RecordType,
  StateFlag,
} from '../../src/trace/weir/format.ts';
import { fileHeader, openRecord, recordsOf, sealRecord, viewOf } from '../../src/trace/weir/framing.ts';
import { readWeir } from '../../src/trace/weir/reader.ts';
import { contentOf, smallRecording, weirBytes } from './weir-support.ts';

type Piece = readonly [type: number, payload: Uint8Array];

/** A file with valid records around any payloads. */
function file(pieces: readonly Piece[], header: Uint8Array = fileHeader()): Uint8Array {
  const records = pieces.map(([type, payload], number) => {
    const record = openRecord(payload.length);
    record.set(payload, RECORD_HEADER_BYTES);
    sealRecord(record, type as RecordType, payload.length, number);
    return record;
  });
  return new Uint8Array(Buffer.concat([header, ...records]));
}

function piecesOf(bytes: Uint8Array): Piece[] {
  return [...recordsOf(viewOf(bytes), bytes.length)].map(({ type, payload, length }) => [type, bytes.slice(payload, payload + length)]);
}

function scoped(first: number, device: number, flags: number, body: Uint8Array | string = ''): Uint8Array {
  const bytes = typeof body === 'string' ? new TextEncoder().encode(body) : body;
  const payload = new Uint8Array(8 + bytes.length);
  const view = viewOf(payload);
  view.setUint32(0, first, true);
  view.setUint16(4, device, true);
  view.setUint16(6, flags, true);
  payload.set(bytes, 8);
  return payload;
}

function words(...values: number[]): Uint8Array {
  return new Uint8Array(Int32Array.from(values).buffer);
}

function row(fields: { [field in keyof typeof EventOffset]?: number }): Uint8Array {
  const bytes = new Uint8Array(EVENT_BYTES);
  const view = viewOf(bytes);
  const values = { kind: EventKind.Alloc, pool: 0, stack: -1, ...fields };
  view.setFloat64(EventOffset.time_us, values.time_us ?? 0, true);
  view.setBigUint64(EventOffset.address, BigInt(values.address ?? 4096), true);
  view.setBigUint64(EventOffset.size, BigInt(values.size ?? 512), true);
  view.setUint8(EventOffset.kind, values.kind);
  view.setUint8(EventOffset.fields, values.fields ?? 0);
  view.setUint16(EventOffset.device, values.device ?? 0, true);
  for (const name of ['stream', 'pool', 'stack', 'metadata', 'detail', 'thread', 'compile_context'] as const) {
    view.setInt32(EventOffset[name], values[name] ?? 0, true);
  }
  return bytes;
}

const START: readonly Piece[] = [
  [RecordType.Device, scoped(0, 0, 0, '{}')],
  [RecordType.Streams, scoped(0, 0, 0, words(0, 0))],
  [RecordType.Pools, scoped(0, 0, 0, words(0, 0, 0, 0))],
];

function readAfterStart(...pieces: Piece[]) {
  return readWeir(file([...START, ...pieces]));
}

describe('a .weir file that lies', () => {
  it.each<[string, Piece]>([
    ['a stream that is not there', [RecordType.Events, row({ stream: 1 })]],
    ['a negative stream', [RecordType.Events, row({ stream: -1 })]],
    ['a pool that is not there', [RecordType.Events, row({ pool: 1 })]],
    ['a stack that is not there', [RecordType.Events, row({ stack: 0 })]],
    ['a stack below none', [RecordType.Events, row({ stack: -2 })]],
    ['a string that is not there', [RecordType.Events, row({ metadata: 1 })]],
    ['a GPU that was not declared', [RecordType.Events, row({ device: 1 })]],
    ['an event at no time', [RecordType.Events, row({ time_us: Number.NaN })]],
    ['a size that no machine has', [RecordType.Events, row({ size: 2 ** 60 })]],
    ['a used stream that is not there', [RecordType.Events, row({ kind: EventKind.RecordStream, fields: EventField.Detail, detail: 9 })]],
    ['a name that is not there', [RecordType.Events, row({ kind: EventKind.Mark, fields: EventField.Detail, detail: -1 })]],
    ['a compile context that is not there', [RecordType.Events, row({ fields: EventField.CompileContext, compile_context: 5 })]],
    ['an operator of negative duration', [RecordType.Events, row({ kind: EventKind.Operator, size: 2 ** 63 + 2 ** 62 })]],
    ['half an event', [RecordType.Events, new Uint8Array(EVENT_BYTES + 8)]],
    ['strings longer than their record', [RecordType.Strings, scoped(1, 0, 0, words(0x7fffffff))]],
    ['a string with half a length', [RecordType.Strings, scoped(1, 0, 0, Uint8Array.of(1, 0))]],
    ['strings that leave a gap', [RecordType.Strings, scoped(2, 0, 0)]],
    ['a frame without its name', [RecordType.Frames, scoped(0, 0, 0, words(1, 0, 1))]],
    ['half a frame', [RecordType.Frames, scoped(0, 0, 0, words(0, 0))]],
    ['a stack without its frame', [RecordType.Stacks, scoped(0, 0, 0, words(-1, 0))]],
    ['streams of an undeclared GPU', [RecordType.Streams, scoped(0, 3, 0, words(0, 0))]],
    ['a GPU declared twice', [RecordType.Device, scoped(0, 0, 0, '{}')]],
    ['too many GPUs', [RecordType.Device, scoped(0, MAX_DEVICES, 0, '{}')]],
    ['settings that are no JSON', [RecordType.Settings, scoped(0, 0, 0, '{"a":')]],
    ['settings that are no object', [RecordType.Settings, scoped(0, 0, 0, '3')]],
    ['settings nested without end', [RecordType.Settings, scoped(0, 0, 0, `${'{"a":'.repeat(50_000)}1${'}'.repeat(50_000)}`)]],
    ['annotations of another shape', [RecordType.Annotations, scoped(0, EVERY_DEVICE, 0, '[["a","START"]]')]],
    ['warnings of another shape', [RecordType.Warnings, scoped(0, 0, 0, '[3]')]],
    ['more segments than bytes', [RecordType.State, scoped(0xffffffff, 0, StateFlag.FirstPart | StateFlag.LastPart)]],
    [
      'more blocks than bytes',
      [RecordType.State, scoped(1, 0, StateFlag.FirstPart | StateFlag.LastPart, words(0, 0, 512, 0, 0, 0, -1, 0, -1, 0))],
    ],
    ['a state that was never begun', [RecordType.State, scoped(0, 0, StateFlag.LastPart)]],
    ['a block in an unknown state', [RecordType.State, scoped(1, 0, 6, words(0, 0, 512, 0, 0, 0, -1, 0, 1, 0, 0, 0, 0, 0, 0, 0, -1, 3))]],
    ['a segment without bytes', [RecordType.State, scoped(1, 0, 6, words(512, 0, 0, 0, 0, 0, -1, 0, 0, 0))]],
    ['a payload without its scope', [RecordType.Streams, words(0)]],
  ])('is refused for %s', (_, piece) => {
    const offset = file(START).length;
    expect(() => readAfterStart(piece)).toThrow(InputError);
    if (piece[0] !== RecordType.Settings) expect(() => readAfterStart(piece)).toThrow(`record at byte ${offset} `);
  });

  it('cannot make a stack its own ancestor', () => {
    const frame: Piece = [RecordType.Frames, scoped(0, 0, 0, words(0, 0, 1))];
    expect(() => readAfterStart(frame, [RecordType.Stacks, scoped(0, 0, 0, words(0, 0))])).toThrow(InputError);
    expect(() => readAfterStart(frame, [RecordType.Stacks, scoped(0, 0, 0, words(-1, 0, 2, 0, 0, 0))])).toThrow(InputError);
  });

  it('raises nothing but InputError, however its payloads are changed', () => {
    const pieces = piecesOf(weirBytes(smallRecording()));
    const change = fc.record({ piece: fc.nat(pieces.length - 1), at: fc.nat(), value: fc.integer({ min: 0, max: 255 }), cut: fc.nat(40) });
    fc.assert(
      fc.property(fc.array(change, { minLength: 1, maxLength: 4 }), fc.boolean(), (changes, cutting) => {
        const changed = pieces.map(([type, payload]) => [type, payload.slice()] as [number, Uint8Array]);
        for (const { piece, at, value, cut } of changes) {
          const target = changed[piece]!;
          if (target[1].length > 0) target[1][at % target[1].length] = value;
          if (cutting) target[1] = target[1].slice(0, Math.max(0, target[1].length - cut));
        }
        try {
          readWeir(file(changed));
        } catch (error) {
          if (!(error instanceof InputError)) throw error;
        }
      }),
      { numRuns: 2000 },
    );
  });

  it('raises nothing but InputError for bytes that mean nothing', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), fc.boolean(), (noise, withHeader) => {
        const bytes = withHeader ? new Uint8Array(Buffer.concat([fileHeader(), noise])) : noise;
        expect(() => readWeir(bytes)).toThrow(InputError);
      }),
    );
  });

  it('is warned of when its end counts differently', () => {
    const recording = readAfterStart([RecordType.Events, row({})], [RecordType.End, words(7, 0, 0, 0)]);
    expect(recording.traces[0]!.warnings.map(({ code }) => code)).toContain('corrupt');
  });
});

describe('a .weir file from another version', () => {
  const pieces = piecesOf(weirBytes(smallRecording()));

  function headerOf(major: number, minor: number): Uint8Array {
    const header = fileHeader();
    const view = viewOf(header);
    view.setUint16(8, major, true);
    view.setUint16(10, minor, true);
    view.setUint32(12, crc32(header, 0, 12), true);
    return header;
  }

  it('is read although it has a higher minor version and records of unknown types', () => {
    const extended = pieces.flatMap((piece): Piece[] => [[9999, Uint8Array.of(1, 2, 3)], piece]);
    expect(contentOf(readWeir(file(extended, headerOf(1, 7))))).toEqual(contentOf(smallRecording()));
  });

  it('is read without the events whose kinds are unknown, and says so', () => {
    const rows = new Uint8Array(Buffer.concat([row({}), row({ kind: 200, stream: 99, device: 4 }), row({ kind: 0 })]));
    const { traces } = readAfterStart([RecordType.Events, rows], [RecordType.End, words(3, 0, 0, 0)]);
    expect(traces[0]!.events.count).toBe(1);
    expect(traces[0]!.warnings.find(({ code }) => code === 'unknown-events')?.message).toContain('2 events');
  });

  it('is refused when the major version is higher, and says what to do', () => {
    expect(() => readWeir(file(pieces, headerOf(2, 0)))).toThrow(/version 2 .* update weir/);
    expect(() => readWeir(file(pieces, headerOf(0, 0)))).toThrow(InputError);
  });
});

describe('a .weir file from a writer that does not intern', () => {
  it('gets every string, frame and stack once', () => {
    const strings = new TextEncoder().encode('aa');
    const text = (at: number) => Uint8Array.of(1, 0, 0, 0, strings[at]!);
    const { traces } = readAfterStart(
      [RecordType.Strings, scoped(1, 0, 0, new Uint8Array(Buffer.concat([text(0), text(1)])))],
      [RecordType.Frames, scoped(0, 0, 0, words(1, 0, 5, 2, 0, 5))],
      [RecordType.Stacks, scoped(0, 0, 0, words(-1, 0, -1, 1, 1, 1))],
      [RecordType.Events, row({ stack: 1, metadata: 2 })],
      [RecordType.Events, row({ stack: 2, address: 8192 })],
    );
    const { events, symbols } = traces[0]!;
    expect(symbols.strings).toEqual(['', 'a']);
    expect(symbols.frames.count).toBe(1);
    expect(Array.from(events.stack)).toEqual([0, 1]);
    expect(Array.from(events.metadata)).toEqual([1, 0]);
    expect([...symbols.framesOf(1)]).toHaveLength(2);
  });
});

describe('states', () => {
  const segment = words(4096, 0, 8192, 0, 0, 0, -1, 0, 0, 0);
  const end = StateFlag.End | StateFlag.FirstPart | StateFlag.LastPart;

  it('count as the end only if no event follows', () => {
    const state: Piece = [RecordType.State, scoped(1, 0, end, segment)];
    const events: Piece = [RecordType.Events, row({})];
    expect(readAfterStart(events, state).traces[0]!.endSegments).toHaveLength(1);
    expect(readAfterStart(state, events).traces[0]!.endSegments).toBeUndefined();
    expect(readAfterStart(state, events, state).traces[0]!.endSegments).toHaveLength(1);
  });

  it('may come in parts, and later ones replace earlier ones', () => {
    const first: Piece = [RecordType.State, scoped(1, 0, StateFlag.End | StateFlag.FirstPart, segment)];
    const last: Piece = [RecordType.State, scoped(1, 0, StateFlag.End | StateFlag.LastPart, segment)];
    expect(readAfterStart(first).traces[0]!.endSegments).toBeUndefined();
    expect(readAfterStart(first, last).traces[0]!.endSegments).toHaveLength(2);
    expect(readAfterStart(first, first, last).traces[0]!.endSegments).toHaveLength(2);
  });
});

it('has a header of the documented size', () => {
  expect(fileHeader()).toHaveLength(FILE_HEADER_BYTES);
});
