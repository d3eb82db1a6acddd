// The reserved memory of one moment, part by part: what was in use, and what was lost to what.
import type { Breakdown } from './moment.ts';

export type PartKind = 'used' | 'fragmented' | 'other-streams' | 'other-pools' | 'small-segments' | 'pending' | 'rounding';

export interface MemoryPart {
  readonly kind: PartKind;
  readonly bytes: number;
}

/** All parts that are not empty, the one in use first. They add up to `reserved`. */
export function partsOf(moment: Breakdown): MemoryPart[] {
  const parts: MemoryPart[] = [
    { kind: 'used', bytes: moment.requested },
    { kind: 'fragmented', bytes: moment.fragmented },
    { kind: 'other-streams', bytes: moment.otherStreams },
    { kind: 'other-pools', bytes: moment.otherPools },
    { kind: 'small-segments', bytes: moment.smallSegments },
    { kind: 'pending', bytes: moment.pending },
    { kind: 'rounding', bytes: moment.rounding },
  ];
  return parts.filter((part) => part.bytes > 0);
}

/** The parts that were lost: reserved, and not in use. */
export function lossesOf(moment: Breakdown): MemoryPart[] {
  return partsOf(moment).filter((part) => part.kind !== 'used');
}

export function lostBytes(moment: Breakdown): number {
  return moment.reserved - moment.requested;
}
