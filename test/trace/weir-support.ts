// Shared by the tests of the `.weir` format: random recordings, and comparing two recordings.
import fc from 'fast-check';
import { expect } from 'vitest';
import { assembleTrace } from '../../src/trace/assemble.ts';
import { EventStore } from '../../src/trace/event-store.ts';
import { Symbols } from '../../src/trace/symbols.ts';
import {
  type Annotation,
  EventKind,
  type PoolId,
  type Recording,
  type Segment,
  type SettingValue,
  type Trace,
  type Warning,
} from '../../src/trace/trace.ts';
import { writeWeir } from '../../src/trace/weir/writer.ts';

export function bytesOf(write: (sink: (chunk: Uint8Array) => void) => void): Uint8Array {
  const chunks: Uint8Array[] = [];
  write((chunk) => chunks.push(chunk));
  return new Uint8Array(Buffer.concat(chunks));
}

export function weirBytes(recording: Recording): Uint8Array {
  return bytesOf((sink) => writeWeir(recording, sink));
}

/** The content of a recording, without what may differ between equal ones (encoded addresses, the format it came from). */
export function contentOf(recording: Recording): unknown {
  return recording.traces.map(traceContent);
}

function traceContent(trace: Trace): unknown {
  const exact = (encoded: number) => trace.symbols.addresses.format(encoded);
  const segments = (list: readonly Segment[] | undefined) =>
    list?.map((segment) => ({
      ...segment,
      address: exact(segment.address),
      blocks: segment.blocks.map((block) => ({ ...block, address: exact(block.address) })),
    }));
  const { events, allocations, symbols } = trace;
  const isOom = (event: number) => events.kind[event] === EventKind.Oom;
  const times = Array.from(events.timeUs.subarray(0, events.count));
  return {
    device: trace.device,
    events: {
      ...columnsAsLists(events),
      timeUs: times,
      address: Array.from(events.address.subarray(0, events.count), (address, event) => (isOom(event) ? address : exact(address))),
    },
    allocationOf: Array.from(trace.allocationOf),
    allocations: { ...columnsAsLists(allocations), address: Array.from(allocations.address, exact) },
    impliedFrees: [...trace.impliedFrees],
    startSegments: segments(trace.startSegments),
    endSegments: segments(trace.endSegments),
    streams: trace.streams.map(exact),
    pools: trace.pools,
    strings: symbols.strings,
    frames: Array.from({ length: symbols.frames.count }, (_, frame) => [
      symbols.frames.name(frame),
      symbols.frames.filename(frame),
      symbols.frames.line(frame),
    ]),
    stacks: Array.from({ length: symbols.stacks.count }, (_, stack) => [symbols.stacks.parent(stack), symbols.stacks.frame(stack)]),
    settings: trace.settings,
    limits: { ...trace.limits },
    annotations: trace.annotations,
    warnings: trace.warnings,
  };
}

function columnsAsLists(columns: object): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(columns).map(([name, column]) => [
      name,
      ArrayBuffer.isView(column) ? Array.from(column as unknown as number[]) : column,
    ]),
  );
}

export function expectSame(actual: Recording, expected: Recording): void {
  expect(contentOf(actual)).toEqual(contentOf(expected));
}

/** Whether the events of `part` are the first events of `whole`, GPU by GPU. */
export function expectPrefix(part: Recording, whole: Recording): void {
  for (const trace of part.traces) {
    const full = whole.traces.find(({ device }) => device === trace.device)!;
    const rows = (of: Trace) => JSON.stringify(columnsOf(of, trace.events.count));
    expect(rows(trace)).toBe(rows(full));
  }
}

function columnsOf(trace: Trace, count: number): unknown {
  const { kind, address, size, timeUs, stream, stack, metadata, detail, thread, compileContext } = trace.events;
  const optional = [detail, thread, compileContext].map((column) => Array.from({ length: count }, (_, event) => column?.[event] ?? 0));
  const exact = Array.from(address.subarray(0, count), (value) => trace.symbols.addresses.format(value));
  const fixed = [kind, size, timeUs, stream, stack, metadata].map((column) => Array.from(column.subarray(0, count)));
  return [exact, ...fixed, ...optional];
}

// Random recordings -------------------------------------------------------------------------------------------------

const ALL_KINDS = Object.values(EventKind);
const WITH_STRING: readonly number[] = [EventKind.Settings, EventKind.Operator, EventKind.Mark];
const text = fc.string({ unit: 'grapheme', maxLength: 12 });
const bytes = fc.oneof(fc.nat(1 << 24), fc.maxSafeNat());
/**
 * Few enough addresses to be freed and reused, and some beyond 2^48. Those of one device lie in one window, because the
 * order of windows depends on which is met first.
 */
const address = fc.oneof(
  fc.nat(20).map((page) => BigInt(page) * 512n + 0x7f00_0000_0000n),
  fc.tuple(fc.constantFrom(0n, 0xffffn), fc.bigInt(0n, (1n << 48n) - 1n)).map(([top, low]) => (top << 48n) + low),
);
/** Mapping is followed page by page, so random sizes there must be those of a GPU. */
const MAPPING: readonly number[] = [EventKind.SegmentMap, EventKind.SegmentUnmap];
const micros = fc.oneof(
  fc.nat().map((offset) => 1.7e15 + offset),
  fc.double({ noNaN: true, noDefaultInfinity: true }),
);
const setting: fc.Arbitrary<SettingValue> = fc.oneof(
  text,
  fc.double({ noNaN: true }),
  fc.boolean(),
  fc.constant(null),
  fc.dictionary(text, fc.integer()).map((map) => new Map(Object.entries(map))),
);

const block = fc.record({ address, size: bytes, requested: bytes, state: fc.constantFrom('live', 'pending', 'free'), stack: fc.nat() });
const segment = fc.record({
  address,
  size: fc.nat(1 << 26),
  stream: fc.nat(),
  pool: fc.nat(),
  small: fc.boolean(),
  expandable: fc.boolean(),
  stack: fc.nat(),
  blocks: fc.array(block, { maxLength: 4 }),
});
const event = fc.record({
  kind: fc.constantFrom(...ALL_KINDS),
  address,
  size: bytes,
  duration: fc.double({ min: 0, max: 1e9, noNaN: true }),
  timeUs: micros,
  indices: fc.tuple(fc.nat(), fc.nat(), fc.nat(), fc.nat()),
  detail: fc.option(fc.nat(), { nil: undefined }),
  thread: fc.option(fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 }), { nil: undefined }),
  compileContext: fc.option(fc.nat(), { nil: undefined }),
});
const device = fc.record({
  events: fc.array(event, { maxLength: 30 }),
  end: fc.option(fc.array(segment, { maxLength: 5 }), { nil: undefined }),
  streams: fc.uniqueArray(fc.nat(), { minLength: 1, maxLength: 4 }),
  pools: fc.array(fc.tuple(fc.nat(), fc.nat()), { maxLength: 3 }),
  settings: fc.array(fc.tuple(text, setting), { maxLength: 4 }),
  limits: fc.record({ deviceBytes: bytes, memoryFraction: fc.double({ min: 0, max: 1, noNaN: true }) }, { requiredKeys: [] }),
  annotations: fc.array(fc.record({ name: text, stage: fc.constantFrom('START', 'END', 'MARK'), device: fc.nat(7), timeUs: micros })),
  warnings: fc.array(fc.record({ code: fc.constantFrom('unknown-actions', 'history-overflowed'), message: text }), { maxLength: 2 }),
});
const symbolTable = fc.record({
  strings: fc.array(text, { minLength: 1, maxLength: 10 }),
  frames: fc.array(fc.tuple(fc.nat(), fc.nat(), fc.integer({ min: -1, max: 1e6 })), { maxLength: 8 }),
  stacks: fc.array(fc.tuple(fc.nat(), fc.nat()), { maxLength: 12 }),
});

export const recordings: fc.Arbitrary<Recording> = fc
  .tuple(symbolTable, fc.array(device, { minLength: 1, maxLength: 3 }), fc.nat(5))
  .map(([table, devices, firstDevice]) => {
    const symbols = new Symbols();
    for (const string of table.strings) symbols.internString(string);
    const string = (pick: number) => pick % symbols.strings.length;
    for (const [name, filename, line] of table.frames) symbols.frames.intern(string(name), string(filename), line);
    if (symbols.frames.count > 0) {
      for (const [parent, frame] of table.stacks) {
        symbols.stacks.push((parent % (symbols.stacks.count + 1)) - 1, frame % symbols.frames.count);
      }
    }
    return { format: 'pickle', traces: devices.map((parts, index) => makeTrace(symbols, parts, firstDevice + index * 3)) };
  });

type DeviceParts = typeof device extends fc.Arbitrary<infer Parts> ? Parts : never;
type SegmentParts = typeof segment extends fc.Arbitrary<infer Parts> ? Parts : never;

function makeTrace(symbols: Symbols, parts: DeviceParts, index: number): Trace {
  const pools: PoolId[] = [[0, 0], ...parts.pools];
  const string = (pick: number) => pick % symbols.strings.length;
  const stack = (pick: number) => (pick % (symbols.stacks.count + 1)) - 1;
  const stream = (pick: number) => pick % parts.streams.length;
  const store = new EventStore(1);
  for (const { kind, indices, ...fields } of parts.events) {
    const row = store.append(
      kind,
      kind === EventKind.Oom ? fields.size : symbols.addresses.encode(fields.address),
      kind === EventKind.Operator ? fields.duration : MAPPING.includes(kind) ? fields.size % 2 ** 26 : fields.size,
      fields.timeUs,
      stream(indices[0]),
      (indices[1] % (pools.length + 1)) - 1,
      stack(indices[2]),
      string(indices[3]),
    );
    if (fields.detail !== undefined) {
      const detail =
        kind === EventKind.RecordStream ? stream(fields.detail) : WITH_STRING.includes(kind) ? string(fields.detail) : fields.detail;
      store.setOptional(row, 'detail', detail);
    }
    if (fields.thread !== undefined) store.setOptional(row, 'thread', fields.thread);
    if (fields.compileContext !== undefined) store.setOptional(row, 'compileContext', string(fields.compileContext));
  }
  const place = ({ blocks, ...rest }: SegmentParts): Segment => ({
    ...rest,
    address: symbols.addresses.encode(rest.address),
    stream: stream(rest.stream),
    pool: rest.pool % pools.length,
    stack: stack(rest.stack),
    blocks: blocks.map((part) => ({
      ...part,
      address: symbols.addresses.encode(part.address),
      stack: stack(part.stack),
      state: part.state as 'live',
    })),
  });
  return assembleTrace({
    device: index,
    events: store.view(),
    startSegments: undefined,
    endSegments: parts.end?.map(place),
    streams: parts.streams,
    pools,
    symbols,
    settings: new Map(parts.settings),
    limits: parts.limits,
    annotations: parts.annotations as Annotation[],
    warnings: parts.warnings as Warning[],
  });
}

/** A recording with one of everything, small enough to be damaged at every bit. */
export function smallRecording(): Recording {
  const symbols = new Symbols();
  const train = symbols.frames.intern(symbols.internString('train'), symbols.internString('train.py'), 12);
  const forward = symbols.frames.intern(symbols.internString('forward'), symbols.internString('model.py'), 7);
  const stack = symbols.stacks.push(symbols.stacks.push(-1, train), forward);
  const store = new EventStore(8);
  const base = 0x7f3a_0000_0000;
  store.append(EventKind.SegmentAlloc, base, 2 << 20, 1_700_000_000_000_000, 0, 0, stack, 0);
  store.append(EventKind.Alloc, base, 1000, 1_700_000_000_000_001, 0, 0, stack, 0);
  store.append(EventKind.Operator, 0, 12.5, 1_700_000_000_000_001.5, 0, 0, -1, 0);
  store.setOptional(2, 'detail', symbols.internString('aten::add'));
  store.append(EventKind.RecordStream, base, 1000, 1_700_000_000_000_002, 0, 0, -1, 0);
  store.setOptional(3, 'detail', 1);
  store.append(EventKind.FreeRequested, base, 1000, 1_700_000_000_000_003, 0, 0, -1, 0);
  store.append(EventKind.FreeCompleted, base, 1000, 1_700_000_000_000_009, 0, 0, -1, 0);
  const segments: Segment[] = [
    {
      address: base,
      size: 2 << 20,
      stream: 0,
      pool: 0,
      small: true,
      expandable: false,
      stack,
      blocks: [{ address: base, size: 2 << 20, requested: 1000, state: 'free', stack }],
    },
  ];
  const trace = assembleTrace({
    device: 0,
    events: store.view(),
    startSegments: undefined,
    endSegments: segments,
    streams: [0, 0x5581_0000_1234],
    pools: [[0, 0]],
    symbols,
    settings: new Map<string, SettingValue>([
      ['expandable_segments', false],
      ['roundup_power2_divisions', new Map([['256', 1]])],
    ]),
    limits: { deviceBytes: 80 * 2 ** 30, memoryFraction: 0.9 },
    annotations: [{ name: 'step', stage: 'START', device: 0, timeUs: 1_700_000_000_000_000 }],
    warnings: [],
  });
  return { format: 'pickle', traces: [trace] };
}
