// A GPU that knows, for every 64 KiB of every handle and for every mapping, the last operation of each stream there. Vector clocks
// say which operations are ordered. It shares no code with gpu-model.ts, so that a mistake in one shows in the other.
import { type Backend, DriverLedger, NO_MEMORY, type StreamEvents } from '../../../src/backend/backend.ts';
import { KIB, MIB } from '../../../src/base/bytes.ts';

/** Blocks of the programs are multiples of this. */
export const GRAIN: number = 64 * KIB;
const UNIT = 2 * MIB;

export class OracleError extends Error {}

export type OracleCall = 'create' | 'release' | 'reserve' | 'unreserve' | 'map' | 'setAccess' | 'unmap' | 'record' | 'query' | 'wait';

interface Held {
  readonly bytes: number;
  mappings: number;
  /** For each grain and stream the number of the last operation; 0: none. */
  readonly last: Int32Array;
  /** For each grain the live block; 0: none. */
  readonly owner: Int32Array;
}

interface Mapping {
  readonly held: Held;
  readonly address: number;
  accessible: boolean;
  readonly last: Int32Array;
}

/** An event or a wait for it: an operation of a stream, and what that stream knew of the others. */
interface Mark {
  readonly stream: number;
  readonly count: number;
  readonly clock: readonly number[];
}

export class Oracle implements Backend, StreamEvents {
  readonly name = 'oracle';
  readonly ledger: DriverLedger = new DriverLedger();
  usedBytes = 0;
  capturing = false;
  readonly totals = { kernels: 0, waits: 0, unmaps: 0, faults: 0 };
  /** Operations given to each stream, and how many of them are over. */
  readonly given: number[];
  readonly over: number[];
  private readonly streams: number;
  private readonly capacity: number;
  private readonly fails: (call: OracleCall) => boolean;
  private readonly foreign: number | undefined;
  /** Operations that are not over: a wait, or undefined for a kernel. */
  private readonly queues: (Mark | undefined)[][];
  private readonly clocks: number[][];
  private readonly marks = new Map<number, Mark>();
  private readonly handles = new Map<number, Held>();
  private readonly units = new Map<number, Mapping>();
  private readonly reservations = new Map<number, number>();
  private nextHandle = 1;
  private nextAddress = 0x10_0000_0000;

  /** `foreign`: a stream on which no event can be recorded. */
  constructor(streams: number, capacity: number, fails: (call: OracleCall) => boolean, foreign: number | undefined) {
    this.streams = streams;
    this.capacity = capacity;
    this.fails = fails;
    this.foreign = foreign;
    this.given = new Array<number>(streams).fill(0);
    this.over = new Array<number>(streams).fill(0);
    this.queues = Array.from({ length: streams }, () => []);
    this.clocks = Array.from({ length: streams }, () => new Array<number>(streams).fill(0));
  }

  get leaks(): string {
    const counts = [this.handles.size, this.units.size, this.reservations.size];
    return counts.every((count) => count === 0) ? '' : `${counts[0]} handles, ${counts[1]} units and ${counts[2]} reservations are left`;
  }

  malloc(): number {
    throw new OracleError('the engine does not use malloc');
  }

  free(): void {
    throw new OracleError('the engine does not use free');
  }

  create(bytes: number): number {
    if (this.refuses('create') || this.usedBytes + bytes > this.capacity) return NO_MEMORY;
    const grains = bytes / GRAIN;
    const held = { bytes, mappings: 0, last: new Int32Array(grains * this.streams), owner: new Int32Array(grains) };
    this.handles.set(this.nextHandle, held);
    this.usedBytes += bytes;
    return this.nextHandle++;
  }

  release(handle: number): boolean {
    const held = this.handles.get(handle);
    if (!held || held.mappings > 0) throw new OracleError('a handle is freed that is mapped or unknown');
    if (held.owner.some((block) => block !== 0)) throw new OracleError('the memory of a live block is freed');
    for (const [index, operation] of held.last.entries()) {
      if (operation > this.over[index % this.streams]!) throw new OracleError(`memory is freed that stream ${index % this.streams} uses`);
    }
    if (this.refuses('release')) return false;
    this.handles.delete(handle);
    this.usedBytes -= held.bytes;
    return true;
  }

  reserve(bytes: number): number {
    if (this.refuses('reserve')) return NO_MEMORY;
    const address = this.nextAddress;
    this.nextAddress += bytes + UNIT;
    this.reservations.set(address, bytes);
    return address;
  }

  unreserve(address: number, bytes: number): boolean {
    if (this.reservations.get(address) !== bytes) throw new OracleError('addresses are given back that were not reserved');
    if (this.refuses('unreserve')) return false;
    return this.reservations.delete(address);
  }

  map(address: number, handle: number): boolean {
    const held = this.handles.get(handle);
    if (!held) throw new OracleError('an unknown handle is mapped');
    for (const unit of unitsOf(address, held.bytes)) if (this.units.has(unit)) throw new OracleError('a mapping covers another');
    if (this.refuses('map')) return false;
    const mapping = { held, address, accessible: false, last: new Int32Array(this.streams) };
    for (const unit of unitsOf(address, held.bytes)) this.units.set(unit, mapping);
    held.mappings++;
    return true;
  }

  setAccess(address: number, bytes: number): boolean {
    if (this.refuses('setAccess')) return false;
    for (const unit of unitsOf(address, bytes)) this.mappingAt(unit).accessible = true;
    return true;
  }

  unmap(address: number, bytes: number): boolean {
    this.totals.unmaps++;
    for (const unit of unitsOf(address, bytes)) {
      const mapping = this.mappingAt(unit);
      for (const [stream, operation] of mapping.last.entries()) {
        if (operation > this.over[stream]!) throw new OracleError(`addresses are unmapped that stream ${stream} uses`);
      }
      if (this.capturing && mapping.accessible && mapping.last.some((operation) => operation > 0)) {
        throw new OracleError('addresses are unmapped during a capture');
      }
    }
    if (this.refuses('unmap')) return false;
    for (const unit of unitsOf(address, bytes)) {
      const mapping = this.mappingAt(unit);
      if (mapping.address < address || mapping.address + mapping.held.bytes > address + bytes) {
        throw new OracleError('a part of a mapping is unmapped');
      }
      if (mapping.address === unit) mapping.held.mappings--;
      this.units.delete(unit);
    }
    return true;
  }

  record(stream: number, slot: number): boolean {
    this.forbidInCapture('an event');
    if (stream === this.foreign || this.refuses('record')) return false;
    this.marks.set(slot, { stream, count: this.given[stream]!, clock: [...this.clocks[stream]!] });
    return true;
  }

  isDone(slot: number): boolean {
    this.forbidInCapture('a query');
    const mark = this.markOf(slot);
    return !this.refuses('query') && this.over[mark.stream]! >= mark.count;
  }

  wait(stream: number, slot: number): boolean {
    this.forbidInCapture('a wait');
    const mark = this.markOf(slot);
    if (this.refuses('wait')) return false;
    this.totals.waits++;
    this.follow(stream, mark);
    return true;
  }

  synchronize(): void {
    this.forbidInCapture('a wait of the host');
    this.endWait([...this.given]);
  }

  /** The host has waited for that many operations of each stream. */
  endWait(given: readonly number[]): void {
    for (const [stream, count] of given.entries()) while (this.over[stream]! < count) this.pop(stream);
    this.settle();
  }

  /** The program makes a stream wait for all work of another. */
  join(stream: number, other: number): void {
    this.follow(stream, { stream: other, count: this.given[other]!, clock: [...this.clocks[other]!] });
  }

  /** The next kernel of a stream ends, if there is one. */
  advance(stream: number): void {
    if (this.queues[stream]!.length === 0 || this.queues[stream]![0] !== undefined) return;
    this.pop(stream);
    this.settle();
  }

  /** A kernel on a block. If the block is `fresh`, all earlier work on its bytes must come before. */
  launch(stream: number, address: number, bytes: number, fresh: boolean): void {
    const number = this.given[stream]! + 1;
    for (const { mapping, from, to } of this.grainsOf(address, bytes)) {
      const { last } = mapping.held;
      for (let grain = from; grain < to; grain++) {
        if (fresh) this.demandOrder(stream, last.subarray(grain * this.streams, (grain + 1) * this.streams));
        last[grain * this.streams + stream] = number;
      }
      mapping.last[stream] = number;
    }
    this.totals.kernels++;
    this.push(stream, undefined);
  }

  /** The bytes belong to a block from now on; with 0 they belong to none. */
  own(address: number, bytes: number, block: number, before = 0): void {
    for (const { mapping, from, to } of this.grainsOf(address, bytes)) {
      for (let grain = from; grain < to; grain++) {
        if (mapping.held.owner[grain] !== before) throw new OracleError('two live blocks share bytes');
        mapping.held.owner[grain] = block;
      }
    }
  }

  private demandOrder(stream: number, last: Int32Array): void {
    for (const [other, operation] of last.entries()) {
      if (other === stream || operation <= this.over[other]! || operation <= this.clocks[stream]![other]!) continue;
      throw new OracleError(`a new block of stream ${stream} has bytes that stream ${other} still uses`);
    }
  }

  private *grainsOf(address: number, bytes: number): Generator<{ mapping: Mapping; from: number; to: number }> {
    const end = address + bytes;
    for (let at = address; at < end; ) {
      const mapping = this.mappingAt(at - (at % UNIT));
      if (!mapping.accessible) throw new OracleError('a block has bytes without access');
      const until = Math.min(end, mapping.address + mapping.held.bytes);
      yield { mapping, from: (at - mapping.address) / GRAIN, to: Math.ceil((until - mapping.address) / GRAIN) };
      at = until;
    }
  }

  private mappingAt(unit: number): Mapping {
    const mapping = this.units.get(unit);
    if (!mapping) throw new OracleError('nothing is mapped there');
    return mapping;
  }

  private markOf(slot: number): Mark {
    const mark = this.marks.get(slot);
    if (!mark) throw new OracleError('an event is used that was never recorded');
    return mark;
  }

  private refuses(call: OracleCall): boolean {
    if (!this.fails(call)) return false;
    this.totals.faults++;
    return true;
  }

  private forbidInCapture(what: string): void {
    if (this.capturing) throw new OracleError(`${what} during a capture`);
  }

  private follow(stream: number, mark: Mark): void {
    const clock = this.clocks[stream]!;
    for (const [other, count] of mark.clock.entries()) clock[other] = Math.max(clock[other]!, count);
    clock[mark.stream] = Math.max(clock[mark.stream]!, mark.count);
    this.push(stream, mark);
  }

  private push(stream: number, operation: Mark | undefined): void {
    this.queues[stream]!.push(operation);
    this.given[stream]!++;
    this.clocks[stream]![stream] = this.given[stream]!;
    this.settle();
  }

  private pop(stream: number): void {
    this.queues[stream]!.shift();
    this.over[stream]!++;
  }

  /** Waits at the head of a stream end by themselves. */
  private settle(): void {
    for (let moved = true; moved; ) {
      moved = false;
      for (const [stream, queue] of this.queues.entries()) {
        const mark = queue[0];
        if (mark === undefined || this.over[mark.stream]! < mark.count) continue;
        this.pop(stream);
        moved = true;
      }
    }
  }
}

function* unitsOf(address: number, bytes: number): Generator<number> {
  for (let unit = address; unit < address + bytes; unit += UNIT) yield unit;
}
