// A run event by event: allocated and reserved bytes after each event, the address of each allocation, and the memory held
// from the driver. Either the recorded run, or its requests through another allocator.
import type { Allocator } from '../allocator/allocator.ts';
import type { AllocatorChoice } from '../allocator/registry.ts';
import { matchRules, reconstruct } from '../replay/reconstruct.ts';
import { recordedChoice } from '../replay/reconstruct-engine.ts';
import { isExact, type Reconstruction, type ReconstructOptions } from '../replay/reconstruction.ts';
import { RecordedPlacement } from '../replay/recorded-placement.ts';
import { type ReplayObserver, type ReplayOptions, replay } from '../replay/replay.ts';
import { ReservedPeak } from '../replay/reserved-peak.ts';
import { limitsFor, UNLIMITED_GPU, type WhatIfGpu } from '../replay/what-if.ts';
import { recordedEngine } from '../trace/summary.ts';
import { EventKind, type Trace } from '../trace/trace.ts';
import { AddressLayout } from './address-layout.ts';
import { MinMax } from './min-max.ts';
import { PieceLog, WatchedBackend } from './pieces.ts';

export interface History {
  /** Bytes after each event. */
  readonly allocated: Float64Array;
  readonly reserved: Float64Array;
  readonly allocatedRange: MinMax;
  readonly reservedRange: MinMax;
  /** By allocation: address and size of its block; NaN: the request failed. */
  readonly address: Float64Array;
  readonly size: Float64Array;
  /** By allocation: its position on the map's axis, or that of its first part. */
  readonly offset: Float64Array;
  /** Offset and size of each part, for stitched allocations. */
  readonly parts: ReadonlyMap<number, Float64Array>;
  readonly pieces: PieceLog;
  /** By piece: its position on the map's axis. */
  readonly pieceOffset: Float64Array;
  readonly layout: AddressLayout;
  /** Before the first event. */
  readonly startReserved: number;
  readonly peakReserved: number;
  readonly peakReservedEvent: number;
  readonly ooms: number;
  /** Offset and size of each part of requests that failed in the recording and are served here, by event. */
  readonly served: ReadonlyMap<number, Float64Array>;
}

/** The recorded run, and what its reconstruction found. */
export function watchRecorded(
  trace: Trace,
  onProgress?: (fraction: number) => void,
): { history: History; reconstruction: Omit<Reconstruction, 'allocator'> } {
  if (recordedEngine(trace)) return watchEngine(trace, onProgress);
  const first = watchReconstruction(trace, undefined, onProgress);
  if (first.reconstruction.rulesOrigin === 'recorded' || isExact(first.reconstruction)) return first;
  const { rules, rulesOrigin } = matchRules(trace, {}, first.reconstruction);
  if (rules === first.reconstruction.rules) return first;
  const matched = watchReconstruction(trace, rules, onProgress);
  return { ...matched, reconstruction: { ...matched.reconstruction, rulesOrigin } };
}

function watchReconstruction(
  trace: Trace,
  rules: Reconstruction['rules'] | undefined,
  onProgress?: (fraction: number) => void,
): ReturnType<typeof watchRecorded> {
  const pieces = new PieceLog();
  const observer = new Observer(trace, pieces);
  let latest = 0;
  const segment: NonNullable<ReconstructOptions['observer']>['segment'] = (kind, address, size) => {
    const group = pieces.now;
    latest = findSegmentEvent(trace, kind, address, Math.max(latest, group));
    pieces.now = latest < 0 ? group : latest;
    if (kind === EventKind.SegmentAlloc || kind === EventKind.SegmentMap) pieces.take(address, size, kind === EventKind.SegmentMap);
    else pieces.giveBack(address, size);
    pieces.now = group;
  };
  const { allocator, ...reconstruction } = reconstruct(trace, { onProgress, rules, observer: Object.assign(observer, { segment }) });
  return { history: observer.finish(allocator.ooms), reconstruction };
}

/** A run on Weir's engine: blocks and pieces from the model, reserved memory from the recording. */
function watchEngine(trace: Trace, onProgress?: (fraction: number) => void): ReturnType<typeof watchRecorded> {
  const { allocator: _, ...reconstruction } = reconstruct(trace, { onProgress: (done) => onProgress?.(done / 2) });
  const { limits } = reconstruction;
  const gpu = { capacity: limits.capacity, allowedBytes: limits.allowedBytes };
  const half = (done: number) => onProgress?.((1 + done) / 2);
  const modelled = watchChoice(trace, recordedChoice(trace, reconstruction), false, {}, half, gpu);
  const { events } = trace;
  const reserved = new Float64Array(events.count);
  let level = Number.NaN;
  const peak = new ReservedPeak();
  for (let event = 0; event < events.count; event++) {
    if (events.kind[event] === EventKind.Reserved) level = events.size[event]!;
    reserved[event] = Number.isNaN(level) ? modelled.reserved[event]! : level;
    peak.note(event, reserved[event]!, modelled.allocated[event]!);
  }
  const history = { ...modelled, reserved, reservedRange: new MinMax(reserved), peakReserved: peak.bytes, peakReservedEvent: peak.event };
  return { history, reconstruction };
}

/** The event of a group, replayed as one, that takes or frees this piece; -1: none. */
function findSegmentEvent({ events }: Trace, kind: number, address: number, from: number): number {
  for (let event = Math.max(0, from); event < events.count; event++) {
    const found = events.kind[event]!;
    if (found === kind && events.address[event] === address) return event;
    if (segmentSign(found) === 0 && found !== EventKind.FreeCompleted) return -1;
  }
  return -1;
}

/** 1: takes memory from the driver; -1: gives it back; 0: another event. */
function segmentSign(kind: number): number {
  if (kind === EventKind.SegmentAlloc || kind === EventKind.SegmentMap) return 1;
  return kind === EventKind.SegmentFree || kind === EventKind.SegmentUnmap ? -1 : 0;
}

/** The same requests through another allocator. Without a limit it is the run behind the peaks of the what-if table. */
export function watchChoice(
  trace: Trace,
  choice: AllocatorChoice,
  isRecorded: boolean,
  job: Pick<ReplayOptions, 'emptyCacheBefore' | 'rules'>,
  onProgress?: (fraction: number) => void,
  gpu: WhatIfGpu = UNLIMITED_GPU,
): History {
  const { capacity, ...limits } = limitsFor(choice, gpu);
  const backend = new WatchedBackend({ capacity, placement: isRecorded ? RecordedPlacement.of(trace) : undefined });
  const observer = new Observer(trace, backend.pieces, (address, size) => backend.homesOf(address, size));
  const { ooms } = replay(trace, choice.create, { ...job, ...limits, backend, restoreStart: isRecorded, onProgress, observer });
  return observer.finish(ooms);
}

class Observer implements ReplayObserver {
  private readonly trace: Trace;
  private readonly allocated: Float64Array;
  private readonly reserved: Float64Array;
  private readonly address: Float64Array;
  private readonly size: Float64Array;
  private readonly pieces: PieceLog;
  private readonly homesOf: (address: number, size: number) => number[] | undefined;
  /** Start and size of each extent of homes, for allocations that are not their own home. */
  private readonly homes = new Map<number, number[]>();
  /** The same for requests that failed in the recording, by event. */
  private readonly servedHomes = new Map<number, number[]>();
  private next = 0;
  /** Levels before the first event. */
  private startAllocated = 0;
  private startReserved = 0;
  private readonly peak = new ReservedPeak();

  constructor(trace: Trace, pieces: PieceLog, homesOf: (address: number, size: number) => number[] | undefined = () => undefined) {
    this.homesOf = homesOf;
    this.trace = trace;
    this.allocated = new Float64Array(trace.events.count);
    this.reserved = new Float64Array(trace.events.count);
    this.address = new Float64Array(trace.allocations.count).fill(Number.NaN);
    this.size = new Float64Array(trace.allocations.count).fill(Number.NaN);
    this.pieces = pieces;
  }

  placed(allocation: number, block: number, allocator: Allocator): void {
    if (block < 0) return;
    this.address[allocation] = allocator.addressOf(block);
    this.size[allocation] = allocator.sizeOf(block);
    const homes = this.homesOf(this.address[allocation]!, this.size[allocation]!);
    if (homes) this.homes.set(allocation, homes);
  }

  served(event: number, block: number, allocator: Allocator): void {
    const address = allocator.addressOf(block);
    const size = allocator.sizeOf(block);
    this.servedHomes.set(event, this.homesOf(address, size) ?? [address, size]);
  }

  after(event: number, allocator: Allocator): void {
    const { allocatedBytes, reservedBytes } = allocator;
    this.fillGroup(event, allocatedBytes);
    if (event >= 0) {
      this.allocated[event] = allocatedBytes;
      this.reserved[event] = reservedBytes;
    } else {
      this.startAllocated = allocatedBytes;
      this.startReserved = reservedBytes;
    }
    this.next = event + 1;
    this.peak.note(event, reservedBytes, allocatedBytes);
    this.pieces.now = this.next;
  }

  /** Fills in events that were replayed together with their request: segments change first, then the block is allocated. */
  private fillGroup(last: number, allocatedBytes: number): void {
    const { events } = this.trace;
    let reserved = this.next > 0 ? this.reserved[this.next - 1]! : this.startReserved;
    const before = this.next > 0 ? this.allocated[this.next - 1]! : this.startAllocated;
    for (let event = this.next; event < last; event++) {
      reserved += segmentSign(events.kind[event]!) * events.size[event]!;
      this.reserved[event] = reserved;
      this.allocated[event] = events.kind[event] === EventKind.FreeRequested ? allocatedBytes : before;
    }
  }

  finish(ooms: number): History {
    const { pieces } = this;
    pieces.finish(this.allocated.length);
    const layout = new AddressLayout(pieces);
    const offset = this.address.map((address) => layout.offsetOf(address));
    const parts = new Map<number, Float64Array>();
    const placesOf = (homes: readonly number[]) =>
      Float64Array.from(homes, (value, index) => (index % 2 === 0 ? layout.offsetOf(value) : value));
    for (const [allocation, homes] of this.homes) {
      const placed = placesOf(homes);
      offset[allocation] = placed[0]!;
      if (placed.length > 2) parts.set(allocation, placed);
    }
    return {
      allocated: this.allocated,
      reserved: this.reserved,
      allocatedRange: new MinMax(this.allocated),
      reservedRange: new MinMax(this.reserved),
      address: this.address,
      size: this.size,
      offset,
      parts,
      pieces,
      pieceOffset: Float64Array.from(pieces.address, (address) => layout.offsetOf(address)),
      layout,
      startReserved: this.startReserved,
      peakReserved: this.peak.bytes,
      peakReservedEvent: this.peak.event,
      ooms,
      served: new Map([...this.servedHomes].map(([event, homes]) => [event, placesOf(homes)])),
    };
  }
}
