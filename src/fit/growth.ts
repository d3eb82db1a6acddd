// Where the memory that grows comes from: live blocks at the peak, by the call stack of their request.
import { liveSize, summarizeTrace } from '../trace/summary.ts';
import { NO_STACK } from '../trace/symbols.ts';
import type { FitModel } from './model.ts';
import type { Point } from './monomials.ts';
import { freeEventOf } from './sequence.ts';
import type { SizeFunction } from './size-function.ts';
import type { Synthesis } from './synthesis.ts';

export interface GrowingSite {
  /** A stack of the template's symbols; NO_STACK: none was recorded. */
  readonly stack: number;
  /** Live bytes at the peak of the run of these values. */
  readonly bytes: number;
  /** Bytes more at the same moment in the run of the next value. */
  readonly growth: number;
  readonly allocations: number;
  /** The function of the largest of its blocks. */
  readonly size: SizeFunction;
}

export interface Growth {
  /** Live bytes at the peak. */
  readonly bytes: number;
  /** The part of it that does not depend on the values. */
  readonly constantBytes: number;
  /** Bytes that the next value adds. */
  readonly growth: number;
  /** Those that grow, the fastest first. */
  readonly sites: readonly GrowingSite[];
}

export function growthAt(model: FitModel, synthesis: Synthesis, point: Point, next: Point): Growth {
  const trace = synthesis.at(point, 'upper');
  const { peakLiveEvent } = summarizeTrace(trace);
  const { allocations, events } = trace;
  const sites = new Map<number, { bytes: number; growth: number; allocations: number; size: SizeFunction; largest: number }>();
  let [bytes, constantBytes, growth] = [0, 0, 0];
  for (let allocation = 0; allocation < allocations.count; allocation++) {
    const born = allocations.allocEvent[allocation]!;
    const freed = freeEventOf(trace, allocation);
    if (born > peakLiveEvent || (freed >= 0 && freed <= peakLiveEvent)) continue;
    const size = model.functions[synthesis.origin[allocation]!]!;
    const now = liveSize(allocations.requested[allocation]!);
    const more = liveSize(Math.max(1, size.upper(next))) - now;
    bytes += now;
    growth += more;
    if (size.kind === 'constant') {
      constantBytes += now;
      continue;
    }
    const stack = born < 0 ? NO_STACK : events.stack[born]!;
    const site = sites.get(stack) ?? { bytes: 0, growth: 0, allocations: 0, size, largest: 0 };
    sites.set(stack, {
      bytes: site.bytes + now,
      growth: site.growth + more,
      allocations: site.allocations + 1,
      size: now > site.largest ? size : site.size,
      largest: Math.max(now, site.largest),
    });
  }
  return {
    bytes,
    constantBytes,
    growth,
    sites: [...sites]
      .map(([stack, { largest: _, ...site }]) => ({ stack, ...site }))
      .sort((a, b) => b.growth - a.growth || b.bytes - a.bytes),
  };
}
