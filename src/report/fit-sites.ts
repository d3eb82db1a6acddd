// The lines of the program whose memory grows, each once: a line can be reached on several call stacks.
import type { Growth } from '../fit/growth.ts';
import type { SizeFunction } from '../fit/size-function.ts';
import type { Trace } from '../trace/trace.ts';
import { labelOf } from './sites.ts';

export interface LabelledSite {
  readonly label: string;
  /** Bytes that the next value adds. */
  readonly adds: number;
  readonly bytes: number;
  readonly allocations: number;
  readonly size: SizeFunction;
}

/** The fastest growing first. */
export function labelledSites(trace: Trace, growth: Growth): LabelledSite[] {
  const sites = new Map<string, LabelledSite>();
  for (const { stack, growth: adds, bytes, allocations, size } of growth.sites) {
    const label = labelOf(trace, stack, false);
    const known = sites.get(label);
    sites.set(label, {
      label,
      adds: adds + (known?.adds ?? 0),
      bytes: bytes + (known?.bytes ?? 0),
      allocations: allocations + (known?.allocations ?? 0),
      // Sites come with the fastest growing first.
      size: known?.size ?? size,
    });
  }
  return [...sites.values()].sort((a, b) => b.adds - a.adds || b.bytes - a.bytes);
}
