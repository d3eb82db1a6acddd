// Loops that make more blocks at larger values, such as one for each chunk of a batch, and keep them.
// The template has only as many as its own value asks for, so those that are new in it stand for all that a larger value adds.
import { liveSize } from '../trace/summary.ts';
import type { Point } from './monomials.ts';
import { freeEventOf, type Sequence } from './sequence.ts';
import { openFunction, type SizeFunction } from './size-function.ts';

/** The blocks of one loop in one step. */
interface Loop {
  /** Those that the other run has, too. */
  readonly shared: number[];
  readonly added: number[];
}

/**
 * The functions of the blocks that a loop added, by allocation: together they grow so that the loop's memory grows as it did.
 * `functions` is read when sizes are asked for.
 */
export function boundLoops(
  template: Sequence,
  { other, partner }: { readonly other: Sequence; readonly partner: Int32Array },
  functions: readonly SizeFunction[],
  alone: readonly number[],
  power: number,
): Map<number, SizeFunction> {
  const bounded = new Map<number, SizeFunction>();
  const { requested } = template.trace.allocations;
  // Every further block is rounded up, too.
  const sum = (allocations: readonly number[]) => allocations.reduce((total, allocation) => total + liveSize(requested[allocation]!), 0);
  for (const { shared, added } of loopsOf(template, partner, alone)) {
    const before = shared.reduce((total, allocation) => total + liveSize(other.trace.allocations.requested[partner[allocation]!]!), 0);
    const addedBytes = sum(added);
    const samples = [
      { point: other.values, size: before },
      { point: template.values, size: sum(shared) + addedBytes },
    ];
    const whole = openFunction(samples, power);
    const left = remembered((point) => {
      const own = shared.reduce((total, allocation) => total + functions[allocation]!.upper(point), 0);
      return (whole.upper(point) - own) / addedBytes;
    });
    for (const allocation of added) {
      const size = functions[allocation]!;
      const upper = (point: Point) => Math.max(size.upper(point), Math.ceil(liveSize(requested[allocation]!) * left(point)));
      bounded.set(allocation, { ...size, upper });
    }
  }
  return bounded;
}

/** Loops that keep blocks: one is still live when the next is requested. */
function loopsOf(template: Sequence, partner: Int32Array, alone: readonly number[]): Loop[] {
  const { trace, site, count, steps, hasStacks } = template;
  if (!hasStacks || alone.length === 0) return [];
  const { liveAtStart, allocEvent } = trace.allocations;
  const isAlone = new Set(alone);
  const found: Loop[] = [];
  const edges = [0, ...steps.filter((step) => step > 0 && step < count), count];
  for (const [index, from] of edges.slice(0, -1).entries()) {
    const bySite = new Map<number, number[]>();
    for (let request = from; request < edges[index + 1]!; request++) {
      if (site[request]! < 0) continue;
      const same = bySite.get(site[request]!);
      if (same) same.push(liveAtStart + request);
      else bySite.set(site[request]!, [liveAtStart + request]);
    }
    for (const blocks of bySite.values()) {
      const isKept = (allocation: number, place: number) => {
        const freed = freeEventOf(trace, allocation);
        const next = blocks[place + 1];
        return next !== undefined && (freed < 0 || freed > allocEvent[next]!);
      };
      if (!blocks.some((allocation) => isAlone.has(allocation)) || !blocks.some(isKept)) continue;
      const shared = blocks.filter((allocation) => partner[allocation]! >= 0);
      const added = blocks.filter((allocation) => isAlone.has(allocation));
      if (shared.length > 0) found.push({ shared, added });
    }
  }
  return found;
}

/** Remembers the answer for the latest point: all blocks of a run ask for the same one. */
function remembered(answer: (point: Point) => number): (point: Point) => number {
  let key: string | undefined;
  let latest = 0;
  return (point) => {
    if (key !== point.join()) [key, latest] = [point.join(), answer(point)];
    return latest;
  };
}
