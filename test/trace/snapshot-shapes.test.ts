// Snapshots in the shapes of different PyTorch versions and writers, from hand-made pickles and JSON.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { readRecording } from '../../src/trace/detect.ts';
import { EventKind, type Recording, type Trace } from '../../src/trace/trace.ts';
import { type PickleDict, type PickleOptions, type PickleValue, Tuple, writePickle } from '../support/pickle-writer.ts';
import { readSample } from '../support/samples.ts';

const BASE = 0x7f0000000000;
const MIB = 2 ** 20;
const HIGH = 2n ** 63n + 4096n;

const inner = { name: 'forward', filename: 'model.py', line: 12 };
const outer = { name: '<module>', filename: 'train.py', line: 3 };

function entry(action: string, addr: number | bigint, size: number, more: PickleDict = {}): PickleDict {
  return { action, addr, size, stream: 0, time_us: 1_700_000_000_000_000, compile_context: 'N/A', user_metadata: '', ...more };
}

function snapshot(): PickleDict {
  return {
    segments: [
      {
        device: 0,
        address: BASE,
        total_size: 2 * MIB,
        stream: 7,
        segment_type: 'small',
        segment_pool_id: new Tuple(0, 3),
        is_expandable: true,
        frames: [outer],
        blocks: [
          { address: BASE, size: 512, requested_size: 100, state: 'active_allocated', frames: [inner, outer] },
          { address: BASE + 512, size: 512, requested_size: 500, state: 'active_pending_free', frames: [] },
          { address: BASE + 1024, size: 2 * MIB - 1024, requested_size: 0, state: 'inactive', frames: [] },
        ],
      },
    ],
    device_traces: [
      [
        entry('segment_alloc', BASE, 2 * MIB, { stream: 7, frames: [outer] }),
        entry('alloc', BASE, 100, { stream: 7, frames: [inner, outer], user_metadata: 'step 1' }),
        entry('alloc', BASE + 512, 500, { stream: 7, compile_context: '0/0' }),
        entry('free_requested', BASE + 512, 500, { stream: 7 }),
        {
          action: 'oom',
          device_free: 123456,
          size: 4096,
          stream: 7,
          time_us: 1_700_000_000_000_009,
          compile_context: 'N/A',
          user_metadata: '',
        },
        entry('snapshot', 0, 1024),
      ],
    ],
    allocator_settings: {
      max_split_size: -1,
      expandable_segments: true,
      roundup_power2_divisions: { '1': 0, '2': 4 },
      conf: '',
      none: null,
    },
    external_annotations: [{ stage: 'START', name: 'step', device: 0, time_us: 5 }],
  };
}

/** As JSON, without losing integers beyond 2^53. */
function writeJson(value: PickleValue): string {
  if (value instanceof Tuple) return writeJson(value.items);
  if (Array.isArray(value)) return `[${value.map((item) => writeJson(item)).join(', ')}]`;
  if (typeof value === 'bigint') return String(value);
  if (value === null || typeof value !== 'object') return JSON.stringify(value);
  return `{${Object.entries(value)
    .map(([key, item]) => `${JSON.stringify(key)}: ${writeJson(item)}`)
    .join(',\n')}}`;
}

const fromPickle = (value: PickleValue, options?: PickleOptions): Recording => readRecording(writePickle(value, options));
const fromJson = (text: string): Recording => readRecording(new TextEncoder().encode(text));
const only = (recording: Recording): Trace => {
  expect(recording.traces.length).toBe(1);
  return recording.traces[0]!;
};

/** The content of a recording, without how it is stored. */
function content(recording: Recording): unknown {
  return recording.traces.map((trace) => {
    const { events, symbols } = trace;
    const stack = (index: number) => [...symbols.framesOf(index)];
    const rows = Array.from({ length: events.count }, (_, row) => [
      events.kind[row],
      symbols.addresses.decode(events.address[row]!),
      events.size[row],
      events.timeUs[row],
      trace.streams[events.stream[row]!],
      trace.pools[events.pool[row]!],
      stack(events.stack[row]!),
      symbols.strings[events.metadata[row]!],
      symbols.strings[events.compileContext?.[row] ?? 0],
    ]);
    const segments = trace.endSegments?.map((segment) => ({
      ...segment,
      stream: trace.streams[segment.stream],
      pool: trace.pools[segment.pool],
      stack: stack(segment.stack),
      blocks: segment.blocks.map((block) => ({ ...block, stack: stack(block.stack) })),
    }));
    const { device, settings, limits, annotations, warnings } = trace;
    return { device, rows, segments, settings, limits, annotations, warnings };
  });
}

describe('a snapshot of today', () => {
  it('gives events with all their fields', () => {
    const trace = only(fromPickle(snapshot()));
    const { events, symbols } = trace;
    const { SegmentAlloc, Alloc, FreeRequested, Oom, Snapshot } = EventKind;
    expect([...events.kind.subarray(0, events.count)]).toEqual([SegmentAlloc, Alloc, Alloc, FreeRequested, Oom, Snapshot]);
    expect([...events.address.subarray(0, 6)]).toEqual([BASE, BASE, BASE + 512, BASE + 512, 123456, 0]);
    expect([...events.size.subarray(0, 6)]).toEqual([2 * MIB, 100, 500, 500, 4096, 1024]);
    expect([...events.stream.subarray(0, 6)].map((stream) => trace.streams[stream])).toEqual([7, 7, 7, 7, 7, 0]);
    expect([...symbols.framesOf(events.stack[1]!)]).toEqual([inner, outer]);
    expect(events.stack[2]).toBe(-1);
    expect(symbols.strings[events.metadata[1]!]).toBe('step 1');
    expect([...events.compileContext!.subarray(0, 6)].map((text) => symbols.strings[text])).toEqual(['', '', '0/0', '', '', '']);
    expect(trace.pools[0]).toEqual([0, 0]);
  });

  it('gives segments with their blocks', () => {
    const trace = only(fromPickle(snapshot()));
    const segment = trace.endSegments![0]!;
    expect(segment).toMatchObject({ address: BASE, size: 2 * MIB, small: true, expandable: true });
    expect(trace.pools[segment.pool]).toEqual([0, 3]);
    expect(segment.blocks.map(({ address, size, requested, state }) => [address - BASE, size, requested, state])).toEqual([
      [0, 512, 100, 'live'],
      [512, 512, 500, 'pending'],
      [1024, 2 * MIB - 1024, 0, 'free'],
    ]);
    expect([...trace.symbols.framesOf(segment.blocks[0]!.stack)]).toEqual([inner, outer]);
  });

  it('gives nested settings, annotations and no warning of the reader', () => {
    const trace = only(fromPickle(snapshot()));
    expect(trace.settings).toEqual(
      new Map<string, unknown>([
        ['max_split_size', -1],
        ['expandable_segments', true],
        [
          'roundup_power2_divisions',
          new Map([
            ['1', 0],
            ['2', 4],
          ]),
        ],
        ['conf', ''],
        ['none', null],
      ]),
    );
    expect(trace.annotations).toEqual([{ stage: 'START', name: 'step', device: 0, timeUs: 5 }]);
    const codes = trace.warnings.map(({ code }) => code);
    expect(codes.filter((code) => code === 'no-history' || code === 'unknown-actions')).toEqual([]);
  });

  it('stores no string that no event or frame needs', () => {
    const { strings } = only(fromPickle(snapshot())).symbols;
    expect([...strings].sort()).toEqual(['', '0/0', '<module>', 'forward', 'model.py', 'step', 'step 1', 'train.py']);
  });
});

describe('every way to write it reads the same', () => {
  const expected = content(fromPickle(snapshot()));
  const ways = ([2, 3, 4, 5] as const).flatMap((protocol) =>
    [true, false].flatMap((memoize) => [1000, 1].map((batch) => ({ protocol, memoize, batch }))),
  );
  it.each(ways)('pickle %o', (way) => {
    expect(content(fromPickle(snapshot(), way))).toEqual(expected);
  });

  it('JSON', () => {
    expect(content(fromJson(writeJson(snapshot())))).toEqual(expected);
    expect(content(fromJson(`\ufeff \n${writeJson(snapshot())}\n`))).toEqual(expected);
  });

  it('JSON with every character of every text escaped', () => {
    const escaped = writeJson(snapshot()).replace(/"([^"]*)"/g, (_, text: string) => {
      const codes = [...text].map((character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`);
      return `"${codes.join('')}"`;
    });
    expect(content(fromJson(escaped))).toEqual(expected);
  });

  it('a real file as JSON and back', () => {
    const original = readRecording(readSample('exact/s1.pickle'));
    const trace = original.traces[0]!;
    const { events, symbols } = trace;
    const actions = [
      '',
      'alloc',
      'free_requested',
      'free_completed',
      'segment_alloc',
      'segment_free',
      'segment_map',
      'segment_unmap',
      'oom',
      'snapshot',
    ];
    const frames = (stack: number) => [...symbols.framesOf(stack)].map((frame) => ({ ...frame }));
    const entries = Array.from({ length: events.count }, (_, row) => ({
      action: actions[events.kind[row]!]!,
      [events.kind[row] === EventKind.Oom ? 'device_free' : 'addr']: events.address[row]!,
      size: events.size[row]!,
      stream: trace.streams[events.stream[row]!]!,
      time_us: events.timeUs[row]!,
      pool_id: new Tuple(...trace.pools[events.pool[row]!]!),
      user_metadata: symbols.strings[events.metadata[row]!]!,
      frames: frames(events.stack[row]!),
    }));
    const states = { live: 'active_allocated', pending: 'active_pending_free', free: 'inactive' };
    const segments = trace.endSegments!.map((segment) => ({
      address: segment.address,
      total_size: segment.size,
      stream: trace.streams[segment.stream]!,
      segment_type: segment.small ? 'small' : 'large',
      segment_pool_id: new Tuple(...trace.pools[segment.pool]!),
      is_expandable: segment.expandable,
      frames: frames(segment.stack),
      blocks: segment.blocks.map((block) => ({
        address: block.address,
        size: block.size,
        requested_size: block.requested,
        state: states[block.state],
        frames: frames(block.stack),
      })),
    }));
    const annotations = trace.annotations.map(({ stage, name, device, timeUs }) => ({ stage, name, device, time_us: timeUs }));
    const settings = JSON.parse(
      JSON.stringify(Object.fromEntries(trace.settings), (_, value) => (value instanceof Map ? Object.fromEntries(value) : value)),
    );
    const rewritten = { segments, device_traces: [entries], allocator_settings: settings, external_annotations: annotations };
    expect(content(fromJson(writeJson(rewritten)))).toEqual(content(original));
    expect(content(fromPickle(rewritten, { protocol: 5 }))).toEqual(content(original));
  });
});

describe('older and newer shapes', () => {
  it('a bare list of segments has no history, and says so', () => {
    const trace = only(fromPickle(Object.values(snapshot())[0]!));
    expect(trace.events.count).toBe(0);
    expect(trace.endSegments!.length).toBe(1);
    expect(trace.warnings.map(({ code }) => code)).toContain('no-history');
  });

  it("the key 'traces' stands for 'device_traces'", () => {
    const { device_traces, ...rest } = snapshot();
    expect(content(fromPickle({ ...rest, traces: device_traces! }))).toEqual(content(fromPickle(snapshot())));
  });

  it('blocks with a history, and without addresses', () => {
    const history = [
      { addr: BASE, real_size: 300, frames: [inner] },
      { addr: BASE, real_size: 9, frames: [outer] },
    ];
    const blocks = [
      { size: 512, state: 'active_allocated', history },
      { size: 1024, state: 'inactive' },
      { size: 512, state: 'active_allocated' },
    ];
    const trace = only(fromPickle([{ device: 0, address: BASE, total_size: 4096, stream: 0, blocks }]));
    const found = trace.endSegments![0]!.blocks;
    expect(found.map(({ address, size, requested, state }) => [address - BASE, size, requested, state])).toEqual([
      [0, 512, 300, 'live'],
      [512, 1024, 0, 'free'],
      [1536, 512, 512, 'live'],
      [2048, 2048, 0, 'free'],
    ]);
    expect([...trace.symbols.framesOf(found[0]!.stack)]).toEqual([inner]);
  });

  it('entries made from a profile: a category, no time, no segment events', () => {
    const entries = [
      { action: 'alloc', addr: BASE, size: 10, stream: 0, frames: [], category: 'parameter' },
      { action: 'free_requested', addr: BASE, size: 10, stream: 0, frames: [] },
      { action: 'free_completed', addr: BASE, size: 10, stream: 0 },
    ];
    const trace = only(fromPickle({ device_traces: [entries], segments: [] }));
    expect(trace.events.count).toBe(3);
    expect(trace.events.timeUs[0]).toBe(0);
  });

  it('pool ids in entries, forward frames and FX fields', () => {
    const frame = { ...inner, fx_node_op: 'call_function', fx_node_name: 'relu', fx_node_info: { op: 'x' }, fx_original_trace: 'a\nb' };
    const entries = [
      entry('alloc', BASE, 10, { pool_id: new Tuple(0, 5), forward_frames: ['a', 'b'], frames: [frame] }),
      entry('alloc', BASE + 512, 10, { pool_id: new Tuple(0, 0), forward_frames: ['a'], frames: [frame, outer] }),
    ];
    const settings = { trace_alloc_overflowed: true, trace_alloc_max_entries: 2 };
    const trace = only(fromPickle({ device_traces: [entries], segments: [], allocator_settings: settings }));
    expect([0, 1].map((row) => trace.pools[trace.events.pool[row]!])).toEqual([
      [0, 5],
      [0, 0],
    ]);
    expect([...trace.symbols.framesOf(trace.events.stack[1]!)].slice(0, 2)).toEqual([inner, outer]);
    expect(trace.settings.get('trace_alloc_overflowed')).toBe(true);
    expect(trace.warnings.map(({ code }) => code)).toContain('overflow');
  });

  it('several GPUs, one of them unused, share their tables', () => {
    const segments = [
      {
        device: 3,
        address: BASE,
        total_size: 512,
        stream: 0,
        blocks: [{ address: BASE, size: 512, state: 'inactive', requested_size: 0 }],
      },
    ];
    const recording = fromPickle({
      device_traces: [[entry('alloc', BASE, 1)], [], [entry('alloc', BASE, 2), entry('alloc', BASE + 512, 3)], []],
      segments,
    });
    expect(recording.traces.map(({ device, events }) => [device, events.count])).toEqual([
      [0, 1],
      [2, 2],
      [3, 0],
    ]);
    expect(recording.traces[1]!.events.size[0]).toBe(2);
    expect(recording.traces[1]!.symbols).toBe(recording.traces[0]!.symbols);
  });

  it('entries of one GPU that lie apart in the file are put together', () => {
    const shared = entry('alloc', BASE + 512, 2, { compile_context: '1/0' });
    const { device_traces } = { device_traces: [[entry('alloc', BASE, 1), shared, entry('alloc', BASE + 1024, 3)]] };
    // The extra key comes first, so the middle entry is decoded before the others.
    const trace = only(fromPickle({ early: [shared], device_traces, segments: [] }));
    expect([...trace.events.size.subarray(0, 3)]).toEqual([1, 2, 3]);
    expect(trace.symbols.strings[trace.events.compileContext![1]!]).toBe('1/0');
  });

  it('unknown actions are ignored and counted, unknown keys ignored', () => {
    const entries = [
      entry('alloc', BASE, 1, { colour: 'red', extra: [1, 2, 3], more: {} }),
      entry('teleport', BASE, 1),
      entry('teleport', BASE, 1),
    ];
    const trace = only(fromPickle({ device_traces: [entries], segments: [], version: 3 }));
    expect(trace.events.count).toBe(1);
    expect(trace.warnings.find(({ code }) => code === 'unknown-actions')!.message).toContain(
      "2 trace entries were ignored because weir does not know their actions: 'teleport'",
    );
  });

  it("the fixtures' total and frac become limits", () => {
    expect(only(fromPickle({ ...snapshot(), total: 80 * 2 ** 30, frac: 0.5 })).limits).toEqual({
      deviceBytes: 80 * 2 ** 30,
      memoryFraction: 0.5,
    });
  });

  it('dicts and lists written in one go, by the opcodes DICT, LIST and TUPLE', () => {
    const text = (value: string) => [0x58, value.length, 0, 0, 0, ...new TextEncoder().encode(value)];
    const alloc = [0x28, ...text('action'), ...text('alloc'), ...text('addr'), 0x4b, 8, ...text('size'), 0x4b, 9, 0x64];
    const bytes = [0x80, 2, 0x28, ...text('device_traces'), 0x28, 0x28, ...alloc, 0x74, 0x6c, ...text('segments'), 0x28, 0x6c, 0x64, 0x2e];
    const trace = only(readRecording(Uint8Array.from(bytes)));
    expect([trace.events.count, trace.events.address[0], trace.events.size[0]]).toEqual([1, 8, 9]);
  });
});

describe('values', () => {
  it('addresses and streams beyond 2^63, and the same written as signed integers', () => {
    for (const addr of [HIGH, HIGH - 2n ** 64n]) {
      const trace = only(fromPickle({ device_traces: [[entry('alloc', addr, 1, { stream: addr })]], segments: [] }));
      expect(trace.symbols.addresses.decode(trace.events.address[0]!)).toBe(HIGH);
      expect(trace.symbols.addresses.decode(trace.streams[0]!)).toBe(HIGH);
    }
    const trace = only(fromJson(writeJson({ device_traces: [[entry('alloc', HIGH, 1)]], segments: [] })));
    expect(trace.symbols.addresses.decode(trace.events.address[0]!)).toBe(HIGH);
  });

  it('integers of every length survive', () => {
    fc.assert(
      fc.property(fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }), fc.nat({ max: 63 }), (value, shift) => {
        const addr = value >> BigInt(shift);
        const entries = { device_traces: [[entry('alloc', addr, 1)]], segments: [] };
        for (const trace of [only(fromPickle(entries)), only(fromJson(writeJson(entries)))]) {
          expect(trace.symbols.addresses.decode(trace.events.address[0]!)).toBe(addr);
        }
      }),
    );
  });

  it('texts of every kind survive, invalid UTF-8 becomes replacement characters', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (text) => {
        const entries = { device_traces: [[entry('alloc', BASE, 1, { user_metadata: text })]], segments: [] };
        for (const trace of [only(fromPickle(entries)), only(fromJson(writeJson(entries)))]) {
          expect(trace.symbols.strings[trace.events.metadata[0]!]).toBe(text);
        }
      }),
    );
    const bytes = writePickle({ device_traces: [[entry('alloc', BASE, 1, { user_metadata: '!!!' })]], segments: [] });
    const at = bytes.findIndex((byte, index) => byte === 0x21 && bytes[index + 1] === 0x21);
    bytes.set([0xff, 0xc0, 0x41], at);
    const trace = only(readRecording(bytes));
    expect(trace.symbols.strings[trace.events.metadata[0]!]).toBe('\ufffd\ufffdA');
  });

  it.each([1, 2, 999, 1000, 1001, 2500])('a call stack of %i frames keeps its order', (length) => {
    const frames = Array.from({ length }, (_, line) => ({ name: 'f', filename: 'x.py', line }));
    for (const batch of [1000, 1, 7]) {
      const trace = only(
        fromPickle(
          { device_traces: [[entry('alloc', BASE, 1, { frames }), entry('alloc', BASE + 512, 1, { frames })]], segments: [] },
          { batch },
        ),
      );
      expect([...trace.symbols.framesOf(trace.events.stack[1]!)].map(({ line }) => line)).toEqual(frames.map(({ line }) => line));
    }
  });

  it('thousands of entries arrive in order, whatever the batches', () => {
    const entries = Array.from({ length: 5003 }, (_, index) => entry('alloc', BASE + 512 * index, index + 1));
    for (const recording of [
      fromPickle({ device_traces: [entries], segments: [] }),
      fromJson(writeJson({ device_traces: [entries], segments: [] })),
    ]) {
      const { events } = only(recording);
      expect(events.count).toBe(5003);
      expect(events.size.subarray(0, 5003).every((size, index) => size === index + 1)).toBe(true);
    }
  });

  it('progress goes from 0 to 1', () => {
    const seen: number[] = [];
    readRecording(readSample('gpt2xl-oom.pickle.gz'), { onProgress: (fraction) => seen.push(fraction) });
    expect(seen.length).toBeGreaterThanOrEqual(3);
    expect(seen).toEqual([...seen].sort((a, b) => a - b));
    expect(seen.at(-1)).toBe(1);
  });
});
