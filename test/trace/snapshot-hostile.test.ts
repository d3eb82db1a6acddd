// Damaged, foreign and hostile files: each is refused with one sentence, at once and without taking memory.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { InputError } from '../../src/base/errors.ts';
import { readRecording } from '../../src/trace/detect.ts';
import { type PickleDict, type PickleValue, Tuple, writePickle } from '../support/pickle-writer.ts';
import { readSample } from '../support/samples.ts';

const BASE = 0x7f0000000000;
const text = (value: string): number[] => [0x8c, value.length, ...new TextEncoder().encode(value)];
const pickle = (...body: number[]): Uint8Array => Uint8Array.of(0x80, 4, ...body);
const json = (value: string): Uint8Array => new TextEncoder().encode(value);

function messageOf(bytes: Uint8Array): string {
  try {
    readRecording(bytes);
  } catch (error) {
    expect(error).toBeInstanceOf(InputError);
    return (error as InputError).message;
  }
  throw new Error('it was read without complaint');
}

/** Whether the input was read or refused with an InputError. Any other error fails the test. */
function outcomeOf(bytes: Uint8Array): 'read' | 'refused' {
  try {
    readRecording(bytes);
    return 'read';
  } catch (error) {
    if (!(error instanceof InputError)) throw error;
    return 'refused';
  }
}

function withEntry(more: PickleDict): PickleValue {
  return { device_traces: [[{ action: 'alloc', addr: BASE, size: 1, ...more }]], segments: [] };
}

function withSegment(more: PickleDict): PickleValue {
  return { segments: [{ device: 0, address: BASE, total_size: 1024, stream: 0, blocks: [], ...more }] };
}

describe('nothing in a pickle is executed', () => {
  it.each([
    ['GLOBAL for os.system at byte 2', pickle(0x63, ...json('os\nsystem\n'), ...text('id'), 0x85, 0x52, 0x2e)],
    ['STACK_GLOBAL for builtins.eval at byte 18', pickle(...text('builtins'), ...text('eval'), 0x93, 0x2e)],
    ['INST for os.system', pickle(0x28, 0x69, ...json('os\nsystem\n'), 0x2e)],
    ['REDUCE', pickle(0x4e, 0x29, 0x52, 0x2e)],
    ['OBJ', pickle(0x28, 0x4e, 0x6f, 0x2e)],
    ['NEWOBJ', pickle(0x4e, 0x29, 0x81, 0x2e)],
    ['NEWOBJ_EX', pickle(0x4e, 0x29, 0x7d, 0x92, 0x2e)],
    ['BUILD', pickle(0x4e, 0x7d, 0x62, 0x2e)],
    ['EXT1', pickle(0x82, 1, 0x2e)],
    ['EXT2', pickle(0x83, 1, 0, 0x2e)],
    ['EXT4', pickle(0x84, 1, 0, 0, 0, 0x2e)],
    ['PERSID', pickle(0x50, 0x31, 0x0a, 0x2e)],
    ['BINPERSID', pickle(0x4e, 0x51, 0x2e)],
    ['NEXT_BUFFER', pickle(0x97, 0x2e)],
    ['READONLY_BUFFER', pickle(0x98, 0x2e)],
    ['EMPTY_SET', pickle(0x8f, 0x2e)],
    ['ADDITEMS', pickle(0x28, 0x90, 0x2e)],
    ['FROZENSET', pickle(0x28, 0x91, 0x2e)],
  ])('%s', (expected, bytes) => {
    const message = messageOf(bytes);
    expect(message).toContain(`the opcode ${expected}`);
    expect(message).toContain('Weir executes nothing from a file, and this is probably not a memory snapshot');
  });

  it('opcodes of protocols 0 and 1, and bytes that are none', () => {
    expect(messageOf(pickle(0x49, 0x31, 0x0a, 0x2e))).toContain('protocol 0 or 1');
    expect(messageOf(pickle(0xff))).toBe('the pickle is damaged at byte 2: 0xff is not an opcode');
  });
});

describe('lengths and indices that lie', () => {
  const huge = [0xff, 0xff, 0xff, 0x7f];
  it.each([
    ['FRAME', pickle(0x95, ...huge, 0, 0, 0, 0)],
    ['FRAME of 2^63 bytes', pickle(0x95, ...huge, ...huge)],
    ['BINUNICODE', pickle(0x58, 0, 0, 1, 0, 0x41)],
    ['BINUNICODE8', pickle(0x8d, 0, 0, 1, 0, 0, 0, 0, 0, 0x41)],
    ['BINBYTES', pickle(0x42, ...huge)],
    ['BINBYTES8', pickle(0x8e, ...huge, ...huge)],
    ['BYTEARRAY8', pickle(0x96, ...huge, ...huge)],
    ['LONG4', pickle(0x8b, 9, 0, 0, 0)],
    ['LONG1', pickle(0x8a, 200, 1)],
    ['SHORT_BINUNICODE', pickle(0x8c, 200, 1)],
  ])('%s beyond the end', (_, bytes) => {
    expect(messageOf(bytes)).toBe(
      `the pickle ends early, at byte ${bytes.length}: the file is truncated; copy it again or take the snapshot again`,
    );
  });

  it('texts and integers that no snapshot has are refused before they come', () => {
    expect(messageOf(pickle(0x58, ...huge, 0x41))).toContain('it has a text of 2147483647 bytes');
    expect(messageOf(pickle(0x8d, ...huge, ...huge, 0x41))).toContain('it has a text of 9223372034707292000 bytes');
    expect(messageOf(pickle(0x8b, ...huge))).toContain('it has an integer of 2147483647 bytes');
    expect(messageOf(json(`{"${'a'.repeat(2 ** 20 + 1)}`))).toContain('it has a text of more than 1048576 bytes');
  });

  it('memo indices near 2^32 take no memory', () => {
    const before = process.memoryUsage().arrayBuffers;
    const body = [0x5d, 0x72, 0xff, 0xff, 0xff, 0xff, 0x30, 0x6a, 0xff, 0xff, 0xff, 0xff, 0x2e];
    expect(messageOf(pickle(...body))).toContain('the snapshot is empty');
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(50e6);
    expect(messageOf(pickle(0x6a, 0xfe, 0xff, 0xff, 0xff, 0x2e))).toContain('refers to entry 4294967294, which was never stored');
  });

  it('thousands of memo indices far beyond the input', () => {
    const body = Array.from({ length: 2000 }, (_, index) => [0x72, index & 255, index >> 8, 0, 0xf0]).flat();
    expect(messageOf(pickle(0x4e, ...body, 0x2e))).toContain('stores values at memo indices that no pickler uses');
  });

  it('an integer of a million bytes', () => {
    const bytes = new Uint8Array(1_000_020).fill(0x7f);
    bytes.set([0x80, 4, 0x8b, 0x40, 0x42, 0x0f, 0]);
    expect(messageOf(bytes)).toContain('an integer of 1000000 bytes');
    expect(messageOf(json(`{"segments": ${'9'.repeat(100_000)}}`))).toContain('an integer of 100000 digits');
  });
});

describe('structure that no pickler writes', () => {
  it.each([
    ['it stops with 2 values instead of one', pickle(0x4e, 0x4e, 0x2e)],
    ['it stops with 0 values instead of one', pickle(0x2e)],
    ['it ends a container that was never begun', pickle(0x75, 0x2e)],
    ['it fills a container where there is none', pickle(0x28, 0x4e, 0x65, 0x2e)],
    ['it fills a container where there is none', pickle(0x4e, 0x61, 0x2e)],
    ['a dict has a key without a value', pickle(0x7d, 0x28, 0x4e, 0x75, 0x2e)],
    ['a dict has a key without a value', pickle(0x28, 0x4e, 0x64, 0x2e)],
    ['a tuple has too few items', pickle(0x4e, 0x86, 0x2e)],
    ['it stores a value where there is none', pickle(0x94, 0x2e)],
    ['it stores a value where there is none', pickle(0x71, 0, 0x2e)],
    ['it drops a value where there is none', pickle(0x30, 0x2e)],
    ['it repeats a value where there is none', pickle(0x32, 0x2e)],
    ['the file appends to None', pickle(0x4e, 0x4e, 0x61, 0x2e)],
    ['the file adds keys to an empty list', pickle(0x5d, 0x4e, 0x4e, 0x73, 0x2e)],
  ])('%s', (expected, bytes) => {
    expect(messageOf(bytes)).toContain(expected);
  });

  it('a row that is filled twice', () => {
    const alloc = [0x7d, 0x28, ...text('action'), ...text('alloc'), ...text('addr'), 0x4b, 1, ...text('size'), 0x4b, 1, 0x75];
    const bytes = pickle(...alloc, 0x28, ...text('size'), 0x4b, 2, 0x75, 0x2e);
    expect(messageOf(bytes)).toContain('adds keys to a trace entry, which no memory snapshot does');
  });

  it('an entry or a block that is listed twice', () => {
    const shared = { action: 'alloc', addr: BASE, size: 1 };
    expect(messageOf(writePickle({ device_traces: [[shared, shared]], segments: [] }))).toContain('lists the same entry more than once');
    const block = { address: BASE, size: 512, state: 'inactive' };
    const segment = (address: number) => ({ address, total_size: 512, blocks: [block] });
    expect(messageOf(writePickle([segment(BASE), segment(BASE + 512)]))).toContain('two segments hold the same block');
  });

  it('lists and dicts that contain themselves', () => {
    const cyclicList = pickle(0x5d, 0x94, 0x4e, 0x61, 0x68, 0, 0x61, 0x2e);
    expect(messageOf(cyclicList)).toContain('not a memory snapshot');
    const cyclicSettings = [0x7d, 0x94, ...text('a'), 0x4b, 1, 0x73, ...text('b'), 0x68, 0, 0x73];
    const segment = [0x7d, 0x28, ...text('address'), 0x4b, 8, ...text('total_size'), 0x4b, 8, 0x75];
    const top = [0x7d, 0x28, ...text('allocator_settings'), ...cyclicSettings, ...text('segments'), 0x5d, ...segment, 0x61, 0x75, 0x2e];
    const { traces } = readRecording(pickle(...top));
    expect(traces[0]!.settings).toEqual(new Map([['a', 1]]));
  });

  it('settings that double with every level', () => {
    let settings: PickleDict = { leaf: 1 };
    for (let level = 0; level < 60; level++) settings = { left: settings, right: settings };
    const segments = [{ address: BASE, total_size: 8 }];
    expect(outcomeOf(writePickle({ segments, allocator_settings: settings }))).toBe('read');
  });

  it('a million levels of nesting', () => {
    for (const opening of [[0x5d], [0x28], [0x7d, 0x4e]]) {
      const bytes = new Uint8Array(1_000_000);
      for (let at = 2; at < bytes.length; at++) bytes[at] = opening[at % opening.length]!;
      bytes.set([0x80, 4]);
      expect(outcomeOf(bytes)).toBe('refused');
    }
    const closed = new Uint8Array(1_000_000).fill(0x5d);
    closed.set([0x80, 4]);
    closed.fill(0x61, 500_001, 999_999);
    closed[999_999] = 0x2e;
    expect(messageOf(closed)).toContain('not a memory snapshot');
    expect(messageOf(json('['.repeat(1_000_000)))).toContain('truncated');
    expect(messageOf(json('{"a":'.repeat(200_000)))).toContain('truncated');
    expect(messageOf(json(`${'['.repeat(500_000)}${']'.repeat(500_000)}`))).toContain('not a memory snapshot');
  });

  it('a call stack that grows by one frame after every use', () => {
    const frame = [0x7d, 0x94, 0x28, ...text('name'), ...text('f'), ...text('filename'), ...text('x'), ...text('line'), 0x4b, 1, 0x75];
    const growing = [0x5d, 0x94, 0x68, 0, 0x61, 0x68, 0, 0x61];
    const use = [
      0x7d,
      0x28,
      ...text('action'),
      ...text('alloc'),
      ...text('addr'),
      0x4b,
      1,
      ...text('size'),
      0x4b,
      1,
      ...text('frames'),
      0x68,
      1,
      0x75,
      0x30,
    ];
    expect(messageOf(pickle(...frame, ...growing, ...use, 0x68, 0, 0x61, 0x2e))).toContain(
      'appends to a list, which no memory snapshot does',
    );
  });

  it('hundreds of thousands of appends to one call stack', () => {
    const frame = [
      0x80,
      4,
      0x7d,
      0x94,
      0x28,
      ...text('name'),
      ...text('f'),
      ...text('filename'),
      ...text('x'),
      ...text('line'),
      0x4b,
      1,
      0x75,
      0x5d,
    ];
    const bytes = new Uint8Array(frame.length + 900_000);
    bytes.set(frame);
    for (let at = frame.length; at < bytes.length; at += 3) bytes.set([0x68, 0, 0x61], at);
    const began = performance.now();
    expect(messageOf(bytes)).toContain('truncated');
    expect(performance.now() - began).toBeLessThan(2000);
  });

  it('more pairs of numbers than there can be pools', () => {
    const pairs = Array.from({ length: 70_000 }, (_, index) => `[${index},1]`);
    const snapshot = { segments: [{ address: BASE, total_size: 8, blocks: [] }] };
    expect(outcomeOf(json(`{"pairs": [${pairs.join(',')}], ${JSON.stringify(snapshot).slice(1)}`))).toBe('read');
  });

  it('a million strings that differ', () => {
    const parts = Array.from({ length: 200_000 }, (_, index) => `"${index.toString(36)}"`);
    expect(messageOf(json(`[1,${parts.join(',')}]`))).toContain('not a memory snapshot');
  });
});

describe('values of the wrong kind name the field', () => {
  it.each([
    ["a number -1 for 'size'", withEntry({ size: -1 })],
    ["a number 1.5 for 'size'", withEntry({ size: 1.5 })],
    ["a huge number for 'size'", withEntry({ size: 2n ** 70n })],
    ["text for 'size'", withEntry({ size: '1' })],
    ["None for 'addr'", withEntry({ addr: null })],
    ["a number 0.5 for 'addr'", withEntry({ addr: 0.5 })],
    ['does not fit 64 bits', withEntry({ addr: 2n ** 64n })],
    ["a list of stack frames for 'stream'", withEntry({ stream: [{ name: 'a', filename: 'b', line: 1 }] })],
    ["text for 'time_us'", withEntry({ time_us: 'now' })],
    ["a list of text for 'frames'", withEntry({ frames: ['a'] })],
    ["a list for 'frames'", withEntry({ frames: [1, null] })],
    ["None for 'pool_id'", withEntry({ pool_id: null })],
    ["a pair of numbers for 'pool_id'", withEntry({ pool_id: new Tuple(0.5, 1) })],
    ["a number 5 for 'action'", withEntry({ action: 5 })],
    ["nothing for 'size'", { device_traces: [[{ action: 'alloc', addr: 1 }]] }],
    ["nothing for 'addr'", { device_traces: [[{ action: 'free_completed', size: 1 }]] }],
    ["None for 'address'", withSegment({ address: null })],
    ["a number -5 for 'total_size'", withSegment({ total_size: -5 })],
    ["None for 'blocks'", withSegment({ blocks: null })],
    ["text for 'state'", withSegment({ blocks: [{ size: 8, state: 'sleeping' }] })],
    ['a segment holds a number where a block is expected', withSegment({ blocks: [1, 2, 3] })],
    ['overlap or lie outside of it', withSegment({ blocks: [{ size: 2048, state: 'inactive' }] })],
    ['two segments overlap', { segments: [1, 2].map(() => ({ address: BASE, total_size: 512 })) }],
    ["'segments' is text instead of a list", { segments: 'none' }],
    ["'segments' holds None", { segments: [null] }],
    ["'device_traces' is text", { device_traces: 'none' }],
    ['the trace of GPU 1 is None', { device_traces: [[], null] }],
    ['the trace of GPU 0 holds None', { device_traces: [[null]] }],
  ] as [string, PickleValue][])('%s', (expected, value) => {
    expect(messageOf(writePickle(value))).toContain(expected);
  });
});

describe('files that hold something else', () => {
  it.each([
    ["the file holds a dict with the keys 'model', 'epoch', not a memory snapshot", { model: 1, epoch: 2 }],
    ['the file holds a list that begins with a number', [1, 2, 3]],
    ['the file holds a list of text', ['a', 'b']],
    ['the file holds a number', 7],
    ['the file holds text', 'hello'],
    ['the file holds a stack frame', { name: 'a', filename: 'b', line: 1 }],
    ['the file holds an empty dict', {}],
    ['the snapshot is empty: call torch.cuda.memory._record_memory_history()', { segments: [], device_traces: [[], []] }],
    ['the snapshot is empty', []],
  ] as [string, PickleValue][])('%s', (expected, value) => {
    expect(messageOf(writePickle(value))).toContain(expected);
    expect(messageOf(writePickle(value, { protocol: 2 }))).toContain(expected);
  });

  it.each([
    ['an invalid escape', '{"a\\q": 1}'],
    ['a comma or a closing bracket is missing', '{"a": 1 "b"}'],
    ['brackets do not match', '{"a": [1}'],
    ['a key is missing', '{1: 2}'],
    ['a colon is missing', '{"a" 1}'],
    ['a value is missing', '{"a": maybe}'],
    ['there is data after the end', '{"segments": []} x'],
    ['a number is malformed', '[1.2.3]'],
    ['a value is missing', '[-x]'],
  ])('JSON: %s', (expected, value) => {
    expect(messageOf(json(value))).toContain(expected);
  });
});

describe('noise', () => {
  const real = readSample('exact/s1.pickle');
  const realJson = json(
    `{"segments": [{"address": ${BASE}, "total_size": 512, "stream": 0, "blocks": [{"size": 512, "state": "inactive"}], "is_expandable": true}], "device_traces": [[{"action": "alloc", "addr": ${BASE}, "size": 12, "user_metadata": "a\\n\\u00e9", "time_us": 1.5e3, "pool_id": [0, 0], "frames": [{"name": "f", "filename": "x", "line": 3}]}]], "frac": -0.5e-1}`,
  );

  it('every truncation is refused as such', () => {
    for (let length = 0; length < real.length; length++) {
      const message = messageOf(real.subarray(0, length));
      expect(message).toMatch(length === 0 ? /empty/ : /truncated/);
    }
    expect(outcomeOf(realJson)).toBe('read');
    for (let length = 1; length < realJson.length; length++)
      expect(messageOf(realJson.subarray(0, length))).toMatch(/truncated|digits|malformed|no value/);
  });

  it('flipped bits are read or refused', () => {
    for (const original of [real, realJson]) {
      fc.assert(
        fc.property(fc.array(fc.nat({ max: original.length * 8 - 1 }), { minLength: 1, maxLength: 8 }), (flips) => {
          const bytes = Uint8Array.from(original);
          for (const flip of flips) bytes[flip >> 3]! ^= 1 << (flip & 7);
          outcomeOf(bytes);
        }),
        { numRuns: 3000 },
      );
    }
  });

  it('opcode soup is read or refused', () => {
    const opcodes = [...'(0.1NKMJG}]t)lduaesqrhjXBC2'].map((character) => character.charCodeAt(0));
    opcodes.push(0x80, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8a, 0x8b, 0x8c, 0x8d, 0x8e, 0x94, 0x95, 0x96);
    const words = [
      'action',
      'alloc',
      'addr',
      'size',
      'frames',
      'segments',
      'device_traces',
      'blocks',
      'name',
      'filename',
      'line',
      'state',
      'history',
      'total_size',
    ];
    const piece = fc.oneof(
      fc.constantFrom(...opcodes).map((opcode) => [opcode]),
      fc.constantFrom(...words).map(text),
      fc.constantFrom([0x4b, 1], [0x28], [0x7d, 0x94], [0x5d, 0x94], [0x94], [0x68, 0], [0x68, 1], [0x75], [0x65]),
      fc.nat({ max: 255 }).map((byte) => [byte]),
    );
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 120 }), (pieces) => {
        outcomeOf(pickle(...pieces.flat(), 0x2e));
      }),
      { numRuns: 5000 },
    );
  });
});
