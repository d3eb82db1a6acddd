// Where things are on a strip's canvas, in CSS pixels from its top, and what lies under the pointer.
import { RunKind, runAt, type Strip } from '../../src/view/fit-strip.ts';

export const GHOST = { top: 1, height: 22 };
export const STRIP = { top: 31, height: 44 };
export const SORTED = { top: 87, height: 20 };
export const STRIP_HEIGHT: number = SORTED.top + SORTED.height + 2;

/** Positions of the sorted holes: from the left edge, without gaps. */
export function* sortedHoles({ holes, runSize }: Strip): Generator<{ run: number; at: number; size: number }> {
  let at = 0;
  for (const run of holes) {
    const size = runSize[run]!;
    yield { run, at, size };
    at += size;
  }
}

/** Where a hole lies among the sorted ones. */
export function placeAmongSorted(strip: Strip, wanted: number): number {
  for (const { run, at } of sortedHoles(strip)) if (run === wanted) return at;
  return 0;
}

/** The run under the pointer; -1: none. */
export function runUnder(strip: Strip, position: number, y: number): number {
  if (y >= STRIP.top - 3 && y <= STRIP.top + STRIP.height + 3) return runAt(strip, position);
  if (y < SORTED.top || y > SORTED.top + SORTED.height) return -1;
  for (const { run, at, size } of sortedHoles(strip)) if (position >= at && position < at + size) return run;
  return -1;
}

/** The nearest hole within a few pixels, since holes can be narrower than a pointer. */
export function holeUnder(strip: Strip, position: number, y: number, reach: number): number {
  const run = runUnder(strip, position, y);
  if (run >= 0 && strip.runKind[run] === RunKind.Hole) return run;
  if (y > STRIP.top + STRIP.height + 3) return -1;
  let nearest = -1;
  let least = reach;
  for (const hole of strip.holes) {
    const start = strip.runAt[hole]!;
    const away = Math.max(start - position, position - start - strip.runSize[hole]!);
    if (away < least) {
      least = away;
      nearest = hole;
    }
  }
  return nearest;
}
