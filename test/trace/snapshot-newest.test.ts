// The keys that PyTorch's snapshots gained up to 2.14: they are used, survive conversion, and cannot do harm.
import { describe, expect, it } from 'vitest';
import { formatConf, settingsFromRecording } from '../../src/allocator/pytorch/settings.ts';
import { reconstruct } from '../../src/replay/reconstruct.ts';
import { analyzeTrace } from '../../src/report/analysis.ts';
import { analysisJson } from '../../src/report/json.ts';
import { formatAnalysis } from '../../src/report/terminal/analysis.ts';
import { readRecording } from '../../src/trace/detect.ts';
import { Notes } from '../../src/trace/notes.ts';
import { writeSnapshotJson } from '../../src/trace/snapshot-json.ts';
import type { Recording, Trace } from '../../src/trace/trace.ts';
import { writeWeir } from '../../src/trace/weir/writer.ts';
import { GpuView } from '../../src/view/gpu-view.ts';
import {
  block,
  DEFAULT_SEGMENT,
  entry,
  GRAPH_SEGMENT,
  HOST_BLOCK,
  HOSTILE_NOTE,
  hostSegment,
  newestSnapshot,
} from '../support/newest-snapshot.ts';
import { type PickleDict, type PickleValue, Tuple, writePickle } from '../support/pickle-writer.ts';

const MIB = 2 ** 20;

const read = (snapshot: PickleValue): Recording => readRecording(writePickle(snapshot));
const traceOf = (snapshot: PickleValue): Trace => read(snapshot).traces[0]!;
const codesOf = (trace: Trace): string[] => trace.warnings.map(({ code }) => code);

/** The entries of the GPU, changed. */
function withEntries(change: (entries: readonly PickleDict[]) => PickleDict[]): PickleDict {
  const snapshot = newestSnapshot();
  return { ...snapshot, device_traces: [change((snapshot['device_traces'] as PickleDict[][])[0]!)] };
}

function withoutKey(name: string): PickleDict {
  return withEntries((entries) => entries.map((old) => Object.fromEntries(Object.entries(old).filter(([key]) => key !== name))));
}

describe('pool ids', () => {
  it('let events of a private pool replay in that pool', () => {
    const { differences } = reconstruct(traceOf(newestSnapshot()));
    expect(differences.addresses + differences.segments + differences.outcomes).toBe(0);
    expect(differences.compared).toBeGreaterThan(3);
  });

  it('without them, a pool that is gone at the end cannot be known', () => {
    const { differences } = reconstruct(traceOf(withoutKey('pool_id')));
    expect(differences.addresses + differences.segments + differences.outcomes).toBeGreaterThan(0);
  });

  /** A pool takes 20 MiB and is given up, again and again, as a MemPool of a function does. Another segment stays cached. */
  function withTransientPools(times: number, releasesCache: boolean): PickleDict {
    const cached = DEFAULT_SEGMENT + 2 ** 32;
    return withEntries((entries) => [
      ...entries.slice(0, 2),
      entry('segment_alloc', cached, 30 * MIB),
      entry('alloc', cached, 30 * MIB),
      entry('free_requested', cached, 30 * MIB),
      entry('free_completed', cached, 30 * MIB),
      ...Array.from({ length: times }, (_, time) => {
        const pool = new Tuple(0, time + 1);
        return [
          entry('segment_alloc', GRAPH_SEGMENT, 20 * MIB, pool),
          entry('alloc', GRAPH_SEGMENT, 8 * MIB, pool),
          entry('free_requested', GRAPH_SEGMENT, 8 * MIB, pool),
          entry('free_completed', GRAPH_SEGMENT, 8 * MIB, pool),
          ...(releasesCache && time === times - 1 ? [entry('segment_free', cached, 30 * MIB)] : []),
          entry('segment_free', GRAPH_SEGMENT, 20 * MIB, pool),
        ];
      }).flat(),
      // What is free in the default pool is used again, unless it was given back.
      ...(releasesCache ? [] : [entry('alloc', cached, 30 * MIB)]),
    ]);
  }

  it.each([false, true])('a pool that ends is given back, and the cache only with empty_cache(): %s', (releasesCache) => {
    const { differences, emptyCacheBefore, peakReserved } = reconstruct(traceOf(withTransientPools(3, releasesCache)));
    expect(differences.addresses + differences.segments + differences.outcomes).toBe(0);
    expect(emptyCacheBefore.length).toBe(releasesCache ? 1 : 0);
    expect(peakReserved).toBe(70 * MIB);
  });

  it('pools that ended do not add up in other allocators', () => {
    const { whatIf } = analyzeTrace(traceOf(withTransientPools(50, false)), { findSmallest: false });
    const peaks = new Map(whatIf.map(({ allocator, unlimited }) => [allocator, unlimited.peakReserved]));
    expect(peaks.get('pytorch')).toBe(70 * MIB);
    for (const name of ['expandable', 'weir']) expect(peaks.get(name)).toBeLessThanOrEqual(70 * MIB);
  });

  it('a pool that ends right before empty_cache() is given back first', () => {
    const pool = new Tuple(0, 1);
    const [first, ...rest] = (withTransientPools(1, true)['device_traces'] as PickleDict[][])[0]!.reverse();
    const [second, ...before] = rest;
    expect([first!['pool_id'], second!['action']]).toEqual([pool, 'segment_free']);
    const trace = traceOf({ ...newestSnapshot(), device_traces: [[...before.reverse(), first!, second!]] });
    const { differences, emptyCacheBefore } = reconstruct(trace);
    expect(differences.addresses + differences.segments + differences.outcomes).toBe(0);
    expect(emptyCacheBefore.length).toBe(1);
  });

  /** On a full GPU, a private pool needs what the default pool has cached. */
  function withPoolInNeed(pool: Tuple, torch: string): Trace {
    const cached = DEFAULT_SEGMENT + 2 ** 32;
    const trace = traceOf({
      ...withEntries((entries) => [
        ...entries.slice(0, 2),
        entry('segment_alloc', cached, 30 * MIB),
        entry('alloc', cached, 30 * MIB),
        entry('free_requested', cached, 30 * MIB),
        entry('free_completed', cached, 30 * MIB),
        entry('segment_free', cached, 30 * MIB),
        entry('segment_alloc', GRAPH_SEGMENT, 20 * MIB, pool),
        entry('alloc', GRAPH_SEGMENT, 8 * MIB, pool),
      ]),
      total: 100 * MIB,
      frac: 0.6,
    });
    return { ...trace, settings: new Map([...trace.settings, ['torch', torch]]) };
  }

  it('a MemPool in need gets the cache of the default pool since 2.13', () => {
    const { differences, retries, emptyCacheBefore } = reconstruct(withPoolInNeed(new Tuple(0, 1), '2.13.0'));
    expect(differences.addresses + differences.segments + differences.outcomes).toBe(0);
    expect({ retries, emptyCacheBefore }).toEqual({ retries: 1, emptyCacheBefore: [] });
  });

  it.each([
    ['a MemPool', new Tuple(0, 1), '2.12.0'],
    ['a capture', new Tuple(1, 0), '2.13.0'],
  ])('%s in need gets nothing, so the program has called empty_cache()', (_, pool, torch) => {
    const { differences, retries, emptyCacheBefore } = reconstruct(withPoolInNeed(pool, torch));
    expect(differences.addresses + differences.segments + differences.outcomes).toBe(0);
    expect({ retries, calls: emptyCacheBefore.length }).toEqual({ retries: 0, calls: 1 });
  });

  it('a pool that gives its own blocks back for a request has not ended', () => {
    const pool = new Tuple(0, 1);
    const [old, small] = [GRAPH_SEGMENT + 2 ** 30, GRAPH_SEGMENT + 2 ** 31];
    const taken = (address: number, size: number) => [entry('segment_alloc', address, size, pool), entry('alloc', address, size, pool)];
    const freed = (address: number, size: number) => ['free_requested', 'free_completed'].map((kind) => entry(kind, address, size, pool));
    const trace = traceOf({
      ...withEntries((entries) => [
        ...entries.slice(0, 2),
        ...taken(small, 12 * MIB),
        ...freed(small, 12 * MIB),
        ...taken(old, 60 * MIB),
        ...freed(old, 60 * MIB),
        entry('segment_free', old, 60 * MIB, pool),
        ...taken(GRAPH_SEGMENT, 30 * MIB),
        // This block was not given back.
        entry('alloc', small, 12 * MIB, pool),
      ]),
      allocator_settings: { max_split_size: 20 * MIB, expandable_segments: false },
      total: 200 * MIB,
      frac: 0.5,
    });
    const { differences, emptyCacheBefore, retries } = reconstruct(trace);
    expect(differences.addresses + differences.segments + differences.outcomes).toBe(0);
    expect({ emptyCacheBefore, retries }).toEqual({ emptyCacheBefore: [], retries: 0 });
  });

  it('free memory of the default pool is not said to be in private pools', () => {
    const analysis = analyzeTrace(traceOf(withTransientPools(1, false)), { allocators: [], findSmallest: false });
    expect(analysis.peak).toMatchObject({ otherPools: 42 * MIB, privateReserved: 20 * MIB, privateRequested: 8 * MIB });
    expect(formatAnalysis(analysis, 'x')).toMatch(/ 42 MiB .* free, but in other pools than the request's/);
  });

  it('show how much private pools hold at the peak', () => {
    const analysis = analyzeTrace(traceOf(newestSnapshot()), { allocators: [], findSmallest: false });
    expect(analysis.peak).toMatchObject({ reserved: 40 * MIB, privateReserved: 20 * MIB, privateRequested: 8 * MIB });
    expect(formatAnalysis(analysis, 'x')).toContain('Private pools (CUDA graphs, MemPool) held 20 MiB of it, 8 MiB in use.');
  });
});

describe('texts that a program gives to its memory', () => {
  it('are user metadata and annotations, in this order', () => {
    const notes = new Notes(traceOf(newestSnapshot()));
    expect(notes.of(0)).toEqual(['weights', HOSTILE_NOTE]);
    expect(notes.of(1)).toEqual([]);
  });

  it('belong to memory that is older than the recording too', () => {
    const trace = traceOf(withEntries((entries) => entries.slice(2)));
    expect(trace.allocations.liveAtStart).toBe(1);
    expect(trace.allocations.requested[0]).toBe(8 * MIB);
    expect(new Notes(trace).of(0)).toEqual([HOSTILE_NOTE]);
  });

  it('belong to the allocation that is live, not to the one before at its address', () => {
    const trace = traceOf(
      withEntries((entries) => [
        ...entries,
        entry('free_requested', DEFAULT_SEGMENT, 8 * MIB),
        entry('free_completed', DEFAULT_SEGMENT, 8 * MIB),
        entry('alloc', DEFAULT_SEGMENT, 4 * MIB),
        entry('annotate', DEFAULT_SEGMENT, 4 * MIB, new Tuple(0, 0), { user_metadata: 'second' }),
        entry('annotate', DEFAULT_SEGMENT, 4 * MIB, new Tuple(0, 0), { user_metadata: 'second' }),
      ]),
    );
    const notes = new Notes(trace);
    expect(notes.of(2)).toEqual(['second']);
    expect(notes.of(0)).toEqual(['weights', HOSTILE_NOTE]);
    expect(codesOf(trace)).not.toContain('unknown-actions');
  });

  it('stand beside the call site in the report, and no terminal obeys them', () => {
    const analysis = analyzeTrace(traceOf(newestSnapshot()), { allocators: [], findSmallest: false });
    const text = formatAnalysis(analysis, 'x');
    expect(text).toContain('me/model.py:12 forward [weights, </script><img src=x onerror=alert(1)>\\u001b[2J]');
    expect(text).not.toContain('\u001b');
    const { sites } = analysisJson(analysis, 'x') as { sites: { notes?: string[] }[] };
    expect(sites.map(({ notes }) => notes)).toEqual([['weights', HOSTILE_NOTE], undefined]);
  });

  it('are shown with a block on the page', () => {
    const view = new GpuView(traceOf(newestSnapshot()));
    expect(view.block('recorded', 0)!.notes).toEqual(['weights', HOSTILE_NOTE]);
    const state = view.moment({ run: 'recorded', axis: 'event', position: 2 });
    expect(state.rows[0]!.notes).toEqual(['weights', HOSTILE_NOTE]);
    expect(state.what).toBe('annotation of 8 MiB');
  });

  it('are cut, and only a few are kept', () => {
    const many = Array.from({ length: 50 }, (_, index) =>
      entry('annotate', DEFAULT_SEGMENT, 8 * MIB, new Tuple(0, 0), { user_metadata: `${index} ${'x'.repeat(10_000)}` }),
    );
    const notes = new Notes(traceOf(withEntries((entries) => [...entries, ...many]))).of(0);
    expect(notes.length).toBeLessThan(10);
    expect(Math.max(...notes.map((note) => note.length))).toBeLessThan(200);
  });
});

describe('pinned host memory', () => {
  const expected = { events: 11, peakHeld: 20 * MIB, usedAtPeak: 16 * MIB, heldAtEnd: 12 * MIB, usedAtEnd: 8 * MIB };

  it('is summed up, in the terminal and in JSON', () => {
    const trace = traceOf(newestSnapshot());
    expect(trace.hostMemory).toEqual(expected);
    const analysis = analyzeTrace(trace, { allocators: [], findSmallest: false });
    expect(formatAnalysis(analysis, 'x')).toContain(
      'Pinned host memory: peak 20 MiB (16 MiB in use), at the end 12 MiB (8 MiB in use). These are sizes after rounding up; the requests are not recorded.',
    );
    expect(analysisJson(analysis, 'x')['hostMemory']).toEqual({ ...expected, roundingAtEnd: null });
  });

  it('has its rounding, if the requests are recorded', () => {
    const host_segments = [hostSegment(HOST_BLOCK, 8 * MIB, 'active_allocated', 5 * MIB)];
    const trace = traceOf({ ...newestSnapshot(), host_segments });
    expect(trace.hostMemory?.roundingAtEnd).toBe(3 * MIB);
    const analysis = analyzeTrace(trace, { allocators: [], findSmallest: false });
    expect(formatAnalysis(analysis, 'x')).toContain('Rounding at the end: 3 MiB.');
  });

  it('of a ring buffer that overflowed is known from the end', () => {
    const snapshot = newestSnapshot();
    const host_traces = (snapshot['host_traces'] as PickleDict[]).slice(8);
    expect(traceOf({ ...snapshot, host_traces }).hostMemory).toEqual({ ...expected, events: 3 });
  });

  it('without segments begins with nothing', () => {
    const { host_segments: _, ...snapshot } = newestSnapshot();
    expect(traceOf(snapshot).hostMemory).toMatchObject({ peakHeld: 20 * MIB, heldAtEnd: 12 * MIB, usedAtEnd: 8 * MIB });
  });

  it('that was not recorded is not mentioned', () => {
    const trace = traceOf({ ...newestSnapshot(), host_segments: [], host_traces: [] });
    expect(trace.hostMemory).toBeUndefined();
    const analysis = analyzeTrace(trace, { allocators: [], findSmallest: false });
    expect(formatAnalysis(analysis, 'x')).not.toContain('Pinned');
    expect(analysisJson(analysis, 'x')['hostMemory']).toBeNull();
  });

  it('alone is no recording of a GPU, and the message says why', () => {
    const alone = { ...newestSnapshot(), segments: [], device_traces: [[]] };
    expect(() => read(alone)).toThrow(/pinned host memory only \(20 MiB at its peak\).*record_cuda=False/);
    const { message } = traceOf({ ...newestSnapshot(), device_traces: [[]] }).warnings.find(({ code }) => code === 'no-history')!;
    expect(message).toContain('record_cuda=False');
  });
});

describe('forward frames', () => {
  it('stand behind the frames of the backward pass, outermost last', () => {
    const { symbols, events } = traceOf(newestSnapshot());
    const frames = [...symbols.framesOf(events.stack[4]!)].map(({ name, filename, line }) => `${filename}:${line} ${name}`);
    expect(frames).toEqual([
      '/x/site-packages/torch/optim/adam.py:3 step',
      ':0 (forward pass)',
      '/home/me/model.py:7 attention',
      '/home/me/train.py:40 main',
    ]);
  });

  it('are the same however the list is written', () => {
    const framesOf = (trace: Trace) => [...trace.symbols.framesOf(trace.events.stack[4]!)];
    const whole = framesOf(traceOf(newestSnapshot()));
    const single = readRecording(writePickle(newestSnapshot(), { batch: 1 }));
    expect(framesOf(single.traces[0]!)).toEqual(whole);
  });

  it('that are no lines of a traceback are kept as text; other values are ignored', () => {
    const change = (forward_frames: PickleValue) =>
      traceOf(withEntries((entries) => entries.map((old) => ('forward_frames' in old ? { ...old, forward_frames } : old))));
    const names = (trace: Trace) => [...trace.symbols.framesOf(trace.events.stack[4]!)].map(({ name }) => name);
    expect(names(change(['somewhere']))).toEqual(['step', '(forward pass)', 'somewhere']);
    for (const wrong of [null, 7, 'text', [], [1, 2, 3], [['a']], {}]) expect(names(change(wrong))).toEqual(['step']);
  });

  it('that are too many for a stack cost nothing, wherever the list is', () => {
    const lines = Array.from({ length: 5000 }, (_, line) => `line ${line}`);
    const { symbols } = traceOf({ ...withEntries((entries) => entries.map((old) => ({ ...old, forward_frames: lines }))), log: lines });
    expect(symbols.strings.length).toBeLessThan(30);
    expect([...symbols.framesOf(symbols.stacks.count - 1)].some(({ name }) => name === '(forward pass)')).toBe(false);
  });

  it('behind a very deep stack are left out, since every pair of stacks is stored', () => {
    const frames = Array.from({ length: 2000 }, (_, line) => ({ name: 'f', filename: 'a.py', line }));
    const entries = Array.from({ length: 3000 }, (_, index) =>
      entry('alloc', DEFAULT_SEGMENT + 512 * index, 512, new Tuple(0, 0), { frames, forward_frames: [`x${index}`] }),
    );
    const { symbols } = traceOf({ device_traces: [entries], segments: [] });
    expect(symbols.stacks.count).toBeLessThan(10_000);
  });
});

describe('settings of new versions', () => {
  it('do not keep the others from being read', () => {
    const conf = 'large_segment_size_mb:32,pinned_free_catch_all:True,some_setting_of_2031:7,max_split_size_mb:200';
    const trace = traceOf({ ...newestSnapshot(), allocator_settings: { PYTORCH_CUDA_ALLOC_CONF: conf } });
    expect(formatConf(settingsFromRecording(trace.settings))).toBe('max_split_size_mb:200,large_segment_size_mb:32');
  });
});

describe('conversion', () => {
  const facts = (trace: Trace) => ({
    kinds: [...trace.events.kind.subarray(0, trace.events.count)],
    pools: [...trace.events.pool.subarray(0, trace.events.count)].map((pool) => trace.pools[pool]),
    notes: new Notes(trace).of(0),
    stack: [...trace.symbols.framesOf(trace.events.stack[4]!)],
    hostMemory: trace.hostMemory,
    codes: codesOf(trace),
  });

  it('to .weir and to JSON keeps pools, texts, frames and host memory', () => {
    const recording = read(newestSnapshot());
    const chunks: Uint8Array[] = [];
    writeWeir(recording, (chunk) => chunks.push(chunk));
    expect(facts(readRecording(Buffer.concat(chunks)).traces[0]!)).toEqual(facts(recording.traces[0]!));
    let text = '';
    writeSnapshotJson(recording, (part) => {
      text += part;
    });
    expect(facts(readRecording(new TextEncoder().encode(text)).traces[0]!)).toEqual(facts(recording.traces[0]!));
  });
});

describe('hostile forms', () => {
  const host = (host_segments: PickleValue, host_traces: PickleValue = []) => traceOf({ ...newestSnapshot(), host_segments, host_traces });

  it.each<[string, PickleValue, PickleValue]>([
    ['a text', 'x', []],
    ['a number', 7, []],
    ['a dict', { a: 1 }, []],
    ['a list of numbers', [1, 2, 3], []],
    ['a list of events', [entry('alloc', 1, 1)], []],
    ['traces that are a dict', [], { a: 1 }],
    ['traces that are lists by GPU', [], [[entry('alloc', 1, 1)]]],
    ['traces that hold segments', [], [hostSegment(4096, 512, 'inactive')]],
    ['blocks beyond their segment', [{ ...hostSegment(4096, 512, 'inactive'), blocks: [block(4096, 4096, 'inactive')] }], []],
  ])('%s as host memory costs only that part, with a warning', (_, segments, traces) => {
    const trace = host(segments, traces);
    expect(trace.hostMemory).toBeUndefined();
    expect(codesOf(trace)).toContain('host-memory');
    expect(trace.events.count).toBe(8);
  });

  it('the same entries cannot be listed for a GPU and the host', () => {
    const snapshot = newestSnapshot();
    const [entries] = snapshot['device_traces'] as PickleDict[][];
    const trace = traceOf({ ...snapshot, host_traces: entries! });
    expect(codesOf(trace)).toContain('host-memory');
    expect(trace.hostMemory).toBeUndefined();
  });

  it('memory of the host is no segment of a GPU', () => {
    expect(() => traceOf({ ...newestSnapshot(), segments: [hostSegment(4096, 512, 'inactive')] })).toThrow(/pinned host memory/);
    expect(() => traceOf({ ...newestSnapshot(), segments: [{ ...hostSegment(4096, 512, 'inactive'), device: -2 }] })).toThrow(/device/);
  });

  it('frees that nothing allocated do not make memory negative', () => {
    const trace = host([], [entry('segment_free', 4096, 2 ** 40), entry('free_completed', 4096, 2 ** 40), entry('segment_alloc', 1, 5)]);
    for (const figure of Object.values(trace.hostMemory!)) expect(figure).toBeGreaterThanOrEqual(0);
  });

  it.each<[string, PickleDict]>([
    ['a pool that is text', { pool_id: 'x' }],
    ['a pool of three', { pool_id: new Tuple(1, 2, 3) }],
    ['a pool that is nothing', { pool_id: null }],
    ['a pool of fractions', { pool_id: new Tuple(0.5, 1) }],
  ])('%s is refused', (_, more) => {
    expect(() => traceOf(withEntries((entries) => [...entries, entry('alloc', GRAPH_SEGMENT, 1, undefined, more)]))).toThrow(/pool_id/);
  });

  it('metadata that is no text is none, and annotations of nothing are ignored', () => {
    const trace = traceOf(
      withEntries((entries) => [
        ...entries,
        entry('annotate', DEFAULT_SEGMENT, 8 * MIB, undefined, { user_metadata: 7 }),
        entry('annotate', DEFAULT_SEGMENT, 8 * MIB, undefined, { user_metadata: { a: 1 } }),
        { action: 'annotate', addr: 4096, user_metadata: 'nothing there' },
        { action: 'annotate', addr: GRAPH_SEGMENT, user_metadata: 'freed' },
      ]),
    );
    expect(trace.allocations.count).toBe(2);
    expect(new Notes(trace).of(0)).toEqual(['weights', HOSTILE_NOTE]);
    expect(new Notes(trace).of(1)).toEqual([]);
  });
});
