// Searches for smaller and smaller layouts with the exact search: first at the lower bound, which is often reached,
// then by bisection. Several threads can share what they know, and any of them can stop the search.
import type { Layout } from './buffers.ts';
import { type ExactTables, prepareExact } from './exact-tables.ts';
import type { Instance } from './instance.ts';
import { Restarts } from './restarts.ts';

/** Above these limits the tables of the exact search are too large. */
const MAX_BUFFERS = 3000;
const MAX_NEIGHBOURS = 4_000_000;
const FIRST_BUDGET = 40_000;

export interface FootprintSearchOptions {
  readonly seed: number;
  /** If set, search for this capacity only. */
  readonly capacity?: number | undefined;
  /** The smallest known footprint, found here or in another thread. */
  readonly best: () => number;
  readonly onFound: (layout: Layout) => void;
  /** Called with a capacity that is proven too small. */
  readonly onProven?: ((tooSmall: number) => void) | undefined;
  readonly shouldStop: () => boolean;
}

export function canSearchExactly(instance: Instance): boolean {
  if (instance.hasFixed || instance.count > MAX_BUFFERS) return false;
  const { spanStart, spanLow, spanHigh, sections } = instance;
  // Counting neighbours only at births counts each pair about once.
  const live = new Int32Array(sections + 1);
  for (let span = 0; span < spanStart[instance.count]!; span++) {
    live[spanLow[span]!] = live[spanLow[span]!]! + 1;
    live[spanHigh[span]!] = live[spanHigh[span]!]! - 1;
  }
  let most = 0;
  for (let section = 0, now = 0; section < sections; section++) {
    now += live[section]!;
    most = Math.max(most, now);
  }
  return instance.count * most <= MAX_NEIGHBOURS;
}

export function searchFootprint(instance: Instance, options: FootprintSearchOptions): void {
  const tables = prepareExact(instance);
  if (options.capacity !== undefined) searchCapacity(tables, options.capacity, options);
  else searchSmallest(tables, options);
}

function searchCapacity(tables: ExactTables, capacity: number, options: FootprintSearchOptions): void {
  const { outcome, offsets } = new Restarts(tables, options.seed).attempt(capacity, Number.POSITIVE_INFINITY, options.shouldStop);
  if (offsets) options.onFound(layoutOf(tables.instance, offsets));
  if (outcome === 'impossible') options.onProven?.(capacity);
}

function searchSmallest(tables: ExactTables, options: FootprintSearchOptions): void {
  const { instance } = tables;
  const restarts = new Restarts(tables, options.seed);
  let proven = instance.lowerBound;
  for (let budget = FIRST_BUDGET; !options.shouldStop(); budget *= 2) {
    let low = proven;
    let target = proven;
    while (low < options.best() && !options.shouldStop()) {
      const { outcome, offsets } = restarts.attempt(target, budget, options.shouldStop);
      if (offsets) {
        const layout = layoutOf(instance, offsets);
        if (layout.footprint < options.best()) options.onFound(layout);
        if (layout.footprint <= proven) return;
      } else {
        low = target + 1;
        if (outcome === 'impossible') {
          proven = low;
          options.onProven?.(target);
        }
      }
      const best = options.best();
      if (best - low < proven / 2000) break;
      target = Math.floor(low + (best - low) / 2);
    }
    if (proven >= options.best()) return;
  }
}

function layoutOf(instance: Instance, offsets: Float64Array): Layout {
  let footprint = 0;
  offsets.forEach((offset, buffer) => {
    footprint = Math.max(footprint, offset + instance.size[buffer]!);
  });
  return { offsets: offsets.slice(), footprint };
}
