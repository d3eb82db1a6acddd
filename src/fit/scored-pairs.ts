// The best alignment of two sequences of which any two elements are more or less alike (Needleman and Wunsch).
// It stays within a band around the diagonal, so that its memory is bounded.
import type { Pairs } from './diff.ts';

const GAP = -1;
/** Cells of the table: one byte each. */
const MOST_CELLS = 2 ** 26;
const LEAST_BAND = 64;

const PAIR = 1;
const SKIP_A = 2;
const SKIP_B = 3;

/** `related` says how much two elements are alike; undefined: they are never paired. */
export function bestPairs(a: Int32Array, b: Int32Array, related: (i: number, j: number) => number | undefined): Pairs {
  const [n, m] = [a.length, b.length];
  if (n === 0 || m === 0) return [];
  const band = Math.max(LEAST_BAND, Math.min(Math.max(n, m), Math.floor(MOST_CELLS / (n + 1) / 2), Math.abs(n - m) + 1024));
  const width = 2 * band + 1;
  const moves = new Uint8Array((n + 1) * width);
  let previous = new Float64Array(width).fill(Number.NEGATIVE_INFINITY);
  let current = new Float64Array(width);
  // The column of the diagonal in row i.
  const middle = (i: number) => Math.round((i * m) / n);
  for (let i = 0; i <= n; i++) {
    current.fill(Number.NEGATIVE_INFINITY);
    const [centre, before] = [middle(i), middle(i - 1)];
    for (let j = Math.max(0, centre - band); j <= Math.min(m, centre + band); j++) {
      const at = j - centre + band;
      let best = i === 0 && j === 0 ? 0 : Number.NEGATIVE_INFINITY;
      let move = 0;
      const above = j - before + band;
      if (i > 0 && above >= 0 && above < width && previous[above]! + GAP > best) {
        best = previous[above]! + GAP;
        move = SKIP_A;
      }
      if (j > 0 && at > 0 && current[at - 1]! + GAP > best) {
        best = current[at - 1]! + GAP;
        move = SKIP_B;
      }
      if (i > 0 && j > 0 && above > 0 && above <= width) {
        const score = related(a[i - 1]!, b[j - 1]!);
        if (score !== undefined && previous[above - 1]! + score >= best) {
          best = previous[above - 1]! + score;
          move = PAIR;
        }
      }
      current[at] = best;
      moves[i * width + at] = move;
    }
    [previous, current] = [current, previous];
  }
  const pairs: Pairs = [];
  let [i, j] = [n, m];
  while (i > 0 || j > 0) {
    const move = moves[i * width + j - middle(i) + band];
    if (move === PAIR) pairs.push([a[--i]!, b[--j]!]);
    else if (move === SKIP_A) i--;
    else if (move === SKIP_B) j--;
    // Outside of the band nothing is known.
    else break;
  }
  return pairs.reverse();
}
