// The pool for other programs, on simulated memory and on real memory of this machine.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { chooseAllocators } from '../../src/allocator/registry.ts';
import { CudaBackend } from '../../src/backend/cuda.ts';
import { HostBackend } from '../../src/backend/host.ts';
import { InputError, InvariantError, UsageError } from '../../src/base/errors.ts';
import { createPool, OutOfMemoryError } from '../../src/pool/pool.ts';
import { VerifyingAllocator } from '../../src/replay/verifying-allocator.ts';

const MIB = 2 ** 20;
const onLinux = process.platform === 'linux';

describe.each(['sim', ...(onLinux ? ['host' as const] : [])] as const)('a pool on %s', (backend) => {
  it.each(['weir', 'gmlake', 'pytorch', 'expandable', 'cnmem'])('of %s gives out memory and takes it back', (allocator) => {
    const pool = createPool({ backend, allocator, capacity: 256 * MIB });
    const first = pool.malloc(10 * MIB);
    const second = pool.malloc(1000, 1);
    expect(first.size).toBeGreaterThanOrEqual(10 * MIB);
    expect(pool.stats()).toMatchObject({ allocated: first.size + second.size, ooms: 0 });
    pool.free(first);
    expect(pool.stats().allocated).toBe(second.size);
    pool.check();
    pool.close();
  });

  it('joins free pieces for a request that fits none of them', () => {
    const pool = createPool({ backend, capacity: 128 * MIB });
    const pieces = Array.from({ length: 8 }, () => pool.malloc(16 * MIB));
    for (const index of [1, 3, 5, 7]) pool.free(pieces[index]!);
    const large = pool.malloc(60 * MIB);
    expect(pool.stats().reserved).toBeLessThanOrEqual(128 * MIB);
    if (pool.memory) {
      pool.memory.fill(pieces[0]!.address, 16 * MIB, 1);
      pool.memory.fill(large.address, large.size, 2);
      expect(pool.memory.readWord(pieces[0]!.address)).toBe(1);
      expect(pool.memory.readWord(large.address + large.size - 4)).toBe(2);
    }
    pool.close();
  });

  it('explains why it is out of memory, and goes on', () => {
    const pool = createPool({ backend, capacity: 64 * MIB });
    const held = pool.malloc(40 * MIB);
    expect(() => pool.malloc(40 * MIB)).toThrow(OutOfMemoryError);
    expect(() => pool.malloc(40 * MIB)).toThrow(/40 MiB requested, 40 MiB in use, .* free some memory first/);
    pool.free(held);
    expect(pool.malloc(40 * MIB).size).toBeGreaterThanOrEqual(40 * MIB);
    pool.close();
  });

  it('refuses what makes no sense', () => {
    const pool = createPool({ backend, capacity: 64 * MIB });
    const other = createPool({ backend, capacity: 64 * MIB });
    const allocation = pool.malloc(1000);
    expect(() => other.free(allocation)).toThrow(UsageError);
    pool.free(allocation);
    expect(() => pool.free(allocation)).toThrow(UsageError);
    expect(() => pool.malloc(0)).toThrow(UsageError);
    expect(() => pool.malloc(1.5)).toThrow(UsageError);
    expect(() => pool.malloc(10, 99)).toThrow(UsageError);
    pool.close();
    other.close();
    expect(() => pool.malloc(1000)).toThrow('closed');
    expect(() => createPool({ backend, allocator: 'weir,pytorch' })).toThrow(UsageError);
  });
});

describe.skipIf(!onLinux).each(['weir', 'weir[fixedHandle:4MiB]', 'gmlake[minStitch:2MiB]', 'expandable'])('%s on real memory', (name) => {
  it('keeps every byte of every live block, whatever is stitched, freed and stitched again', () => {
    const [choice] = chooseAllocators(name);
    const operation = fc.record({
      free: fc.boolean(),
      mib: fc.integer({ min: 1, max: 24 }),
      odd: fc.nat(500_000),
      stream: fc.nat(1),
      pick: fc.nat(),
    });
    fc.assert(
      fc.property(fc.array(operation, { minLength: 20, maxLength: 80 }), (operations) => {
        const backend = new HostBackend({ capacity: 96 * MIB });
        const allocator = new VerifyingAllocator(choice!.create({ backend, streams: [0, 1], deviceBytes: 96 * MIB }), backend, 4096);
        const live: number[] = [];
        for (const { free, mib, odd, stream, pick } of operations) {
          if (free && live.length > 0) {
            const [block] = live.splice(pick % live.length, 1);
            allocator.free(block!);
            allocator.complete(block!);
          } else {
            const block = allocator.malloc(mib * MIB - odd, stream, 0);
            if (block >= 0) live.push(block);
          }
        }
        allocator.check();
        for (const block of live) {
          allocator.free(block);
          allocator.complete(block);
        }
        allocator.emptyCache();
        expect(backend.usedBytes).toBe(0);
        expect(allocator.verification.blocks).toBeGreaterThan(0);
        backend.close();
      }),
      { numRuns: 8 },
    );
  });
});

describe('the verifying allocator', () => {
  it.skipIf(!onLinux)('notices memory that was given out twice', () => {
    const backend = new HostBackend({ capacity: 64 * MIB });
    const [choice] = chooseAllocators('weir');
    const allocator = new VerifyingAllocator(choice!.create({ backend, streams: [0], deviceBytes: 64 * MIB }), backend, 4096);
    const block = allocator.malloc(8 * MIB, 0, 0);
    backend.fill(allocator.addressOf(block) + 4 * MIB, 4096, 0);
    expect(() => allocator.free(block)).toThrow(InvariantError);
    backend.close();
  });
});

describe('a machine without a GPU', () => {
  it('is told so in one sentence', () => {
    let message = '';
    try {
      new CudaBackend().close();
    } catch (error) {
      expect(error).toBeInstanceOf(InputError);
      message = (error as Error).message;
    }
    if (message !== '') expect(message).toMatch(/CUDA driver/);
  });
});
