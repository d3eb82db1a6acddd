// The class of each allocation, which decides its colour: by stream, size, age, lifetime or call site. Classes are small
// numbers; colours.ts maps them to colours in the page.
import { labelOf } from '../report/sites.ts';
import { isOlder, stackOf } from '../trace/stacks.ts';
import { NO_STACK } from '../trace/symbols.ts';
import type { Trace } from '../trace/trace.ts';
import type { Clock } from './clock.ts';
import type { Lifetimes } from './lifetimes.ts';
import type { Classify } from './map-cells.ts';

export const COLOUR_MODES = ['stream', 'size', 'age', 'lifetime', 'stack'] as const;
export type ColourMode = (typeof COLOUR_MODES)[number];

/** Categories that get a colour of their own; the rest share one. */
export const CATEGORIES = 7;
/** Steps of the logarithmic scales: sizes from 512 B, times from 1 us, each step twice the one before. */
export const SCALE_STEPS = 32;
/** The class of blocks that a selection leaves out. */
export const FADED = 255;
const SMALLEST = 512;

export interface LegendEntry {
  readonly kind: number;
  readonly label: string;
}

export class BlockClasses {
  private readonly trace: Trace;
  private readonly clock: Clock;
  private readonly lifetimes: Lifetimes;
  private readonly cache = new Map<ColourMode, { classes: Uint8Array; legend: LegendEntry[] }>();

  constructor(trace: Trace, clock: Clock, lifetimes: Lifetimes) {
    this.trace = trace;
    this.clock = clock;
    this.lifetimes = lifetimes;
  }

  /** With `selected`, all other allocations fade. */
  classifier(mode: ColourMode, perUnitUs: number, selected?: (allocation: number) => boolean): Classify {
    const { classes } = this.of(mode);
    const plain: Classify = mode === 'age' ? (_, age) => timeStep(age * perUnitUs) : (allocation) => classes[allocation]!;
    return selected ? (allocation, age) => (selected(allocation) ? plain(allocation, age) : FADED) : plain;
  }

  legend(mode: ColourMode): readonly LegendEntry[] {
    return this.of(mode).legend;
  }

  private of(mode: ColourMode): { classes: Uint8Array; legend: LegendEntry[] } {
    let known = this.cache.get(mode);
    if (!known) {
      known = this.compute(mode);
      this.cache.set(mode, known);
    }
    return known;
  }

  private compute(mode: ColourMode): { classes: Uint8Array; legend: LegendEntry[] } {
    const { allocations } = this.trace;
    const { lifetimes, clock } = this;
    const axis = clock.durationUs > 0 ? 'time' : 'event';
    const classes = new Uint8Array(allocations.count);
    switch (mode) {
      case 'stream':
        return this.categories(
          (index) => allocations.stream[index]!,
          (stream) => `stream ${stream}${this.trace.streams[stream] === 0 ? ' (default)' : ''}`,
        );
      case 'stack':
        return this.sites();
      case 'size':
        for (let index = 0; index < allocations.count; index++) classes[index] = sizeStep(allocations.requested[index]!);
        break;
      case 'lifetime':
        for (let index = 0; index < allocations.count; index++) {
          const start = clock.position(axis, lifetimes.start[index]!);
          const isEndless = lifetimes.released[index] === clock.count;
          classes[index] = isEndless ? SCALE_STEPS - 1 : timeStep(clock.position(axis, lifetimes.end[index]!) - start);
        }
        break;
      case 'age':
        break;
    }
    return { classes, legend: [] };
  }

  private sites(): { classes: Uint8Array; legend: LegendEntry[] } {
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
    return this.categories(idOf, (id) => labels[id]!);
  }

  /** Gives the categories with the most bytes over time a class each. */
  private categories(idOf: (allocation: number) => number, nameOf: (id: number) => string): { classes: Uint8Array; legend: LegendEntry[] } {
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
    const classOf = new Map(ranked.map((id, rank) => [id, Math.min(rank, CATEGORIES)]));
    const legend = ranked.slice(0, CATEGORIES).map((id, kind) => ({ kind, label: nameOf(id) }));
    if (ranked.length > CATEGORIES) legend.push({ kind: CATEGORIES, label: `${ranked.length - CATEGORIES} others` });
    return { classes: Uint8Array.from(ids, (id) => classOf.get(id)!), legend };
  }
}

export function sizeStep(bytes: number): number {
  return clampStep(Math.log2(Math.max(1, bytes / SMALLEST)));
}

export function timeStep(microseconds: number): number {
  return clampStep(Math.log2(Math.max(1, microseconds)));
}

function clampStep(step: number): number {
  return Math.min(SCALE_STEPS - 1, Math.max(0, Math.floor(step)));
}
