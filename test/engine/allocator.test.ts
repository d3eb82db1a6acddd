// The engine behind the allocator interface: its statistics and explanations, and that it uses all memory there is.
import { describe, expect, test } from 'vitest';
import type { EngineSettings } from '../../src/abi/settings.ts';
import { type Allocator, OUT_OF_MEMORY } from '../../src/allocator/allocator.ts';
import { createGmlake, createWeir } from '../../src/allocator/engine/allocator.ts';
import { SimulatedBackend } from '../../src/backend/simulated.ts';
import { GIB, MIB } from '../../src/base/bytes.ts';
import { UsageError } from '../../src/base/errors.ts';
import { replay } from '../../src/replay/replay.ts';
import { summarizeTrace } from '../../src/trace/summary.ts';
import { EventKind, type Trace } from '../../src/trace/trace.ts';
import { sampleTrace } from '../support/traces.ts';

function end(allocator: Allocator, ...blocks: number[]): void {
  for (const block of blocks) {
    allocator.free(block);
    allocator.complete(block);
  }
}

test('a value that a setting cannot have is a mistake of whoever wrote it', () => {
  const settings = { forgetNeed: 2 } as unknown as Partial<EngineSettings>;
  expect(() => createWeir({ backend: new SimulatedBackend(), streams: [0] }, settings)).toThrow(UsageError);
});

test('after emptyCache() no more is held than is needed from then on', () => {
  const peakAfter = (forgetNeed: 0 | 1) => {
    const allocator = createWeir({ backend: new SimulatedBackend(), streams: [0] }, { forgetNeed });
    end(allocator, ...Array.from({ length: 80 }, () => allocator.malloc(24 * MIB, 0, 0)));
    allocator.emptyCache();
    const blocks = Array.from({ length: 20 }, () => allocator.malloc(24 * MIB, 0, 0));
    end(allocator, ...blocks.filter((_, index) => index % 2 === 0));
    const larger = Array.from({ length: 4 }, () => allocator.malloc(56 * MIB, 0, 0));
    allocator.check();
    end(allocator, ...larger, ...blocks.filter((_, index) => index % 2 === 1));
    return allocator.reservedBytes / (20 * 24 * MIB);
  };
  // Free pieces are stitched; before, there was room to grow.
  expect(peakAfter(1)).toBeLessThan(1.05);
  expect(peakAfter(0)).toBeGreaterThan(1.4);
});

describe.each([
  ['weir', createWeir],
  ['gmlake', createGmlake],
])('%s', (_, create) => {
  test('fills the backend to the last handle', () => {
    const backend = new SimulatedBackend({ capacity: GIB });
    const allocator = create({ backend, streams: [0] });
    let served = 0;
    while (allocator.malloc(6 * MIB, 0, 0) !== OUT_OF_MEMORY) served++;
    expect(served).toBe(Math.floor(1024 / 6));
    expect(allocator.ooms).toBe(1);
    allocator.check();
  });

  test('counts what is where', () => {
    const allocator = create({ backend: new SimulatedBackend(), streams: [0, 7] });
    const small = allocator.malloc(1000, 0, 0);
    const large = allocator.malloc(5 * MIB + 1, 1, 0);
    const pending = allocator.malloc(2 * MIB, 1, 0);
    allocator.free(pending);
    const census = allocator.census();
    const total = (field: 'reserved' | 'requested' | 'rounding' | 'pending' | 'free') =>
      census.reduce((sum, group) => sum + group[field], 0);
    expect(total('reserved')).toBe(allocator.reservedBytes);
    expect(total('requested')).toBe(1000 + 5 * MIB + 1);
    expect(total('requested') + total('rounding')).toBe(allocator.allocatedBytes);
    expect(total('pending')).toBe(2 * MIB);
    expect(total('reserved')).toBe(total('requested') + total('rounding') + total('pending') + total('free'));
    expect(census.map(({ stream, small: isSmall }) => `${stream} ${isSmall}`).sort()).toEqual(['0 true', '1 false']);
    expect(allocator.snapshot().filter((range) => range.state === 'live')).toHaveLength(2);
    allocator.complete(pending);
    end(allocator, small, large);
    allocator.emptyCache();
    expect(allocator.reservedBytes).toBe(0);
  });

  test('explains a failure', () => {
    const allocator = create({ backend: new SimulatedBackend({ capacity: 100 * MIB }), streams: [0] });
    const blocks = Array.from({ length: 9 }, () => allocator.malloc(10 * MIB, 0, 0));
    end(allocator, blocks[2]!, blocks[5]!);
    expect(allocator.malloc(60 * MIB, 0, 0)).toBe(OUT_OF_MEMORY);
    const { asked, allocated, reserved, free, largestFree, failedCall } = allocator.explain();
    expect({ asked, allocated, failedCall }).toEqual({ asked: 60 * MIB, allocated: 70 * MIB, failedCall: 'create' });
    expect(reserved - allocated).toBe(free);
    expect(largestFree).toBeGreaterThanOrEqual(10 * MIB);
  });

  test('waits for the streams before it gives up', () => {
    const pending: number[] = [];
    const backend = new SimulatedBackend({ capacity: 64 * MIB });
    const allocator = create({ backend, streams: [0], synchronize: () => pending.splice(0) });
    const first = allocator.malloc(40 * MIB, 0, 0);
    allocator.free(first);
    pending.push(first);
    expect(allocator.malloc(50 * MIB, 0, 0)).not.toBe(OUT_OF_MEMORY);
    expect({ ooms: allocator.ooms, retries: allocator.retries }).toEqual({ ooms: 0, retries: 1 });
  });

  test('stays within the bytes the process may use', () => {
    const backend = new SimulatedBackend();
    const allocator = create({ backend, streams: [0], allowedBytes: 64 * MIB });
    expect(allocator.malloc(80 * MIB, 0, 0)).toBe(OUT_OF_MEMORY);
    expect(allocator.malloc(60 * MIB, 0, 0)).not.toBe(OUT_OF_MEMORY);
    expect(backend.usedBytes).toBeLessThanOrEqual(64 * MIB);
  });
});

/** Makes the requests and frees between the last two largest requests again. Blocks that outlive that part end with it. */
function repeatLastStep({ events, allocationOf }: Trace, allocator: Allocator): void {
  const largest = events.size.reduce((most, size) => Math.max(most, size), 0);
  const starts = [...events.size.keys()].filter((event) => events.kind[event] === EventKind.Alloc && events.size[event] === largest);
  const live = new Map<number, number>();
  for (let event = starts.at(-3)!; event < starts.at(-2)!; event++) {
    const allocation = allocationOf[event]!;
    if (events.kind[event] === EventKind.Alloc) live.set(allocation, allocator.malloc(events.size[event]!, 0, 0));
    else if (events.kind[event] === EventKind.FreeCompleted && live.has(allocation)) {
      end(allocator, live.get(allocation)!);
      live.delete(allocation);
    }
  }
  end(allocator, ...live.values());
}

// Targets for memory held, on the two recordings in the repository. `npm run bench:replay` has all recordings.
test.each(['resnet50-b100', 'vgg16-b100'])('weir on %s holds hardly more than is live, and settles', (name) => {
  const trace = sampleTrace(`${name}.native.pickle.gz`);
  const backend = new SimulatedBackend();
  const result = replay(trace, createWeir, { backend, checkEvery: 97 });
  expect(result.peakReserved / summarizeTrace(trace).peakLive).toBeLessThan(1.01);
  // The recordings are of six steps. Further ones need no driver call.
  const { allocator } = result;
  const { timeUs } = backend.ledger;
  for (let step = 0; step < 3; step++) repeatLastStep(trace, allocator);
  expect(backend.ledger.timeUs).toBe(timeUs);
});

test('memory goes back to small requests and comes from them', () => {
  const allocator = createWeir({ backend: new SimulatedBackend(), streams: [0] });
  const small = Array.from({ length: 4096 }, () => allocator.malloc(4096, 0, 0));
  end(allocator, ...small);
  const held = allocator.reservedBytes;
  // A large request takes a slab that small ones have left.
  const large = allocator.malloc(7 * MIB, 0, 0);
  expect(allocator.reservedBytes).toBe(held);
  allocator.check();
  end(allocator, large);
  allocator.check();
});

test('a handle that is free at both ends serves as the last of a stitch where its start is what is needed', () => {
  const allocator = createWeir({ backend: new SimulatedBackend(), streams: [0] }, { fixedHandle: 16 * MIB });
  end(allocator, allocator.malloc(48 * MIB, 0, 0));
  // The second handle is free at both ends, 7 MiB each; the third at its end, 6 MiB.
  const blocks = [16, 7, 2, 7, 10, 6].map((mib) => allocator.malloc(mib * MIB, 0, 0));
  end(allocator, blocks[1]!, blocks[3]!, blocks[5]!);
  expect(allocator.malloc(13 * MIB, 0, 0)).not.toBe(OUT_OF_MEMORY);
  expect(allocator.reservedBytes).toBe(48 * MIB);
  expect(allocator.statistics.stitches).toBe(1);
  allocator.check();
});
