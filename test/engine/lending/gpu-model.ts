// A small asynchronous GPU: streams with kernels in flight, events, waits, and the bytes that each kernel touches. Two kernels
// of different blocks on one byte must be ordered: by stream order, by waits, or because the first is over. No address may be
// unmapped, and no handle freed, while a kernel in flight uses it.
import { type Extent, StrictBackend } from '../strict-backend.ts';

interface Kernel {
  readonly stream: number;
  /** Place in its stream. */
  readonly index: number;
  readonly block: number;
  readonly address: number;
  readonly bytes: number;
  readonly extents: readonly Extent[];
}

interface Gate {
  /** The stream, and how many of its operations must be over. */
  readonly stream: number;
  readonly count: number;
}

type Operation = { readonly kernel: Kernel } | { readonly gate: Gate };

interface Mark extends Gate {
  readonly clock: readonly number[];
}

/** Deliberate mistakes of a driver. */
export type DriverMistake = 'no waits' | 'older event' | 'always done' | 'events on the wrong stream';

export class RaceError extends Error {}

export class GpuModel extends StrictBackend {
  private readonly operations: Operation[][];
  /** Operations of each stream that are over. */
  private readonly over: number[];
  /** For each stream, how many operations of every stream its next one comes after. */
  private readonly clocks: number[][];
  private readonly marks = new Map<number, Mark[]>();
  private readonly mistake: DriverMistake | undefined;
  /** Streams that may be gone: no event can be recorded on them. */
  private readonly foreign: readonly number[];
  /** While a stream is captured, events, waits and unmapping are forbidden. */
  capturing = false;

  constructor(streams: number, capacity: number, mistake?: DriverMistake, foreign: readonly number[] = []) {
    super(capacity);
    this.mistake = mistake;
    this.foreign = foreign;
    this.operations = Array.from({ length: streams }, () => []);
    this.over = new Array<number>(streams).fill(0);
    this.clocks = Array.from({ length: streams }, () => new Array<number>(streams).fill(0));
  }

  /** A kernel of the program on the bytes of a block. Throws if it could run beside a kernel of another block. */
  launch(stream: number, block: number, address: number, bytes: number): void {
    const extents = this.resolve(address, bytes);
    for (const { kernel } of this.inFlight()) {
      if (kernel.block === block || !overlap(kernel.extents, extents)) continue;
      if (kernel.stream !== stream && this.clocks[stream]![kernel.stream]! <= kernel.index) {
        throw new RaceError(`block ${block} on stream ${stream} and block ${kernel.block} on stream ${kernel.stream} are not ordered`);
      }
    }
    this.push(stream, { kernel: { stream, index: this.operations[stream]!.length, block, address, bytes, extents } });
  }

  override unmap(address: number, bytes: number): boolean {
    this.forbidInCapture('unmapping');
    for (const { kernel } of this.inFlight()) {
      if (kernel.address < address + bytes && address < kernel.address + kernel.bytes) {
        throw new RaceError(`addresses are unmapped that block ${kernel.block} on stream ${kernel.stream} still uses`);
      }
    }
    return super.unmap(address, bytes);
  }

  override release(handle: number): boolean {
    for (const { kernel } of this.inFlight()) {
      if (kernel.extents.some((extent) => extent.handle === handle)) {
        throw new RaceError(`memory is freed that block ${kernel.block} on stream ${kernel.stream} still uses`);
      }
    }
    return super.release(handle);
  }

  /** How much each stream was given so far. `endWait` says that a wait for all of that is over. */
  beginWait(): readonly number[] {
    return this.operations.map((operations) => operations.length);
  }

  endWait(given: readonly number[]): void {
    for (const [stream, count] of given.entries()) this.over[stream] = Math.max(this.over[stream]!, count);
    this.settle();
  }

  /** The program makes one stream wait for all work given to another. */
  join(stream: number, other: number): void {
    this.pass(stream, { stream: other, count: this.operations[other]!.length, clock: [...this.clocks[other]!] });
  }

  /** Whether the next kernel of a stream can end now. */
  canAdvance(stream: number): boolean {
    const next = this.operations[stream]![this.over[stream]!];
    return next !== undefined && 'kernel' in next;
  }

  advance(stream: number): void {
    this.over[stream]!++;
    this.settle();
  }

  override record(stream: number, slot: number): boolean {
    this.forbidInCapture('an event');
    if (this.foreign.includes(stream)) return false;
    const on = this.mistake === 'events on the wrong stream' ? (stream + 1) % this.operations.length : stream;
    const history = this.marks.get(slot) ?? [];
    history.push({ stream: on, count: this.operations[on]!.length, clock: [...this.clocks[on]!] });
    this.marks.set(slot, history);
    return true;
  }

  override isDone(slot: number): boolean {
    this.forbidInCapture('a query');
    const mark = this.marks.get(slot)?.at(-1);
    return this.mistake === 'always done' || mark === undefined || this.over[mark.stream]! >= mark.count;
  }

  override wait(stream: number, slot: number): boolean {
    this.forbidInCapture('a wait');
    // As in CUDA, an event that was never recorded holds nobody up.
    const mark = this.marks.get(this.mistake === 'older event' ? slot - 1 : slot)?.at(-1);
    if (mark && this.mistake !== 'no waits') this.pass(stream, mark);
    return true;
  }

  override synchronize(): void {
    this.forbidInCapture('a wait of the host');
    this.endWait(this.beginWait());
  }

  private forbidInCapture(what: string): void {
    if (this.capturing) throw new RaceError(`${what} during a capture`);
  }

  /** All that decides what can still happen, as text. */
  state(): string {
    const waiting = this.operations.map((operations, stream) => operations.slice(this.over[stream]!));
    return JSON.stringify([this.capturing, waiting, this.clocks, [...this.marks].map(([slot, history]) => [slot, history.at(-1)])]);
  }

  private pass(stream: number, mark: Mark): void {
    this.push(stream, { gate: { stream: mark.stream, count: mark.count } });
    const clock = this.clocks[stream]!;
    for (const [index, value] of mark.clock.entries()) clock[index] = Math.max(clock[index]!, value);
  }

  private push(stream: number, operation: Operation): void {
    this.operations[stream]!.push(operation);
    this.clocks[stream]![stream] = this.operations[stream]!.length;
    this.settle();
  }

  /** Waits at the head of a stream end by themselves. */
  private settle(): void {
    for (let moved = true; moved; ) {
      moved = false;
      for (const [stream, operations] of this.operations.entries()) {
        const next = operations[this.over[stream]!];
        if (!next || 'kernel' in next || this.over[next.gate.stream]! < next.gate.count) continue;
        this.over[stream]!++;
        moved = true;
      }
    }
  }

  private *inFlight(): Generator<{ kernel: Kernel }> {
    for (const [stream, operations] of this.operations.entries()) {
      for (let index = this.over[stream]!; index < operations.length; index++) {
        const operation = operations[index]!;
        if ('kernel' in operation) yield operation;
      }
    }
  }
}

function overlap(left: readonly Extent[], right: readonly Extent[]): boolean {
  return left.some((one) =>
    right.some((other) => one.handle === other.handle && one.offset < other.offset + other.bytes && other.offset < one.offset + one.bytes),
  );
}
