// A simulated GPU: deterministic addresses, a capacity and the measured cost of every call, but no memory.
// Misuse (freeing what is not held, mapping over a mapping) throws, so that defects of allocators show.
import { MIB, roundUp } from '../base/bytes.ts';
import { InvariantError } from '../base/errors.ts';
import { type Backend, DriverLedger, GRANULARITY, NO_MEMORY } from './backend.ts';
import { type DriverCosts, H200_COSTS } from './costs.ts';

/** cudaMalloc places memory downward in aligned chunks of this size. Small requests share a chunk. */
const MALLOC_CHUNK = 32 * MIB;
const MALLOC_TOP = 0x7f00_0000_0000;
const RESERVE_BOTTOM = 0x3_0200_0000;
/** Beyond this, sums of sizes and addresses would not be exact. */
const MOST_BYTES = 2 ** 52;

/** Chooses the addresses of cudaMalloc and of address reservations. */
export interface Placement {
  malloc(bytes: number): number;
  reserve(bytes: number): number;
  /** Memory of `malloc` is free again. */
  freed?(address: number): void;
  /** The addresses come from a file. A damaged file may put one range into another. */
  readonly isRecorded?: boolean;
}

/** Addresses in the order of an H200's driver. They are never reused, so a stale address is always detected. */
export class InventedPlacement implements Placement {
  private mallocBottom: number;
  private reserveTop: number;
  private tail = 0;
  private tailEnd = 0;

  constructor(mallocTop: number = MALLOC_TOP, reserveBottom: number = RESERVE_BOTTOM) {
    this.mallocBottom = mallocTop;
    this.reserveTop = reserveBottom;
  }

  malloc(bytes: number): number {
    // A damaged recording may have segments without bytes. They, too, get an address of their own.
    const size = roundUp(Math.max(bytes, 1), GRANULARITY);
    if (this.tail + size <= this.tailEnd) {
      const address = this.tail;
      this.tail += size;
      return address;
    }
    const span = roundUp(size, MALLOC_CHUNK);
    this.mallocBottom -= span;
    this.tail = this.mallocBottom + size;
    this.tailEnd = this.mallocBottom + span;
    return this.mallocBottom;
  }

  reserve(bytes: number): number {
    const address = this.reserveTop;
    this.reserveTop += roundUp(bytes, GRANULARITY);
    return address;
  }
}

export interface SimulatedBackendOptions {
  /** Physical bytes available; unlimited if absent. */
  readonly capacity?: number | undefined;
  readonly costs?: DriverCosts | undefined;
  readonly placement?: Placement | undefined;
}

export class SimulatedBackend implements Backend {
  readonly name = 'sim';
  readonly ledger: DriverLedger = new DriverLedger();
  readonly capacity: number;
  private readonly costs: DriverCosts;
  private readonly placement: Placement;
  private used = 0;
  private readonly mallocs = new Map<number, number>();
  /** Size by handle, in bytes. 0: released. */
  private readonly handles: number[] = [];
  private readonly mappings = new Map<number, number>();

  constructor(options: SimulatedBackendOptions = {}) {
    this.capacity = Math.min(options.capacity ?? Number.POSITIVE_INFINITY, MOST_BYTES);
    this.costs = options.costs ?? H200_COSTS;
    this.placement = options.placement ?? new InventedPlacement();
  }

  get usedBytes(): number {
    return this.used;
  }

  malloc(bytes: number): number {
    this.ledger.charge('malloc', this.costs.malloc.at(bytes));
    if (!this.take(bytes)) return NO_MEMORY;
    let address = this.placement.malloc(bytes);
    // If the replay has diverged from its recording, the recorded address may still be held.
    while (this.mallocs.has(address)) address = this.placement.malloc(bytes);
    this.mallocs.set(address, bytes);
    return address;
  }

  free(address: number, bytes: number): void {
    this.ledger.charge('free', this.costs.free.at(bytes));
    if (this.mallocs.get(address) !== bytes) throw new InvariantError(`cannot free ${bytes} bytes at ${address}: no such allocation`);
    this.mallocs.delete(address);
    this.placement.freed?.(address);
    this.giveBack(bytes);
  }

  reserve(bytes: number, wanted?: number): number {
    this.ledger.charge('reserve', this.costs.reserveUs);
    return wanted ?? this.placement.reserve(bytes);
  }

  unreserve(): boolean {
    this.ledger.charge('reserve', this.costs.reserveUs);
    return true;
  }

  create(bytes: number): number {
    this.ledger.charge('create', this.costs.create.at(bytes));
    if (!this.take(bytes)) return NO_MEMORY;
    return this.handles.push(bytes) - 1;
  }

  release(handle: number): boolean {
    const bytes = this.sizeOf(handle);
    this.ledger.charge('release', this.costs.release.at(bytes));
    this.handles[handle] = 0;
    this.giveBack(bytes);
    return true;
  }

  map(address: number, handle: number): boolean {
    this.ledger.charge('map', this.costs.map.at(this.sizeOf(handle)));
    if (this.mappings.has(address)) {
      if (this.placement.isRecorded) return false;
      throw new InvariantError(`cannot map at ${address}: something is mapped there`);
    }
    this.mappings.set(address, handle);
    return true;
  }

  setAccess(address: number, bytes: number): boolean {
    let microseconds = 0;
    this.eachMapping(address, bytes, (_, size) => {
      microseconds += this.costs.setAccessPerHandle.at(size);
    });
    this.ledger.charge('setAccess', microseconds);
    return true;
  }

  unmap(address: number, bytes: number): boolean {
    let microseconds = 0;
    this.eachMapping(address, bytes, (start, size) => {
      microseconds += this.costs.unmap.at(size);
      this.mappings.delete(start);
    });
    this.ledger.charge('unmap', microseconds);
    return true;
  }

  private eachMapping(address: number, bytes: number, visit: (start: number, size: number) => void): void {
    for (let start = address; start < address + bytes; ) {
      const handle = this.mappings.get(start);
      if (handle === undefined) throw new InvariantError(`nothing is mapped at ${start}`);
      const size = this.sizeOf(handle);
      visit(start, size);
      start += size;
    }
  }

  private sizeOf(handle: number): number {
    const bytes = this.handles[handle];
    if (!bytes) throw new InvariantError(`handle ${handle} is not held`);
    return bytes;
  }

  private take(bytes: number): boolean {
    const physical = roundUp(bytes, GRANULARITY);
    if (this.used + physical > this.capacity) return false;
    this.used += physical;
    return true;
  }

  private giveBack(bytes: number): void {
    this.used -= roundUp(bytes, GRANULARITY);
  }
}
