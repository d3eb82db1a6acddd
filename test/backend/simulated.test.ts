// The simulated backend: what it holds, what it charges, and that misuse is detected.
import { describe, expect, it } from 'vitest';
import { NO_MEMORY } from '../../src/backend/backend.ts';
import { H200_COSTS } from '../../src/backend/costs.ts';
import { SimulatedBackend } from '../../src/backend/simulated.ts';
import { InvariantError } from '../../src/base/errors.ts';

const MIB = 2 ** 20;

describe('memory', () => {
  it('is counted in pieces of 2 MiB and limited by the capacity', () => {
    const backend = new SimulatedBackend({ capacity: 8 * MIB });
    const address = backend.malloc(3 * MIB);
    expect(backend.usedBytes).toBe(4 * MIB);
    const handle = backend.create(4 * MIB);
    expect(backend.usedBytes).toBe(8 * MIB);
    expect(backend.malloc(1)).toBe(NO_MEMORY);
    expect(backend.create(2 * MIB)).toBe(NO_MEMORY);
    backend.free(address, 3 * MIB);
    backend.release(handle);
    expect(backend.usedBytes).toBe(0);
  });

  it('gives segments without bytes addresses of their own', () => {
    const backend = new SimulatedBackend();
    expect(new Set([backend.malloc(0), backend.malloc(0), backend.malloc(0)]).size).toBe(3);
  });

  it('never hands out overlapping addresses', () => {
    const backend = new SimulatedBackend();
    const sizes = [2, 20, 40, 2, 64, 31, 2, 100, 6, 2, 2, 33].map((mib) => mib * MIB);
    const ranges = [
      ...sizes.map((size) => [backend.malloc(size), size] as const),
      ...sizes.map((size) => [backend.reserve(size), size] as const),
    ].sort((a, b) => a[0] - b[0]);
    for (let index = 1; index < ranges.length; index++) {
      expect(ranges[index]![0]).toBeGreaterThanOrEqual(ranges[index - 1]![0] + ranges[index - 1]![1]);
    }
  });
});

describe('costs', () => {
  it('are those measured, at the sizes they were measured at', () => {
    expect(H200_COSTS.malloc.at(256 * MIB)).toBe(51);
    expect(H200_COSTS.create.at(2 * MIB)).toBe(9);
    expect(H200_COSTS.release.at(1024 * MIB)).toBeCloseTo(297, 9);
    expect(H200_COSTS.free.at(2048 * MIB)).toBeCloseTo(581, 9);
  });

  it('lie between the neighbours elsewhere, and go on growing beyond', () => {
    expect(H200_COSTS.malloc.at(138 * MIB)).toBeCloseTo(41, 5);
    expect(H200_COSTS.malloc.at(4096 * MIB)).toBeGreaterThan(146);
    expect(H200_COSTS.malloc.at(1)).toBe(30);
  });

  it('of setting access go with the handles in the range, in one call', () => {
    const backend = new SimulatedBackend();
    const base = backend.reserve(8 * MIB);
    for (let page = 0; page < 4; page++) backend.map(base + page * 2 * MIB, backend.create(2 * MIB));
    const before = backend.ledger.timeUs;
    backend.setAccess(base, 8 * MIB);
    expect(backend.ledger.timeUs - before).toBeCloseTo(4 * 26.8, 5);
    expect(backend.ledger.calls).toMatchObject({ reserve: 1, create: 4, map: 4, setAccess: 1 });
  });
});

describe('misuse', () => {
  it('is refused', () => {
    const backend = new SimulatedBackend();
    const address = backend.malloc(4 * MIB);
    expect(() => backend.free(address, 2 * MIB)).toThrow(InvariantError);
    expect(() => backend.release(5)).toThrow(InvariantError);
    const base = backend.reserve(4 * MIB);
    backend.map(base, backend.create(2 * MIB));
    expect(() => backend.map(base, backend.create(2 * MIB))).toThrow(InvariantError);
    expect(() => backend.setAccess(base, 4 * MIB)).toThrow(InvariantError);
    expect(() => backend.unmap(base + 2 * MIB, 2 * MIB)).toThrow(InvariantError);
  });
});
