// A training for tests of plans: steps of one or more shapes, with all that may go wrong, on a strict backend.
// After every request and free the invariants are checked, and that no byte belongs to two blocks.

import type { EngineSettings } from '../../src/abi/settings.ts';
import { EngineAllocator, type EnginePlan } from '../../src/allocator/engine/allocator.ts';
import { WEIR_SETTINGS } from '../../src/allocator/engine/settings.ts';
import { GIB, KIB, MIB } from '../../src/base/bytes.ts';
import type { Step } from '../../src/plan/steps/step.ts';
import { enginePlanOf, planStep } from '../../src/plan/steps/step-plan.ts';
import { assertingEngine, numbersFrom } from './drive.ts';
import { Ownership } from './ownership.ts';
import type { StrictBackend } from './strict-backend.ts';

/** What a step does, in order: requests and frees. */
export interface Shape {
  readonly sizes: readonly number[];
  /** `+n` requests number n, `-n - 1` frees it. */
  readonly order: readonly number[];
  readonly plan: EnginePlan;
}

/** A step with blocks of all sizes, short and long lives; `crossing` of them live into the next step. */
export function shapeFrom(seed: number, count: number, largest: number = 24 * MIB, crossing = 1): Shape {
  const next = numbersFrom(seed);
  const sizes = Array.from({ length: count }, () => {
    const bytes = next() < 0.3 ? 512 + next() * 200 * KIB : MIB * (largest / MIB) ** next();
    return 512 * Math.ceil(bytes / 512);
  });
  const order: number[] = [];
  const live: number[] = [];
  for (let request = 0; request < count; request++) {
    order.push(request);
    live.push(request);
    while (live.length > 2 && next() < (request < count / 2 ? 0.3 : 0.7)) {
      order.push(-live.splice(Math.floor(next() * live.length), 1)[0]! - 1);
    }
  }
  while (live.length > crossing) order.push(-live.pop()! - 1);
  // The rest is freed in the next step, after its second request.
  const period = order.length + live.length;
  const start = order.indexOf(1) + 1;
  order.splice(start, 0, ...live.map((request) => -request - 1));
  const birth = sizes.map((_, request) => order.indexOf(request));
  const blocks = sizes.map((size, request) => {
    const end = order.indexOf(-request - 1) + 1;
    return { birth: birth[request]!, death: end > birth[request]! ? end : end + period, size, stream: 0 };
  });
  const longest = Math.max(...blocks.map(({ birth: from, death }) => death - from));
  const step: Step = { period, start: 0, turns: Math.ceil(longest / period), blocks, wholeRunBytes: 0, wholeRunBlocks: 0 };
  return { sizes, order, plan: enginePlanOf(planStep(step, { budgetMs: 20 })) };
}

/** What a step does differently. */
export interface Deviation {
  /** Requests that are left out. */
  readonly without?: ReadonlySet<number>;
  /** An unplanned request after each of these, freed at the end of the step. */
  readonly extra?: ReadonlyMap<number, number>;
  /** Requests that are kept instead of being freed. */
  readonly kept?: ReadonlySet<number>;
  /** Requests of another size. */
  readonly resized?: ReadonlyMap<number, number>;
  /** Requests that stream 1 uses, too. */
  readonly recorded?: ReadonlySet<number>;
}

export class Training {
  readonly allocator: EngineAllocator;
  readonly backend: StrictBackend;
  readonly kept: number[] = [];
  failures = 0;
  peakLive = 0;
  private readonly ownership: Ownership;
  private readonly live = new Map<Shape, Map<number, number>>();

  constructor(backend: StrictBackend, settings: Partial<EngineSettings> = {}) {
    this.backend = backend;
    this.ownership = new Ownership(backend);
    const all = { ...WEIR_SETTINGS, regionBytes: 4 * GIB, ...settings };
    this.allocator = new EngineAllocator({ backend, streams: [0, 1], events: backend }, all, assertingEngine());
  }

  malloc(bytes: number, stream = 0): number | undefined {
    const block = this.allocator.malloc(bytes, stream, 0);
    this.check();
    if (block < 0) {
      this.failures++;
      return undefined;
    }
    this.ownership.take(block, this.allocator.addressOf(block), this.allocator.sizeOf(block));
    this.peakLive = Math.max(this.peakLive, this.allocator.allocatedBytes);
    return block;
  }

  free(block: number | undefined): void {
    if (block === undefined) return;
    this.ownership.drop(block, this.allocator.addressOf(block), this.allocator.sizeOf(block));
    this.allocator.free(block);
    this.allocator.complete(block);
    this.check();
  }

  check(): void {
    this.allocator.check(3);
    if (this.allocator.reservedBytes !== this.backend.usedBytes) {
      throw new Error(`reserved ${this.allocator.reservedBytes}, held ${this.backend.usedBytes}`);
    }
  }

  step(shape: Shape, { without, extra, kept, resized, recorded }: Deviation = {}): void {
    let live = this.live.get(shape);
    if (!live) {
      live = new Map();
      this.live.set(shape, live);
    }
    const extras: (number | undefined)[] = [];
    for (const what of shape.order) {
      if (what < 0) {
        const request = -what - 1;
        const block = live.get(request);
        live.delete(request);
        if (block === undefined) continue;
        if (kept?.has(request)) this.kept.push(block);
        else this.free(block);
        continue;
      }
      if (!without?.has(what)) {
        const block = this.malloc(resized?.get(what) ?? shape.sizes[what]!);
        if (block !== undefined) {
          // A free that was left out with its request would come too late for this one.
          const before = live.get(what);
          if (before !== undefined) this.kept.push(before);
          live.set(what, block);
          // Freed blocks that others use are reused only later, but the model of ownership has them as free already.
          if (recorded?.has(what)) this.allocator.recordStream(block, 1);
        }
      }
      const more = extra?.get(what);
      if (more !== undefined) extras.push(this.malloc(more));
    }
    for (const block of extras) this.free(block);
    this.backend.catchUp();
  }

  /** Frees everything and empties the cache. Whether the backend then holds nothing. */
  end(): boolean {
    for (const blocks of this.live.values()) for (const block of blocks.values()) this.free(block);
    this.live.clear();
    for (const block of this.kept.splice(0)) this.free(block);
    for (let attempt = 0; attempt < 100 && (attempt === 0 || !this.backend.holdsNothing); attempt++) this.allocator.emptyCache();
    this.check();
    return this.backend.holdsNothing;
  }
}
