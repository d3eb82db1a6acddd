// Requests of terabytes, which accidental broadcasts make: the cost of a replay does not grow with their size.
import { describe, expect, it } from 'vitest';
import { chooseAllocators } from '../../src/allocator/registry.ts';
import { SimulatedBackend } from '../../src/backend/simulated.ts';
import { GIB, MIB, TIB } from '../../src/base/bytes.ts';
import { reconstruct } from '../../src/replay/reconstruct.ts';
import { type Replayed, replay } from '../../src/replay/replay.ts';
import { smallestGpu, type WhatIfGpu } from '../../src/replay/what-if.ts';
import { EventKind, type Trace } from '../../src/trace/trace.ts';
import { type ForgedEvent, forgeTrace } from '../support/forged.ts';

const TOP = 0x7f00_0000_0000;

/** 20 blocks of 32 MiB, half of them freed; one request of `size`; ten more blocks. */
function broadcast(size: number, kind: EventKind, times = 1): Trace {
  const at = (block: number) => TOP - (block + 1) * 64 * MIB;
  const rows: ForgedEvent[] = [];
  for (let block = 0; block < 20; block++) rows.push({ kind: EventKind.Alloc, address: at(block), size: 32 * MIB });
  for (let block = 0; block < 10; block++) {
    rows.push({ kind: EventKind.FreeRequested, address: at(block), size: 32 * MIB });
    rows.push({ kind: EventKind.FreeCompleted, address: at(block), size: 32 * MIB });
  }
  for (let time = 0; time < times; time++) rows.push({ kind, address: kind === EventKind.Oom ? 0 : 2 ** 46 + time * size, size });
  for (let block = 20; block < 30; block++) rows.push({ kind: EventKind.Alloc, address: at(block), size: 48 * MIB });
  return forgeTrace(rows);
}

function callsOf({ driver }: Replayed): number {
  return Object.values(driver.calls).reduce((sum, calls) => sum + calls, 0);
}

describe.each(['pytorch', 'expandable', 'cnmem', 'gmlake', 'weir'])('%s', (name) => {
  const choice = chooseAllocators(name)[0]!;
  const run = (trace: Trace, capacity?: number) =>
    replay(trace, choice.create, { backend: new SimulatedBackend({ capacity }), deviceBytes: capacity, checkEvery: 1 });

  it.each([16 * TIB, 32 * TIB, 2 ** 50])('serves a request of %d bytes with few driver calls', (size) => {
    for (const kind of [EventKind.Oom, EventKind.Alloc]) {
      const result = run(broadcast(size, kind));
      expect(result.ooms).toBe(0);
      expect(result.peakReserved).toBeGreaterThanOrEqual(size + 320 * MIB);
      expect(result.peakReserved).toBeLessThan(size + 2 * GIB);
      expect(callsOf(result)).toBeLessThan(2000);
    }
  });

  it.each([1, 100])('needs as many driver calls for %d requests of 500 GiB as for ones of 16 TiB', (times) => {
    for (const kind of [EventKind.Oom, EventKind.Alloc]) {
      const calls = [500 * GIB, 900 * GIB, TIB, 16 * TIB].map((size) => callsOf(run(broadcast(size, kind, times))));
      expect(new Set(calls).size, `${calls}`).toBe(1);
    }
  });

  it('serves many large requests that no GPU could hold together', () => {
    const result = run(broadcast(300 * GIB, EventKind.Alloc, 200));
    expect(result.ooms).toBe(0);
    // Twice the memory of the largest GPU, in handles of 2 MiB at most.
    expect(callsOf(result)).toBeLessThan(2_500_000);
  });

  it.each([16 * TIB, 2 ** 50, 2 ** 53, 2 ** 63])(
    'fails a request of %d bytes on a real GPU, and one beyond all addresses anywhere',
    (size) => {
      expect(run(broadcast(size, EventKind.Oom), 80 * GIB).ooms).toBe(1);
      if (size > 2 ** 52) expect(run(broadcast(size, EventKind.Oom)).ooms).toBe(1);
    },
  );

  it('finds the least memory for 32 TiB', () => {
    const trace = broadcast(32 * TIB, EventKind.Oom);
    let calls = 0;
    const fits = ({ capacity }: WhatIfGpu) => {
      const result = run(trace, capacity);
      calls += callsOf(result);
      return result.ooms === 0;
    };
    const smallest = smallestGpu(32 * TIB, 32 * TIB + GIB, fits);
    expect(smallest).toBeGreaterThan(32 * TIB);
    expect(calls).toBeLessThan(20_000);
  });
});

describe('recordings that claim to hold terabytes', () => {
  const segment = {
    address: 2 ** 46,
    size: 2 ** 50,
    stream: 0,
    pool: 0,
    small: false,
    expandable: true,
    requested: 0,
    stack: -1,
    blocks: [],
  };

  it('are reconstructed without a page for each 20 MiB', () => {
    const settings = new Map([['expandable_segments', true]]);
    const rows = [{ kind: EventKind.Alloc, address: 2 ** 46, size: 2 ** 49 }];
    const trace = forgeTrace(rows, { settings, startSegments: [segment], limits: { deviceBytes: 2 ** 52 } });
    const { driver, differences } = reconstruct(trace);
    expect(driver.calls.create).toBeLessThan(1000);
    expect(differences.outcomes).toBe(1);
  });
});

describe('the search for the least memory', () => {
  it('only answers with a size that was tried and fits', () => {
    for (let needed = 0; needed < 200; needed += 7) {
      const tried = new Map<number, boolean>();
      // The bound that is said to suffice (64 MiB) does not.
      const fits = ({ capacity = 0 }: WhatIfGpu) => {
        tried.set(capacity, capacity >= needed * MIB);
        return capacity >= needed * MIB;
      };
      const smallest = smallestGpu(10 * MIB, 64 * MIB, fits)!;
      expect(tried.get(smallest)).toBe(true);
      expect(smallest).toBeLessThanOrEqual(Math.max(10, needed + 2) * MIB);
    }
  });

  it('has no answer if nothing fits', () => {
    expect(smallestGpu(MIB, GIB, () => false)).toBeUndefined();
  });
});
