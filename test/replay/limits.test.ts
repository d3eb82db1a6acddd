// Limits that a recording does not state, read from its failures and retries.
import { describe, expect, it } from 'vitest';
import { settingsFromRecording } from '../../src/allocator/pytorch/settings.ts';
import { findLimits } from '../../src/replay/limits.ts';
import { reconstruct } from '../../src/replay/reconstruct.ts';
import { EventStore } from '../../src/trace/event-store.ts';
import { EventKind, type Trace } from '../../src/trace/trace.ts';
import { sampleTrace } from '../support/traces.ts';

/** The recording as a user's file would be: without the GPU's size and the fraction. */
function withoutLimits(trace: Trace): Trace {
  return { ...trace, limits: {} };
}

describe.each([
  ['exact/frac.pkl.gz', 11],
  ['exact/split.pkl.gz', 20],
  ['exact/exp.pkl.gz', 13],
  ['exact/async.pkl.gz', 23],
  ['exact/rounding.pkl.gz', 20],
])('%s without its limits', (name, retries) => {
  const result = reconstruct(withoutLimits(sampleTrace(name)));

  it('is reproduced all the same, retries told from empty_cache()', () => {
    expect(result.differences).toMatchObject({ addresses: 0, segments: 0, outcomes: 0 });
    expect(result.limits.origin).toBe('inferred');
    expect(result.retries).toBe(retries);
  });

  it('finds the limit to within a segment', () => {
    const allowed = Math.floor(0.05 * 150109880320);
    expect(Math.abs(result.limits.allowedBytes! - allowed)).toBeLessThan(64 * 2 ** 20);
  });
});

describe('a GPU that was really full', () => {
  it('is measured by what the driver said was free', () => {
    const trace = sampleTrace('exact/full.pkl.gz');
    const limits = findLimits(trace, settingsFromRecording(trace.settings));
    // The recording script left 7 GiB free, of which the CUDA context and libraries took some.
    expect(limits.capacity).toBeGreaterThan(6.9 * 2 ** 30);
    expect(limits.capacity).toBeLessThan(7 * 2 ** 30);
  });
});

describe('a recording without failures', () => {
  it('knows no limit', () => {
    expect(reconstruct(sampleTrace('vgg16-b100.native.pickle.gz')).limits).toEqual({
      capacity: undefined,
      allowedBytes: undefined,
      origin: 'unknown',
    });
  });

  it('takes what was given back before a request that much memory was reserved for elsewhere as empty_cache()', () => {
    const MIB = 2 ** 20;
    const store = new EventStore();
    const add = (kind: EventKind, address: number, mib: number) => store.append(kind, address, mib * MIB, 0, 0, 0, -1, 0);
    const base = sampleTrace('vgg16-b100.native.pickle.gz');
    add(EventKind.SegmentAlloc, 0x1000_0000, 40);
    add(EventKind.Alloc, 0x1000_0000, 40);
    add(EventKind.SegmentAlloc, 0x2000_0000, 80);
    add(EventKind.Alloc, 0x2000_0000, 80);
    add(EventKind.FreeRequested, 0x1000_0000, 40);
    add(EventKind.FreeCompleted, 0x1000_0000, 40);
    add(EventKind.FreeRequested, 0x2000_0000, 80);
    add(EventKind.FreeCompleted, 0x2000_0000, 80);
    add(EventKind.SegmentFree, 0x1000_0000, 40);
    add(EventKind.SegmentFree, 0x2000_0000, 80);
    add(EventKind.SegmentAlloc, 0x3000_0000, 30);
    add(EventKind.Alloc, 0x3000_0000, 30);
    const trace: Trace = {
      ...base,
      events: store.view(),
      streams: [0],
      allocationOf: new Int32Array([-1, 0, -1, 1, 0, 0, 1, 1, -1, -1, -1, 2]),
      allocations: {
        count: 3,
        liveAtStart: 0,
        address: new Float64Array([0x1000_0000, 0x2000_0000, 0x3000_0000]),
        requested: new Float64Array([40 * MIB, 80 * MIB, 30 * MIB]),
        stream: new Int32Array(3),
        pool: new Int32Array(3),
        allocEvent: new Int32Array([1, 3, 11]),
        freeRequestedEvent: new Int32Array([4, 6, -1]),
        freeCompletedEvent: new Int32Array([5, 7, -1]),
      },
    };
    const result = reconstruct(trace);
    expect(result.differences).toMatchObject({ addresses: 0, segments: 0, outcomes: 0 });
    expect(result.emptyCacheBefore).toEqual([8]);
    expect(result.retries).toBe(0);
  });
});
