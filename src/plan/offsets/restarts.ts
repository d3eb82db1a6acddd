// Runs the exact search repeatedly, each time in another order and with a node limit. Its running times are
// heavy-tailed,
// so a few short searches beat a long one. Sections in which earlier searches failed come first in later ones.
import { type ExactOutcome, ExactSearch } from './exact.ts';
import type { ExactTables } from './exact-tables.ts';
import { type Measures, measure, type OrderName, orderBy } from './orders.ts';
import { randomFrom } from './random.ts';

/** Orders of the first round. Together they solve most inputs at once. */
const FIRST_ORDERS: readonly (readonly OrderName[])[] = [
  ['tension', 'width', 'area'],
  ['tension', 'duration', 'volume'],
  ['width', 'area', 'tension'],
  ['tension', 'area', 'width'],
  ['duration', 'volume', 'tension'],
  ['area', 'width', 'tension'],
];
/** Orders of later rounds, in which `tension` counts the failures in a buffer's sections. */
const LATER_ORDERS: readonly (readonly OrderName[])[] = [
  ['tension', 'width', 'area'],
  ['tension', 'duration', 'volume'],
  ['tension', 'area', 'width'],
  ['tension', 'volume', 'duration'],
];
const FIRST_NODES = 2500;
const BASE_NODES = 1000;
/** Relative noise added to the measures, one value per round in turn. */
const BLURS: readonly number[] = [0.02, 0.1, 0.02, 0.3];
const TROUBLE_DECAY = 0.9;

export interface Attempt {
  readonly outcome: ExactOutcome;
  /** Set if a layout was found. */
  readonly offsets?: Float64Array | undefined;
}

export class Restarts {
  nodes = 0;
  private readonly tables: ExactTables;
  private readonly measures: Measures;
  private readonly random: () => number;
  private readonly trouble: Float64Array;
  private runs = 0;

  constructor(tables: ExactTables, seed: number) {
    this.tables = tables;
    this.measures = measure(tables.instance);
    this.random = randomFrom(seed);
    this.trouble = new Float64Array(tables.instance.sections);
    // Seeds race in parallel, so each begins with another order.
    this.runs = seed % FIRST_ORDERS.length;
  }

  /** Searches for a layout within the capacity, until it is found, proven impossible, or the node budget is spent. */
  attempt(capacity: number, nodeBudget: number, shouldStop: () => boolean): Attempt {
    const end = this.nodes + nodeBudget;
    while (this.nodes < end && !shouldStop()) {
      const search = new ExactSearch(this.tables, capacity, { rank: this.nextRank(), nodeLimit: this.nextLimit(), shouldStop });
      this.runs++;
      const outcome = search.run();
      this.nodes += Math.max(1, search.nodes);
      if (outcome === 'found') return { outcome, offsets: search.offsets };
      if (outcome === 'impossible') return { outcome };
      if (this.tables.instance.hasFixed) break;
      for (let section = 0; section < this.trouble.length; section++) {
        this.trouble[section] = this.trouble[section]! * TROUBLE_DECAY + search.trouble[section]!;
      }
    }
    return { outcome: 'undecided' };
  }

  private nextLimit(): number {
    const later = this.runs - 2 * FIRST_ORDERS.length;
    return later < 0
      ? FIRST_NODES * (1 + Math.floor(this.runs / FIRST_ORDERS.length))
      : BASE_NODES * luby(1 + Math.floor(later / LATER_ORDERS.length));
  }

  private nextRank(): Int32Array {
    const { measures, runs } = this;
    const round = Math.floor(runs / FIRST_ORDERS.length);
    if (round === 0) return rankOf(orderBy(measures, FIRST_ORDERS[runs % FIRST_ORDERS.length]!));
    const blur = BLURS[Math.floor(runs / LATER_ORDERS.length) % BLURS.length]!;
    const blurred = (values: Float64Array) => (blur === 0 ? values : values.map((value) => value * (1 + blur * (this.random() - 0.5))));
    return rankOf(
      orderBy(
        {
          ...measures,
          width: blurred(measures.width),
          area: blurred(measures.area),
          duration: blurred(measures.duration),
          volume: blurred(measures.volume),
          // No noise here: buffers of one section that failed should stay together.
          tension: this.troubleOfBuffers(),
        },
        LATER_ORDERS[runs % LATER_ORDERS.length]!,
      ),
    );
  }

  private troubleOfBuffers(): Float64Array {
    const { sectionStart, sectionsOf } = this.tables;
    return this.measures.size.map((_, buffer) => {
      let most = 0;
      for (let at = sectionStart[buffer]!; at < sectionStart[buffer + 1]!; at++) most = Math.max(most, this.trouble[sectionsOf[at]!]!);
      return most;
    });
  }
}

function rankOf(order: Int32Array): Int32Array {
  const rank = new Int32Array(order.length);
  order.forEach((buffer, at) => {
    rank[buffer] = at;
  });
  return rank;
}

/** The Luby sequence 1, 1, 2, 1, 1, 2, 4, 1, ...: the best restart schedule if running times are unknown. */
function luby(position: number): number {
  let at = position;
  for (;;) {
    const bits = 32 - Math.clz32(at);
    if (at === 2 ** bits - 1) return 2 ** (bits - 1);
    at -= 2 ** (bits - 1) - 1;
  }
}
