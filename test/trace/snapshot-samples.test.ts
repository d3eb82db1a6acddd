// Compares every real snapshot in samples/ with what Python's own pickle reads from it (golden.json, written by
// golden.py).
import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { readRecording } from '../../src/trace/detect.ts';
import type { SettingValue, Trace } from '../../src/trace/trace.ts';
import { readSample } from '../support/samples.ts';

const P = 1000003;
const ACTIONS: Readonly<Record<number, string>> = {
  1: 'alloc',
  2: 'free_requested',
  3: 'free_completed',
  4: 'segment_alloc',
  5: 'segment_free',
  6: 'segment_map',
  7: 'segment_unmap',
  8: 'oom',
  9: 'snapshot',
  19: 'annotate',
};
const STATES = ['live', 'pending', 'free'];

interface Golden {
  readonly traces: readonly Record<string, unknown>[];
  readonly settings: Record<string, unknown>;
  readonly annotations: number;
  readonly firstAnnotation: unknown;
  readonly total: number | null;
  readonly frac: number | null;
}

const golden = JSON.parse(readFileSync(new URL('golden.json', import.meta.url), 'utf8')) as Record<string, Golden>;

it('golden.json covers every sample; if not, run golden.py', () => {
  const samples = new URL('../../samples/', import.meta.url);
  const names = readdirSync(samples, { recursive: true, encoding: 'utf8' }).filter((name) => /\.(pickle|pkl)(\.gz)?$/.test(name));
  expect(names.map((name) => name.replaceAll('\\', '/')).sort()).toEqual(Object.keys(golden).sort());
});

describe.each(Object.entries(golden))('%s', (name, expected) => {
  const recording = readRecording(readSample(name));

  it('holds the events, segments and blocks that Python reads', () => {
    expect(recording.format).toBe('pickle');
    expect(recording.traces.map(summary)).toEqual(expected.traces);
  });

  it('holds the settings, annotations and limits that Python reads', () => {
    const trace = recording.traces[0]!;
    expect(plain(trace.settings)).toEqual(expected.settings);
    expect(trace.annotations.length).toBe(expected.annotations);
    const first = trace.annotations[0];
    expect(first ? [first.stage, first.name, first.device, first.timeUs] : null).toEqual(expected.firstAnnotation);
    expect(trace.limits).toEqual({ deviceBytes: expected.total ?? undefined, memoryFraction: expected.frac ?? undefined });
  });
});

function summary(trace: Trace): Record<string, unknown> {
  const { events, symbols, streams } = trace;
  const counts: Record<string, number> = {};
  const sizes: Record<string, number> = {};
  let checksum = 0;
  let frames = 0;
  let lines = 0;
  for (let row = 0; row < events.count; row++) {
    const action = ACTIONS[events.kind[row]!]!;
    const size = events.size[row]!;
    counts[action] = (counts[action] ?? 0) + 1;
    sizes[action] = (sizes[action] ?? 0) + size;
    const stream = streams[events.stream[row]!]!;
    checksum =
      (checksum * 31 +
        (events.address[row]! % P) +
        3 * (size % P) +
        5 * (events.timeUs[row]! % P) +
        7 * (stream % P) +
        11 * events.kind[row]!) %
      P;
    for (const frame of symbols.framesOf(events.stack[row]!)) {
      frames++;
      lines = (lines * 31 + frame.line) % P;
    }
  }
  const segments = trace.endSegments ?? [];
  const blocks = segments.flatMap((segment) => segment.blocks);
  let layout = 0;
  for (const segment of segments) {
    layout = (layout * 31 + (segment.address % P) + 3 * (segment.size % P) + 5 * (streams[segment.stream]! % P)) % P;
    for (const block of segment.blocks) {
      layout = (layout * 31 + (block.address % P) + 3 * (block.size % P) + 5 * (block.requested % P) + STATES.indexOf(block.state)) % P;
    }
  }
  const states: Record<string, number> = {};
  for (const block of blocks) states[block.state] = (states[block.state] ?? 0) + block.size;
  const poolIds = new Map(segments.map(({ pool }) => [pool, [...trace.pools[pool]!]]));
  return {
    device: trace.device,
    counts,
    sizes,
    checksum,
    frames,
    lines,
    first: event(trace, 0),
    last: event(trace, events.count - 1),
    segments: segments.length,
    reserved: segments.reduce((sum, segment) => sum + segment.size, 0),
    small: segments.filter((segment) => segment.small).length,
    expandable: segments.filter((segment) => segment.expandable).length,
    segmentPools: [...poolIds.values()].sort((a, b) => a[0]! - b[0]! || a[1]! - b[1]!),
    blocks: blocks.length,
    states,
    layout,
    streams: [...streams].sort((a, b) => a - b),
  };
}

function event(trace: Trace, row: number): unknown[] {
  const { events, symbols } = trace;
  const frames = [...symbols.framesOf(events.stack[row]!)].map(({ name, filename, line }) => [name, filename, line]);
  return [
    ACTIONS[events.kind[row]!],
    events.address[row],
    events.size[row],
    trace.streams[events.stream[row]!],
    events.timeUs[row],
    symbols.strings[events.metadata[row]!],
    frames,
  ];
}

function plain(settings: ReadonlyMap<string, SettingValue>): Record<string, unknown> {
  return Object.fromEntries([...settings].map(([name, value]) => [name, value instanceof Map ? plain(value) : value]));
}
