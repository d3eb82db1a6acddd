// Live allocations at one moment, by the place in the user's code that requested them.
import { Notes } from '../trace/notes.ts';
import { isOlder, stackOf } from '../trace/stacks.ts';
import { liveSize } from '../trace/summary.ts';
import { NO_STACK } from '../trace/symbols.ts';
import type { Trace } from '../trace/trace.ts';
import { isLiveAt } from './moment.ts';

export interface CallSite {
  /** `file.py:123 function`, or why it is unknown. */
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
  let described = 0;
  for (let allocation = 0; allocation < allocations.count; allocation++) {
    if (!isLiveAt(trace, allocation, event)) continue;
    const older = isOlder(trace, allocation);
    const stack = stackOf(trace, allocation);
    const texts = notes.of(allocation);
    if (stack !== NO_STACK || texts.length > 0) described++;
    let label = labels.get(stack);
    if (label === undefined) {
      label = labelOf(trace, stack, older);
      labels.set(stack, label);
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

/** Libraries between the user's code and the allocator. The first frame outside of them tells more. */
const LIBRARIES = /(^|\/)(torch|weir_gpu|accelerate|deepspeed|lightning|pytorch_lightning)\/|^\?\?$|\.(cpp|cc|h|so)\b|^$/;

/** The innermost frame outside of those libraries; `older` allocations have no stack. */
export function labelOf(trace: Trace, stack: number, older: boolean): string {
  if (older) return '(allocated before the recording began)';
  if (stack === NO_STACK) return '(no stack recorded)';
  let innermost = '';
  for (const frame of trace.symbols.framesOf(stack)) {
    // A recording of a job on Windows has backslashes.
    const filename = frame.filename.replaceAll('\\', '/');
    const label = filename === '' ? frame.name : `${shorten(filename)}:${frame.line} ${frame.name}`;
    if (innermost === '') innermost = label;
    if (!LIBRARIES.test(inPackages(filename))) return label;
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
