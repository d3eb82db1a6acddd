// What live memory holds: parameters, gradients, optimizer state, activations and so on, and how that was found.
// The bytes of all categories always add up to what is live: what is not known is `unknown`.
import { CATEGORY_NAMES, type Category } from '../abi/events.ts';
import { liveSize } from '../trace/summary.ts';
import { EventKind, type Trace } from '../trace/trace.ts';
import { isLiveAt } from './moment.ts';

export { CATEGORY_NAMES, type Category } from '../abi/events.ts';

/**
 * How a category was found. told: the process said so. pools: the memory lies in a private pool. phases: from the phase in which it was
 * allocated and the one in which it was freed. stacks: from the call stack of its allocation. lifetimes: from how long it lived, against
 * the steps of the run. none: it was not found.
 */
export const CATEGORY_WAYS = ['told', 'pools', 'phases', 'stacks', 'lifetimes', 'none'] as const;
export type CategoryWay = (typeof CATEGORY_WAYS)[number];

export interface Categorized {
  readonly category: Category;
  readonly way: CategoryWay;
}

/** All memory live at one moment. */
export interface CategoryBytes {
  readonly event: number;
  /** As `summarizeTrace` counts: each request rounded up to 512 B. */
  readonly live: number;
  /** They add up to `live`. */
  readonly bytes: Readonly<Record<Category, number>>;
  /** They add up to `live`, too. */
  readonly ways: Readonly<Record<CategoryWay, number>>;
}

/** The categories of a trace. Making one walks through all events; the answers are cheap. */
export interface Categories {
  of(allocation: number): Categorized;
  /** Memory live after the event. */
  at(event: number): CategoryBytes;
}

export function categoriesOf(trace: Trace): Categories {
  const { allocations, events, allocationOf } = trace;
  const told = new Uint8Array(allocations.count);
  for (let event = 0; event < events.count; event++)
    if (events.kind[event] === EventKind.Category && allocationOf[event]! >= 0)
      told[allocationOf[event]!] = CATEGORY_NAMES[events.detail?.[event] ?? 0] ? events.detail![event]! : 0;
  const of = (allocation: number): Categorized =>
    told[allocation] ? { category: CATEGORY_NAMES[told[allocation]]!, way: 'told' } : { category: 'unknown', way: 'none' };
  const at = (event: number): CategoryBytes => {
    const bytes = Object.fromEntries(CATEGORY_NAMES.map((name) => [name, 0])) as Record<Category, number>;
    const ways = Object.fromEntries(CATEGORY_WAYS.map((name) => [name, 0])) as Record<CategoryWay, number>;
    let live = 0;
    for (let allocation = 0; allocation < allocations.count; allocation++) {
      if (!isLiveAt(trace, allocation, event)) continue;
      const size = liveSize(allocations.requested[allocation]!);
      const { category, way } = of(allocation);
      bytes[category] += size;
      ways[way] += size;
      live += size;
    }
    return { event, live, bytes, ways };
  };
  return { of, at };
}

export function categoriesAt(trace: Trace, event: number): CategoryBytes {
  return categoriesOf(trace).at(event);
}

export function categoryOfAllocation(trace: Trace, allocation: number): Categorized {
  return categoriesOf(trace).of(allocation);
}
