// Scratch memory: blocks that a kernel or library requests and frees within one operation, such as workspaces of convolutions.
// The kernel sets their size. They stop growing once the GPU is full, and change with the algorithm that a library chooses.
import { MIB } from '../base/bytes.ts';
import type { Point } from './monomials.ts';
import type { Sequence } from './sequence.ts';
import { growthOf, growthRange, powerBetween, roundedUp, type Sample, type SizeFunction } from './size-function.ts';

/** Smaller scratch does not matter: it is served from memory of other small blocks. */
const LEAST_BYTES = MIB;
/** Partial results come with counters for the thread blocks that share them. */
const MOST_COUNTER_BYTES = 65_536;
const MOST_COUNTERS = 2;

/** A power of growth that is clearly more than the value's own. */
const FASTER = 1.1;

type Requests = Pick<Sequence, 'count' | 'life' | 'size' | 'site'>;

/** For each request, whether it is scratch: only counters of the same operation are requested during its life, and freed before it. */
export function scratchOf({ count, life, size, site }: Requests, freeEvent: (index: number) => number): Uint8Array {
  const isScratch = new Uint8Array(count);
  for (let index = 0; index < count; index++) {
    const end = index + life[index]!;
    if (life[index]! < 0 || life[index]! > MOST_COUNTERS) continue;
    let isWithin = true;
    for (let inner = index + 1; inner <= end && isWithin; inner++) {
      const isCounter = size[inner]! <= MOST_COUNTER_BYTES && site[inner] === site[index];
      isWithin = isCounter && life[inner]! >= 0 && freeEvent(inner) < freeEvent(index);
    }
    isScratch[index] = isWithin ? 1 : 0;
  }
  return isScratch;
}

/** The function of each block of scratch with the range that it may have, by allocation of the template. */
export function boundScratch(
  { trace, operator, isScratch, life, hasStacks }: Sequence,
  functions: readonly SizeFunction[],
  samplesOf: (allocation: number) => readonly Sample[],
  power: number,
): Map<number, SizeFunction> {
  const { liveAtStart, count, requested } = trace.allocations;
  const partial: Member[] = [];
  const workspaces: Member[] = [];
  const jumps = new Map<number, number>();
  for (let allocation = liveAtStart; allocation < count; allocation++) {
    const index = allocation - liveAtStart;
    if (isScratch[index] === 0) continue;
    const member = { allocation, operator: operator[index]!, size: functions[allocation]!, samples: samplesOf(allocation) };
    if (life[index]! > 0) {
      partial.push(member);
      continue;
    }
    workspaces.push(member);
    if (requested[allocation]! < LEAST_BYTES || member.size.kind !== 'open') continue;
    jumps.set(member.operator, Math.max(jumps.get(member.operator) ?? 1, jumpOf(member.samples, power)));
  }
  const bounded = new Map<number, SizeFunction>();
  const seen = partial.reduce((most, { samples }) => samples.reduce((largest, { size }) => Math.max(largest, size), most), 0);
  for (const member of partial) if (member.size.kind !== 'constant') bounded.set(member.allocation, levelling(member, seen));
  for (const member of workspaces) {
    const jump = jumps.get(member.operator);
    // Without stacks all operations look the same, so a change in one says nothing about another.
    const isChosen = jump !== undefined && (hasStacks || member.size.kind === 'open');
    if (isChosen) bounded.set(member.allocation, chosen(member, power, jump));
  }
  return bounded;
}

interface Member {
  readonly allocation: number;
  readonly operator: number;
  readonly size: SizeFunction;
  readonly samples: readonly Sample[];
}

/** How far the sizes of one block lie apart, if growth with the value is taken out. */
function jumpOf(samples: readonly Sample[], power: number): number {
  const last = samples.at(-1)!;
  const scaled = samples.map(({ point, size }) => size * growthOf(point, last.point) ** power);
  return Math.max(...scaled) / Math.max(1, Math.min(...scaled));
}

/** Partial results grow until the GPU is full, which it was not at the largest that were seen. */
function levelling({ size, samples }: Member, seen: number): SizeFunction {
  const padded = size.kind === 'sum' && size.monomial ? roundedUp(samples, size.monomial, samples.reduce(commonUnit, 0)) : undefined;
  const upper = (point: Point) => Math.max(size.upper(point), padded?.upper(point) ?? 0);
  return within(size, (point) => Math.min(seen, size.lower(point)), upper);
}

/**
 * The library chooses among algorithms, and some need no memory. At most, the block grows as it did.
 * If another algorithm is drawn, it needs as much more as was seen to happen for any block of the operation.
 */
function chosen({ size, samples }: Member, power: number, jump: number): SizeFunction {
  const last = samples.at(-1)!;
  const grown = (point: Point) => last.size * Math.max(1, growthRange(last.point, point)[1]) ** power;
  const isOpen = size.kind === 'open';
  // What grows faster than its value from each run to the next is no jump between algorithms.
  const isFaster = samples.length > 2 && samples.slice(1).every((sample, index) => powerBetween(samples[index]!, sample) > FASTER);
  const jumped = (point: Point) => Math.ceil(jumpOf(samples, power) * grown(point));
  const most = !isOpen ? size.upper : isFaster ? (point: Point) => Math.max(size.upper(point), jumped(point)) : jumped;
  const drawn = (point: Point, share: number) => {
    const range = Math.ceil(jump * (isOpen ? grown(point) : size.upper(point)));
    return range < LEAST_BYTES ? size.upper(point) : Math.max(1, Math.ceil(share * range));
  };
  return { ...within(size, () => 1, most), drawn };
}

function within(size: SizeFunction, lower: SizeFunction['lower'], upper: SizeFunction['upper']): SizeFunction {
  const isSmall = (point: Point) => upper(point) < LEAST_BYTES;
  return {
    ...size,
    isChecked: false,
    lower: (point) => (isSmall(point) ? size.lower(point) : lower(point)),
    upper: (point) => (isSmall(point) ? size.upper(point) : upper(point)),
  };
}

function commonUnit(unit: number, { size }: Sample): number {
  let [a, b] = [unit, size];
  while (b > 0) [a, b] = [b, a % b];
  return a;
}
