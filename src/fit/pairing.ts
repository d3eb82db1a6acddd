// Which request of one run is which of another run of the same program: step by step, by call stack, else by order,
// size and lifetime.
import { alignTokens, type Pairs } from './diff.ts';
import { plainMonomials, valueAt } from './monomials.ts';
import { bestPairs } from './scored-pairs.ts';
import { freeEventOf, type Sequence } from './sequence.ts';

/** What identifies a request: its whole call stack, the innermost frames of it, or its place in the order. */
export type PairingMode = 'stack' | 'inner' | 'order';

/** The modes that two runs allow, the strictest first. */
export function modesFor(from: Sequence, to: Sequence): readonly PairingMode[] {
  return from.hasStacks && to.hasStacks ? ['stack', 'inner', 'order'] : ['order'];
}

/** For each allocation of `to`, the same allocation of `from`; -1 for none. */
export function pairRuns(from: Sequence, to: Sequence, mode: PairingMode): Int32Array {
  const pairing: Pairing = { from, to, ...sitesOf(from, to, mode), related: relationOf(from, to) };
  const [olderFrom, olderTo] = [from.trace.allocations.liveAtStart, to.trace.allocations.liveAtStart];
  const partner = new Int32Array(olderTo + to.count).fill(-1);
  for (const [a, b] of sectionsOf(from, to)) {
    for (const [i, j] of pairSection(pairing, a, b)) partner[olderTo + j] = olderFrom + i;
  }
  pairReordered(pairing, partner);
  pairFreed(from, to, partner);
  pairEqual(pairing, partner);
  pairOlder(from, to, partner);
  return partner;
}

interface Pairing {
  readonly from: Sequence;
  readonly to: Sequence;
  /** Undefined: by order. */
  readonly sites: readonly [Int32Array, Int32Array] | undefined;
  readonly related: Relation;
}

function sitesOf(from: Sequence, to: Sequence, mode: PairingMode): Pick<Pairing, 'sites'> {
  if (mode === 'order') return { sites: undefined };
  return { sites: mode === 'stack' ? [from.site, to.site] : [from.innerSite, to.innerSite] };
}

/**
 * Blocks of the same size that have no partner yet: those older than the recordings, and those that were requested sooner or
 * later, such as a library's workspace at its first use.
 */
function pairEqual({ from, to, sites }: Pairing, partner: Int32Array): void {
  const taken = takenOf(from, partner);
  const waiting = new Map<string, number[]>();
  const keys = ({ trace }: Sequence, allocation: number, site: Int32Array | undefined) => {
    const { requested, stream, pool, liveAtStart } = trace.allocations;
    const alike = `${requested[allocation]}/${stream[allocation]}/${pool[allocation]}`;
    const isOlder = allocation < liveAtStart;
    return { alike, own: isOlder ? `${alike} older` : `${alike} ${site?.[allocation - liveAtStart]}` };
  };
  const offer = (name: string, allocation: number) => {
    const same = waiting.get(name);
    if (same) same.push(allocation);
    else waiting.set(name, [allocation]);
  };
  for (let allocation = taken.length - 1; allocation >= 0; allocation--) {
    if (taken[allocation] === 1) continue;
    const { alike, own } = keys(from, allocation, sites?.[0]);
    offer(own, allocation);
    offer(alike, allocation);
  }
  // First those of the same site or age, then any of the same size.
  for (const which of ['own', 'alike'] as const) {
    for (let allocation = 0; allocation < partner.length; allocation++) {
      if (partner[allocation]! >= 0) continue;
      const isOlder = allocation < to.trace.allocations.liveAtStart;
      const same = waiting.get(keys(to, allocation, sites?.[1])[which]);
      while (partner[allocation] === -1 && same && same.length > 0) {
        const found = same.pop()!;
        // The request of one run may be older than the recording of the other, but two requests must be of the same site.
        const isCrossing = isOlder !== found < from.trace.allocations.liveAtStart;
        if (taken[found] === 1 || (which === 'alike' && sites && !isCrossing && !isOlder)) continue;
        partner[allocation] = found;
        taken[found] = 1;
      }
    }
  }
}

/** Requests of the same site in another order, as threads and schedulers make them: the k-th that is left with the k-th. */
function pairReordered({ from, to, sites }: Pairing, partner: Int32Array): void {
  if (!sites) return;
  const taken = takenOf(from, partner);
  const [olderFrom, olderTo] = [from.trace.allocations.liveAtStart, to.trace.allocations.liveAtStart];
  const waiting = new Map<number, number[]>();
  for (let index = from.count - 1; index >= 0; index--) {
    const site = sites[0][index]!;
    if (taken[olderFrom + index] === 1 || site < 0) continue;
    const same = waiting.get(site);
    if (same) same.push(index);
    else waiting.set(site, [index]);
  }
  const likeness = likenessOf(from, to);
  for (let index = 0; index < to.count; index++) {
    const found = partner[olderTo + index] === -1 ? waiting.get(sites[1][index]!)?.at(-1) : undefined;
    if (found === undefined || from.place[found] !== to.place[index]) continue;
    if (likeness(from.size[found]!, to.size[index]!) === FOREIGN_SIZE) continue;
    waiting.get(sites[1][index]!)!.pop();
    partner[olderTo + index] = olderFrom + found;
  }
}

/** Blocks older than the recordings that are freed in both, in the order of their frees. */
function pairFreed(from: Sequence, to: Sequence, partner: Int32Array): void {
  const freed = ({ trace }: Sequence) =>
    Int32Array.from(
      Array.from({ length: trace.allocations.liveAtStart }, (_, allocation) => allocation)
        .filter((allocation) => freeEventOf(trace, allocation) >= 0)
        .sort((a, b) => freeEventOf(trace, a) - freeEventOf(trace, b)),
    );
  const likeness = likenessOf(from, to);
  for (const [i, j] of bestPairs(freed(from), freed(to), (i, j) => likeness(requestedOf(from, i), requestedOf(to, j)))) partner[j] = i;
}

function requestedOf({ trace }: Sequence, allocation: number): number {
  return trace.allocations.requested[allocation]!;
}

/** What is left of the blocks older than the recordings, by order of size. */
function pairOlder(from: Sequence, to: Sequence, partner: Int32Array): void {
  const taken = takenOf(from, partner);
  const bySize = ({ trace }: Sequence, isLeft: (allocation: number) => boolean) =>
    Int32Array.from(
      Array.from({ length: trace.allocations.liveAtStart }, (_, allocation) => allocation)
        .filter(isLeft)
        .sort((a, b) => trace.allocations.requested[a]! - trace.allocations.requested[b]!),
    );
  const left = bySize(from, (allocation) => taken[allocation] === 0);
  const open = bySize(to, (allocation) => partner[allocation] === -1);
  const likeness = likenessOf(from, to);
  for (const [i, j] of bestPairs(left, open, (i, j) => likeness(requestedOf(from, i), requestedOf(to, j)))) partner[j] = i;
}

function takenOf({ trace }: Sequence, partner: Int32Array): Uint8Array {
  const taken = new Uint8Array(trace.allocations.count);
  for (const allocation of partner) if (allocation >= 0) taken[allocation] = 1;
  return taken;
}

interface Section {
  readonly from: number;
  readonly to: number;
}

/** Parts of both runs that belong together. Steps beyond the shorter run's are the same as its last one. */
function sectionsOf(from: Sequence, to: Sequence): [Section, Section][] {
  const [a, b] = [cut(from), cut(to)];
  if (a.length === 1 || b.length === 1) return [[whole(from), whole(to)]];
  if (a.length === b.length) return a.map((section, index) => [section, b[index]!]);
  // What repeats may be layers, which say nothing about the steps of the other run.
  if (!from.isMarked || !to.isMarked) return [[whole(from), whole(to)]];
  // The last part may have been cut short by the end of the run.
  const lastFull = Math.max(0, a.length - 2);
  return b.map((section, index) => [a[Math.min(index, lastFull)]!, section]);
}

function whole({ count }: Sequence): Section {
  return { from: 0, to: count };
}

function cut({ steps, count }: Sequence): Section[] {
  const edges = [0, ...steps.filter((step) => step > 0 && step < count), count];
  return edges.slice(1).map((to, index) => ({ from: edges[index]!, to }));
}

function pairSection(pairing: Pairing, a: Section, b: Section): Pairs {
  const { from, to, sites, related } = pairing;
  if (isSame(pairing, a, b)) return Array.from({ length: b.to - b.from }, (_, index) => [a.from + index, b.from + index]);
  if (sites) return pairBySite(sites, related, a, b);
  return bestPairs(range(a), range(b), (i, j) => (from.place[i] === to.place[j] ? related(i, j) : undefined));
}

/** Whether both parts make the same requests in the same order, as far as that can be seen without the sizes. */
function isSame({ from, to, sites }: Pairing, a: Section, b: Section): boolean {
  const count = b.to - b.from;
  if (a.to - a.from !== count) return false;
  let differences = 0;
  for (let index = 0; index < count; index++) {
    const [i, j] = [a.from + index, b.from + index];
    if (from.place[i] !== to.place[j] || (sites && sites[0][i] !== sites[1][j])) return false;
    // Frees of other threads and streams come a little sooner or later.
    if (Math.abs(from.life[i]! - to.life[j]!) > 2) differences++;
  }
  return sites !== undefined || differences <= count / 100;
}

/** Neighbours of the same site are a group. Groups are aligned by site, and the requests in a group by size and lifetime. */
function pairBySite([sitesA, sitesB]: readonly [Int32Array, Int32Array], related: Relation, a: Section, b: Section): Pairs {
  const [groupsA, groupsB] = [groupsOf(sitesA, a), groupsOf(sitesB, b)];
  const tokens = (sites: Int32Array, groups: readonly number[]) => Int32Array.from(groups.slice(0, -1), (start) => sites[start]!);
  const pairs: Pairs = [];
  for (const [x, y] of alignTokens(tokens(sitesA, groupsA), tokens(sitesB, groupsB))) {
    const left = { from: groupsA[x]!, to: groupsA[x + 1]! };
    const right = { from: groupsB[y]!, to: groupsB[y + 1]! };
    const isEven = left.to - left.from === right.to - right.from;
    if (isEven) for (let index = 0; index < left.to - left.from; index++) pairs.push([left.from + index, right.from + index]);
    else for (const pair of bestPairs(range(left), range(right), related)) pairs.push(pair);
  }
  return pairs;
}

/** The first request of each group, and the end of the last. */
function groupsOf(sites: Int32Array, { from, to }: Section): number[] {
  const starts: number[] = [];
  for (let index = from; index < to; index++) if (index === from || sites[index] !== sites[index - 1]) starts.push(index);
  return [...starts, to];
}

function range({ from, to }: Section): Int32Array {
  return Int32Array.from({ length: to - from }, (_, index) => from + index);
}

/** How much two requests look like the same one; undefined: they cannot be. */
export type Relation = (i: number, j: number) => number | undefined;

const SAME_FUNCTION = 4;
const PLAUSIBLE_SIZE = 1;
const FOREIGN_SIZE = -6;
const SAME_LIFE = 2;
const SIMILAR_LIFE = 1;

function relationOf(from: Sequence, to: Sequence): Relation {
  const likeness = likenessOf(from, to);
  return (i, j) => {
    const [a, b] = [from.life[i]!, to.life[j]!];
    const score = likeness(from.size[i]!, to.size[j]!);
    if (a === b) return score + SAME_LIFE;
    return a >= 0 && b >= 0 && Math.abs(a - b) <= 2 + Math.max(a, b) / 4 ? score + SIMILAR_LIFE : score;
  };
}

/** How much two sizes look like those of one block. */
function likenessOf(from: Sequence, to: Sequence): (before: number, after: number) => number {
  const ratios = [1, ...plainMonomials(to.values.length).map((monomial) => valueAt(monomial, to.values) / valueAt(monomial, from.values))];
  const [least, most] = [Math.min(...ratios), Math.max(...ratios)];
  return (before, after) => {
    if (ratios.some((expected) => after === before * expected)) return SAME_FUNCTION;
    const ratio = after / Math.max(1, before);
    return ratio >= least * 0.99 && ratio <= most * 1.01 ? PLAUSIBLE_SIZE : FOREIGN_SIZE;
  };
}
