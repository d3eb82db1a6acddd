// What live memory holds: parameters, gradients, optimizer state, activations and so on, and how that was found.
// The bytes of all categories always add up to what is live: what is not known is `unknown`.
import { CATEGORY_NAMES, type Category } from '../abi/events.ts';
import { endsOf } from '../trace/ends.ts';
import { stackOf } from '../trace/stacks.ts';
import { liveSize } from '../trace/summary.ts';
import { NO_STACK } from '../trace/symbols.ts';
import { EventKind, type Trace } from '../trace/trace.ts';
import { type StackMeaning, StackMeanings } from './categories/stacks.ts';
import { type Phase, type Timeline, timelineOf } from './categories/timeline.ts';

export { CATEGORY_NAMES, type Category } from '../abi/events.ts';
export type { PhaseName } from './categories/timeline.ts';

/**
 * How a category was found. told: the process said so. pools: the memory lies in a private pool. phases: from the phases, as marked by
 * the process or annotated by PyTorch, in which it was allocated and freed. stacks: from call stacks. lifetimes: from how long it lived,
 * against the steps of the run and the rise and fall of live memory. none: it was not found.
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
  /** The phases of the run that categories follow from. */
  readonly timeline: Timeline;
  of(allocation: number): Categorized;
  /** Memory live after the event. */
  at(event: number): CategoryBytes;
}

const made = new WeakMap<Trace, Categories>();

export function categoriesOf(trace: Trace): Categories {
  let categories = made.get(trace);
  if (!categories) {
    categories = new TraceCategories(trace);
    made.set(trace, categories);
  }
  return categories;
}

export function categoriesAt(trace: Trace, event: number): CategoryBytes {
  return categoriesOf(trace).at(event);
}

export function categoryOfAllocation(trace: Trace, allocation: number): Categorized {
  return categoriesOf(trace).of(allocation);
}

/** A block that is freed within so many events was only needed by one operator, even where a phase seems to end meanwhile. */
const MOMENT = 8;

const UNKNOWN: Categorized = { category: 'unknown', way: 'none' };

class TraceCategories implements Categories {
  private readonly trace: Trace;
  private readonly stacks: StackMeanings;
  readonly timeline: Timeline;
  /** Numbers of categories that the process told; 0: none. */
  private readonly told: Uint8Array;
  /** The event at which each allocation ends; -1: never. */
  private readonly ended: Int32Array;
  /** Whether the process told anything. */
  private readonly hasTold: boolean;
  /** Backward passes after which the process told their gradients. After others it may have had no time for that. */
  private readonly toldGradients: ReadonlySet<Phase>;
  private parameterSizes: ReadonlySet<number> | undefined;

  constructor(trace: Trace) {
    this.trace = trace;
    this.stacks = new StackMeanings(trace);
    this.timeline = timelineOf(trace, this.stacks);
    this.told = toldBy(trace);
    this.ended = endsOf(trace).of;
    this.hasTold = this.told.some((category) => category > 0);
    this.toldGradients = this.passesWithGradients();
  }

  of(allocation: number): Categorized {
    const told = this.told[allocation]!;
    if (told > 0) return { category: CATEGORY_NAMES[told]!, way: 'told' };
    const [first, second] = this.trace.pools[this.trace.allocations.pool[allocation]!] ?? [0, 0];
    if (first !== 0 || second !== 0) return { category: 'graph', way: 'pools' };
    return this.byStack(allocation) ?? this.byPhase(allocation) ?? UNKNOWN;
  }

  at(event: number): CategoryBytes {
    const { allocations } = this.trace;
    const bytes = Object.fromEntries(CATEGORY_NAMES.map((name) => [name, 0])) as Record<Category, number>;
    const ways = Object.fromEntries(CATEGORY_WAYS.map((name) => [name, 0])) as Record<CategoryWay, number>;
    const ends = endsOf(this.trace);
    let live = 0;
    for (let allocation = 0; allocation < allocations.count; allocation++) {
      if (!ends.isLiveAt(allocation, event)) continue;
      const size = liveSize(allocations.requested[allocation]!);
      const { category, way } = this.of(allocation);
      live += size;
      bytes[category] += size;
      ways[way] += size;
    }
    return { event, live, bytes, ways };
  }

  private meaningOf(allocation: number): StackMeaning | undefined {
    const stack = stackOf(this.trace, allocation);
    return stack === NO_STACK ? undefined : this.stacks.of(stack);
  }

  /** Some requests say what they are for. That is believed only of memory that is kept. */
  private byStack(allocation: number): Categorized | undefined {
    const holds = this.meaningOf(allocation)?.holds;
    if (!holds || this.isShort(allocation)) return undefined;
    if (holds === 'parameter' && (this.hasTold || !this.isKept(allocation))) return undefined;
    return { category: holds, way: 'stacks' };
  }

  private isShort(allocation: number): boolean {
    const ended = this.ended[allocation]!;
    return ended >= 0 && ended - this.trace.allocations.allocEvent[allocation]! <= MOMENT;
  }

  /** Whether it lives through a whole step, or for as long as the recording. */
  private isKept(allocation: number): boolean {
    const { born, died } = this.lifeOf(allocation);
    return this.ended[allocation]! < 0 || (born !== undefined && died !== undefined && died.step - born.step > 1);
  }

  private lifeOf(allocation: number): { born: Phase | undefined; died: Phase | undefined } {
    const { phases, phaseOf } = this.timeline;
    const began = this.trace.allocations.allocEvent[allocation]!;
    const ended = this.ended[allocation]!;
    return {
      born: began < 0 ? undefined : phases[phaseOf[began]!],
      died: ended < 0 ? undefined : phases[phaseOf[ended]!],
    };
  }

  private byPhase(allocation: number): Categorized | undefined {
    const { born, died } = this.lifeOf(allocation);
    if (!born || !(this.timeline.hasBackward || this.timeline.hasOptimizer)) return undefined;
    const category = this.categoryIn(born, died, allocation);
    if (category === 'unknown') return undefined;
    // A guessed end of a phase makes a guess of everything that depends on it.
    const way = born.name !== 'optimizer' && died?.origin === 'lifetimes' ? 'lifetimes' : born.origin;
    return { category, way };
  }

  private categoryIn(born: Phase, died: Phase | undefined, allocation: number): Category {
    const last = this.timeline.phases.at(-1)!;
    const steps = (died ?? last).step - born.step;
    // What is still live in the phase that the recording ends in may yet be anything.
    const isOpen = !died && born === last;
    if (born === died) return 'temporary';
    switch (born.name) {
      case 'setup':
        // A process that tells its parameters tells all of them.
        if (this.hasTold) return 'unknown';
        return !died || steps > 1 ? 'parameter' : 'unknown';
      case 'optimizer':
        if (died && steps <= 1) return 'temporary';
        return isOpen || this.hasTold ? 'unknown' : 'optimizerState';
      case 'backward':
        if (isOpen || this.toldGradients.has(born) || (!died && !this.hasSizeOfParameter(allocation))) return 'unknown';
        return !this.timeline.hasOptimizer || this.reachesOptimizer(born, died) ? 'gradient' : 'temporary';
      case 'forward':
        if (steps > 1 || (!died && steps > 0)) return 'unknown';
        if (born.origin === 'lifetimes' && this.isShort(allocation)) return 'temporary';
        if (!died) return this.hasPassed(born) ? 'unknown' : this.openForward(isOpen, allocation);
        if (died.name !== 'backward' && this.outlivesSteps(born, died)) return 'unknown';
        return this.hasBetween(born, died, 'backward') ? 'activation' : 'temporary';
    }
  }

  /** Where nothing marks steps: state of the program's own optimizer, averages and the like live through several backward passes. */
  private outlivesSteps(born: Phase, died: Phase): boolean {
    const { phases, phaseOf } = this.timeline;
    if (this.timeline.hasOptimizer || phases.at(-1)!.step > 0) return false;
    const first = this.timeline.nextFrom(phaseOf[born.from]! + 1, 'backward');
    return this.timeline.nextFrom(first + 1, 'backward') < phaseOf[died.from]!;
  }

  /** A gradient that stays has the size of its parameter. Libraries keep memory since their first backward pass, too. */
  private hasSizeOfParameter(allocation: number): boolean {
    this.parameterSizes ??= this.sizesOfParameters();
    return this.parameterSizes.size === 0 || this.parameterSizes.has(this.trace.allocations.requested[allocation]!);
  }

  private passesWithGradients(): Set<Phase> {
    const passes = new Set<Phase>();
    this.told.forEach((category, allocation) => {
      const { born } = this.lifeOf(allocation);
      if (category === CATEGORY_NAMES.indexOf('gradient') && born) passes.add(born);
    });
    return passes;
  }

  private sizesOfParameters(): Set<number> {
    const { allocations } = this.trace;
    const sizes = new Set<number>();
    for (let allocation = 0; allocation < allocations.count; allocation++) {
      const isTold = this.told[allocation] === CATEGORY_NAMES.indexOf('parameter');
      const isOfSetup = this.ended[allocation] === -1 && this.lifeOf(allocation).born?.name === 'setup';
      if (isTold || isOfSetup) sizes.add(allocations.requested[allocation]!);
    }
    return sizes;
  }

  /** In a forward pass that is not over, results of modules are kept for the backward pass, if there has ever been one. */
  private openForward(isOpen: boolean, allocation: number): Category {
    if (!isOpen || this.timeline.hasBackward) return 'activation';
    return this.meaningOf(allocation)?.inModule ? 'activation' : 'unknown';
  }

  /** Whether a backward pass after this phase is over. It would have freed what it needed. */
  private hasPassed(born: Phase): boolean {
    const { phases, phaseOf } = this.timeline;
    return this.timeline.nextFrom(phaseOf[born.from]! + 1, 'backward') < phases.length - 1;
  }

  private reachesOptimizer(born: Phase, died: Phase | undefined): boolean {
    return this.hasBetween(born, died ?? this.timeline.phases.at(-1)!, 'optimizer') || (!died && !this.hasEnded(born));
  }

  /** Whether the step of the phase is over by the end of the recording. */
  private hasEnded(phase: Phase): boolean {
    return this.timeline.phases.at(-1)!.step > phase.step;
  }

  /** Whether there is a phase of that name after `from`, up to `to` and including it. */
  private hasBetween(from: Phase, to: Phase, name: 'backward' | 'optimizer'): boolean {
    const { phaseOf } = this.timeline;
    return this.timeline.nextFrom(phaseOf[from.from]! + 1, name) <= phaseOf[Math.min(to.from, phaseOf.length - 1)]!;
  }
}

function toldBy({ events, allocationOf, allocations }: Trace): Uint8Array {
  const told = new Uint8Array(allocations.count);
  for (let event = 0; events.detail && event < events.count; event++) {
    if (events.kind[event] !== EventKind.Category) continue;
    const allocation = allocationOf[event]!;
    const category = events.detail[event]!;
    // A later version may have other categories.
    if (allocation >= 0 && category >= 0 && category < CATEGORY_NAMES.length) told[allocation] = category;
  }
  return told;
}
