// Unmapping without a wait: stitches beyond their limit while the GPU is behind, progress of a stream that is far behind, and
// plans whose memory is given back while kernels still use it.
import { describe, expect, test } from 'vitest';
import type { EngineSettings } from '../../src/abi/settings.ts';
import { EngineAllocator } from '../../src/allocator/engine/allocator.ts';
import { WEIR_SETTINGS } from '../../src/allocator/engine/settings.ts';
import { GIB, MIB } from '../../src/base/bytes.ts';
import { assertingEngine, numbersFrom } from './drive.ts';
import { GpuModel } from './lending/gpu-model.ts';
import { shapeFrom } from './training.ts';

const LIMIT = 4;
const SETTINGS: EngineSettings = {
  ...WEIR_SETTINGS,
  regionBytes: 4 * GIB,
  fixedHandle: 2 * MIB,
  slackShare: 0,
  slackBytes: 0,
  minStitch: 2 * MIB,
  growthShare: 0,
  stitchLimit: LIMIT,
  stitchRoom: 1,
};

/** A program on the model of a GPU: every block is used by a kernel, which ends when the test says so. */
class Program {
  readonly gpu: GpuModel;
  readonly allocator: EngineAllocator;
  private requests = 0;

  constructor(capacity: number, settings: EngineSettings = SETTINGS) {
    this.gpu = new GpuModel(2, capacity);
    this.allocator = new EngineAllocator({ backend: this.gpu, streams: [0, 1], events: this.gpu }, settings, assertingEngine());
  }

  malloc(bytes: number, stream = 0): number {
    const block = this.allocator.malloc(bytes, stream, 0);
    expect(block).toBeGreaterThan(0);
    this.gpu.launch(stream, this.requests++, this.allocator.addressOf(block), this.allocator.sizeOf(block));
    return block;
  }

  free(block: number): void {
    this.allocator.free(block);
    this.allocator.complete(block);
  }

  /** Ends kernels of a stream, all if no number is given. */
  run(stream: number, kernels: number = Number.POSITIVE_INFINITY): void {
    for (let count = 0; count < kernels && this.gpu.canAdvance(stream); count++) this.gpu.advance(stream);
  }

  /** Memory in `count` pieces of 2 MiB with live blocks between them. */
  pieces(count: number): void {
    const blocks = Array.from({ length: 2 * count }, () => this.malloc(2 * MIB));
    for (let index = 0; index < blocks.length; index += 2) this.free(blocks[index]!);
  }

  get kept(): number {
    return this.allocator.statistics.keptStitches;
  }

  /** Makes a stitch of its own for each length. */
  stitch(pieces: number): void {
    this.free(this.malloc(2 * pieces * MIB));
  }
}

describe('stitches', () => {
  test('a GPU that is behind makes the limit soft, up to four times; then memory grows; nobody waits', () => {
    const program = new Program(GIB);
    program.pieces(40);
    for (let length = 2; length < 2 + LIMIT; length++) program.stitch(length);
    const { reserved } = program.allocator.statistics;
    for (let length = 2 + LIMIT; length < 2 + 4 * LIMIT; length++) program.stitch(length);
    expect(program.kept).toBe(4 * LIMIT);
    expect(program.allocator.statistics.reserved).toBe(reserved);
    expect(program.gpu.calls.filter((call) => call.startsWith('unmap'))).toEqual([]);
    program.stitch(30);
    expect(program.kept).toBe(4 * LIMIT);
    expect(program.allocator.statistics.reserved).toBeGreaterThan(reserved);
    program.allocator.check();
    // The next stitch finds that the GPU has caught up.
    program.run(0);
    program.stitch(39);
    expect(program.kept).toBeLessThanOrEqual(LIMIT);
    program.allocator.check();
  });

  test('a GPU that keeps up: the limit holds', () => {
    const program = new Program(GIB);
    program.pieces(40);
    for (let length = 2; length < 40; length++) {
      program.stitch(length);
      program.run(0);
      expect(program.kept).toBeLessThanOrEqual(LIMIT + 1);
    }
  });

  test('a shortage waits for the device, and drops what is over', () => {
    const program = new Program(160 * MIB);
    program.pieces(40);
    for (let length = 2; length < 2 + 4 * LIMIT; length++) program.stitch(length);
    program.stitch(36);
    expect(program.kept).toBeLessThanOrEqual(LIMIT);
    program.allocator.check();
  });
});

test('during a capture, when nobody can wait, a stitch beyond four times the limit is better than a failure', () => {
  const program = new Program(160 * MIB);
  program.pieces(40);
  for (let length = 2; length < 2 + 4 * LIMIT; length++) program.stitch(length);
  expect(program.kept).toBe(4 * LIMIT);
  program.allocator.setCapturing(1, true);
  program.gpu.capturing = true;
  program.stitch(30);
  expect(program.kept).toBe(4 * LIMIT + 1);
  program.gpu.capturing = false;
  program.allocator.setCapturing(1, false);
  // The limit holds again as soon as the GPU has caught up.
  program.run(0);
  program.stitch(31);
  expect(program.kept).toBe(LIMIT);
});

test('a stream that is further behind than its ring of events is long still learns what is over', () => {
  const program = new Program(GIB, { ...SETTINGS, eventBytes: 1, carveSlabs: 0 });
  program.free(program.malloc(512, 1));
  const first = program.malloc(8 * MIB);
  const address = program.allocator.addressOf(first);
  program.free(first);
  program.malloc(4 * MIB);
  // Each release records an event. The GPU ends the first kernel, then stays 100 behind.
  for (let round = 0; round < 200; round++) {
    program.free(program.malloc(512));
    if (round >= 100) program.run(0, 1);
  }
  expect(program.allocator.addressOf(program.malloc(4 * MIB, 1))).toBe(address + 4 * MIB);
  expect(program.allocator.statistics).toMatchObject({ borrows: 1, waits: 0 });
});

describe('plans', () => {
  test.each([1, 2, 3, 4])('memory of plans is given back, lent again and freed only when no kernel uses it (%d)', (seed) => {
    const next = numbersFrom(seed);
    const shape = shapeFrom(seed, 24);
    const program = new Program(4 * GIB, { ...WEIR_SETTINGS, regionBytes: 8 * GIB });
    const { allocator } = program;
    program.free(program.malloc(512, 1));
    allocator.installPlan(shape.plan);
    const live = new Map<number, number>();
    const others: number[] = [];
    for (let step = 0; step < 30; step++) {
      for (const what of shape.order) {
        const request = what < 0 ? -what - 1 : what;
        const before = live.get(request);
        if (before !== undefined) {
          if (next() < 0.02) allocator.recordStream(before, 1);
          program.free(before);
        }
        live.delete(request);
        if (what >= 0) live.set(request, program.malloc(shape.sizes[what]!));
        program.run(0, next() < 0.5 ? 1 : 2);
        if (next() < 0.02) program.run(1);
      }
      // Steps that do not follow the plan, so that it gives back its memory.
      if (next() < 0.4) for (let count = 0; count < 40; count++) others.push(program.malloc(2 * MIB + Math.floor(next() * 24 * MIB)));
      if (next() < 0.5) for (const block of others.splice(0)) program.free(block);
      if (next() < 0.3) allocator.releaseFinished();
      if (next() < 0.2) allocator.emptyCache();
      allocator.check();
    }
    expect(allocator.planStatistics.hits).toBeGreaterThan(0);
    expect(program.gpu.calls.some((call) => call.startsWith('unmap'))).toBe(true);
  });
});
