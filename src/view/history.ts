// One run, watched event by event: what was allocated and reserved after each, where every allocation lay, and which
// memory was held meanwhile. The recorded run, or the same requests through another allocator.
import type { Allocator } from '../allocator/allocator.ts';
import type { AllocatorChoice } from '../allocator/registry.ts';
import { type Reconstruction, type ReconstructOptions, reconstruct } from '../replay/reconstruct.ts';
import { RecordedPlacement } from '../replay/recorded-placement.ts';
import { type ReplayObserver, replay } from '../replay/replay.ts';
import { EventKind, type Trace } from '../trace/trace.ts';
import { AddressLayout } from './address-layout.ts';
import { MinMax } from './min-max.ts';
import { PieceLog, WatchedDevice } from './pieces.ts';

export interface History {
  /** Bytes after each event. */
  readonly allocated: Float64Array;
  readonly reserved: Float64Array;
  readonly allocatedRange: MinMax;
  readonly reservedRange: MinMax;
  /** By allocation: address and bytes given out; NaN where the request failed. */
  readonly address: Float64Array;
  readonly size: Float64Array;
  /** By allocation: where it lies on the map's axis, or where its first part does. */
  readonly offset: Float64Array;
  /** Offset and size of each part, for allocations that are stitched together from several. */
  readonly parts: ReadonlyMap<number, Float64Array>;
  readonly pieces: PieceLog;
  /** By piece: where it lies on the map's axis. */
  readonly pieceOffset: Float64Array;
  readonly layout: AddressLayout;
  readonly peakReserved: number;
  readonly peakReservedEvent: number;
  readonly ooms: number;
}

/** The run as it was recorded, and what the reconstruction found out about it. */
export function watchRecorded(
  trace: Trace,
  onProgress?: (fraction: number) => void,
): { history: History; reconstruction: Omit<Reconstruction, 'allocator'> } {
  const pieces = new PieceLog();
  const observer = new Observer(trace, pieces);
  const segment: NonNullable<ReconstructOptions['observer']>['segment'] = (kind, address, size) => {
    if (kind === EventKind.SegmentAlloc || kind === EventKind.SegmentMap) pieces.take(address, size, kind === EventKind.SegmentMap);
    else pieces.giveBack(address, size);
  };
  const { allocator, ...reconstruction } = reconstruct(trace, { onProgress, observer: Object.assign(observer, { segment }) });
  return { history: observer.finish(allocator.ooms), reconstruction };
}

/** The same requests through another allocator, where memory is no limit: the run behind `peakReserved` of the what-if table. */
export function watchChoice(
  trace: Trace,
  choice: AllocatorChoice,
  isRecorded: boolean,
  emptyCacheBefore: readonly number[],
  onProgress?: (fraction: number) => void,
): History {
  const device = new WatchedDevice({ placement: isRecorded ? RecordedPlacement.of(trace) : undefined });
  const observer = new Observer(trace, device.pieces, (address, size) => device.homesOf(address, size));
  const { ooms } = replay(trace, choice.create, { device, emptyCacheBefore, restoreStart: isRecorded, onProgress, observer });
  return observer.finish(ooms);
}

class Observer implements ReplayObserver {
  private readonly allocated: Float64Array;
  private readonly reserved: Float64Array;
  private readonly address: Float64Array;
  private readonly size: Float64Array;
  private readonly pieces: PieceLog;
  private readonly homesOf: (address: number, size: number) => number[] | undefined;
  /** Start and size of each run of homes, where they are not the addresses themselves. */
  private readonly homes = new Map<number, number[]>();
  private next = 0;
  private peakReserved = 0;
  private peakReservedEvent = -1;

  constructor(trace: Trace, pieces: PieceLog, homesOf: (address: number, size: number) => number[] | undefined = () => undefined) {
    this.homesOf = homesOf;
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

  after(event: number, allocator: Allocator): void {
    const { allocatedBytes, reservedBytes } = allocator;
    for (; this.next <= event; this.next++) {
      this.allocated[this.next] = allocatedBytes;
      this.reserved[this.next] = reservedBytes;
    }
    if (reservedBytes > this.peakReserved) {
      this.peakReserved = reservedBytes;
      this.peakReservedEvent = event;
    }
    this.pieces.now = this.next;
  }

  finish(ooms: number): History {
    const { pieces } = this;
    pieces.finish(this.allocated.length);
    const layout = new AddressLayout(pieces);
    const offset = this.address.map((address) => layout.offsetOf(address));
    const parts = new Map<number, Float64Array>();
    for (const [allocation, homes] of this.homes) {
      const placed = Float64Array.from(homes, (value, index) => (index % 2 === 0 ? layout.offsetOf(value) : value));
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
      peakReserved: this.peakReserved,
      peakReservedEvent: this.peakReservedEvent,
      ooms,
    };
  }
}
