// Random programs on a GPU whose streams end their kernels late or not at all: plans, lending, eviction of stitches, recorded
// streams, captures, waits during which the program goes on, and a stream on which no event can be recorded.
import { expect, test } from 'vitest';
import type { EngineSettings } from '../../src/abi/settings.ts';
import { EngineAllocator } from '../../src/allocator/engine/allocator.ts';
import { WEIR_SETTINGS } from '../../src/allocator/engine/settings.ts';
import { GIB, MIB } from '../../src/base/bytes.ts';
import { assertingEngine, numbersFrom } from './drive.ts';
import { GpuModel } from './lending/gpu-model.ts';
import { shapeFrom } from './training.ts';

const STREAMS = 3;
const STEPS = 8;
const GMLAKE: Partial<EngineSettings> = {
  gmlake: 1,
  lend: 0,
  largeUnit: 2 * MIB,
  fixedHandle: 2 * MIB,
  longRegions: 0,
  carveSlabs: 0,
  accessEach: 1,
  stitchRoom: 1,
};

interface Block {
  readonly handle: number;
  readonly number: number;
  readonly stream: number;
}

class LateProgram {
  readonly allocator: EngineAllocator;
  readonly gpu: GpuModel;
  private readonly next: () => number;
  private readonly shape: ReturnType<typeof shapeFrom>;
  private readonly foreign: readonly number[];
  private readonly stuck: number;
  private readonly lazy: number;
  private readonly live: Block[] = [];
  private requests = 0;

  constructor(seed: number) {
    this.next = numbersFrom(seed);
    this.shape = shapeFrom(seed, 16);
    this.foreign = this.next() < 0.3 ? [2] : [];
    this.gpu = new GpuModel(STREAMS, (64 + this.draw(900)) * MIB, undefined, this.foreign);
    const gmlake = this.next() < 0.1;
    const settings: EngineSettings = {
      ...WEIR_SETTINGS,
      regionBytes: 8 * GIB,
      fixedHandle: [0, 2, 4][this.draw(3)]! * MIB,
      minStitch: 2 * MIB,
      stitchLimit: [1, 2, 4, 16, 256][this.draw(5)]!,
      eventBytes: [1, 8 * MIB, 256 * MIB][this.draw(3)]!,
      slackShare: this.next() < 0.5 ? 0 : WEIR_SETTINGS.slackShare,
      slackBytes: this.next() < 0.5 ? 0 : WEIR_SETTINGS.slackBytes,
      ...(gmlake ? GMLAKE : {}),
      waitShare: this.next() < 0.5 ? 0 : WEIR_SETTINGS.waitShare,
    };
    this.allocator = new EngineAllocator({ backend: this.gpu, streams: [0, 1, 2], events: this.gpu }, settings, assertingEngine());
    this.stuck = this.next() < 0.4 ? this.draw(STREAMS) : -1;
    this.lazy = this.next() * 0.9;
    if (!gmlake) this.allocator.installPlan(this.shape.plan);
  }

  private draw(below: number): number {
    return Math.floor(this.next() * below);
  }

  private use(stream: number, { handle, number }: Block): void {
    this.gpu.launch(stream, number, this.allocator.addressOf(handle), this.allocator.sizeOf(handle));
  }

  private malloc(bytes: number, stream: number): Block | undefined {
    const handle = this.allocator.malloc(bytes, stream, 0);
    if (handle <= 0) return undefined;
    const block = { handle, number: this.requests++, stream };
    this.use(stream, block);
    return block;
  }

  private free(block: Block): void {
    if (this.next() < 0.3) this.use(block.stream, block);
    if (this.next() < 0.1) {
      const other = this.draw(STREAMS);
      if (other !== block.stream && !this.foreign.includes(other)) {
        this.allocator.recordStream(block.handle, other);
        this.gpu.join(other, block.stream);
        this.use(other, block);
      }
    }
    this.allocator.free(block.handle);
    this.allocator.complete(block.handle);
  }

  private freeOne(): void {
    this.free(this.live.splice(this.draw(this.live.length), 1)[0]!);
  }

  private runStreams(): void {
    for (let stream = 0; stream < STREAMS; stream++) {
      if (stream === this.stuck && this.next() >= 0.001) continue;
      for (let count = this.draw(4); count > 0 && this.next() > this.lazy && this.gpu.canAdvance(stream); count--) this.gpu.advance(stream);
    }
  }

  private capture(on: boolean): void {
    this.gpu.capturing = on;
    this.allocator.setCapturing(1, on);
  }

  private seldom(): void {
    const choice = this.next();
    const { capturing } = this.gpu;
    if (choice < 0.006 && !capturing) this.capture(true);
    else if (choice < 0.05 && capturing) this.capture(false);
    else if (choice < 0.06 && !capturing) this.allocator.emptyCache();
    else if (choice < 0.08) this.allocator.releaseFinished();
    else if (choice < 0.14 && !capturing) this.waitMeanwhile();
  }

  /** The host waits for the GPU, and other threads go on meanwhile. */
  private waitMeanwhile(): void {
    const given = this.gpu.beginWait();
    const release = this.allocator.latestRelease;
    const more: Block[] = [];
    for (let count = this.draw(4); count > 0; count--) {
      if (this.live.length > 0 && this.next() < 0.5) this.freeOne();
      else {
        const block = this.malloc(1 + this.draw(20 * MIB), this.draw(STREAMS));
        if (block) more.push(block);
      }
    }
    this.gpu.endWait(given);
    this.allocator.streamsIdle(release);
    this.live.push(...more);
  }

  run(): void {
    const planned = new Map<number, Block>();
    for (let step = 0; step < STEPS; step++) {
      for (const what of this.shape.order) {
        const request = what < 0 ? -what - 1 : what;
        const before = planned.get(request);
        if (before) this.free(before);
        planned.delete(request);
        const block = what >= 0 ? this.malloc(this.shape.sizes[what]!, 0) : undefined;
        if (block) planned.set(request, block);
        if (this.next() < 0.25) {
          const bytes = this.next() < 0.3 ? 1 + this.draw(MIB) : 1 + this.draw(40 * MIB);
          const other = this.malloc(bytes, this.draw(STREAMS));
          if (other) this.live.push(other);
        }
        if (this.live.length > 30 || (this.live.length > 0 && this.next() < 0.25)) this.freeOne();
        this.runStreams();
        this.seldom();
      }
      if (this.next() < 0.3) for (const block of this.live.splice(0)) this.free(block);
      this.allocator.check();
    }
  }
}

// 5902: an extent inside one handle is borrowed, after the range of a stream that may be gone could not be.
test.each([5902, ...Array.from({ length: 60 }, (_, index) => index + 1)])('nothing is handed on or unmapped too early (%d)', (seed) => {
  const program = new LateProgram(seed);
  program.run();
  expect(program.gpu.calls.length).toBeGreaterThan(0);
});
