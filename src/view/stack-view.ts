// Answers what the page asks about live memory by meaning: its bands, their columns, and their bytes at a moment beside those
// of the step before.
import { formatBytes } from '../base/bytes.ts';
import { CATEGORY_WAYS, type CategoryWay, categoriesOf } from '../report/categories.ts';
import { waysSentence } from '../report/words/categories.ts';
import { endsOf } from '../trace/ends.ts';
import { liveSize } from '../trace/summary.ts';
import type { Trace } from '../trace/trace.ts';
import { BandSums } from './band-sums.ts';
import { type BlockClasses, type LegendEntry, REST } from './block-classes.ts';
import type { Clock } from './clock.ts';
import type { Lifetimes } from './lifetimes.ts';
import type { MinMax } from './min-max.ts';
import type { Moment } from './protocol.ts';
import { type Ruler, StepRuler } from './ruler.ts';
import { type StackColumns, type StackMode, type StackWindow, stackColumns } from './stack-columns.ts';

/** The bands of a mode, from the bottom up. */
export interface Bands {
  /** Kinds are those of `colours.ts`, as on the map. */
  readonly bands: readonly LegendEntry[];
  /** How categories were found, at the peak of live memory; empty for call sites. */
  readonly found: string;
  /** What is missing in the recording, and how to record it; empty: nothing. */
  readonly hint: string;
  /** Nothing is known: there is one band. */
  readonly isUnknown: boolean;
}

/** Bytes of each band after an event, in the order of `Bands`. */
export interface BandBytes extends Moment {
  readonly live: number;
  readonly bytes: readonly number[];
  readonly step: number | undefined;
  readonly phase: string | undefined;
}

export interface StackMoment extends BandBytes {
  /** The same place of the step before; undefined: there is none. */
  readonly before: BandBytes | undefined;
}

/** Above this share of live memory, what is unknown is worth a hint. */
const MUCH_UNKNOWN = 0.25;

interface Prepared {
  readonly bands: Bands;
  readonly bandOf: Uint8Array;
  readonly sums: BandSums;
}

export class StackView {
  private readonly trace: Trace;
  private readonly clock: Clock;
  private readonly lifetimes: Lifetimes;
  private readonly live: MinMax;
  private readonly classes: BlockClasses;
  private readonly prepared = new Map<StackMode, Prepared>();
  private stepRuler: StepRuler | undefined;

  constructor(trace: Trace, clock: Clock, lifetimes: Lifetimes, live: MinMax, classes: BlockClasses) {
    this.trace = trace;
    this.clock = clock;
    this.lifetimes = lifetimes;
    this.live = live;
    this.classes = classes;
  }

  bands(mode: StackMode): Bands {
    return this.of(mode).bands;
  }

  ruler(): Ruler {
    return this.steps().ruler;
  }

  columns(mode: StackMode, window: StackWindow): StackColumns {
    const { trace, clock, lifetimes, live } = this;
    const { bandOf, sums } = this.of(mode);
    return stackColumns({ trace, clock, lifetimes, live, bandOf, sums }, window);
  }

  at(mode: StackMode, event: number): StackMoment {
    const last = Math.min(event, this.clock.count - 1);
    const before = last < 0 ? undefined : this.steps().before(last);
    return { ...this.bytesAt(mode, last), before: before === undefined ? undefined : this.bytesAt(mode, before) };
  }

  private bytesAt(mode: StackMode, event: number): BandBytes {
    const { sums } = this.of(mode);
    const bytes = new Float64Array(sums.bands);
    sums.after(event, bytes);
    return {
      event,
      timeUs: this.clock.position('time', event),
      live: bytes.reduce((sum, part) => sum + part, 0),
      bytes: [...bytes],
      ...this.steps().placeOf(event),
    };
  }

  private steps(): StepRuler {
    this.stepRuler ??= new StepRuler(this.trace, this.clock);
    return this.stepRuler;
  }

  private of(mode: StackMode): Prepared {
    let known = this.prepared.get(mode);
    if (!known) {
      known = this.prepare(mode);
      this.prepared.set(mode, known);
    }
    return known;
  }

  private prepare(mode: StackMode): Prepared {
    const { trace } = this;
    const { classes, legend } = mode === 'none' ? { classes: undefined, legend: [] } : this.classes.of(mode === 'site' ? 'stack' : mode);
    const entries = legend.length > 0 ? legend : [{ kind: 0, label: 'live' }];
    const bandOfKind = new Uint8Array(256);
    entries.forEach(({ kind }, band) => {
      bandOfKind[kind] = band;
    });
    const bandOf = classes ? classes.map((kind) => bandOfKind[kind]!) : new Uint8Array(trace.allocations.count);
    const words = mode === 'category' ? this.categoryWords() : mode === 'site' ? this.siteWords() : NO_WORDS;
    return { bands: { bands: entries, ...words }, bandOf, sums: new BandSums(trace, bandOf, entries.length) };
  }

  private categoryWords(): Omit<Bands, 'bands'> {
    const { trace } = this;
    const categories = categoriesOf(trace);
    const ends = endsOf(trace);
    const event = this.clock.count > 0 ? this.live.highestAt(0, this.clock.count) : -1;
    const ways = Object.fromEntries(CATEGORY_WAYS.map((way) => [way, 0])) as Record<CategoryWay, number>;
    let live = 0;
    let unknown = 0;
    this.lifetimes.each(event - 1, event + 1, (allocation) => {
      if (!ends.isLiveAt(allocation, event)) return;
      const bytes = liveSize(trace.allocations.requested[allocation]!);
      const { category, way } = categories.of(allocation);
      live += bytes;
      ways[way] += bytes;
      if (category === 'unknown') unknown += bytes;
    });
    if (live === 0) return NO_WORDS;
    const isUnknown = unknown === live;
    const found = isUnknown ? '' : `Categories at the peak of live memory: ${waysSentence({ ways, live }).replace('Found', 'found')}`;
    const hint =
      unknown < MUCH_UNKNOWN * live
        ? ''
        : `What ${formatBytes(unknown)} at the peak hold is not known. Record with \`weir record -- python train.py\`: the process then tells it.`;
    return { found, hint, isUnknown };
  }

  private siteWords(): Omit<Bands, 'bands'> {
    const hasStacks = this.trace.symbols.stacks.count > 0;
    const hint = hasStacks
      ? ''
      : 'The recording has no call stacks. Record them with `weir record --stacks -- python train.py`, or in PyTorch with `_record_memory_history(stacks="python")`.';
    return { found: '', hint, isUnknown: !hasStacks };
  }
}

const NO_WORDS = { found: '', hint: '', isUnknown: false };

/** Whether a band is a collection of what has no name of its own. It is drawn with a texture. */
export function isRest({ kind }: LegendEntry): boolean {
  return kind === REST;
}
