// A backend for tests that knows the memory behind every address, refuses every misuse and fails on demand.

import { type Backend, type DriverCall, DriverLedger, NO_MEMORY, type StreamEvents } from '../../src/backend/backend.ts';
import { MIB } from '../../src/base/bytes.ts';

export const UNIT: number = 2 * MIB;

/** Work given to a stream is over after this many further calls, or when `catchUp` is called. */
const EVENT_CALLS = 40;

type StrictCall = DriverCall | 'unreserve' | 'eventRecord' | 'eventQuery' | 'streamWait';

/** A piece of a handle: the memory behind contiguous addresses. */
export interface Extent {
  readonly handle: number;
  readonly offset: number;
  readonly bytes: number;
}

interface Mapping {
  readonly handle: number;
  readonly address: number;
  readonly bytes: number;
  accessible: boolean;
}

export class StrictBackend implements Backend, StreamEvents {
  readonly name = 'strict';
  readonly ledger: DriverLedger = new DriverLedger();
  usedBytes = 0;
  /** Every call as text, in order. */
  readonly calls: string[] = [];
  private readonly capacity: number;
  private readonly fails: (call: number, kind: StrictCall) => boolean;
  private readonly handles = new Map<number, { bytes: number; mappings: number }>();
  private readonly reservations = new Map<number, number>();
  /** Mapping by unit of address. */
  private readonly units = new Map<number, Mapping>();
  /** For each slot, when it was recorded. */
  private readonly recorded = new Map<number, number>();
  private nextHandle = 1;
  private nextAddress = 0x10_0000_0000;
  private callCount = 0;
  private clock = 0;

  constructor(capacity: number = Number.POSITIVE_INFINITY, fails: (call: number, kind: StrictCall) => boolean = () => false) {
    this.capacity = capacity;
    this.fails = fails;
  }

  get callsMade(): number {
    return this.callCount;
  }

  get holdsNothing(): boolean {
    return this.handles.size === 0 && this.reservations.size === 0 && this.units.size === 0 && this.usedBytes === 0;
  }

  describe(): string {
    return `${this.handles.size} handles, ${this.reservations.size} reservations, ${this.units.size} mapped units`;
  }

  malloc(): number {
    throw new Error('the engine does not use malloc');
  }

  free(): void {
    throw new Error('the engine does not use free');
  }

  create(bytes: number): number {
    if (bytes <= 0 || bytes % UNIT !== 0) throw new Error(`create of ${bytes} bytes`);
    if (this.failing('create', `${bytes}`) || this.usedBytes + bytes > this.capacity) return NO_MEMORY;
    const handle = this.nextHandle++;
    this.handles.set(handle, { bytes, mappings: 0 });
    this.usedBytes += bytes;
    return handle;
  }

  release(handle: number): boolean {
    const held = this.held(handle);
    if (held.mappings > 0) throw new Error(`handle ${handle} is released while mapped`);
    if (this.failing('release', `${handle}`)) return false;
    this.handles.delete(handle);
    this.usedBytes -= held.bytes;
    return true;
  }

  reserve(bytes: number): number {
    if (bytes <= 0 || bytes % UNIT !== 0) throw new Error(`reserve of ${bytes} bytes`);
    if (this.failing('reserve', `${bytes}`)) return NO_MEMORY;
    const address = this.nextAddress;
    // A gap, so that no two reservations touch, and an access beyond the end of one is noticed.
    this.nextAddress += bytes + UNIT;
    this.reservations.set(address, bytes);
    return address;
  }

  unreserve(address: number, bytes: number): boolean {
    if (this.reservations.get(address) !== bytes) throw new Error(`unreserve of ${bytes} bytes at ${address}`);
    for (let unit = address; unit < address + bytes; unit += UNIT) {
      if (this.units.size === 0) break;
      if (this.units.has(unit)) throw new Error(`unreserve at ${address} while mapped`);
      if (bytes / UNIT > 1 << 16) break;
    }
    if (this.failing('unreserve', `${address} ${bytes}`)) return false;
    this.reservations.delete(address);
    return true;
  }

  map(address: number, handle: number): boolean {
    const held = this.held(handle);
    if (address % UNIT !== 0 || !this.isReserved(address, held.bytes)) throw new Error(`map outside a reservation at ${address}`);
    for (let unit = address; unit < address + held.bytes; unit += UNIT) {
      if (this.units.has(unit)) throw new Error(`map over a mapping at ${unit}`);
    }
    if (this.failing('map', `${address} ${handle}`)) return false;
    const mapping: Mapping = { handle, address, bytes: held.bytes, accessible: false };
    for (let unit = address; unit < address + held.bytes; unit += UNIT) this.units.set(unit, mapping);
    held.mappings++;
    return true;
  }

  setAccess(address: number, bytes: number): boolean {
    const mappings = this.wholeMappings(address, bytes);
    if (this.failing('setAccess', `${address} ${bytes}`)) return false;
    for (const mapping of mappings) mapping.accessible = true;
    return true;
  }

  unmap(address: number, bytes: number): boolean {
    const mappings = this.wholeMappings(address, bytes);
    if (this.failing('unmap', `${address} ${bytes}`)) return false;
    for (const mapping of mappings) {
      for (let unit = mapping.address; unit < mapping.address + mapping.bytes; unit += UNIT) this.units.delete(unit);
      this.held(mapping.handle).mappings--;
    }
    return true;
  }

  record(stream: number, slot: number): boolean {
    if (this.failing('eventRecord', `${stream} ${slot}`)) return false;
    this.recorded.set(slot, this.clock);
    return true;
  }

  isDone(slot: number): boolean {
    const recordedAt = this.recordedAt(slot);
    if (this.failing('eventQuery', `${slot}`)) return false;
    return this.clock - recordedAt > EVENT_CALLS;
  }

  /** The GPU does all work that it was given. */
  catchUp(): void {
    this.clock += EVENT_CALLS + 1;
  }

  wait(stream: number, slot: number): boolean {
    this.recordedAt(slot);
    return !this.failing('streamWait', `${stream} ${slot}`);
  }

  synchronize(): void {
    for (const slot of this.recorded.keys()) this.recorded.set(slot, Number.NEGATIVE_INFINITY);
  }

  private recordedAt(slot: number): number {
    const call = this.recorded.get(slot);
    if (call === undefined) throw new Error(`slot ${slot} was never recorded`);
    return call;
  }

  /** The memory behind contiguous addresses. Throws if any of it is not accessible. */
  resolve(address: number, bytes: number): Extent[] {
    const extents: Extent[] = [];
    for (let at = address; at < address + bytes; ) {
      const mapping = this.units.get(Math.floor(at / UNIT) * UNIT);
      if (!mapping?.accessible) throw new Error(`nothing accessible at ${at}`);
      const end = Math.min(mapping.address + mapping.bytes, address + bytes);
      extents.push({ handle: mapping.handle, offset: at - mapping.address, bytes: end - at });
      at = end;
    }
    return extents;
  }

  private failing(kind: StrictCall, args: string): boolean {
    const call = this.callCount++;
    this.clock++;
    const fails = this.fails(call, kind);
    this.calls.push(`${kind} ${args}${fails ? ' fails' : ''}`);
    return fails;
  }

  private held(handle: number): { bytes: number; mappings: number } {
    const held = this.handles.get(handle);
    if (!held) throw new Error(`handle ${handle} is not held`);
    return held;
  }

  private isReserved(address: number, bytes: number): boolean {
    for (const [start, size] of this.reservations) if (address >= start && address + bytes <= start + size) return true;
    return false;
  }

  private wholeMappings(address: number, bytes: number): Mapping[] {
    const mappings: Mapping[] = [];
    for (let at = address; at < address + bytes; ) {
      const mapping = this.units.get(at);
      if (!mapping || mapping.address !== at || at + mapping.bytes > address + bytes) throw new Error(`no whole mapping at ${at}`);
      mappings.push(mapping);
      at += mapping.bytes;
    }
    if (mappings.length === 0) throw new Error('empty range');
    return mappings;
  }
}
