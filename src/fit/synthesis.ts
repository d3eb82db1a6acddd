// The run of other values: the requests and frees of the template in its order, with the sizes that the functions give.
// Steps at the end are repeated, so that an allocator settles.
import { roundUp } from '../base/bytes.ts';
import { randomFrom } from '../plan/offsets/random.ts';
import { assembleTrace } from '../trace/assemble.ts';
import { EventStore } from '../trace/event-store.ts';
import { NO_STACK } from '../trace/symbols.ts';
import { EventKind, type Trace } from '../trace/trace.ts';
import type { FitModel } from './model.ts';
import type { Point } from './monomials.ts';
import { freeEventOf, type Sequence } from './sequence.ts';
import type { SizeFunction } from './size-function.ts';

/**
 * Which size to take where a function is not settled: an end of its interval, or a share of the way from `lower` to `upper`.
 * A draw gives each call site a share of its own.
 */
export type Bound = 'lower' | 'upper' | number | `${typeof DRAW}${number}`;
const DRAW = 'draw ';
/** How many draws there are. In one of them a call has its largest size. */
const DRAW_COUNT = 8;
export const DRAWS: readonly Bound[] = Array.from({ length: DRAW_COUNT }, (_, index): Bound => `draw ${index}`);

/** A run that can be given any values. */
export interface Synthesis {
  /** Steps that were added behind the recorded ones. */
  readonly repeats: number;
  /** The step of each allocation: 0 for all that was recorded, then one number for each repeated step. */
  readonly stepOf: Int32Array;
  /** The template's allocation of each allocation. */
  readonly origin: Int32Array;
  /** The run of these values. `steps` gives each repeated step values of its own. */
  at(values: Point, bound: Bound, steps?: readonly Point[]): Trace;
}

export interface SynthesisOptions {
  /** How often the last step is repeated. */
  readonly repeats?: number | undefined;
  /** Events of the template before which the program called empty_cache(). */
  readonly emptyCacheBefore?: readonly number[] | undefined;
}

const DEFAULT_REPEATS = 3;
/** Invented addresses: each allocation has its own, so that frees find it. */
const ADDRESS_UNIT = 2 ** 21;
const FIRST_ADDRESS = 2 ** 32;

export function synthesise(model: FitModel, options: SynthesisOptions = {}): Synthesis {
  const { template, functions } = model;
  const { trace } = template;
  const step = lastStep(template);
  const repeats = step ? (options.repeats ?? DEFAULT_REPEATS) : 0;
  const writer = new RunWriter(trace);
  const emptyCaches = new Set(options.emptyCacheBefore);
  for (let index = 0; index < trace.allocations.liveAtStart; index++) writer.older(index);
  for (let event = 0; event <= trace.events.count; event++) {
    // What comes after the last step stays behind its repetitions.
    if (event === step?.to) for (let turn = 1; turn <= repeats; turn++) writer.repeat(step, turn);
    if (event === trace.events.count) break;
    if (emptyCaches.has(event)) writer.plain(EventKind.EmptyCache, event);
    writer.copy(event);
  }
  const built = writer.finish();
  const origin = Int32Array.from(writer.origin);
  const stepOf = Int32Array.from(writer.stepOf);
  return {
    repeats,
    stepOf,
    origin,
    at(values, bound, steps = []) {
      const { allocations, events, allocationOf } = built;
      const requested = new Float64Array(allocations.count);
      const address = new Float64Array(allocations.count);
      let next = FIRST_ADDRESS;
      for (let allocation = 0; allocation < allocations.count; allocation++) {
        const point = steps[stepOf[allocation]! - 1] ?? values;
        const own = origin[allocation]!;
        requested[allocation] = Math.max(
          1,
          sizeAt(functions[own]!, point, bound, () => kindOf(trace, own)),
        );
        address[allocation] = next;
        next += roundUp(requested[allocation]!, ADDRESS_UNIT);
      }
      const size = new Float64Array(events.count);
      const places = new Float64Array(events.count);
      for (let event = 0; event < events.count; event++) {
        const allocation = allocationOf[event]!;
        if (allocation < 0) continue;
        size[event] = requested[allocation]!;
        places[event] = address[allocation]!;
      }
      return { ...built, events: { ...events, size, address: places }, allocations: { ...allocations, requested, address } };
    },
  };
}

function sizeAt(size: SizeFunction, point: Point, bound: Bound, kind: () => number): number {
  if (bound === 'lower') return size.lower(point);
  const upper = size.upper(point);
  if (bound === 'upper') return upper;
  const lower = size.lower(point);
  if (typeof bound === 'number') return Math.round(lower + (upper - lower) * bound);
  if (lower === upper && !size.drawn) return upper;
  const share = drawnShare(kind(), Number(bound.slice(DRAW.length)));
  return size.drawn?.(point, share) ?? Math.round(lower + (upper - lower) * share);
}

/** Between 0 and 1. */
function drawnShare(kind: number, draw: number): number {
  const turn = Math.floor(randomFrom(kind)() * DRAW_COUNT);
  return turn === draw ? 1 : randomFrom(kind + draw + 1)();
}

/** The same number for the same call with the same size, in whatever step. */
function kindOf({ allocations, events }: Trace, allocation: number): number {
  const born = allocations.allocEvent[allocation]!;
  return 1000 * ((born < 0 ? NO_STACK : events.stack[born]!) * 31 + allocations.requested[allocation]!);
}

/** A step whose repetition leaves memory as it was: events `from` to `to`, and the same events one step before. */
interface Step {
  readonly from: number;
  readonly to: number;
  readonly before: number;
}

/** The last whole step, if the one before it did the same. Undefined: no step can be repeated. */
function lastStep({ trace, stepEvents }: Sequence): Step | undefined {
  const edges = stepEvents.filter((event) => event > 0 && event <= trace.events.count);
  if (edges.length < 3) return undefined;
  const [before, from, to] = edges.slice(-3) as [number, number, number];
  return isRepeatable(trace, { before, from, to }) ? { before, from, to } : undefined;
}

/** Whether every block that the step frees is of this step or has its twin in it. */
function isRepeatable(trace: Trace, step: Step): boolean {
  const { events, allocationOf, allocations } = trace;
  const kept = (from: number, to: number) => {
    const rows: number[] = [];
    for (let event = from; event < to; event++) if (isCopied(events.kind[event]!)) rows.push(event);
    return rows;
  };
  const [now, then] = [kept(step.from, step.to), kept(step.before, step.from)];
  if (now.length !== then.length) return false;
  const twin = new Map<number, number>();
  for (const [index, event] of now.entries()) {
    if (events.kind[event] !== events.kind[then[index]!]) return false;
    if (events.kind[event] === EventKind.Alloc) twin.set(allocationOf[then[index]!]!, allocationOf[event]!);
  }
  let living = 0;
  for (const event of now) {
    const allocation = allocationOf[event]!;
    if (events.kind[event] === EventKind.Alloc) {
      const freed = freeEventOf(trace, allocation);
      if (freed < 0 || freed >= step.to) living++;
    } else if (events.kind[event] === EventKind.FreeRequested || freeEventOf(trace, allocation) === event) {
      if (allocation < 0) return false;
      if (allocations.allocEvent[allocation]! < step.from) {
        if (!twin.has(allocation)) return false;
        living--;
      }
    }
  }
  return living === 0;
}

function isCopied(kind: number): boolean {
  return (
    kind === EventKind.Alloc ||
    kind === EventKind.FreeRequested ||
    kind === EventKind.FreeCompleted ||
    kind === EventKind.RecordStream ||
    kind === EventKind.EmptyCache ||
    kind === EventKind.Mark
  );
}

/** Writes the events of a run with invented addresses. */
class RunWriter {
  readonly origin: number[] = [];
  readonly stepOf: number[] = [];
  private readonly trace: Trace;
  private readonly store: EventStore;
  /** The latest copy of each allocation of the template; -1: none. */
  private readonly copyOf: Int32Array;
  private timeUs = 0;
  private turn = 0;
  private shiftUs = 0;

  constructor(trace: Trace) {
    this.trace = trace;
    this.store = new EventStore(trace.events.count + trace.allocations.liveAtStart);
    this.copyOf = new Int32Array(trace.allocations.count).fill(-1);
    this.timeUs = trace.events.count > 0 ? trace.events.timeUs[0]! : 0;
  }

  /** A block that is older than the recording is requested first. */
  older(allocation: number): void {
    const { allocations } = this.trace;
    this.alloc(allocation, allocations.stream[allocation]!, allocations.pool[allocation]!, -1, 0);
  }

  copy(event: number): void {
    const { events, allocationOf, impliedFrees } = this.trace;
    const kind = events.kind[event]!;
    if (!isCopied(kind)) return;
    this.timeUs = events.timeUs[event]! + this.shiftUs;
    const allocation = allocationOf[event]!;
    if (kind === EventKind.Alloc) {
      const displaced = impliedFrees.get(event);
      if (displaced !== undefined && this.copyOf[displaced]! >= 0) this.end(displaced, event, EventKind.FreeCompleted);
      this.alloc(allocation, events.stream[event]!, events.pool[event]!, events.stack[event]!, events.metadata[event]!);
    } else if (kind === EventKind.EmptyCache || kind === EventKind.Mark) {
      this.plain(kind, event);
    } else if (allocation >= 0 && this.copyOf[allocation]! >= 0) this.end(allocation, event, kind as EventKind);
  }

  plain(kind: EventKind, event: number): void {
    const row = this.store.append(kind, 0, 0, this.timeUs, 0, 0, -1, 0);
    const detail = this.trace.events.detail?.[event];
    if (kind === EventKind.Mark && detail !== undefined) this.store.setOptional(row, 'detail', detail);
  }

  /** The step once more. A block that the step before left behind is freed as its twin was. */
  repeat({ before, from, to }: Step, turn: number): void {
    const { events, allocationOf } = this.trace;
    this.turn = turn;
    this.shiftUs += events.timeUs[to - 1]! - events.timeUs[from - 1]!;
    // What lived from the step before into this one: now the copy of the same request of this step lives on.
    const allocs = (start: number, end: number) => {
      const found: number[] = [];
      for (let event = start; event < end; event++) if (events.kind[event] === EventKind.Alloc) found.push(allocationOf[event]!);
      return found;
    };
    const [then, now] = [allocs(before, from), allocs(from, to)];
    const living = now.map((allocation) => this.copyOf[allocation]!);
    then.forEach((allocation, index) => {
      this.copyOf[allocation] = living[index]!;
    });
    for (let event = from; event < to; event++) this.copy(event);
  }

  finish(): Trace {
    const { trace } = this;
    return assembleTrace({
      device: trace.device,
      events: this.store.view(),
      startSegments: [],
      endSegments: undefined,
      streams: trace.streams,
      pools: trace.pools,
      symbols: trace.symbols,
      settings: trace.settings,
      limits: {},
      annotations: [],
      warnings: [],
    });
  }

  private alloc(allocation: number, stream: number, pool: number, stack: number, metadata: number): void {
    this.copyOf[allocation] = this.origin.length;
    this.store.append(EventKind.Alloc, addressOf(this.origin.length), 1, this.timeUs, stream, pool, stack, metadata);
    this.origin.push(allocation);
    this.stepOf.push(this.turn);
  }

  private end(allocation: number, event: number, kind: EventKind): void {
    const { events } = this.trace;
    const row = this.store.append(
      kind,
      addressOf(this.copyOf[allocation]!),
      1,
      this.timeUs,
      events.stream[event]!,
      events.pool[event]!,
      events.stack[event]!,
      0,
    );
    if (kind === EventKind.RecordStream && events.detail) this.store.setOptional(row, 'detail', events.detail[event]!);
  }
}

function addressOf(copy: number): number {
  return FIRST_ADDRESS + copy * ADDRESS_UNIT;
}
