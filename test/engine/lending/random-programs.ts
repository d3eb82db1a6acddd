// Random programs on several streams, with random settings and faults, on the oracle: requests, frees, uses by other streams,
// captures, waits of the host, plans. One seed makes one program.
import type { EngineSettings } from '../../../src/abi/settings.ts';
import { EngineAllocator } from '../../../src/allocator/engine/allocator.ts';
import type { EngineModule } from '../../../src/allocator/engine/load.ts';
import { WEIR_SETTINGS } from '../../../src/allocator/engine/settings.ts';
import { MIB } from '../../../src/base/bytes.ts';
import { numbersFrom } from '../drive.ts';
import { GRAIN, Oracle, type OracleCall, OracleError } from './oracle.ts';

type Numbers = () => number;

function pick<T>(next: Numbers, list: readonly T[]): T {
  return list[Math.floor(next() * list.length)]!;
}

/** Entries that stand several times are taken more often. */
function randomSettings(next: Numbers): EngineSettings {
  return {
    ...WEIR_SETTINGS,
    regionBytes: pick(next, [64, 256, 4096]) * MIB,
    fixedHandle: pick(next, [0, 2, 2, 4, 4, 8, 16]) * MIB,
    slackShare: pick(next, [0, 0, 164]),
    slackBytes: pick(next, [0, 0, 2 * MIB]),
    minStitch: pick(next, [2, 2, 4]) * MIB,
    growthShare: 0,
    sharedSlackShare: pick(next, [0, 0, 300, 4000]),
    sharedGrowthShare: pick(next, [0, 16]),
    waitShare: pick(next, [0, 0, 1300, 20_000]),
    eventBytes: pick(next, [1, 1, 2 * MIB, 16 * MIB, 64 * MIB, 1024 * MIB]),
    waitAllowed: pick(next, [1, 1, 1, 0]),
    earliestFirst: pick(next, [1, 1, 0]),
    preferDone: pick(next, [1, 1, 0]),
    splitBorrowed: pick(next, [1, 1, 0]),
    stitchBorrowed: pick(next, [1, 1, 0]),
    mainLendsOnly: pick(next, [0, 0, 0, 1]),
    sizeDifferenceLimit: pick(next, [0, 0, 16_384]),
    stitchLimit: pick(next, [1, 3, 8, 256]),
    stitchRoom: pick(next, [1, 8]),
    carveSlabs: pick(next, [1, 1, 0]),
    groupBytes: pick(next, [0, 2048 * MIB]),
    longRegions: pick(next, [1, 1, 0]),
    handleCount: pick(next, [128, 16]),
    accessEach: pick(next, [0, 0, 1]),
  };
}

const EVENT_CALLS: readonly OracleCall[] = ['record', 'wait', 'query'];
const MAKING_CALLS: readonly OracleCall[] = ['create', 'map', 'setAccess', 'reserve'];
const UNDOING_CALLS: readonly OracleCall[] = ['unmap', 'release', 'unreserve'];

/** A step that repeats: requests and frees (~index), and a plan for it with places by first fit. */
function randomStep(next: Numbers) {
  const sizes = Array.from(
    { length: 8 + Math.floor(next() * 20) },
    () => GRAIN * Math.ceil(next() < 0.3 ? 1 + next() * 12 : 16 + next() * 80),
  );
  const order: number[] = [];
  const live: number[] = [];
  for (const index of sizes.keys()) {
    order.push(index);
    live.push(index);
    while (live.length > 2 && next() < 0.5) order.push(~live.splice(Math.floor(next() * live.length), 1)[0]!);
  }
  for (const index of live.reverse()) order.push(~index);
  const places: { readonly begin: number; readonly end: number; readonly offset: number; readonly size: number }[] = [];
  for (const [index, size] of sizes.entries()) {
    const begin = order.indexOf(index);
    const end = order.indexOf(~index);
    const beside = places.filter((place) => place.begin < end && begin < place.end).sort((left, right) => left.offset - right.offset);
    let offset = 0;
    for (const place of beside) if (place.offset < offset + size && offset < place.offset + place.size) offset = place.offset + place.size;
    places.push({ begin, end, offset, size });
  }
  const plan = {
    requests: sizes.map((size) => ({ size, stream: 0 })),
    turns: 1,
    offsets: Float64Array.from(places, ({ offset }) => offset),
    footprint: Math.max(...places.map(({ offset, size }) => offset + size)),
  };
  return { sizes, order, plan };
}

interface Live {
  readonly handle: number;
  readonly stream: number;
  readonly address: number;
  readonly bytes: number;
  readonly number: number;
  readonly captured: boolean;
}

export interface RandomOutcome {
  readonly oracle: Oracle;
  readonly allocator: EngineAllocator;
}

/** Runs the program of a seed. Throws if a byte is in use by two unordered operations, a rule is broken or memory is lost. */
export function runRandomProgram(seed: number, steps: number, module: EngineModule): RandomOutcome {
  return new RandomProgram(seed, module).run(steps);
}

class RandomProgram {
  private readonly next: Numbers;
  private readonly streams: number;
  private readonly oracle: Oracle;
  private readonly allocator: EngineAllocator;
  private readonly live: Live[] = [];
  private readonly level: number;
  private readonly largest: number;
  private readonly common: readonly number[];
  private readonly smallShare: number;
  private readonly speeds: readonly number[];
  private readonly shareRate: number;
  private readonly captureRate: number;
  private readonly planRate: number;
  private readonly soloSteps: number;
  private readonly planned: ReturnType<typeof randomStep>;
  private liveBytes = 0;
  private requests = 0;
  private faulty = true;
  private capture = -1;
  private waiting: { readonly given: readonly number[]; readonly release: number } | undefined;

  constructor(seed: number, module: EngineModule) {
    const next = numbersFrom(seed);
    this.next = next;
    this.streams = pick(next, [2, 2, 3, 4]);
    const capacity = pick(next, [24, 48, 96, 192, 100_000]) * MIB;
    const faultRate = pick(next, [0, 0, 0, 0.01, 0.05, 0.2]);
    const calls = pick(next, [EVENT_CALLS, MAKING_CALLS, UNDOING_CALLS, [...EVENT_CALLS, ...MAKING_CALLS, ...UNDOING_CALLS]]);
    const chance = numbersFrom(~seed);
    const fails = (call: OracleCall) => this.faulty && faultRate > 0 && calls.includes(call) && chance() < faultRate;
    this.oracle = new Oracle(this.streams, capacity, fails, next() < 0.1 ? this.streams - 1 : undefined);
    this.allocator = new EngineAllocator({ backend: this.oracle, streams: [0], events: this.oracle }, randomSettings(next), module);
    this.level = Math.min(capacity, 160 * MIB) * pick(next, [0.5, 0.8, 0.95]);
    this.largest = pick(next, [8, 16, 48]);
    this.common = Array.from({ length: 5 }, () => GRAIN * Math.ceil(next() * this.largest * 16));
    this.smallShare = pick(next, [0, 0.15, 0.5]);
    // Kernels that end with each step, of each stream.
    this.speeds = Array.from({ length: this.streams }, () => pick(next, [0, 0.05, 0.3, 0.9, 2]));
    this.shareRate = pick(next, [0, 0.05, 0.2]);
    this.captureRate = pick(next, [0, 0, 0.004]);
    this.planRate = pick(next, [0, 0, 0.02]);
    this.soloSteps = next() < 0.2 ? 400 * next() : 0;
    this.planned = randomStep(next);
    if (this.planRate > 0) this.allocator.installPlan(this.planned.plan);
  }

  run(steps: number): RandomOutcome {
    const { oracle, allocator, next } = this;
    for (let step = 0; step < steps; step++) {
      this.step(step);
      for (const [stream, speed] of this.speeds.entries()) {
        for (let rest = speed; rest > 0; rest--) if (next() < rest) oracle.advance(stream);
      }
      if (next() < 0.01) for (let count = 0; count < 20; count++) oracle.advance(step % this.streams);
      if (step % 64 === 0) this.check(step % 512 === 0 ? 3 : 2);
    }
    this.finish();
    return { oracle, allocator };
  }

  private step(step: number): void {
    const { next, allocator } = this;
    const choice = next() - this.captureRate;
    const stream = step < this.soloSteps ? 0 : Math.floor(next() * this.streams);
    if (choice < 0) this.toggleCapture(stream);
    else if (choice < 0.006) this.toggleWait();
    else if (choice < 0.012) allocator.releaseFinished();
    else if (choice < 0.014) this.emptyCache();
    else if (choice < 0.014 + this.planRate) this.repeat();
    else if (this.liveBytes < this.level * (0.4 + 0.6 * Math.abs(Math.sin(step / 60))) || this.live.length === 0) {
      const captured = this.capture >= 0 && next() < 0.5;
      this.malloc(this.size(), captured ? this.capture : stream);
    } else this.touch(stream);
  }

  /** Uses a block on another stream, or again on its own, or frees it. */
  private touch(stream: number): void {
    const block = pick(this.next, this.live);
    if (this.next() < this.shareRate) this.share(block, stream);
    else if (this.next() < 0.15 && !block.captured && this.capture !== block.stream) {
      this.oracle.launch(block.stream, block.address, block.bytes, false);
    } else this.free(block);
  }

  private size(): number {
    if (this.next() < this.smallShare) return GRAIN * (1 + Math.floor(this.next() * 16));
    return this.next() < 0.5 ? pick(this.next, this.common) : GRAIN * Math.ceil(16 + this.next() ** 2 * this.largest * 16);
  }

  private malloc(bytes: number, stream: number): Live | undefined {
    const captured = this.capture === stream;
    const handle = this.allocator.malloc(bytes, stream, captured || this.next() < 0.05 ? 1 : 0);
    if (handle < 0) return undefined;
    const address = this.allocator.addressOf(handle);
    const size = this.allocator.sizeOf(handle);
    if (size < bytes) throw new OracleError(`a block of ${size} bytes for ${bytes}`);
    const block = { handle, stream, address, bytes: GRAIN * Math.ceil(size / GRAIN), number: ++this.requests, captured };
    this.oracle.own(address, block.bytes, block.number);
    // Kernels that are captured do not run.
    if (!captured) this.oracle.launch(stream, address, block.bytes, true);
    this.live.push(block);
    this.liveBytes += block.bytes;
    return block;
  }

  private free(block: Live): void {
    this.live.splice(this.live.indexOf(block), 1);
    this.liveBytes -= block.bytes;
    this.oracle.own(block.address, block.bytes, 0, block.number);
    this.allocator.free(block.handle);
    this.allocator.complete(block.handle);
  }

  private share(block: Live, stream: number): void {
    if (stream === block.stream || this.capture >= 0) return;
    this.oracle.join(stream, block.stream);
    this.allocator.recordStream(block.handle, stream);
    this.oracle.launch(stream, block.address, block.bytes, false);
  }

  /** The step that the plan is for, a few times, with other requests in between. */
  private repeat(): void {
    if (this.capture >= 0) return;
    const { next, planned } = this;
    for (let repeats = 1 + Math.floor(next() * 4); repeats > 0; repeats--) {
      const blocks: (Live | undefined)[] = [];
      for (const entry of planned.order) {
        if (entry >= 0) {
          const block = this.malloc(planned.sizes[entry]!, 0);
          blocks[entry] = block;
          if (block && next() < this.shareRate) this.share(block, Math.floor(next() * this.streams));
          if (next() < 0.2) this.malloc(this.size(), Math.floor(next() * this.streams));
        } else if (blocks[~entry] && next() < 0.98) this.free(blocks[~entry]!);
        for (const [stream, speed] of this.speeds.entries()) if (next() < speed) this.oracle.advance(stream);
      }
    }
  }

  private toggleCapture(stream: number): void {
    if (this.waiting) return;
    const begins = this.capture < 0;
    this.oracle.capturing = begins;
    this.allocator.setCapturing(begins ? stream : this.capture, begins);
    this.capture = begins ? stream : -1;
  }

  private toggleWait(): void {
    if (this.waiting) {
      this.oracle.endWait(this.waiting.given);
      this.allocator.streamsIdle(this.waiting.release);
      this.waiting = undefined;
    } else if (this.capture < 0) {
      this.waiting = { given: [...this.oracle.given], release: this.allocator.latestRelease };
    }
  }

  private emptyCache(): void {
    if (this.capture < 0 && !this.waiting) this.allocator.emptyCache();
  }

  private check(level: 2 | 3): void {
    this.allocator.check(level);
    if (this.allocator.reservedBytes !== this.oracle.usedBytes) throw new OracleError('reserved memory is counted wrongly');
  }

  private finish(): void {
    if (this.waiting) this.toggleWait();
    if (this.capture >= 0) this.toggleCapture(0);
    this.faulty = false;
    for (const block of [...this.live]) this.free(block);
    this.check(3);
    this.allocator.forgetPlan(0);
    // The driver is asked again after a failure.
    for (let attempt = 0; attempt < 4; attempt++) this.allocator.emptyCache();
    this.check(3);
    if (this.oracle.leaks !== '') throw new OracleError(this.oracle.leaks);
  }
}
