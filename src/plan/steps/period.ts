// Finds the step of a training run in its memory operations, or says why there is none. Linear time:
// distances between equal windows give candidate periods, then each candidate is compared with the whole run.
import { AddressMap } from '../../base/address-map.ts';
import { formatTimes } from '../../base/counts.ts';
import type { MemoryOps } from './memory-ops.ts';

/** Operations `from` to `to`. */
export interface Stretch {
  readonly from: number;
  readonly to: number;
}

export interface Period {
  /** Operations per step. */
  readonly length: number;
  /** Stretches [from, to) in which each operation equals the one a period later. Steps repeat up to `to + length`. */
  readonly stretches: readonly Stretch[];
  /** Share of the operations after the start of the first stretch that belong to a repeated step. */
  readonly coverage: number;
  /** How it was found. */
  readonly by: 'marks' | 'repetition';
}

export interface NotPeriodic {
  /** One sentence, for people. */
  readonly reason: string;
}

/** Lengths of the windows whose repetitions vote for a period. Layers repeat in short windows, only steps in long ones. */
const WINDOW_LENGTHS: readonly number[] = [4, 16, 64, 256, 1024];
const CANDIDATES_PER_WINDOW = 6;
const MIN_PERIOD = 8;
/** If a smaller share of the run repeats, its steps differ and only layers repeat. */
const MIN_COVERAGE = 0.7;
/** A repetition may differ in a quarter of a window of this many operations: one bit each (see `measurePeriod`). */
const NOISE_WINDOW = 32;
const NOISE_ALLOWED = 8;
/** A step leaves memory as it found it, up to this share of the peak. Layers do not: they add or consume activations. */
const MAX_DRIFT = 0.02;
/** In a run that may grow, a step may keep this share of the memory that it takes at its peak. A layer keeps nearly all. */
const MAX_KEPT = 0.25;
const MIN_REPEATS = 4;

/** `least` is the smallest possible number of operations per step, if known. `mayGrow`: steps may leave memory behind, as leaks do. */
export function findPeriod(ops: MemoryOps, least: number = MIN_PERIOD, mayGrow = false): Period | NotPeriodic {
  if (ops.count < 4 * MIN_PERIOD)
    return {
      reason: `the recording has only ${formatTimes(ops.count, 'allocation or free', 'allocations and frees')}, too few to find a step`,
    };
  const symbols = symbolsOf(ops);
  const live = liveAfter(ops);
  const candidates = new Set<number>();
  const marked = medianDistance(ops.marks);
  if (marked >= MIN_PERIOD) candidates.add(marked);
  const distances = new WindowDistances(symbols);
  for (const window of WINDOW_LENGTHS) for (const distance of distances.commonest(window)) candidates.add(distance);

  let best: Period | undefined;
  for (const length of [...candidates].sort((a, b) => a - b)) {
    if (length < Math.max(MIN_PERIOD, least) || length * 2 > ops.count) continue;
    const period = measurePeriod(symbols, length, live, ops, { marked: length === marked, mayGrow });
    if (period && (!best || isBetter(period, best))) best = period;
  }
  if (!best) return { reason: 'no sequence of allocations and frees repeats as a whole' };
  if (best.coverage < MIN_COVERAGE) {
    const share = Math.round(best.coverage * 100);
    return { reason: `its steps differ: the best repetition, every ${best.length} operations, covers only ${share} % of the run` };
  }
  return best;
}

/**
 * Whether the longer period is the better one. Multiples of a period cover as much, so the longer one must explain
 * clearly more.
 * If the shorter covers enough, the longer must also repeat several times: some multiple always fits two interruptions.
 */
function isBetter(longer: Period, shorter: Period): boolean {
  // A loop inside the last step repeats perfectly while it lasts, but covers little.
  if (longer.coverage >= MIN_COVERAGE && coveredBy(longer) > 2 * coveredBy(shorter)) return true;
  if (longer.coverage <= shorter.coverage + 0.01) return false;
  const repeats = longer.stretches.reduce((sum, stretch) => sum + (stretch.to - stretch.from) / longer.length + 1, 0);
  return shorter.coverage < MIN_COVERAGE || repeats >= MIN_REPEATS;
}

function coveredBy({ length, stretches }: Period): number {
  return stretches.reduce((sum, stretch) => sum + stretch.to - stretch.from + length, 0);
}

/** The longest of the stretches in which the period repeats. */
export function longestStretch({ stretches }: Period): Stretch {
  return stretches.reduce((longest, candidate) => (candidate.to - candidate.from > longest.to - longest.from ? candidate : longest));
}

export function isPeriodic(result: Period | NotPeriodic): result is Period {
  return 'length' in result;
}

/** One small integer per kind of operation: alloc or free, size, stream. Addresses and times are ignored. */
function symbolsOf(ops: MemoryOps): Int32Array {
  /** Symbols by size, for each stream and direction. */
  const tables = new Map<number, AddressMap>();
  const symbols = new Int32Array(ops.count);
  let count = 0;
  for (let op = 0; op < ops.count; op++) {
    const direction = ops.stream[op]! * 2 + ops.isAlloc[op]!;
    let bySize = tables.get(direction);
    if (!bySize) {
      bySize = new AddressMap();
      tables.set(direction, bySize);
    }
    let symbol = bySize.get(ops.size[op]!);
    if (symbol < 0) {
      symbol = count++;
      bySize.set(ops.size[op]!, symbol);
    }
    symbols[op] = symbol;
  }
  return symbols;
}

/** Counts the distances between equal windows of operations, for windows that get longer from call to call. */
export class WindowDistances {
  private readonly symbols: Int32Array;
  private readonly latest = new LatestPositions();
  private readonly votes: Int32Array;
  /** By its last operation: whether the window of length `window` occurs more than once. */
  private isRepeated: Uint8Array;
  private window = 0;

  constructor(symbols: Int32Array) {
    this.symbols = symbols;
    this.votes = new Int32Array(symbols.length);
    this.isRepeated = new Uint8Array(symbols.length).fill(1);
  }

  /** The most common distances between equal windows of a length. A rolling hash makes it one pass. */
  commonest(window: number): number[] {
    const { symbols } = this;
    if (symbols.length < 2 * window) return [];
    this.count(window);
    const { votes } = this;
    const best: number[] = [];
    const worth = (distance: number) => votes[distance]! * Math.min(distance, 4 * window);
    for (let distance = 1; distance < votes.length; distance++) {
      if (votes[distance] === 0) continue;
      if (best.length === CANDIDATES_PER_WINDOW && worth(distance) <= worth(best[CANDIDATES_PER_WINDOW - 1]!)) continue;
      // Of equal worth, the shorter distance comes first.
      let place = best.length;
      while (place > 0 && worth(best[place - 1]!) < worth(distance)) place--;
      best.splice(place, 0, distance);
      best.length = Math.min(best.length, CANDIDATES_PER_WINDOW);
    }
    return best;
  }

  private count(window: number): void {
    const { symbols, latest, votes, isRepeated } = this;
    const repeated = new Uint8Array(symbols.length);
    latest.clear();
    votes.fill(0);
    let leading = 1;
    for (let at = 0; at < window; at++) leading = Math.imul(leading, MULTIPLIER);
    let hash = 0;
    // A window around a shorter one that occurs once occurs once too, and need not be looked up.
    const margin = window - this.window;
    let lastSingle = Number.NEGATIVE_INFINITY;
    for (let at = 0; at < symbols.length; at++) {
      hash = (Math.imul(hash, MULTIPLIER) + mix(symbols[at]!)) | 0;
      if (at >= window) hash = (hash - Math.imul(leading, mix(symbols[at - window]!))) | 0;
      if (isRepeated[at] === 0) lastSingle = at;
      if (at < window - 1 || lastSingle >= at - margin) continue;
      const before = latest.replace(hash, at);
      if (before < 0) continue;
      votes[at - before]!++;
      repeated[before] = 1;
      repeated[at] = 1;
    }
    this.isRepeated = repeated;
    this.window = window;
  }
}

const MULTIPLIER = 0x2c1b3c6d;

/** The latest position of each hash, in one typed array. A Map of millions of hashes takes seconds. */
class LatestPositions {
  /** Hash and position + 1 of each slot; position 0: empty. */
  private slots = new Int32Array(2 * 4096);
  private count = 0;

  clear(): void {
    this.slots.fill(0);
    this.count = 0;
  }

  /** Sets the position of a hash. Returns the one before, or -1. */
  replace(hash: number, position: number): number {
    const slot = this.find(this.slots, hash);
    const before = this.slots[slot + 1]! - 1;
    this.slots[slot] = hash;
    this.slots[slot + 1] = position + 1;
    if (before < 0 && ++this.count * 4 > this.slots.length) this.grow();
    return before;
  }

  /** The slot of the hash, or the empty one where it belongs. */
  private find(slots: Int32Array, hash: number): number {
    const mask = slots.length / 2 - 1;
    let slot = (hash ^ (hash >>> 15)) & mask;
    while (slots[slot * 2 + 1] !== 0 && slots[slot * 2] !== hash) slot = (slot + 1) & mask;
    return slot * 2;
  }

  private grow(): void {
    const { slots } = this;
    const grown = new Int32Array(slots.length * 2);
    for (let slot = 0; slot < slots.length; slot += 2) {
      if (slots[slot + 1] === 0) continue;
      const to = this.find(grown, slots[slot]!);
      grown[to] = slots[slot]!;
      grown[to + 1] = slots[slot + 1]!;
    }
    this.slots = grown;
  }
}

function mix(symbol: number): number {
  const mixed = Math.imul(symbol + 1, 0x9e3779b1);
  return mixed ^ (mixed >>> 15);
}

function measurePeriod(
  symbols: Int32Array,
  length: number,
  live: Float64Array,
  { peak, liveBefore }: MemoryOps,
  { marked, mayGrow }: { readonly marked: boolean; readonly mayGrow: boolean },
): Period | undefined {
  const stretches: Stretch[] = [];
  const last = symbols.length - length;
  let covered = 0;
  let start = 0;
  let mismatches = 0;
  /** One bit for each of the latest operations since `start`, the newest lowest: whether it differs. */
  let latest = 0;
  const differs = (at: number) => symbols[at] !== symbols[at + length];
  const close = (end: number) => {
    // Operations before the last mismatch of the first noisy window are the lead-in, not the repetition.
    let from = start;
    for (let at = start; at < Math.min(start + NOISE_WINDOW, end); at++) if (differs(at)) from = at + 1;
    if (end - from < length) return;
    const turns = Math.floor((end - from) / length) + 1;
    const before = from > 0 ? live[from - 1]! : liveBefore;
    const drift = Math.abs(live[from + turns * length - 1]! - before);
    if (drift > MAX_DRIFT * peak && !(mayGrow && drift <= MAX_KEPT * turns * rangeIn(live, from, length))) return;
    stretches.push({ from, to: end });
    covered += end - from + length;
  };
  for (let at = 0; at < last; at++) {
    // The highest bit leaves the window of 32 operations.
    if (latest < 0) mismatches--;
    latest <<= 1;
    if (symbols[at] === symbols[at + length]) continue;
    latest |= 1;
    if (++mismatches <= NOISE_ALLOWED) continue;
    close(at - mismatches);
    start = at + 1;
    mismatches = 0;
    latest = 0;
  }
  close(last);
  if (stretches.length === 0) return undefined;
  const span = symbols.length - stretches[0]!.from;
  return { length, stretches, coverage: Math.min(1, covered / span), by: marked ? 'marks' : 'repetition' };
}

/** Between the least and the most that is live in a period. */
function rangeIn(live: Float64Array, from: number, length: number): number {
  let least = Number.POSITIVE_INFINITY;
  let most = 0;
  for (let op = from; op < from + length; op++) {
    least = Math.min(least, live[op]!);
    most = Math.max(most, live[op]!);
  }
  return most - least;
}

function liveAfter(ops: MemoryOps): Float64Array {
  const live = new Float64Array(ops.count);
  let now = ops.liveBefore;
  for (let op = 0; op < ops.count; op++) {
    now += ops.isAlloc[op] ? ops.size[op]! : -ops.size[op]!;
    live[op] = now;
  }
  return live;
}

function medianDistance(marks: readonly number[]): number {
  const distances = marks.slice(1).map((mark, index) => mark - marks[index]!);
  return distances.sort((a, b) => a - b)[distances.length >> 1] ?? 0;
}
