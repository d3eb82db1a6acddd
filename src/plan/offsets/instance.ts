// Buffers compiled for planning: time split into sections, all data in typed arrays.
// A section is a maximal set of buffers that live together. Two buffers meet if and only if they share a section.
import type { Buffer } from './buffers.ts';

export interface Instance {
  readonly count: number;
  readonly size: Float64Array;
  readonly alignment: Float64Array;
  /** True if every alignment is 1. */
  readonly unaligned: boolean;
  /** The fixed offset; -1 if the planner chooses. */
  readonly fixed: Float64Array;
  readonly hasFixed: boolean;
  /** Lifetime of each buffer, in the input's units of time. */
  readonly duration: Float64Array;
  readonly sections: number;
  /** Buffer b holds sections [spanLow[i], spanHigh[i]) for i in [spanStart[b], spanStart[b + 1]). */
  readonly spanStart: Int32Array;
  readonly spanLow: Int32Array;
  readonly spanHigh: Int32Array;
  /** Bytes live in each section. */
  readonly load: Float64Array;
  /** No layout is smaller: the largest load or the highest end of a fixed buffer. */
  readonly lowerBound: number;
}

export function compile(buffers: readonly Buffer[]): Instance {
  const count = buffers.length;
  const size = Float64Array.from(buffers, (buffer) => buffer.size);
  const alignment = Float64Array.from(buffers, (buffer) => buffer.alignment);
  const fixed = Float64Array.from(buffers, (buffer) => buffer.fixedOffset ?? -1);
  const spanStart = new Int32Array(count + 1);
  buffers.forEach((buffer, index) => {
    spanStart[index + 1] = spanStart[index]! + buffer.spans.length;
  });
  const { spanLow, spanHigh, loads } = cutIntoSections(buffers, spanStart[count]!);
  let lowerBound = 0;
  for (const load of loads) if (load > lowerBound) lowerBound = load;
  let hasFixed = false;
  for (let index = 0; index < count; index++) {
    if (fixed[index]! < 0) continue;
    hasFixed = true;
    lowerBound = Math.max(lowerBound, fixed[index]! + size[index]!);
  }
  return {
    count,
    size,
    alignment,
    unaligned: alignment.every((value) => value === 1),
    fixed,
    hasFixed,
    duration: Float64Array.from(buffers, (buffer) => buffer.spans.reduce((sum, span) => sum + span.to - span.from, 0)),
    sections: loads.length,
    spanStart,
    spanLow,
    spanHigh,
    load: Float64Array.from(loads),
    lowerBound,
  };
}

/** Walks over births and deaths in time. A section ends at the first death after a birth. */
function cutIntoSections(
  buffers: readonly Buffer[],
  spans: number,
): { readonly spanLow: Int32Array; readonly spanHigh: Int32Array; readonly loads: readonly number[] } {
  const spanLow = new Int32Array(spans);
  const spanHigh = new Int32Array(spans);
  const births = new Float64Array(spans);
  const deaths = new Float64Array(spans);
  const size = new Float64Array(spans);
  let at = 0;
  for (const buffer of buffers) {
    for (const span of buffer.spans) {
      births[at] = span.from;
      deaths[at] = span.to;
      size[at++] = buffer.size;
    }
  }
  const byBirth = sortedIndices(births);
  const byDeath = sortedIndices(deaths);
  const loads: number[] = [];
  let live = 0;
  let growing = false;
  for (let birth = 0, death = 0; death < spans; ) {
    // Lifetimes are half open: at the same moment, ends come before beginnings.
    if (birth < spans && births[byBirth[birth]!]! < deaths[byDeath[death]!]!) {
      const span = byBirth[birth++]!;
      live += size[span]!;
      if (growing) loads[loads.length - 1] = live;
      else loads.push(live);
      growing = true;
      spanLow[span] = loads.length - 1;
    } else {
      const span = byDeath[death++]!;
      live -= size[span]!;
      growing = false;
      spanHigh[span] = loads.length;
    }
  }
  return { spanLow, spanHigh, loads };
}

/** Indices sorted by value. Equal values keep their order. */
function sortedIndices(values: Float64Array): Int32Array {
  return new Int32Array(values.length).map((_, index) => index).sort((a, b) => values[a]! - values[b]! || a - b);
}

/** The buffers that live together with buffer b: `list[start[b]..start[b + 1])`, ascending. */
export interface Neighbours {
  readonly start: Int32Array;
  readonly list: Int32Array;
}

export function findNeighbours(instance: Instance): Neighbours {
  const { count, sections, spanStart, spanLow, spanHigh } = instance;
  const members: number[][] = Array.from({ length: sections }, () => []);
  for (let buffer = 0; buffer < count; buffer++) {
    for (let span = spanStart[buffer]!; span < spanStart[buffer + 1]!; span++) {
      for (let section = spanLow[span]!; section < spanHigh[span]!; section++) members[section]!.push(buffer);
    }
  }
  const start = new Int32Array(count + 1);
  const seen = new Int32Array(count).fill(-1);
  const lists: Int32Array[] = [];
  for (let buffer = 0; buffer < count; buffer++) {
    const met: number[] = [];
    seen[buffer] = buffer;
    for (let span = spanStart[buffer]!; span < spanStart[buffer + 1]!; span++) {
      for (let section = spanLow[span]!; section < spanHigh[span]!; section++) {
        for (const other of members[section]!) {
          if (seen[other] === buffer) continue;
          seen[other] = buffer;
          met.push(other);
        }
      }
    }
    lists.push(Int32Array.from(met).sort());
    start[buffer + 1] = start[buffer]! + met.length;
  }
  const list = new Int32Array(start[count]!);
  lists.forEach((met, buffer) => {
    list.set(met, start[buffer]!);
  });
  return { start, list };
}

export function alignUp(offset: number, alignment: number): number {
  return alignment === 1 ? offset : Math.ceil(offset / alignment) * alignment;
}
