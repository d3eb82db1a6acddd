// Live allocations at one moment, by the place in the user's code that requested them.
import { liveSize } from '../trace/summary.ts';
import { NO_STACK } from '../trace/symbols.ts';
import type { Trace } from '../trace/trace.ts';
import { isLiveAt } from './moment.ts';

export interface CallSite {
  /** `file.py:123 function`, or why it is unknown. */
  readonly label: string;
  readonly bytes: number;
  readonly allocations: number;
}

/** The call sites with the most live memory after `event`, largest first; empty: no stacks were recorded. */
export function topSites(trace: Trace, event: number, count: number): CallSite[] {
  const { allocations, events, symbols } = trace;
  const labels = new Map<number, string>();
  const sites = new Map<string, { bytes: number; allocations: number }>();
  let withStack = 0;
  for (let allocation = 0; allocation < allocations.count; allocation++) {
    if (!isLiveAt(trace, allocation, event)) continue;
    const allocEvent = allocations.allocEvent[allocation]!;
    const stack = allocEvent < 0 ? NO_STACK : events.stack[allocEvent]!;
    if (stack !== NO_STACK) withStack++;
    let label = labels.get(stack);
    if (label === undefined) {
      label = labelOf(trace, stack, allocEvent < 0);
      labels.set(stack, label);
    }
    const site = sites.get(label) ?? { bytes: 0, allocations: 0 };
    site.bytes += liveSize(allocations.requested[allocation]!);
    site.allocations++;
    sites.set(label, site);
  }
  if (withStack === 0 || symbols.frames.count === 0) return [];
  return [...sites]
    .map(([label, site]) => ({ label, ...site }))
    .sort((a, b) => b.bytes - a.bytes)
    .slice(0, count);
}

/** Libraries between the user's code and the allocator. The first frame outside of them tells more. */
const LIBRARIES = /(^|\/)(torch|accelerate|deepspeed|lightning|pytorch_lightning)\/|^\?\?$|\.(cpp|cc|h|so)\b|^$/;

/** The innermost frame outside of those libraries; `older` allocations have no stack. */
export function labelOf(trace: Trace, stack: number, older: boolean): string {
  if (older) return '(allocated before the recording began)';
  if (stack === NO_STACK) return '(no stack recorded)';
  let innermost = '';
  for (const frame of trace.symbols.framesOf(stack)) {
    const label = frame.filename === '' ? frame.name : `${shorten(frame.filename)}:${frame.line} ${frame.name}`;
    if (innermost === '') innermost = label;
    if (!LIBRARIES.test(inPackages(frame.filename))) return label;
  }
  return innermost;
}

/** The path below the installed packages, since the environment itself may be in a folder called torch. */
function inPackages(filename: string): string {
  return filename.replace(/^.*\/(site|dist)-packages\//, '');
}

/** The last two parts of a path are enough to tell files apart. */
function shorten(filename: string): string {
  return filename.split('/').slice(-2).join('/');
}
