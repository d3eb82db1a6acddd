// How much pinned host memory a process held: found by walking back from the blocks at the end through all events.
import { type EventColumns, EventKind, type HostMemory, type Segment } from './trace.ts';

/** `segments` undefined: the state at the end is unknown, so the process is taken to begin with nothing. */
export function hostMemoryOf(events: EventColumns, segments: readonly Segment[] | undefined): HostMemory {
  const end = segments ? levelsOf(segments) : levelsAfter(events);
  let { held, used } = end;
  let peakHeld = held;
  let usedAtPeak = used;
  for (let event = events.count - 1; event >= 0; event--) {
    // A ring buffer that overflowed, or a damaged file, may lack what is undone here.
    held = Math.max(0, held - heldChange(events, event));
    used = Math.max(0, used - usedChange(events, event));
    if (held > peakHeld) {
      peakHeld = held;
      usedAtPeak = used;
    } else if (held === peakHeld) usedAtPeak = Math.max(usedAtPeak, used);
  }
  return {
    events: events.count,
    peakHeld,
    usedAtPeak: Math.min(usedAtPeak, peakHeld),
    heldAtEnd: end.held,
    usedAtEnd: end.used,
    ...(end.rounding > 0 && { roundingAtEnd: end.rounding }),
  };
}

interface Levels {
  readonly held: number;
  readonly used: number;
  readonly rounding: number;
}

function levelsOf(segments: readonly Segment[]): Levels {
  let held = 0;
  let used = 0;
  let rounding = 0;
  for (const segment of segments) {
    held += segment.size;
    for (const block of segment.blocks) {
      if (block.state === 'free') continue;
      used += block.size;
      rounding += Math.max(0, block.size - block.requested);
    }
  }
  return { held, used, rounding };
}

function levelsAfter(events: EventColumns): Levels {
  let held = 0;
  let used = 0;
  for (let event = 0; event < events.count; event++) {
    held = Math.max(0, held + heldChange(events, event));
    used = Math.max(0, used + usedChange(events, event));
  }
  return { held, used, rounding: 0 };
}

function heldChange({ kind, size }: EventColumns, event: number): number {
  if (kind[event] === EventKind.SegmentAlloc) return size[event]!;
  return kind[event] === EventKind.SegmentFree ? -size[event]! : 0;
}

function usedChange({ kind, size }: EventColumns, event: number): number {
  if (kind[event] === EventKind.Alloc) return size[event]!;
  return kind[event] === EventKind.FreeCompleted ? -size[event]! : 0;
}

const FIGURES = ['events', 'peakHeld', 'heldAtEnd'] as const;

/** What an earlier Weir found, from `.weir` and JSON files; undefined if it is not that. */
export function hostMemoryFrom(value: unknown): HostMemory | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const found = value as Record<string, unknown>;
  if (!FIGURES.every((figure) => isQuantity(found[figure]))) return undefined;
  const [events, peakHeld, heldAtEnd] = FIGURES.map((figure) => found[figure] as number);
  const { usedAtPeak, usedAtEnd, roundingAtEnd } = found;
  return {
    events: events!,
    peakHeld: peakHeld!,
    ...(isQuantity(usedAtPeak) && { usedAtPeak }),
    heldAtEnd: heldAtEnd!,
    ...(isQuantity(usedAtEnd) && { usedAtEnd }),
    ...(isQuantity(roundingAtEnd) && { roundingAtEnd }),
  };
}

function isQuantity(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0;
}
