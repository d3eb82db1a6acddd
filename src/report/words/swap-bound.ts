// Why swapping cannot lower a peak further: the least peak that a link allows without waiting, in words.
import { formatBytes } from '../../base/bytes.ts';
import type { DecisiveMoment } from '../../plan/swaps/gaps.ts';

/** A peak this far above the least one is explained. */
const NEAR = 1.05;

/** What decides the bound. */
export function boundReason({ live, idle, out, back }: DecisiveMoment): string {
  const share = `of ${formatBytes(live)} live then, ${formatBytes(idle)} are idle for long enough`;
  if (idle <= Math.min(out, back)) return share;
  const link =
    out <= back
      ? `the link can have copied ${formatBytes(out)} of it out by then`
      : `the link can copy ${formatBytes(back)} of it back in time`;
  return `${share}, and ${link}`;
}

export interface SwappedPeak {
  /** The least without waiting. */
  readonly bound: number;
  /** What the swap plan comes to. */
  readonly expected: number;
  readonly measured: number;
  /** The share that the plan aims at of what could be saved; undefined: all. */
  readonly share?: number | null | undefined;
}

/** Why a measured peak is clearly above the least one; undefined if it is not. */
export function distanceReason({ bound, expected, measured, share }: SwappedPeak): string | undefined {
  if (bound <= 0 || measured <= NEAR * bound) return undefined;
  const reasons: string[] = [];
  if (share != null)
    reasons.push(`the swap plan aims at ${Math.round(share * 100)} % of the saving, because a fuller one cost too much time`);
  else if (expected > bound)
    reasons.push(`the swap plan comes to ${formatBytes(expected)}: copies wait for each other, and memory is given up only between layers`);
  if (measured > expected) reasons.push(`the steps took ${formatBytes(measured - expected)} more than the plan expected`);
  return `${((measured / bound - 1) * 100).toFixed(1)} % above it: ${reasons.join('; ')}`;
}
