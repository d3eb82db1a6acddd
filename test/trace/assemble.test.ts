// What a recording lacks is rebuilt if possible. Otherwise a warning names it.
import { describe, expect, it } from 'vitest';
import { readRecording } from '../../src/trace/detect.ts';
import { summarizeTrace } from '../../src/trace/summary.ts';
import type { Trace } from '../../src/trace/trace.ts';
import { writePickle } from '../support/pickle-writer.ts';
import { sampleTrace } from '../support/traces.ts';

const MIB = 2 ** 20;
const BASE = 2 ** 40;

type Entry = [action: string, address: number, size: number];

function traceOf(entries: readonly Entry[], segments: readonly unknown[] = [], settings: Record<string, unknown> = {}): Trace {
  const device_traces = [entries.map(([action, addr, size], index) => ({ action, addr, size, stream: 0, time_us: index }))];
  return readRecording(writePickle({ segments, device_traces, allocator_settings: settings } as never)).traces[0]!;
}

function segment(address: number, mib: number, live: readonly [offset: number, bytes: number][]): unknown {
  const blocks: unknown[] = [];
  let at = 0;
  for (const [offset, bytes] of live) {
    if (offset > at) blocks.push({ address: address + at, size: offset - at, requested_size: 0, state: 'inactive' });
    blocks.push({ address: address + offset, size: bytes, requested_size: bytes - 8, state: 'active_allocated' });
    at = offset + bytes;
  }
  if (at < mib * MIB) blocks.push({ address: address + at, size: mib * MIB - at, requested_size: 0, state: 'inactive' });
  return { device: 0, address, total_size: mib * MIB, stream: 0, segment_type: 'large', blocks };
}

const codes = (trace: Trace) => trace.warnings.map((warning) => warning.code);

describe('a complete recording', () => {
  it('links every allocation to its free and has nothing to warn of', () => {
    const trace = traceOf(
      [
        ['segment_alloc', BASE, 20 * MIB],
        ['alloc', BASE, 4 * MIB],
        ['free_requested', BASE, 4 * MIB],
        ['free_completed', BASE, 4 * MIB],
        ['alloc', BASE, 6 * MIB],
      ],
      [segment(BASE, 20, [[0, 6 * MIB]])],
    );
    expect(codes(trace)).toEqual([]);
    expect(trace.allocations).toMatchObject({ count: 2, liveAtStart: 0 });
    expect([...trace.allocationOf]).toEqual([-1, 0, 0, 0, 1]);
    expect([...trace.allocations.freeCompletedEvent]).toEqual([3, -1]);
    expect(summarizeTrace(trace)).toMatchObject({ peakRequested: 6 * MIB, recordedPeakReserved: 20 * MIB, liveAtStart: 0 });
  });
});

describe('a recording that began late', () => {
  it('counts what is freed without having been allocated, and what is live and never touched, as live at the start', () => {
    const trace = traceOf(
      [
        ['free_requested', BASE, 1000],
        ['free_completed', BASE, 1000],
        ['free_completed', BASE + MIB, 2000],
        ['segment_free', 2 * BASE, 30 * MIB],
      ],
      [segment(BASE, 20, [[8 * MIB, 4096]])],
    );
    expect(codes(trace)).toEqual(['late-start']);
    expect(trace.allocations.liveAtStart).toBe(3);
    expect([...trace.allocations.requested]).toEqual([1000, 2000, 4088]);
    expect(trace.startSegments.map(({ address, size }) => [address, size])).toEqual([
      [BASE, 20 * MIB],
      [2 * BASE, 30 * MIB],
    ]);
    expect(summarizeTrace(trace)).toMatchObject({ liveAtStart: 1024 + 2048 + 4096, recordedPeakReserved: 50 * MIB });
  });

  it('says so when PyTorch knows that its buffer overflowed', () => {
    const trace = traceOf([['alloc', BASE, 1000]], [segment(BASE, 20, [[0, 1024]])], {
      trace_alloc_overflowed: true,
      trace_alloc_max_entries: 5000,
    });
    expect(trace.warnings[0]).toMatchObject({ code: 'overflow', message: expect.stringContaining('at 5000 entries') });
  });
});

describe('a recording with actions left out', () => {
  it('without frees: each is assumed when its address is reused', () => {
    const trace = traceOf([
      ['segment_alloc', BASE, 20 * MIB],
      ['alloc', BASE, 2 * MIB],
      ['alloc', BASE, 3 * MIB],
      ['alloc', BASE, 4 * MIB],
    ]);
    expect(codes(trace)).toEqual(['frees-skipped']);
    expect([...trace.impliedFrees]).toEqual([
      [2, 0],
      [3, 1],
    ]);
    expect(summarizeTrace(trace).peakRequested).toBe(4 * MIB);
  });

  it('with a few frees missing', () => {
    const trace = traceOf([
      ['segment_alloc', BASE, 20 * MIB],
      ['alloc', BASE, 2 * MIB],
      ['alloc', BASE, 3 * MIB],
      ['free_requested', BASE, 3 * MIB],
      ['free_completed', BASE, 3 * MIB],
    ]);
    expect(codes(trace)).toEqual(['missing-frees']);
  });

  it('without completions: every free completes at once', () => {
    const trace = sampleTrace('exact/skip.pkl.gz');
    expect(codes(trace)).toEqual(['completions-skipped']);
    expect([...trace.allocations.freeCompletedEvent]).toEqual([...trace.allocations.freeRequestedEvent]);
  });

  it('without segments: reserved memory is unknown', () => {
    const trace = traceOf([
      ['alloc', BASE, 1000],
      ['free_requested', BASE, 1000],
      ['free_completed', BASE, 1000],
    ]);
    expect(codes(trace)).toEqual(['segments-skipped']);
    expect(summarizeTrace(trace).recordedPeakReserved).toBeUndefined();
  });
});

describe('contradictions', () => {
  it('are left out and counted', () => {
    const trace = traceOf([
      ['segment_alloc', BASE, 20 * MIB],
      ['alloc', BASE, 1000],
      ['free_requested', BASE, 1000],
      ['free_requested', BASE, 1000],
      ['free_completed', BASE, 1000],
      ['free_completed', BASE, 1000],
      ['free_requested', BASE, 1000],
    ]);
    expect(trace.warnings).toEqual([{ code: 'contradictions', message: expect.stringContaining('3 events contradict') }]);
    expect(summarizeTrace(trace).peakRequested).toBe(1000);
  });

  it('of absurd size are refused, not walked through', () => {
    expect(() => traceOf([['segment_map', BASE, 2 ** 50]])).toThrow(/larger than any GPU/);
  });
});
