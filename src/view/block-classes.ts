// The class of each allocation, which decides its colour: by category, call site, stream, size, age or lifetime. Classes are
// small numbers; colours.ts maps them to colours in the page.
import { formatBytes } from '../base/bytes.ts';
import { type Category, categoriesOf } from '../report/categories.ts';
import { labelOf } from '../report/sites.ts';
import { CATEGORY_TITLES } from '../report/words/categories.ts';
import { isOlder, stackOf } from '../trace/stacks.ts';
import { NO_STACK } from '../trace/symbols.ts';
import type { Trace } from '../trace/trace.ts';
import type { Clock } from './clock.ts';
import type { Lifetimes } from './lifetimes.ts';
import type { Classify } from './map-cells.ts';
import { formatTime } from './ticks.ts';

export const COLOUR_MODES = ['category', 'stack', 'stream', 'size', 'age', 'lifetime'] as const;
export type ColourMode = (typeof COLOUR_MODES)[number];

/** What stays comes first, so that it lies at the bottom of a stack; the rest is last. */
export const CATEGORY_ORDER: readonly Category[] = [
  'parameter',
  'optimizerState',
  'gradient',
  'buffer',
  'kvCache',
  'graph',
  'activation',
  'temporary',
  'unknown',
];

/** The class of everything that has no class of its own: unknown categories, and all but the largest call sites. */
export const REST: number = CATEGORY_ORDER.length - 1;
/** Steps of the logarithmic scales, between the least and the most that the recording has. */
export const SCALE_STEPS = 32;
/** The classes of blocks that a selection takes in, and of those that it leaves out. */
export const SELECTED = 254;
export const FADED = 255;
/** Sizes that make up less than this share of memory over time get no room on the scale. */
const LITTLE = 0.02;
/** Labels of a scale. */
const SCALE_LABELS = 5;

export interface LegendEntry {
  readonly kind: number;
  readonly label: string;
}

export interface Classes {
  readonly classes: Uint8Array;
  readonly legend: readonly LegendEntry[];
}

export function isScale(mode: ColourMode): boolean {
  return mode === 'size' || mode === 'age' || mode === 'lifetime';
}

export class BlockClasses {
  private readonly trace: Trace;
  private readonly clock: Clock;
  private readonly lifetimes: Lifetimes;
  private readonly cache = new Map<ColourMode, Classes>();

  constructor(trace: Trace, clock: Clock, lifetimes: Lifetimes) {
    this.trace = trace;
    this.clock = clock;
    this.lifetimes = lifetimes;
  }

  /** With `selected`, those allocations get a class of their own, and all others fade. `span` is the length of the axis. */
  classifier(mode: ColourMode, span: number, selected?: (allocation: number) => boolean): Classify {
    if (selected) return (allocation) => (selected(allocation) ? SELECTED : FADED);
    const { classes } = this.of(mode);
    return mode === 'age' ? (_, age) => stepOn(1 + age, 1, 1 + span) : (allocation) => classes[allocation]!;
  }

  of(mode: ColourMode): Classes {
    let known = this.cache.get(mode);
    if (!known) {
      known = this.compute(mode);
      this.cache.set(mode, known);
    }
    return known;
  }

  private compute(mode: ColourMode): Classes {
    const { allocations } = this.trace;
    switch (mode) {
      case 'category':
        return this.categories();
      case 'stack':
        return this.sites();
      case 'stream':
        return this.largest(
          (index) => allocations.stream[index]!,
          (stream) => `stream ${stream}${this.trace.streams[stream] === 0 ? ' (default)' : ''}`,
        );
      case 'size':
        return this.sizes();
      case 'lifetime':
        return this.lifetimeClasses();
      case 'age':
        return { classes: new Uint8Array(0), legend: scaleLegend(['new', '', '', '', 'as old as the recording']) };
    }
  }

  private categories(): Classes {
    const categories = categoriesOf(this.trace);
    const kinds = new Map(CATEGORY_ORDER.map((category, kind) => [category, kind]));
    const classes = new Uint8Array(this.trace.allocations.count);
    for (let index = 0; index < classes.length; index++) classes[index] = kinds.get(categories.of(index).category)!;
    const seen = new Set(classes);
    const legend = CATEGORY_ORDER.map((category, kind) => ({ kind, label: CATEGORY_TITLES[category] }));
    return { classes, legend: legend.filter(({ kind }) => seen.has(kind)) };
  }

  /** Small requests are many but hold little. The scale begins where sizes begin to matter, and those below share its first step. */
  private sizes(): Classes {
    const { allocations } = this.trace;
    const sizes = allocations.requested.subarray(0, allocations.count);
    const { lifetimes } = this;
    const weight = new Map<number, number>();
    let total = 0;
    for (let index = 0; index < sizes.length; index++) {
      const held = sizes[index]! * (lifetimes.end[index]! - lifetimes.start[index]!);
      weight.set(sizes[index]!, (weight.get(sizes[index]!) ?? 0) + held);
      total += held;
    }
    const ascending = [...weight].filter(([size]) => size > 0).sort(([a], [b]) => a - b);
    let below = 0;
    const first = ascending.findIndex(([, held]) => {
      below += held;
      return below > LITTLE * total;
    });
    const least = ascending[Math.max(0, first)]?.[0] ?? 1;
    const most = ascending.at(-1)?.[0] ?? 1;
    const classes = Uint8Array.from(sizes, (size) => stepOn(size, least, most));
    const [lowest, ...labels] = labelsOn(least, most, formatBytes);
    return { classes, legend: scaleLegend([first > 0 ? `up to ${lowest}` : lowest!, ...labels]) };
  }

  /** Blocks that are never freed have the last step for themselves. */
  private lifetimeClasses(): Classes {
    const { lifetimes, clock } = this;
    const axis = clock.durationUs > 0 ? 'time' : 'event';
    const lived = Float64Array.from({ length: lifetimes.count }, (_, index) =>
      lifetimes.released[index] === clock.count
        ? Number.POSITIVE_INFINITY
        : clock.position(axis, lifetimes.end[index]!) - clock.position(axis, lifetimes.start[index]!),
    );
    const { least, most } = boundsOf(lived);
    const classes = Uint8Array.from(lived, (length) =>
      length === Number.POSITIVE_INFINITY ? SCALE_STEPS - 1 : Math.min(SCALE_STEPS - 2, stepOn(length, least, most)),
    );
    const labels = labelsOn(least, most, axis === 'time' ? (us) => formatTime(us) : (events) => `${Math.round(events)} events`);
    return { classes, legend: scaleLegend([...labels.slice(0, -1), 'never freed']) };
  }

  private sites(): Classes {
    const ids = new Map<string, number>();
    const labels: string[] = [];
    const byStack = new Map<number, number>();
    const idOf = (index: number) => {
      const older = isOlder(this.trace, index);
      const stack = older ? -2 : stackOf(this.trace, index);
      let id = byStack.get(stack);
      if (id === undefined) {
        const label = labelOf(this.trace, older ? NO_STACK : stack, older);
        id = ids.get(label);
        if (id === undefined) {
          id = labels.push(label) - 1;
          ids.set(label, id);
        }
        byStack.set(stack, id);
      }
      return id;
    };
    return this.largest(idOf, (id) => labels[id]!);
  }

  /** Gives those with the most bytes over time a class each. */
  private largest(idOf: (allocation: number) => number, nameOf: (id: number) => string): Classes {
    const { allocations } = this.trace;
    const { lifetimes } = this;
    const weight = new Map<number, number>();
    const ids = new Int32Array(allocations.count);
    for (let index = 0; index < allocations.count; index++) {
      const id = idOf(index);
      ids[index] = id;
      const lived = lifetimes.end[index]! - lifetimes.start[index]!;
      weight.set(id, (weight.get(id) ?? 0) + allocations.requested[index]! * lived);
    }
    const ranked = [...weight].sort((a, b) => b[1] - a[1]).map(([id]) => id);
    const classOf = new Map(ranked.map((id, rank) => [id, Math.min(rank, REST)]));
    const legend = ranked.slice(0, REST).map((id, kind) => ({ kind, label: nameOf(id) }));
    if (ranked.length > REST) legend.push({ kind: REST, label: `${ranked.length - REST} others` });
    return { classes: Uint8Array.from(ids, (id) => classOf.get(id)!), legend };
  }
}

/** Least and most of the values above 0 that are finite. */
export function boundsOf(values: Iterable<number>): { least: number; most: number } {
  let least = Number.POSITIVE_INFINITY;
  let most = 0;
  for (const value of values) {
    if (!(value > 0) || value === Number.POSITIVE_INFINITY) continue;
    if (value < least) least = value;
    if (value > most) most = value;
  }
  return most > 0 ? { least, most } : { least: 1, most: 1 };
}

/** The step of a value on a logarithmic scale from `least` to `most`. A scale of one value has its highest step only. */
export function stepOn(value: number, least: number, most: number): number {
  if (!(most > least)) return SCALE_STEPS - 1;
  const share = Math.log(Math.max(value, least) / least) / Math.log(most / least);
  return Math.round(Math.min(1, share) * (SCALE_STEPS - 1));
}

function labelsOn(least: number, most: number, write: (value: number) => string): string[] {
  return Array.from({ length: SCALE_LABELS }, (_, index) => write(Math.round(least * (most / least) ** (index / (SCALE_LABELS - 1)))));
}

function scaleLegend(labels: readonly string[]): LegendEntry[] {
  return labels.map((label, index) => ({ kind: Math.round((index / (labels.length - 1)) * (SCALE_STEPS - 1)), label }));
}
