// The engine as an allocator, on any backend: the same WebAssembly that becomes C for PyTorch.

import {
  DRIVER_CALL_NAMES,
  ENGINE_RULES,
  Explained,
  PLAN_ROW_BYTES,
  PlanRowOffset,
  PlanStatistic,
  RANGE_STATE_NAMES,
  RangeState,
  SNAPSHOT_COLUMNS,
  SnapshotColumn,
  Statistic,
} from '../../abi/engine.ts';
import { ENGINE_SETTINGS, type EngineSettings } from '../../abi/settings.ts';
import type { StreamEvents } from '../../backend/backend.ts';
import { InvariantError, UsageError } from '../../base/errors.ts';
import { type Allocator, type AllocatorContext, type CensusGroup, OUT_OF_MEMORY } from '../allocator.ts';
import { type EngineExports, type EngineModule, instantiateEngine } from './load.ts';
import { GMLAKE_SETTINGS, regionBytesFor, WEIR_SETTINGS } from './settings.ts';

/** Contiguous addresses of an arena in one state. */
export interface EngineRange {
  readonly address: number;
  readonly size: number;
  readonly requested: number;
  /** The address given out for the block that begins here, else 0. */
  readonly given: number;
  readonly state: (typeof RANGE_STATE_NAMES)[keyof typeof RANGE_STATE_NAMES];
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
  readonly failedCall: (typeof DRIVER_CALL_NAMES)[number];
}

export type EngineStatistics = Readonly<Record<keyof typeof Statistic, number>>;

/** How plans are followed. */
export type PlanStatistics = Readonly<Record<keyof typeof PlanStatistic, number>>;

/** The requests of a step, in order, with an offset for each turn. All are of one stream. */
export interface EnginePlan {
  readonly requests: readonly { readonly size: number; readonly stream: number }[];
  readonly turns: number;
  /** `offsets[request * turns + turn]`. */
  readonly offsets: Float64Array;
  readonly footprint: number;
}

export class EngineAllocator implements Allocator {
  readonly settings: EngineSettings;
  // The engine counts a retry and a failure for each attempt. These are attempts made again after a wait for the streams.
  private repeatedRetries = 0;
  private repeatedOoms = 0;
  private readonly capturing = new Set<number>();
  /** The latest release when the host last waited for the device. */
  private settled = 0;
  private readonly engine: EngineExports;
  private readonly synchronize: () => readonly number[];
  private readonly events: StreamEvents | undefined;

  constructor(context: AllocatorContext, settings: EngineSettings, module?: EngineModule) {
    this.settings = settings;
    this.engine = instantiateEngine(context.backend, context.allowedBytes, module, context.events);
    this.synchronize = context.synchronize ?? (() => []);
    this.events = context.events;
    // The unit comes first, since bounds of other settings depend on it.
    for (const name of ['handleUnit', ...ENGINE_SETTINGS] as const) {
      // Without events nothing is lent, and the backend has to wait before it unmaps.
      const value = (name === 'lend' || name === 'unmapFinished') && !this.events ? 0 : settings[name];
      if (this.engine.configureF64(ENGINE_SETTINGS.indexOf(name), value) !== 1) {
        throw new UsageError(`the engine does not take ${settings[name]} for its setting ${name}`);
      }
    }
  }

  get reservedBytes(): number {
    return this.engine.statisticF64(Statistic.reserved);
  }

  get allocatedBytes(): number {
    return this.engine.statisticF64(Statistic.allocated);
  }

  get retries(): number {
    return this.statistics.retries - this.repeatedRetries;
  }

  get ooms(): number {
    return this.statistics.ooms - this.repeatedOoms;
  }

  get statistics(): EngineStatistics {
    return this.valuesOf(Statistic);
  }

  get planStatistics(): PlanStatistics {
    return this.valuesOf(PlanStatistic);
  }

  /** Installs a plan beside the others. Gives its number, or 0 if the engine refuses it. */
  installPlan({ requests, turns, offsets, footprint }: EnginePlan): number {
    const rows = this.engine.planBuffer(requests.length, turns);
    if (rows === 0) return 0;
    const view = new DataView(this.engine.memory.buffer);
    const rowBytes = PLAN_ROW_BYTES + 8 * turns;
    requests.forEach(({ size, stream }, request) => {
      const row = rows + request * rowBytes;
      view.setBigUint64(row + PlanRowOffset.bytes, BigInt(size), true);
      view.setUint32(row + PlanRowOffset.stream, stream, true);
      for (let turn = 0; turn < turns; turn++) {
        view.setBigUint64(row + PLAN_ROW_BYTES + 8 * turn, BigInt(offsets[request * turns + turn]!), true);
      }
    });
    return this.engine.planInstallF64(rows, footprint);
  }

  /** Forgets a plan, or all with 0. False if there was none. */
  forgetPlan(plan: number = 0): boolean {
    return this.engine.planForget(plan) === 1;
  }

  malloc(requested: number, stream: number, pool: number): number {
    let block = this.engine.mallocBlockF64(requested, stream, pool);
    if (block === 0 && this.settleMemory()) block = this.mallocAgain(requested, stream, pool);
    if (block !== 0) return block;
    const completed = this.synchronize();
    for (const freed of completed) this.complete(freed);
    if (!this.settle() && completed.length === 0) return OUT_OF_MEMORY;
    block = this.mallocAgain(requested, stream, pool);
    return block === 0 ? OUT_OF_MEMORY : block;
  }

  /** Another attempt after a wait. It counts as part of the first. */
  private mallocAgain(requested: number, stream: number, pool: number): number {
    this.repeatedOoms++;
    const before = this.statistics.retries;
    const block = this.engine.mallocBlockF64(requested, stream, pool);
    this.repeatedRetries += this.statistics.retries - before;
    return block;
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
    if (capturing) this.capturing.add(stream);
    else this.capturing.delete(stream);
  }

  emptyCache(): void {
    for (const block of this.synchronize()) this.complete(block);
    this.settle();
    this.releaseFinished();
  }

  /** The engine gives back the unused memory of all pools, since it cannot single one out. */
  releasePool(): void {
    this.settle();
    this.releaseFinished();
  }

  /** Gives back free memory that the GPU has finished with, without a wait. */
  releaseFinished(): void {
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
      asked: value(Explained.asked),
      allocated: value(Explained.allocated),
      reserved: value(Explained.reserved),
      free: value(Explained.free),
      largestFree: value(Explained.largestFree),
      assemblable: value(Explained.assemblable),
      failedCall: DRIVER_CALL_NAMES[value(Explained.failedCall)] ?? 'none',
      freeElsewhere: value(Explained.freeElsewhere),
    };
  }

  /** Every range of every arena, also those without memory. */
  snapshot(): EngineRange[] {
    const ranges: EngineRange[] = [];
    this.eachRow((row) => {
      ranges.push({
        address: row[SnapshotColumn.address]!,
        size: row[SnapshotColumn.size]!,
        requested: row[SnapshotColumn.requested]!,
        given: row[SnapshotColumn.given]!,
        state: RANGE_STATE_NAMES[row[SnapshotColumn.state]! as keyof typeof RANGE_STATE_NAMES],
        stream: row[SnapshotColumn.stream]!,
        pool: row[SnapshotColumn.pool]!,
        small: row[SnapshotColumn.small] === 1,
      });
    });
    return ranges;
  }

  census(): CensusGroup[] {
    const groups = new Map<string, { -readonly [Field in keyof CensusGroup]: CensusGroup[Field] }>();
    this.eachRow((row) => {
      const size = row[SnapshotColumn.size]!;
      const requested = row[SnapshotColumn.requested]!;
      const state = row[SnapshotColumn.state]!;
      const stream = row[SnapshotColumn.stream]!;
      const pool = row[SnapshotColumn.pool]!;
      const small = row[SnapshotColumn.small]!;
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
    if (broken !== 0) throw new InvariantError(`the engine breaks its rule that ${ENGINE_RULES[broken] ?? `rule ${broken} holds`}`);
  }

  /** The number of the latest release. A caller that waits for the device reads it before. */
  get latestRelease(): number {
    return this.engine.latestReleaseF64();
  }

  /** The host has waited for the device: releases up to this number are over. */
  streamsIdle(release: number): void {
    this.engine.streamsIdleF64(release);
    this.settled = release;
  }

  /** Waits for the device, unless nothing was released since the last wait. Whether it did. */
  private settle(): boolean {
    if (this.statistics.parked === 0 && this.settleMemory()) return true;
    const release = this.latestRelease;
    if (!this.events || this.capturing.size > 0 || (release === this.settled && this.statistics.parked === 0)) return false;
    this.events.synchronize();
    this.streamsIdle(release);
    return true;
  }

  /** On a simulated GPU: the wait before memory is given back. Whether anything was released since the last wait. */
  private settleMemory(): boolean {
    const release = this.latestRelease;
    if (!this.events?.isSimulated || this.capturing.size > 0 || release === this.settled) return false;
    this.engine.memoryIdleF64(release);
    this.settled = release;
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

  /** All values of a table of numbers, by name. */
  private valuesOf<Name extends string>(numbers: Readonly<Record<Name, number>>): Readonly<Record<Name, number>> {
    const entries = Object.entries<number>(numbers).map(([name, number]) => [name, this.engine.statisticF64(number)]);
    return Object.fromEntries(entries) as Record<Name, number>;
  }

  private eachRow(visit: (row: Float64Array) => void): void {
    const count = this.engine.snapshot();
    const rows = new Float64Array(this.engine.memory.buffer, this.engine.snapshotAddress(), count * SNAPSHOT_COLUMNS);
    for (let index = 0; index < count; index++) visit(rows.subarray(index * SNAPSHOT_COLUMNS, (index + 1) * SNAPSHOT_COLUMNS));
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
