// What every allocator must do, whatever its policy. Each runs through the same suite, on a backend with a limit.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type Allocator, OUT_OF_MEMORY } from '../../src/allocator/allocator.ts';
import { type AllocatorChoice, chooseAllocators } from '../../src/allocator/registry.ts';
import { SimulatedBackend } from '../../src/backend/simulated.ts';
import { InvariantError } from '../../src/base/errors.ts';

const MIB = 2 ** 20;
const CAPACITY = 512 * MIB;

const CHOICES = chooseAllocators(
  [
    'pytorch',
    'expandable',
    'cnmem',
    'cnmem[initial:64MiB]',
    'gmlake',
    'gmlake[minStitch:2MiB]',
    'weir',
    'weir[fixedHandle:16MiB]',
    'pytorch[max_split_size_mb:32]',
    'expandable[max_split_size_mb:32]',
    'pytorch[roundup_power2_divisions:4]',
    'pytorch[per_process_memory_fraction:0.6,garbage_collection_threshold:0.5]',
    'expandable[per_process_memory_fraction:0.6,garbage_collection_threshold:0.5,large_segment_size_mb:32]',
    'pytorch[large_segment_size_mb:64,max_split_size_mb:64,max_non_split_rounding_mb:128]',
  ].join(','),
);

interface World {
  readonly allocator: Allocator;
  readonly backend: SimulatedBackend;
  /** Freed blocks that wait for other streams. */
  readonly pending: number[];
}

function createWorld(choice: AllocatorChoice, capacity: number = CAPACITY): World {
  const backend = new SimulatedBackend({ capacity });
  const pending: number[] = [];
  const allocator = choice.create({ backend, streams: [0, 0x7000, 0x100], deviceBytes: capacity, synchronize: () => pending.splice(0) });
  return { allocator, backend, pending };
}

describe.each(CHOICES.map((choice) => [choice.name, choice] as const))('%s', (_, choice) => {
  it('serves a request with memory of at least that size', () => {
    const { allocator, backend } = createWorld(choice);
    const block = allocator.malloc(3 * MIB + 1, 0, 0);
    expect(allocator.sizeOf(block)).toBeGreaterThan(3 * MIB);
    expect(allocator.allocatedBytes).toBe(allocator.sizeOf(block));
    expect(allocator.reservedBytes).toBeGreaterThanOrEqual(allocator.allocatedBytes);
    expect(backend.usedBytes).toBeGreaterThanOrEqual(allocator.reservedBytes);
  });

  it('uses freed memory again for the same request', () => {
    const { allocator } = createWorld(choice);
    const first = allocator.malloc(30 * MIB, 0, 0);
    const address = allocator.addressOf(first);
    const reserved = allocator.reservedBytes;
    allocator.free(first);
    allocator.complete(first);
    expect(allocator.addressOf(allocator.malloc(30 * MIB, 0, 0))).toBe(address);
    expect(allocator.reservedBytes).toBe(reserved);
  });

  it('does not use memory again while other streams may be using it', () => {
    const { allocator } = createWorld(choice);
    const first = allocator.malloc(30 * MIB, 0, 0);
    const address = allocator.addressOf(first);
    allocator.free(first);
    const second = allocator.malloc(30 * MIB, 0, 0);
    expect(allocator.addressOf(second)).not.toBe(address);
    allocator.complete(first);
    allocator.check();
  });

  it('refuses to free twice, or to complete what is not freed', () => {
    const { allocator } = createWorld(choice);
    const block = allocator.malloc(MIB, 0, 0);
    expect(() => allocator.complete(block)).toThrow(InvariantError);
    allocator.free(block);
    expect(() => allocator.free(block)).toThrow(InvariantError);
    allocator.complete(block);
    allocator.check();
  });

  it('says so when there is no memory, and goes on', () => {
    const { allocator } = createWorld(choice);
    expect(allocator.malloc(CAPACITY + MIB, 0, 0)).toBe(OUT_OF_MEMORY);
    expect(allocator.ooms).toBe(1);
    allocator.check();
    expect(allocator.malloc(10 * MIB, 0, 0)).toBeGreaterThanOrEqual(0);
  });

  it('counts where memory is, to the byte', () => {
    const { allocator } = createWorld(choice);
    const blocks = [100, 700_000, 5 * MIB, 33 * MIB].flatMap((size) => [0, 1].map((stream) => allocator.malloc(size, stream, 0)));
    for (const block of blocks.slice(0, 3)) allocator.free(block);
    allocator.complete(blocks[0]!);
    const sum = (field: 'reserved' | 'requested' | 'rounding' | 'pending' | 'free') =>
      allocator.census().reduce((total, group) => total + group[field], 0);
    expect(sum('reserved')).toBe(allocator.reservedBytes);
    expect(sum('requested') + sum('rounding')).toBe(allocator.allocatedBytes);
    expect(sum('requested') + sum('rounding') + sum('pending') + sum('free')).toBe(allocator.reservedBytes);
  });

  it('never gives out a byte twice, and keeps its books, whatever is asked of it', () => {
    const operation = fc.record({
      kind: fc.constantFrom('malloc', 'malloc', 'malloc', 'free', 'free', 'complete', 'emptyCache'),
      size: fc.oneof(
        fc.integer({ min: 1, max: MIB }),
        fc.integer({ min: MIB, max: 20 * MIB }),
        fc.integer({ min: 20 * MIB, max: 200 * MIB }),
      ),
      stream: fc.constantFrom(0, 1, 2),
      pick: fc.nat(),
    });
    fc.assert(
      fc.property(fc.array(operation, { minLength: 1, maxLength: 120 }), (operations) => {
        const { allocator, backend, pending } = createWorld(choice);
        const live: number[] = [];
        for (const { kind, size, stream, pick } of operations) {
          if (kind === 'malloc') {
            const block = allocator.malloc(size, stream, 0);
            if (block !== OUT_OF_MEMORY) {
              expect(allocator.sizeOf(block)).toBeGreaterThanOrEqual(size);
              live.push(block);
            }
          } else if (kind === 'free' && live.length > 0) {
            const [block] = live.splice(pick % live.length, 1);
            allocator.free(block!);
            pending.push(block!);
          } else if (kind === 'complete' && pending.length > 0) {
            const [block] = pending.splice(pick % pending.length, 1);
            allocator.complete(block!);
          } else if (kind === 'emptyCache') {
            allocator.emptyCache();
          }
          allocator.check();
          expectDisjoint(allocator, [...live, ...pending]);
          expect(backend.usedBytes).toBeLessThanOrEqual(CAPACITY);
        }
        for (const block of live) allocator.free(block);
        for (const block of [...live, ...pending.splice(0)]) allocator.complete(block);
        expect(allocator.allocatedBytes).toBe(0);
        allocator.emptyCache();
        allocator.check();
        if (!choice.name.startsWith('cnmem')) expect(backend.usedBytes).toBe(0);
      }),
      { numRuns: 60 },
    );
  });
});

function expectDisjoint(allocator: Allocator, blocks: readonly number[]): void {
  const ranges = blocks.map((block) => [allocator.addressOf(block), allocator.sizeOf(block)] as const).sort((a, b) => a[0] - b[0]);
  for (let index = 1; index < ranges.length; index++) {
    expect(ranges[index]![0]).toBeGreaterThanOrEqual(ranges[index - 1]![0] + ranges[index - 1]![1]);
  }
}
