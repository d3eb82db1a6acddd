// The engine as an allocator, on any backend: the same WebAssembly that becomes C for PyTorch.

import type { StreamEvents } from '../../backend/backend.ts';
import { InvariantError, UsageError } from '../../base/errors.ts';
import { type Allocator, type AllocatorContext, type CensusGroup, OUT_OF_MEMORY } from '../allocator.ts';
import { type EngineExports, type EngineModule, instantiateEngine } from './load.ts';
import { describeRule } from './rules.ts';
import { ENGINE_SETTINGS, type EngineSettings, GMLAKE_SETTINGS, regionBytesFor, WEIR_SETTINGS } from './settings.ts';

/** States of a range, as in engine/abi/range-states.ts. */
const RangeState = { Free: 1, Live: 2, Pending: 3, Unbacked: 4, Carved: 6, Stuck: 7, Parked: 8, Planned: 9 } as const;
/** Numbers in a row of the snapshot. */
const ROW = 8;

/** Contiguous addresses of an arena in one state. */
export interface EngineRange {
  readonly address: number;
  readonly size: number;
  readonly requested: number;
  /** The address given out for the block that begins here, else 0. */
  readonly given: number;
  readonly state: 'free' | 'live' | 'pending' | 'unbacked' | 'carved' | 'stuck' | 'parked' | 'planned';
  readonly stream: number;
  readonly pool: number;
  readonly small: boolean;
}

/** Why a request failed. */
export interface Explanation {
  readonly asked: number;
  readonly allocated: number;
  readonly reserved: number;
  /** Free in the arena (stream and pool) of the request. */
  readonly free: number;
  readonly largestFree: number;
  /** The largest block that could be stitched of what is free there. */
  readonly assemblable: number;
  /** Free on other streams of the same pool. */
  readonly freeElsewhere: number;
  /** The driver call that failed last. */
  readonly failedCall: 'none' | 'create' | 'reserve' | 'map' | 'setAccess' | 'own memory';
}

const CALLS = ['none', 'create', 'reserve', 'map', 'setAccess', 'own memory'] as const;
const STATES = { 1: 'free', 2: 'live', 3: 'pending', 4: 'unbacked', 6: 'carved', 7: 'stuck', 8: 'parked', 9: 'planned' } as const;

/** Statistics by name, in the order of engine/abi/statistics.ts. */
const STATISTICS = [
  'reserved',
  'peakReserved',
  'allocated',
  'inUse',
  'peakInUse',
  'requested',
  'handles',
  'keptStitches',
  'stitchedBytes',
  'regions',
  'orphans',
  'blocks',
  'fits',
  'reuses',
  'growths',
  'stitches',
  'extensions',
  'carves',
  'evictions',
  'retries',
  'ooms',
  'ownMemory',
  'borrows',
  'borrowedBytes',
  'waits',
  'events',
  'queries',
  'parked',
] as const;
export type EngineStatistics = Readonly<Record<(typeof STATISTICS)[number], number>>;

/** Statistics of plans, with numbers of their own. */
const PLAN_STATISTICS = ['hits', 'misses', 'occupied', 'active', 'arenaBytes', 'plans', 'blocks'] as const;
const FIRST_PLAN_STATISTIC = 32;

/**
 * How plans are followed. hits: requests served at their places; misses: those that no plan expected, or whose place has no
 * memory; occupied: those whose place was taken. active: the number of the plan in use; arenaBytes: memory lent to plans;
 * plans: plans installed; blocks: blocks at planned places.
 */
export type PlanStatistics = Readonly<Record<(typeof PLAN_STATISTICS)[number], number>>;

/** The requests of a step, in order, with an offset for each turn. All are of one stream. */
export interface EnginePlan {
  readonly requests: readonly { readonly size: number; readonly stream: number }[];
  readonly turns: number;
  /** `offsets[request * turns + turn]`. */
  readonly offsets: Float64Array;
  readonly footprint: number;
}

const PLAN_ROW_HEAD = 16;

export class EngineAllocator implements Allocator {
  readonly settings: EngineSettings;
  // The engine counts a retry and a failure for each attempt. These are attempts made again after a wait for the streams.
  private repeatedRetries = 0;
  private repeatedOoms = 0;
  private readonly engine: EngineExports;
  private readonly synchronize: () => readonly number[];
  private readonly events: StreamEvents | undefined;

  constructor(context: AllocatorContext, settings: EngineSettings, module?: EngineModule) {
    this.settings = settings;
    this.engine = instantiateEngine(context.backend, context.allowedBytes, module, context.events);
    this.synchronize = context.synchronize ?? (() => []);
    this.events = context.events;
    if (this.engine.settings() !== ENGINE_SETTINGS.length)
      throw new InvariantError('the engine has other settings than the code around it');
    // The unit comes first, since bounds of other settings depend on it.
    for (const name of ['handleUnit', ...ENGINE_SETTINGS] as const) {
      // Lending needs events.
      const value = name === 'lend' && !this.events ? 0 : settings[name];
      if (this.engine.configureF64(ENGINE_SETTINGS.indexOf(name), value) !== 1) {
        throw new UsageError(`the engine does not take ${settings[name]} for its setting ${name}`);
      }
    }
  }

  get reservedBytes(): number {
    return this.engine.statisticF64(0);
  }

  get allocatedBytes(): number {
    return this.engine.statisticF64(2);
  }

  get retries(): number {
    return this.statistics.retries - this.repeatedRetries;
  }

  get ooms(): number {
    return this.statistics.ooms - this.repeatedOoms;
  }

  get statistics(): EngineStatistics {
    return Object.fromEntries(STATISTICS.map((name, index) => [name, this.engine.statisticF64(index)])) as EngineStatistics;
  }

  get planStatistics(): PlanStatistics {
    const entries = PLAN_STATISTICS.map((name, index) => [name, this.engine.statisticF64(FIRST_PLAN_STATISTIC + index)]);
    return Object.fromEntries(entries) as PlanStatistics;
  }

  /** Installs a plan beside the others. Gives its number, or 0 if the engine refuses it. */
  installPlan({ requests, turns, offsets, footprint }: EnginePlan): number {
    const rows = this.engine.planBuffer(requests.length, turns);
    if (rows === 0) return 0;
    const view = new DataView(this.engine.memory.buffer);
    let at = rows;
    const writeBytes = (bytes: number) => {
      view.setBigUint64(at, BigInt(bytes), true);
      at += 8;
    };
    requests.forEach(({ size, stream }, request) => {
      writeBytes(size);
      view.setUint32(at, stream, true);
      at += PLAN_ROW_HEAD - 8;
      for (let turn = 0; turn < turns; turn++) writeBytes(offsets[request * turns + turn]!);
    });
    return this.engine.planInstallF64(rows, footprint);
  }

  /** Forgets a plan, or all with 0. False if there was none. */
  forgetPlan(plan: number = 0): boolean {
    return this.engine.planForget(plan) === 1;
  }

  malloc(requested: number, stream: number, pool: number): number {
    const block = this.engine.mallocBlockF64(requested, stream, pool);
    if (block !== 0) return block;
    const completed = this.synchronize();
    if (completed.length === 0 && !this.settle()) return OUT_OF_MEMORY;
    for (const freed of completed) this.complete(freed);
    this.repeatedOoms++;
    const before = this.statistics.retries;
    const second = this.engine.mallocBlockF64(requested, stream, pool);
    this.repeatedRetries += this.statistics.retries - before;
    return second === 0 ? OUT_OF_MEMORY : second;
  }

  free(block: number): void {
    if (this.engine.freeBlock(block) !== 1) throw new InvariantError(`block ${block} is not live`);
  }

  complete(block: number): void {
    if (this.engine.completeBlock(block) !== 1) throw new InvariantError(`block ${block} was not freed`);
  }

  recordStream(block: number, stream: number): void {
    // Without events the caller says by `complete` when the memory may be used again.
    if (!this.events) return;
    if (this.engine.recordStreamBlock(block, stream) !== 1) throw new InvariantError(`block ${block} is not live`);
  }

  /** A stream begins or ends being captured into a graph. Meanwhile nothing is lent and no event is touched. */
  setCapturing(stream: number, capturing: boolean): void {
    this.engine.setCapturing(stream, capturing ? 1 : 0);
  }

  emptyCache(): void {
    for (const block of this.synchronize()) this.complete(block);
    this.settle();
    this.engine.emptyCache();
  }

  addressOf(block: number): number {
    return this.engine.addressOfF64(block);
  }

  sizeOf(block: number): number {
    return this.engine.sizeOfF64(block);
  }

  /** Why the last failed request failed. */
  explain(): Explanation {
    const value = (index: number) => this.engine.explanationF64(index);
    return {
      asked: value(0),
      allocated: value(1),
      reserved: value(2),
      free: value(3),
      largestFree: value(4),
      assemblable: value(5),
      failedCall: CALLS[value(6)] ?? 'none',
      freeElsewhere: value(7),
    };
  }

  /** Every range of every arena, also those without memory. */
  snapshot(): EngineRange[] {
    const ranges: EngineRange[] = [];
    this.eachRow((row) => {
      ranges.push({
        address: row[0]!,
        size: row[1]!,
        requested: row[2]!,
        given: row[3]!,
        state: STATES[row[4]! as keyof typeof STATES],
        stream: row[5]!,
        pool: row[6]!,
        small: row[7] === 1,
      });
    });
    return ranges;
  }

  census(): CensusGroup[] {
    const groups = new Map<string, { -readonly [Field in keyof CensusGroup]: CensusGroup[Field] }>();
    this.eachRow((row) => {
      const [, size, requested, , state, stream, pool, small] = row as unknown as [
        number,
        number,
        number,
        number,
        number,
        number,
        number,
        number,
      ];
      // Memory that was lent or carved counts where it is used.
      if (state === RangeState.Unbacked || state === RangeState.Carved || state === RangeState.Planned) return;
      const key = `${stream}/${pool}/${small}`;
      let group = groups.get(key);
      if (!group) {
        group = {
          stream,
          pool,
          small: small === 1,
          reserved: 0,
          requested: 0,
          rounding: 0,
          pending: 0,
          free: 0,
          freePieces: 0,
          largestFree: 0,
        };
        groups.set(key, group);
      }
      group.reserved += size;
      if (state === RangeState.Live) {
        group.requested += requested;
        group.rounding += size - requested;
      } else if (state === RangeState.Pending || state === RangeState.Stuck || state === RangeState.Parked) {
        group.pending += size;
      } else {
        group.free += size;
        group.freePieces++;
        group.largestFree = Math.max(group.largestFree, size);
      }
    });
    return [...groups.values()].sort((a, b) => b.reserved - a.reserved);
  }

  /** Level 1 checks sums, 2 every range, handle and stitch, 3 also the trees and every block in a stitch. */
  check(level: 1 | 2 | 3 = 3): void {
    const broken = this.engine.check(level);
    if (broken !== 0) throw new InvariantError(`the engine breaks its rule that ${describeRule(broken)}`);
  }

  /** Waits for the streams if parked blocks depend on them. Whether any did. */
  private settle(): boolean {
    if (!this.events || this.statistics.parked === 0) return false;
    this.events.synchronize();
    this.engine.streamsIdle();
    return true;
  }

  /** A hash of the engine's memory: equal hashes mean equal states, almost certainly. */
  fingerprint(): string {
    const words = new Uint32Array(this.engine.memory.buffer, 0, this.statistics.ownMemory >>> 2);
    let low = 0x811c9dc5;
    let high = 0x01000193;
    for (let index = 0; index < words.length; index++) {
      const word = words[index]!;
      low = Math.imul(low ^ word, 0x01000193);
      high = Math.imul(high ^ (word + index), 0x85ebca6b);
      high ^= high >>> 15;
    }
    return `${low >>> 0}-${high >>> 0}`;
  }

  private eachRow(visit: (row: Float64Array) => void): void {
    const count = this.engine.snapshot();
    const rows = new Float64Array(this.engine.memory.buffer, this.engine.snapshotAddress(), count * ROW);
    for (let index = 0; index < count; index++) visit(rows.subarray(index * ROW, (index + 1) * ROW));
  }
}

export function createWeir(context: AllocatorContext, settings: Partial<EngineSettings> = {}): EngineAllocator {
  return new EngineAllocator(context, withRegions(context, { ...WEIR_SETTINGS, ...settings }, settings));
}

export function createGmlake(context: AllocatorContext, settings: Partial<EngineSettings> = {}): EngineAllocator {
  return new EngineAllocator(context, withRegions(context, { ...GMLAKE_SETTINGS, ...settings }, settings));
}

function withRegions(context: AllocatorContext, settings: EngineSettings, given: Partial<EngineSettings>): EngineSettings {
  return { ...settings, regionBytes: given.regionBytes ?? regionBytesFor(context.deviceBytes, settings.handleUnit) };
}
