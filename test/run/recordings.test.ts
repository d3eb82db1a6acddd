// Recordings made through a ring are as good as those made otherwise: PyTorch's are reproduced event by event, and those of
// the real engine, in C, open like any other.
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { afterAll, describe, expect, it } from 'vitest';
import { type AllocatorChoice, chooseAllocators } from '../../src/allocator/registry.ts';
import { SimulatedBackend } from '../../src/backend/simulated.ts';
import { reconstruct } from '../../src/replay/reconstruct.ts';
import { replay } from '../../src/replay/replay.ts';
import { analyzeTrace } from '../../src/report/analysis.ts';
import { formatAnalysis } from '../../src/report/terminal/analysis.ts';
import { limitsOf } from '../../src/run/rings/process-recording.ts';
import { Recorder } from '../../src/run/rings/recorder.ts';
import type { Gauges } from '../../src/run/rings/ring-layout.ts';
import { TraceFile } from '../../src/run/rings/trace-file.ts';
import { summarizeTrace } from '../../src/trace/summary.ts';
import { EventKind, type SettingValue, type Trace } from '../../src/trace/trace.ts';
import { readWeir } from '../../src/trace/weir/reader.ts';
import { watchRecorded } from '../../src/view/history.ts';
import { buildStandin, runStandin, whyNoNative } from '../native/build.ts';
import { ROOT } from '../support/command.ts';
import { sampleTrace } from '../support/traces.ts';
import { RingWriter } from './ring-writer.ts';

const folder = mkdtempSync(join(tmpdir(), 'weir-recordings-'));
afterAll(() => rmSync(folder, { recursive: true }));

async function recordFrom(ringFolder: string, settings: ReadonlyMap<string, SettingValue> = new Map()): Promise<Trace[]> {
  const out = mkdtempSync(join(folder, 'out-'));
  const recorder = new Recorder({
    folder: ringFolder,
    fileFor: ({ pid }) => new TraceFile(join(out, `${pid}.weir`), false),
    recordingFor: () => ({ meta: {}, settings, mostEvents: Number.POSITIVE_INFINITY, whatIfEvents: 1 }),
    onTrouble: (sentence) => expect(sentence).toBe(''),
  });
  await recorder.finish();
  return readdirSync(out).flatMap((name) => readWeir(readFileSync(join(out, name))).traces);
}

describe('a recording under PyTorch', () => {
  // Recorded from their first allocation on, as weir record does.
  const whole = readdirSync(new URL('samples/exact/', ROOT))
    .map((name) => `exact/${name}`)
    .filter((name) => sampleTrace(name).startSegments.length === 0 && sampleTrace(name).warnings.length === 0);

  it.each(whole)('of %s is reproduced without a difference', async (name) => {
    const original = sampleTrace(name);
    const { events } = original;
    const rings = mkdtempSync(join(folder, 'rings-'));
    const isExpandable = original.settings.get('expandable_segments') === true;
    const torch = name.includes('newest') ? '2.14.1' : '2.11.0';
    const ring = new RingWriter(rings, { capacity: 1 << 20, allocator: isExpandable ? 'expandable' : 'pytorch', torch });
    const { deviceBytes = 0, memoryFraction = 1 } = original.limits;
    ring.gauges(0, { total: deviceBytes, limit: memoryFraction < 1 ? Math.floor(deviceBytes * memoryFraction) : 0 });
    original.streams.forEach((handle, index) => {
      ring.stream(0, index, handle);
    });
    original.pools.forEach((pool, index) => {
      ring.pool(0, index, pool);
    });
    for (let event = 0; event < events.count; event++)
      ring.put({
        kind: events.kind[event]!,
        address: events.address[event]!,
        size: events.size[event]!,
        stream: events.stream[event]!,
        pool: events.pool[event]!,
        time: events.timeUs[event]!,
      });
    ring.close();
    const [trace] = await recordFrom(rings, original.settings);
    expect(trace!.events.count).toBe(events.count);
    expect(trace!.warnings).toEqual([]);
    const before = reconstruct(original);
    const { differences, peakReserved, retries, ooms } = reconstruct(trace!);
    expect(differences).toMatchObject({ addresses: 0, segments: 0, outcomes: 0 });
    expect([peakReserved, retries, ooms]).toEqual([before.peakReserved, before.retries, before.ooms]);
  });

  it('needs no guess where empty_cache() was called, whether the call stands before what it gave back or after', async () => {
    for (const isBefore of [true, false]) {
      const rings = mkdtempSync(join(folder, 'rings-'));
      const ring = new RingWriter(rings, { allocator: 'pytorch' });
      ring.gauges(0, { total: 2 ** 37 });
      ring.stream(0, 0, 0);
      ring.pool(0, 0, [0, 0]);
      const block = { address: 0x7f00_0000_0000, size: 20 * 2 ** 20 };
      const put = (kind: number, more = block) => ring.put({ kind, ...more });
      put(EventKind.SegmentAlloc);
      put(EventKind.Alloc);
      put(EventKind.FreeRequested);
      put(EventKind.FreeCompleted);
      if (isBefore) put(EventKind.EmptyCache, { address: 0, size: 0 });
      put(EventKind.SegmentFree);
      if (!isBefore) put(EventKind.EmptyCache, { address: 0, size: 0 });
      put(EventKind.SegmentAlloc);
      put(EventKind.Alloc);
      ring.close();
      const [trace] = await recordFrom(rings);
      const { differences, emptyCacheBefore } = reconstruct(trace!);
      expect([differences, emptyCacheBefore]).toEqual([{ addresses: 0, segments: 0, outcomes: 0, compared: 5, firstEvent: -1 }, []]);
    }
  });

  it('is tried on several samples', () => expect(whole.length).toBeGreaterThan(10));
});

describe('two runs of one training script on an H200, PyTorch 2.11', () => {
  // A small model with batches of changing size, recorded by `weir run --record` and by `weir record`.
  const read = (name: string) => readWeir(gunzipSync(readFileSync(new URL(`test/run/${name}.weir.gz`, ROOT)))).traces[0]!;
  const peakOf = (trace: Trace, choice: AllocatorChoice) => replay(trace, choice.create, { backend: new SimulatedBackend() }).peakReserved;

  it('the run on Weir tells to the byte what PyTorch really took, and the other way round', () => {
    const onWeir = read('h200-weir');
    const onPyTorch = read('h200-pytorch');
    expect([onWeir.warnings, onPyTorch.warnings]).toEqual([[], []]);
    expect(summarizeTrace(onWeir)).toMatchObject({ recordedAllocator: 'weir', recordedPeakReserved: 822083584, peakLive: 791208960 });
    expect(summarizeTrace(onPyTorch)).toMatchObject({
      recordedAllocator: 'pytorch',
      recordedPeakReserved: 1356857344,
      peakLive: 791208960,
    });
    // As it was set when the run was recorded.
    const [pytorch, weir] = chooseAllocators('pytorch,weir[waitShare:1311,forgetNeed:0,smallLimit:1048576]');
    expect([peakOf(onWeir, pytorch!), peakOf(onPyTorch, weir!)]).toEqual([1356857344, 822083584]);
    expect(reconstruct(onPyTorch)).toMatchObject({ differences: { addresses: 0, segments: 0, outcomes: 0 }, emptyCacheBefore: [] });
  });
});

describe('limits of a GPU', () => {
  it('are kept to the byte', () => {
    for (const limit of [40 * 2 ** 30, 40 * 2 ** 30 + 1, 12345678901, 1]) {
      const total = 150_754_820_096;
      const { memoryFraction } = limitsOf({ total, limit } as Gauges);
      expect(Math.floor(memoryFraction! * total)).toBe(limit);
    }
    expect(limitsOf({ total: 2 ** 30, limit: 0 } as Gauges)).toEqual({ deviceBytes: 2 ** 30 });
    expect(limitsOf({ total: 2 ** 30, limit: 2 ** 31 } as Gauges)).toEqual({ deviceBytes: 2 ** 30 });
    expect(limitsOf(undefined)).toEqual({});
  });
});

describe('a recording on the real engine', () => {
  const why = whyNoNative();
  it.skipIf(why !== undefined)('opens in analyze and serve, and says what ran', async () => {
    const rings = mkdtempSync(join(folder, 'rings-'));
    const result = runStandin(buildStandin('none'), { ring: rings, rounds: 2000, threads: 2 });
    const [trace] = await recordFrom(rings);
    expect(trace!.warnings).toEqual([]);
    const analysis = analyzeTrace(trace!, { findSmallest: false });
    expect(analysis.summary).toMatchObject({
      recordedAllocator: 'weir',
      recordedPeakReserved: result.peakReserved,
      peakLive: result.peakLive,
    });
    expect(analysis.whatIf[0]).toMatchObject({ isRecorded: true, allocator: 'weir' });
    expect(formatAnalysis(analysis, 'x')).toContain('The job ran on weir and reserved ');
    const { history } = watchRecorded(trace!);
    expect(history.peakReserved).toBe(result.peakReserved);
  });
});
