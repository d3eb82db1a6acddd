// Seven defects in GMLake's source (B1 to B7), each with a test that our engine does not have it.
import { describe, expect, test } from 'vitest';
import type { EngineSettings } from '../../src/abi/settings.ts';
import { OUT_OF_MEMORY } from '../../src/allocator/allocator.ts';
import { EngineAllocator } from '../../src/allocator/engine/allocator.ts';
import { GMLAKE_SETTINGS, WEIR_SETTINGS } from '../../src/allocator/engine/settings.ts';
import { GIB, MIB } from '../../src/base/bytes.ts';
import { assertingEngine } from './drive.ts';
import { StrictBackend } from './strict-backend.ts';

const GMLAKE: EngineSettings = { ...GMLAKE_SETTINGS, minStitch: 2 * MIB };
const WEIR: EngineSettings = { ...WEIR_SETTINGS, regionBytes: GIB, fixedHandle: 4 * MIB, slackBytes: 0, slackShare: 0 };

function engineOn(backend: StrictBackend, settings: EngineSettings): EngineAllocator {
  return new EngineAllocator({ backend, streams: [0] }, settings, assertingEngine());
}

function end(allocator: EngineAllocator, ...blocks: number[]): void {
  for (const block of blocks) {
    allocator.free(block);
    allocator.complete(block);
    allocator.check(3);
  }
}

const request = (allocator: EngineAllocator, mib: number, pool = 0): number => {
  const block = allocator.malloc(mib * MIB, 0, pool);
  allocator.check(3);
  return block;
};

/** Free blocks of the size with live ones between them. Gives the live ones. */
function islands(allocator: EngineAllocator, count: number, mib: number): number[] {
  const blocks = Array.from({ length: 2 * count }, () => request(allocator, mib));
  end(allocator, ...blocks.filter((_, index) => index % 2 === 0));
  return blocks.filter((_, index) => index % 2 === 1);
}

describe.each([
  ['gmlake', GMLAKE],
  ['weir', WEIR],
])('%s', (name, settings) => {
  test('B1: memory shared by three idle stitched blocks is given back, and none of the three survives', () => {
    const backend = new StrictBackend();
    const allocator = engineOn(backend, settings);
    const walls = islands(allocator, 4, 8);
    // Each is longer than any stitch, and all of them share handles.
    for (const mib of [18, 26, 32]) end(allocator, request(allocator, mib));
    expect(allocator.statistics.keptStitches).toBeGreaterThanOrEqual(name === 'gmlake' ? 3 : 1);
    allocator.emptyCache();
    allocator.check(3);
    expect(allocator.statistics.keptStitches).toBe(0);
    expect(backend.usedBytes).toBe(allocator.statistics.inUse);
    end(allocator, ...walls);
    allocator.emptyCache();
    expect(backend.holdsNothing).toBe(true);
  });

  test('B2: the cache is emptied while a stitched block is live, which is freed afterwards', () => {
    const backend = new StrictBackend();
    const allocator = engineOn(backend, settings);
    const walls = islands(allocator, 4, 8);
    end(allocator, request(allocator, 30));
    // A smaller block in the memory of the longer one: part of its stitch is free, and that memory is freed.
    const live = request(allocator, 20);
    expect(allocator.statistics.keptStitches).toBeGreaterThan(0);
    allocator.emptyCache();
    allocator.check(3);
    backend.resolve(allocator.addressOf(live), 20 * MIB);
    end(allocator, live, ...walls);
    allocator.emptyCache();
    expect(backend.holdsNothing).toBe(true);
  });

  test.each(['reserve', 'map', 'setAccess'] as const)('B3: a stitch that fails in %s leaves the pool as it was', (kind) => {
    let failing = false;
    const backend = new StrictBackend(64 * MIB, (_, call) => failing && call === kind);
    const allocator = engineOn(backend, settings);
    const walls = islands(allocator, 4, 8);
    const before = allocator.census();
    failing = true;
    expect(request(allocator, 30)).toBe(OUT_OF_MEMORY);
    expect(allocator.explain()).toMatchObject({ asked: 30 * MIB, free: 32 * MIB, largestFree: 8 * MIB, assemblable: 32 * MIB });
    failing = false;
    // Out of memory, GMLake frees all it can; Weir has no reason to.
    if (name === 'weir') expect(allocator.census()).toEqual(before);
    expect(allocator.statistics).toMatchObject({ inUse: 32 * MIB, keptStitches: 0, orphans: 0 });
    const block = request(allocator, 30);
    expect(block).not.toBe(OUT_OF_MEMORY);
    end(allocator, block, ...walls);
    allocator.emptyCache();
    expect(backend.holdsNothing).toBe(true);
  });

  test.each(['create', 'reserve', 'map', 'setAccess'] as const)('B4: %s fails once and then works: the request is served', (kind) => {
    let left = 0;
    const backend = new StrictBackend(GIB, (_, call) => call === kind && left-- > 0);
    const allocator = engineOn(backend, settings);
    const walls = islands(allocator, 4, 8);
    left = 1;
    const stitched = request(allocator, 30);
    left = 1;
    const grown = request(allocator, 100);
    expect([stitched, grown]).not.toContain(OUT_OF_MEMORY);
    expect(allocator.ooms).toBe(0);
    end(allocator, stitched, grown, ...walls);
    allocator.emptyCache();
    expect(backend.holdsNothing).toBe(true);
  });

  test('B5: what cannot be served or is misused is an answer or a typed error, never the end of the process', () => {
    const allocator = engineOn(new StrictBackend(GIB), settings);
    for (const bytes of [2 ** 62, 2 ** 46 + 1, 2 * GIB]) expect(allocator.malloc(bytes, 0, 0)).toBe(OUT_OF_MEMORY);
    // Sizes that are multiples of nothing, and size 0.
    const odd = [0, 1, 511, MIB + 1, 3 * MIB + 7, 10 * MIB - 1].map((bytes) => allocator.malloc(bytes, 0, 0));
    expect(odd).not.toContain(OUT_OF_MEMORY);
    allocator.free(odd[1]!);
    expect(() => allocator.free(odd[1]!)).toThrow('is not live');
    allocator.complete(odd[1]!);
    expect(() => allocator.complete(odd[3]!)).toThrow('was not freed');
    allocator.check(3);
  });

  test('B6: a private pool never gets memory of another pool, stitched or not', () => {
    const backend = new StrictBackend();
    const allocator = engineOn(backend, settings);
    const walls = islands(allocator, 4, 8);
    end(allocator, request(allocator, 30));
    const held = backend.usedBytes;
    const others = [request(allocator, 8, 1), request(allocator, 30, 1), allocator.malloc(1000, 0, 1)];
    expect(backend.usedBytes - held).toBeGreaterThanOrEqual(38 * MIB + 1000);
    end(allocator, ...others);
    // And not in the other direction.
    const again = backend.usedBytes;
    const mine = request(allocator, 60);
    expect(backend.usedBytes - again).toBeGreaterThanOrEqual(60 * MIB - 32 * MIB);
    end(allocator, mine, ...walls);
    allocator.emptyCache();
    expect(backend.holdsNothing).toBe(true);
  });

  test('B7: after everything is given back the statistics are where they began', () => {
    const allocator = engineOn(new StrictBackend(), settings);
    const counted = () => {
      const { reserved, allocated, inUse, requested, handles, keptStitches, stitchedBytes, regions, orphans, blocks } =
        allocator.statistics;
      return { reserved, allocated, inUse, requested, handles, keptStitches, stitchedBytes, regions, orphans, blocks };
    };
    const before = counted();
    const walls = islands(allocator, 4, 8);
    const stitched = request(allocator, 30);
    expect(counted().stitchedBytes).toBeGreaterThan(0);
    end(allocator, stitched, ...walls);
    allocator.emptyCache();
    expect(counted()).toEqual(before);
  });
});
