// Recordings that were changed after the fact: the reconstruction must notice each kind of difference.
import { describe, expect, it } from 'vitest';
import { reconstruct } from '../../src/replay/reconstruct.ts';
import type { Reconstruction } from '../../src/replay/reconstruction.ts';
import { analyzeTrace } from '../../src/report/analysis.ts';
import { assembleTrace } from '../../src/trace/assemble.ts';
import { EventStore } from '../../src/trace/event-store.ts';
import { EventKind, type Trace } from '../../src/trace/trace.ts';
import { sampleTrace } from '../support/traces.ts';

interface Row {
  kind: EventKind;
  address: number;
  size: number;
  timeUs: number;
  stream: number;
  pool: number;
}

/** The same recording with other events. */
function forge(name: string, change: (rows: Row[]) => void): Trace {
  const trace = sampleTrace(name);
  const { events } = trace;
  const rows = Array.from({ length: events.count }, (_, event) => ({
    kind: events.kind[event]! as EventKind,
    address: events.address[event]!,
    size: events.size[event]!,
    timeUs: events.timeUs[event]!,
    stream: events.stream[event]!,
    pool: events.pool[event]!,
  }));
  change(rows);
  const store = new EventStore();
  for (const { kind, address, size, timeUs, stream, pool } of rows) store.append(kind, address, size, timeUs, stream, pool, -1, 0);
  const { device, endSegments, streams, pools, symbols, settings, limits } = trace;
  const parts = { device, endSegments, streams, pools, symbols, settings, limits };
  return assembleTrace({ ...parts, events: store.view(), startSegments: undefined, annotations: [], warnings: [] });
}

function differencesOf(name: string, change: (rows: Row[]) => void): Reconstruction['differences'] {
  return reconstruct(forge(name, change)).differences;
}

/** The nth event of a kind. */
function nth(rows: readonly Row[], kind: EventKind, n: number): number {
  let seen = 0;
  const found = rows.findIndex((row) => row.kind === kind && seen++ === n);
  if (found < 0) throw new Error(`there is no event ${n} of kind ${kind}`);
  return found;
}

const NATIVE = 'vgg16-b100.native.pickle.gz';
const EXPANDABLE = 'vgg16-b100.expandable.pickle.gz';
/** Ran with a memory fraction: 11 retries, 3 failures. */
const LIMITED = 'exact/frac.pkl.gz';

describe('an unchanged recording', () => {
  it.each([NATIVE, EXPANDABLE, LIMITED])('%s has no differences, also when it is put together anew', (name) => {
    expect(differencesOf(name, () => {})).toMatchObject({ addresses: 0, segments: 0, outcomes: 0, firstEvent: -1 });
  });
});

describe('a moved address', () => {
  it.each([NATIVE, EXPANDABLE, LIMITED])('in %s is one difference, at its event', (name) => {
    let moved = -1;
    const differences = differencesOf(name, (rows) => {
      moved = nth(rows, EventKind.Alloc, 100);
      const { address } = rows[moved]!;
      const isEnd = (row: Row) => row.kind === EventKind.FreeRequested || row.kind === EventKind.FreeCompleted;
      rows[moved]!.address += 512;
      // Its frees move along, so that only the place is wrong.
      for (
        let event = moved + 1;
        event < rows.length && !(rows[event]!.kind === EventKind.Alloc && rows[event]!.address === address);
        event++
      )
        if (isEnd(rows[event]!) && rows[event]!.address === address) rows[event]!.address += 512;
    });
    expect(differences).toMatchObject({ addresses: 1, segments: 0, outcomes: 0, firstEvent: moved });
  });
});

describe('segments', () => {
  it('one that is missing is noticed, and what lay in it', () => {
    const { segments, addresses, firstEvent } = differencesOf(NATIVE, (rows) => rows.splice(nth(rows, EventKind.SegmentAlloc, 5), 1));
    expect(segments).toBeGreaterThanOrEqual(1);
    expect(addresses).toBeGreaterThanOrEqual(1);
    expect(firstEvent).toBeGreaterThan(0);
  });

  it('one that is too many is one difference', () => {
    let extra = -1;
    const differences = differencesOf(NATIVE, (rows) => {
      extra = nth(rows, EventKind.Alloc, 200);
      rows.splice(extra, 0, { ...rows[extra]!, kind: EventKind.SegmentAlloc, address: 2 ** 44, size: 2 ** 21 });
    });
    expect(differences).toMatchObject({ segments: 1, outcomes: 0, firstEvent: extra });
  });

  it('one of another size is noticed', () => {
    let changed = -1;
    const { segments, firstEvent } = differencesOf(NATIVE, (rows) => {
      changed = nth(rows, EventKind.SegmentAlloc, 5);
      rows[changed]!.size += 2 ** 21;
    });
    expect(segments).toBeGreaterThanOrEqual(1);
    expect(firstEvent).toBe(changed);
  });

  it('pages that are mapped elsewhere, or not at all, are noticed', () => {
    const moved = differencesOf(EXPANDABLE, (rows) => {
      rows[nth(rows, EventKind.SegmentMap, 10)]!.address += 20 * 2 ** 20;
    });
    expect(moved.segments).toBeGreaterThanOrEqual(1);
    const missing = differencesOf(EXPANDABLE, (rows) => rows.splice(nth(rows, EventKind.SegmentMap, 10), 1));
    expect(missing.segments).toBeGreaterThanOrEqual(1);
  });

  it('a release that the allocator would not have made is noticed', () => {
    const { segments } = differencesOf(LIMITED, (rows) => {
      rows[nth(rows, EventKind.SegmentFree, 3)]!.size += 2 ** 21;
    });
    expect(segments).toBeGreaterThanOrEqual(1);
  });
});

/** A change of single values, after the recording was put together. */
function tamper(name: string, change: (events: { kind: Uint8Array; address: Float64Array; size: Float64Array }) => number) {
  const trace = sampleTrace(name);
  const { kind, address, size } = trace.events;
  const columns = { kind: kind.slice(), address: address.slice(), size: size.slice() };
  const event = change(columns);
  return { event, differences: reconstruct({ ...trace, events: { ...trace.events, ...columns } }).differences };
}

describe('a single value of a segment event', () => {
  const nthOf = (kinds: Uint8Array, kind: EventKind, n: number) => {
    let seen = 0;
    return kinds.findIndex((value) => value === kind && seen++ === n);
  };

  it.each([
    ['the address of a release', LIMITED, EventKind.SegmentFree, 'address'],
    ['the size of a release', LIMITED, EventKind.SegmentFree, 'size'],
    ['the address of pages', 'exact/exp.pkl.gz', EventKind.SegmentUnmap, 'address'],
    ['the size of pages', 'exact/exp.pkl.gz', EventKind.SegmentUnmap, 'size'],
    ['the address of an empty_cache()', 'exact/def.pkl.gz', EventKind.SegmentFree, 'address'],
  ] as const)('%s', (_, name, kind, column) => {
    const { differences } = tamper(name, (events) => {
      const event = nthOf(events.kind, kind, 0);
      events[column][event]! += 2 ** 21;
      return event;
    });
    expect(differences).toMatchObject({ segments: 1, outcomes: 0 });
  });

  it('its kind', () => {
    const { differences, event } = tamper(LIMITED, ({ kind }) => {
      const at = nthOf(kind, EventKind.SegmentFree, 0);
      kind[at] = EventKind.SegmentUnmap;
      return at;
    });
    expect(differences).toMatchObject({ segments: 1, outcomes: 0 });
    expect(differences.firstEvent).toBeLessThanOrEqual(event);
  });
});

describe('swapped events', () => {
  const swap = (rows: Row[], a: number, b: number) => {
    [rows[a], rows[b]] = [rows[b]!, rows[a]!];
  };

  it('a request before the segment that it needed is noticed', () => {
    let segment = -1;
    const { segments, firstEvent } = differencesOf(NATIVE, (rows) => {
      segment = nth(rows, EventKind.SegmentAlloc, 8);
      swap(rows, segment, segment + 1);
    });
    expect(segments).toBeGreaterThanOrEqual(1);
    expect(firstEvent).toBe(segment);
  });

  it('two requests in the wrong order are noticed', () => {
    let first = -1;
    const { addresses, segments, firstEvent } = differencesOf(NATIVE, (rows) => {
      first = nth(rows, EventKind.SegmentAlloc, 8) + 1;
      const second = rows.findIndex((row, event) => event > first && row.kind === EventKind.Alloc && row.size !== rows[first]!.size);
      swap(rows, first, second);
    });
    expect(addresses + segments).toBeGreaterThanOrEqual(2);
    expect(firstEvent).toBeGreaterThanOrEqual(first - 1);
  });
});

describe('outcomes', () => {
  it('a request that failed and is said to have been served', () => {
    let served = -1;
    const differences = differencesOf(LIMITED, (rows) => {
      served = nth(rows, EventKind.Oom, 0);
      rows[served]!.kind = EventKind.Alloc;
      rows[served]!.address = 2 ** 44;
    });
    expect(differences.outcomes).toBe(1);
    expect(differences.firstEvent).toBe(served);
  });

  it('a request that was served and is said to have failed', () => {
    let failed = -1;
    const { outcomes, firstEvent } = differencesOf(LIMITED, (rows) => {
      failed = rows.findIndex((row, event) => event > 300 && row.kind === EventKind.Alloc && row.size > 2 ** 20);
      const { address } = rows[failed]!;
      rows[failed] = { ...rows[failed]!, kind: EventKind.Oom, address: 0 };
      const end = rows.findIndex((row, event) => event > failed && row.kind === EventKind.FreeRequested && row.address === address);
      rows.splice(end, 2);
    });
    expect(outcomes).toBeGreaterThanOrEqual(1);
    expect(firstEvent).toBe(failed);
  });
});

describe('weir analyze', () => {
  it('never counts more events that differ than were compared', () => {
    const trace = forge(NATIVE, (rows) => {
      const requests = rows.filter(({ kind }) => kind === EventKind.Alloc);
      requests.forEach((row, index) => {
        row.address = 2 ** 40 + index * 2 ** 32;
      });
      rows.splice(0, rows.length, ...requests);
    });
    const { replayError } = analyzeTrace(trace, { allocators: [], findSmallest: false });
    expect(replayError.differing).toBeGreaterThan(10);
    expect(replayError.differing).toBeLessThanOrEqual(replayError.compared);
  });

  it('shows the replay error of a forged recording', () => {
    const trace = forge(NATIVE, (rows) => {
      rows[nth(rows, EventKind.SegmentAlloc, 5)]!.address += 2 ** 30;
      rows[nth(rows, EventKind.SegmentAlloc, 9)]!.size += 2 ** 21;
    });
    const { replayError } = analyzeTrace(trace, { allocators: [], findSmallest: false });
    const { addresses, segments, outcomes } = reconstruct(trace).differences;
    expect(replayError.differing).toBe(addresses + segments + outcomes);
    expect(replayError.differing).toBeGreaterThan(1);
    expect(replayError.firstEvent).toBeGreaterThan(0);
  });
});
