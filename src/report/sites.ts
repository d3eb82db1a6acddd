// Who held the memory at one moment: live allocations by the place in the user's code that asked for them.
import { liveSize } from '../trace/summary.ts';
import { NO_STACK } from '../trace/symbols.ts';
import type { Trace } from '../trace/trace.ts';
import { isLiveAt } from './moment.ts';

export interface CallSite {
  /** `file.py:123 function`, or what is known instead. */
  readonly label: string;
  readonly bytes: number;
  readonly allocations: number;
}

/** The call sites that hold the most live memory after `event`, largest first; empty when no stacks were recorded. */
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

/** Frames inside these are the machinery; the first frame outside says more. */
const MACHINERY = /(^|\/)(torch|accelerate|deepspeed|lightning|pytorch_lightning)\/|^\?\?$|\.(cpp|cc|h|so)\b|^$/;

/** The innermost frame of the stack that is not machinery; `older` allocations have none. */
export function labelOf(trace: Trace, stack: number, older: boolean): string {
  if (older) return '(allocated before the recording began)';
  if (stack === NO_STACK) return '(no stack recorded)';
  let innermost = '';
  for (const frame of trace.symbols.framesOf(stack)) {
    const label = frame.filename === '' ? frame.name : `${shorten(frame.filename)}:${frame.line} ${frame.name}`;
    if (innermost === '') innermost = label;
    if (!MACHINERY.test(inPackages(frame.filename))) return label;
  }
  return innermost;
}

/** The path from the installed packages on: an environment may itself lie in a folder called torch. */
function inPackages(filename: string): string {
  return filename.replace(/^.*\/(site|dist)-packages\//, '');
}

/** The last two parts of a path tell files apart well enough. */
function shorten(filename: string): string {
  return filename.split('/').slice(-2).join('/');
}
