// Two sequences of numbers, aligned: which elements are the same, in order, if some were inserted or removed.
// Elements that are unique in both are anchors; between anchors the shortest edit is searched for.

/** Shorter parts are searched as a whole, since anchors can be wrong. */
const LEAST_FOR_ANCHORS = 200;

/** Pairs of indices (in `a`, in `b`), ascending in both. */
export type Pairs = [number, number][];

/** The search between two anchors gives up at so many insertions and removals, since its memory grows with their square. */
const MOST_EDITS = 1500;

export function alignTokens(a: Int32Array, b: Int32Array): Pairs {
  const pairs: Pairs = [];
  alignPart(a, b, 0, a.length, 0, b.length, pairs);
  return pairs;
}

function alignPart(a: Int32Array, b: Int32Array, aFrom: number, aTo: number, bFrom: number, bTo: number, pairs: Pairs): void {
  while (aFrom < aTo && bFrom < bTo && a[aFrom] === b[bFrom]) pairs.push([aFrom++, bFrom++]);
  let common = 0;
  while (aFrom < aTo - common && bFrom < bTo - common && a[aTo - common - 1] === b[bTo - common - 1]) common++;
  const [aEnd, bEnd] = [aTo - common, bTo - common];
  if (aFrom < aEnd && bFrom < bEnd) {
    const isLong = aEnd - aFrom + bEnd - bFrom >= LEAST_FOR_ANCHORS;
    const anchors = isLong ? uniqueAnchors(a, b, aFrom, aEnd, bFrom, bEnd) : [];
    if (anchors.length > 0) {
      let [aAt, bAt] = [aFrom, bFrom];
      for (const [aAnchor, bAnchor] of anchors) {
        alignPart(a, b, aAt, aAnchor, bAt, bAnchor, pairs);
        pairs.push([aAnchor, bAnchor]);
        [aAt, bAt] = [aAnchor + 1, bAnchor + 1];
      }
      alignPart(a, b, aAt, aEnd, bAt, bEnd, pairs);
    } else {
      for (const pair of shortestEdit(a, b, aFrom, aEnd, bFrom, bEnd) ?? inOrderOfOccurrence(a, b, aFrom, aEnd, bFrom, bEnd))
        pairs.push(pair);
    }
  }
  for (let index = 0; index < common; index++) pairs.push([aEnd + index, bEnd + index]);
}

/** Elements that occur once in both parts, as the longest chain that ascends in both. */
function uniqueAnchors(a: Int32Array, b: Int32Array, aFrom: number, aTo: number, bFrom: number, bTo: number): Pairs {
  const places = new Map<number, [number, number]>();
  for (let at = aFrom; at < aTo; at++) places.set(a[at]!, [places.has(a[at]!) ? -1 : at, -2]);
  for (let at = bFrom; at < bTo; at++) {
    const place = places.get(b[at]!);
    if (place) place[1] = place[1] === -2 ? at : -1;
  }
  const candidates: Pairs = [];
  for (let at = aFrom; at < aTo; at++) {
    const [inA, inB] = places.get(a[at]!)!;
    if (inA === at && inB >= 0) candidates.push([inA, inB]);
  }
  return longestAscending(candidates);
}

/** The longest chain of pairs, given in ascending order of the first, that ascends in the second too. */
export function longestAscending(candidates: Pairs): Pairs {
  const ends: number[] = [];
  const before = new Int32Array(candidates.length).fill(-1);
  candidates.forEach(([, value], index) => {
    let low = 0;
    let high = ends.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (candidates[ends[middle]!]![1] < value) low = middle + 1;
      else high = middle;
    }
    before[index] = low > 0 ? ends[low - 1]! : -1;
    ends[low] = index;
  });
  const chain: Pairs = [];
  for (let index = ends.at(-1) ?? -1; index >= 0; index = before[index]!) chain.push(candidates[index]!);
  return chain.reverse();
}

/** The pairs that are left by the fewest insertions and removals (Myers' algorithm); undefined: there are too many. */
function shortestEdit(a: Int32Array, b: Int32Array, aFrom: number, aTo: number, bFrom: number, bTo: number): Pairs | undefined {
  const [n, m] = [aTo - aFrom, bTo - bFrom];
  const most = Math.min(n + m, MOST_EDITS);
  const furthest = new Int32Array(2 * most + 3);
  const history: Int32Array[] = [];
  for (let edits = 0; edits <= most; edits++) {
    history.push(furthest.slice(most - edits, most + edits + 3));
    for (let diagonal = -edits; diagonal <= edits; diagonal += 2) {
      const at = most + 1 + diagonal;
      const isDown = diagonal === -edits || (diagonal !== edits && furthest[at - 1]! < furthest[at + 1]!);
      let x = isDown ? furthest[at + 1]! : furthest[at - 1]! + 1;
      while (x < n && x - diagonal < m && a[aFrom + x] === b[bFrom + x - diagonal]) x++;
      furthest[at] = x;
      if (x >= n && x - diagonal >= m) return walkBack(history, n, m, aFrom, bFrom);
    }
  }
  return undefined;
}

function walkBack(history: readonly Int32Array[], n: number, m: number, aFrom: number, bFrom: number): Pairs {
  const pairs: Pairs = [];
  let [x, y] = [n, m];
  for (let edits = history.length - 1; edits >= 0; edits--) {
    const furthest = history[edits]!;
    const at = (diagonal: number) => furthest[diagonal + edits + 1]!;
    const diagonal = x - y;
    const isDown = diagonal === -edits || (diagonal !== edits && at(diagonal - 1) < at(diagonal + 1));
    const previous = isDown ? diagonal + 1 : diagonal - 1;
    const fromX = edits === 0 ? 0 : at(previous);
    const fromY = edits === 0 ? 0 : fromX - previous;
    while (x > fromX && y > fromY) pairs.push([aFrom + --x, bFrom + --y]);
    [x, y] = [fromX, fromY];
  }
  return pairs.reverse();
}

/** The k-th occurrence of an element with the k-th in the other part, as far as that keeps the order. */
function inOrderOfOccurrence(a: Int32Array, b: Int32Array, aFrom: number, aTo: number, bFrom: number, bTo: number): Pairs {
  const waiting = new Map<number, number[]>();
  for (let at = bTo - 1; at >= bFrom; at--) {
    const places = waiting.get(b[at]!);
    if (places) places.push(at);
    else waiting.set(b[at]!, [at]);
  }
  const candidates: Pairs = [];
  for (let at = aFrom; at < aTo; at++) {
    const found = waiting.get(a[at]!)?.pop();
    if (found !== undefined) candidates.push([at, found]);
  }
  return longestAscending(candidates);
}
