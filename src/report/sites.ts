// Live allocations at one moment, by the place in the user's code that requested them.
import { formatBytes, MIB } from '../base/bytes.ts';
import { endsOf } from '../trace/ends.ts';
import { Notes } from '../trace/notes.ts';
import { isOlder, stackOf } from '../trace/stacks.ts';
import { liveSize } from '../trace/summary.ts';
import { NO_STACK } from '../trace/symbols.ts';
import { EventKind, type Trace } from '../trace/trace.ts';
import { originsOf } from './origin.ts';
import { stacksFrom } from './sampled-stacks.ts';

export interface CallSite {
  /** `file.py:123 function`, `backward of bmm at file.py:123 function`, or why the line is unknown. */
  readonly label: string;
  readonly bytes: number;
  readonly allocations: number;
  /** Texts that the program gave to these allocations, those of the most bytes first; absent if there are none. */
  readonly notes?: readonly string[] | undefined;
}

/** Texts shown for one call site. */
const MOST_NOTES = 3;

/** The call sites with the most live memory after `event`, largest first; empty: neither stacks nor notes were recorded. */
export function topSites(trace: Trace, event: number, count: number): CallSite[] {
  const { allocations } = trace;
  const labels = new Map<number, string>();
  const sites = new Map<string, { bytes: number; allocations: number; noted: Map<string, number> }>();
  const notes = new Notes(trace);
  const ends = endsOf(trace);
  let described = 0;
  for (let allocation = 0; allocation < allocations.count; allocation++) {
    if (!ends.isLiveAt(allocation, event)) continue;
    const stack = stackOf(trace, allocation);
    const older = isOlder(trace, allocation);
    const texts = notes.of(allocation);
    if (stack !== NO_STACK || texts.length > 0) described++;
    const key = older ? OLDER_STACK : stack;
    let label = labels.get(key);
    if (label === undefined) {
      label = labelOf(trace, stack, older);
      labels.set(key, label);
    }
    const site = sites.get(label) ?? { bytes: 0, allocations: 0, noted: new Map<string, number>() };
    const bytes = liveSize(allocations.requested[allocation]!);
    site.bytes += bytes;
    for (const text of texts) site.noted.set(text, (site.noted.get(text) ?? 0) + bytes);
    site.allocations++;
    sites.set(label, site);
  }
  if (described === 0) return [];
  return [...sites]
    .map(([label, { noted, ...site }]) => ({ label, ...site, ...(noted.size > 0 && { notes: largest(noted) }) }))
    .sort((a, b) => b.bytes - a.bytes)
    .slice(0, count);
}

function largest(noted: ReadonlyMap<string, number>): string[] {
  return [...noted]
    .sort((a, b) => b[1] - a[1])
    .slice(0, MOST_NOTES)
    .map(([text]) => text);
}

/** A number for the stack of allocations of which nothing is known. */
export const OLDER_STACK: number = NO_STACK - 1;

/** The call site of a stack, in words; `older` allocations have no stack. */
export function labelOf(trace: Trace, stack: number, older: boolean): string {
  if (older) return OLDER;
  if (stack === NO_STACK) return noStackLabel(trace);
  return originsOf(trace).of(stack).label;
}

const OLDER = '(allocated before the recording began)';
const NO_STACKS = '(no stack recorded)';
/** Python frames were recorded, but not for this memory: autograd's threads have none. */
const NO_FRAMES = '(no stack: probably a backward pass)';

const noStackLabels = new WeakMap<Trace, string>();
/** Smaller requests may have no stack because stacks were recorded for large ones only. */
const LARGE = 1 * MIB;
/** The least share of large requests that has a stack, if stacks were recorded at all. */
const RECORDED_SHARE = 0.1;

function noStackLabel(trace: Trace): string {
  let label = noStackLabels.get(trace);
  if (label === undefined) {
    const { events } = trace;
    let large = 0;
    let withStack = 0;
    for (let event = 0; event < events.count; event++) {
      if (events.kind[event] !== EventKind.Alloc || events.size[event]! < LARGE) continue;
      large++;
      if (events.stack[event] !== NO_STACK) withStack++;
    }
    label = withStack < large && withStack > RECORDED_SHARE * large ? NO_FRAMES : NO_STACKS;
    const least = stacksFrom(trace);
    if (least > 0) label = `(no stack: recorded of requests from ${formatBytes(least)} on)`;
    noStackLabels.set(trace, label);
  }
  return label;
}
