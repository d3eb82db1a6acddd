// A recording that goes from one thread to another is the same there, and its columns are not copied.
import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { sharedMemory } from '../../src/base/columns.ts';
import { RecordingReader, readRecording } from '../../src/trace/detect.ts';
import { packRecording, unpackRecording } from '../../src/trace/handover.ts';
import { NO_STACK, type Symbols } from '../../src/trace/symbols.ts';
import type { Recording } from '../../src/trace/trace.ts';
import { writeWeir } from '../../src/trace/weir/writer.ts';
import { readSample } from '../support/samples.ts';

const SAMPLES = ['gpt2xl-oom.pickle.gz', 'vgg16-b100.expandable.pickle.gz'];

function readShared(bytes: Uint8Array): Recording {
  const reader = new RecordingReader(bytes.length, sharedMemory);
  reader.push(bytes);
  return reader.finish();
}

/** What a message does to a recording. */
function sent(recording: Recording): Recording {
  return unpackRecording(structuredClone(packRecording(recording)));
}

/** All of a recording, with a digest for each column. */
function contentOf({ format, traces }: Recording): unknown {
  return { format, traces: traces.map(({ symbols, ...trace }) => digested({ ...trace, symbols: symbolsOf(symbols) })) };
}

function symbolsOf({ strings, frames, stacks, addresses }: Symbols): unknown {
  return {
    strings,
    frames: Int32Array.from({ length: frames.count * 3 }, (_, at) => {
      const frame = Math.floor(at / 3);
      return [frames.name(frame), frames.filename(frame), frames.line(frame)][at % 3]!;
    }),
    stacks: Int32Array.from({ length: stacks.count * 2 }, (_, at) => (at % 2 === 0 ? stacks.parent(at >> 1) : stacks.frame(at >> 1))),
    address: addresses.format(2 ** 48),
  };
}

function digested(value: unknown): unknown {
  if (ArrayBuffer.isView(value)) {
    const bytes = new Uint8Array(value.buffer, value.byteOffset, value.byteLength).slice();
    return `${value.constructor.name} ${createHash('sha1').update(bytes).digest('hex')}`;
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value) || value instanceof Map) return value;
  return Object.fromEntries(Object.entries(value).map(([key, part]) => [key, digested(part)]));
}

describe.each(SAMPLES)('%s', (name) => {
  const pickle = readSample(name);
  const chunks: Uint8Array[] = [];
  writeWeir(readRecording(pickle), (chunk) => chunks.push(chunk.slice()));
  const asWeir = Buffer.concat(chunks);

  it.each([
    ['pickle', pickle],
    ['.weir', asWeir],
  ])('is the same in shared memory and in another thread, as %s', (_, bytes) => {
    const own = readRecording(bytes);
    const shared = readShared(bytes);
    expect(contentOf(shared)).toEqual(contentOf(own));
    expect(contentOf(sent(shared))).toEqual(contentOf(own));
    expect(contentOf(sent(own))).toEqual(contentOf(own));
  });

  it('shares all columns that have a row for each event or allocation', () => {
    const recording = readShared(pickle);
    const [here] = recording.traces;
    const [there] = sent(recording).traces;
    const columns = [
      ...Object.keys(here!.events).map((key) => [here!.events, there!.events, key] as const),
      ...Object.keys(here!.allocations).map((key) => [here!.allocations, there!.allocations, key] as const),
      [here!, there!, 'allocationOf'] as const,
    ].flatMap(([mine, theirs, key]) => {
      const column = mine[key as keyof typeof mine] as unknown;
      return ArrayBuffer.isView(column) ? [{ key, column, other: theirs[key as keyof typeof theirs] as unknown as typeof column }] : [];
    });
    expect(columns.length).toBeGreaterThan(15);
    for (const { key, column, other } of columns) {
      const before = new Uint8Array(column.buffer)[column.byteOffset]!;
      new Uint8Array(column.buffer)[column.byteOffset] = before ^ 1;
      expect([key, new Uint8Array(other.buffer)[other.byteOffset]]).toEqual([key, before ^ 1]);
    }
  });

  it('can learn more symbols there, without those of here changing', () => {
    const recording = readRecording(pickle);
    const [here] = recording.traces;
    const [there] = sent(recording).traces;
    const { strings, frames, stacks } = here!.symbols;
    const known = [strings.length, frames.count, stacks.count];
    const added = there!.symbols.stacks.push(NO_STACK, there!.symbols.frames.intern(there!.symbols.internString('new'), 0, 1));
    expect(added).toBe(known[2]);
    expect(there!.symbols.internString(strings[1]!)).toBe(1);
    for (let stack = 0; stack < stacks.count; stack++)
      expect(there!.symbols.stacks.push(stacks.parent(stack), stacks.frame(stack))).toBe(stack);
    expect([...there!.symbols.framesOf(added)][0]).toEqual({ name: 'new', filename: '', line: 1 });
    expect([strings.length, frames.count, stacks.count]).toEqual(known);
  });
});
