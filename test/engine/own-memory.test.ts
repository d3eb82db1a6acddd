// The engine's own linear memory can be exhausted, too. Then requests fail with a reason, and the engine goes on.
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { OUT_OF_MEMORY } from '../../src/allocator/allocator.ts';
import { EngineAllocator } from '../../src/allocator/engine/allocator.ts';
import { compileEngine, type EngineModule } from '../../src/allocator/engine/load.ts';
import { MIB } from '../../src/base/bytes.ts';
import { PRESETS } from './drive.ts';
import { StrictBackend } from './strict-backend.ts';

/** The engine with at most `pages` of linear memory: overwrites the limit in its memory section. */
function engineWithin(pages: number): EngineModule {
  const bytes = new Uint8Array(readFileSync('build/engine/engine.debug.wasm'));
  // Section 5: size 6, one memory, with a maximum, 1 page at first, at most 32768 (in three bytes).
  const section = [5, 6, 1, 1, 1, 0x80, 0x80, 0x02];
  const at = bytes.findIndex((_, index) => section.every((byte, offset) => bytes[index + offset] === byte));
  expect(at).toBeGreaterThan(0);
  bytes[at + 5] = (pages & 0x7f) | 0x80;
  bytes[at + 6] = (pages >> 7) | 0x80;
  bytes[at + 7] = 0;
  return compileEngine(bytes);
}

test.each(Object.entries(PRESETS))('%s', (_, settings) => {
  const backend = new StrictBackend();
  const allocator = new EngineAllocator({ backend, streams: [0] }, settings, engineWithin(24));
  const blocks: number[] = [];
  for (let round = 0; round < 3; round++) {
    let failures = 0;
    for (let step = 0; step < 40_000 && failures < 20; step++) {
      const block = allocator.malloc(step % 50 === 0 ? 3 * MIB : 700, 0, 0);
      if (block === OUT_OF_MEMORY) failures++;
      else blocks.push(block);
    }
    expect(failures).toBe(20);
    expect(allocator.explain().failedCall).toBe('ownMemory');
    allocator.check(3);
    for (const block of blocks.splice(0, Math.floor(blocks.length * 0.9))) {
      allocator.free(block);
      allocator.complete(block);
    }
    allocator.check(3);
  }
  for (const block of blocks) {
    allocator.free(block);
    allocator.complete(block);
  }
  allocator.emptyCache();
  allocator.check(3);
  expect(backend.holdsNothing).toBe(true);
});

test('captures count, though there is no memory for a record of their stream', () => {
  const backend = new StrictBackend();
  const settings = { ...PRESETS['weir']!, eventBytes: 1 };
  const allocator = new EngineAllocator({ backend, streams: [0, 1], events: backend }, settings, engineWithin(24));
  const large = [allocator.malloc(4 * MIB, 0, 0), allocator.malloc(4 * MIB, 1, 0), allocator.malloc(4 * MIB, 0, 0)];
  while (allocator.malloc(512, 0, 0) !== OUT_OF_MEMORY);
  const events = () => backend.calls.filter((call) => call.startsWith('eventRecord')).length;
  const before = events();
  const free = () => {
    const block = large.pop()!;
    allocator.free(block);
    allocator.complete(block);
  };
  // The first streams take what memory is left.
  for (let stream = 2; stream < 400; stream++) allocator.setCapturing(stream, true);
  for (let stream = 2; stream < 399; stream++) allocator.setCapturing(stream, false);
  free();
  expect(events()).toBe(before);
  allocator.setCapturing(399, false);
  free();
  expect(events()).toBe(before + 1);
});
