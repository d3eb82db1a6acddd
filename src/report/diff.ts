// Two runs side by side: at the same moment of both, which categories and which call sites hold more memory than before.
// Plain data; terminal/diff.ts and diff-json.ts render it.
import { formatBytes, parseBytes } from '../base/bytes.ts';
import { formatCount } from '../base/counts.ts';
import { endsOf } from '../trace/ends.ts';
import { isOlder, stackOf } from '../trace/stacks.ts';
import { liveSize, summarizeTrace, type TraceSummary } from '../trace/summary.ts';
import { type Frame, NO_STACK } from '../trace/symbols.ts';
import { EventKind, type Trace, type Warning } from '../trace/trace.ts';
import { type Alignment, type AlignmentKind, align } from './alignment.ts';
import { CATEGORY_NAMES, type Category, categoriesAt } from './categories.ts';
import { findLeaks, type LeakingSite, type Leaks } from './leaks.ts';
import { type LineMatches, matchLines } from './line-matching.ts';
import { LiveCurve } from './live-curve.ts';
import { lineOf, originsOf } from './origin.ts';
import { type NoSteps, type RunSteps, stepsOf } from './run-steps.ts';
import { labelOf, OLDER_STACK } from './sites.ts';

export interface DiffSide {
  readonly file: string;
  readonly gpu: number;
  readonly summary: TraceSummary;
  readonly warnings: readonly Warning[];
  readonly steps: RunSteps | NoSteps;
  /** The call site of the request at the moment compared; undefined: there is none, or it has no stack. */
  readonly place: string | undefined;
  /** Share of the live bytes compared that have a call stack, 0 to 1. What is older than the recording does not count. */
  readonly located: number;
  readonly leaks: Leaks;
}

export interface Change {
  /** Bytes. */
  readonly before: number;
  readonly after: number;
}

export interface CategoryChange extends Change {
  readonly category: Category;
}

export interface SiteChange extends Change {
  readonly label: string;
  /** The line asks for memory in one of the runs only, not just at the moment compared. */
  readonly isOnly: boolean;
  readonly allocationsBefore: number;
  readonly allocationsAfter: number;
  /** The line's label in the first run, if it has moved since. */
  readonly movedFrom: string | undefined;
  /** Lines that led to most of the change, innermost first. */
  readonly callers: readonly string[];
}

export interface Diff {
  readonly before: DiffSide;
  readonly after: DiffSide;
  readonly alignment: Alignment;
  /** In the order of their change, the largest first; undefined: categories are not known. */
  readonly categories: readonly CategoryChange[] | undefined;
  /** All call sites that changed, the largest change first. */
  readonly sites: readonly SiteChange[];
  /** Call sites that grow from step to step in the second run, but not in the first; undefined: the second has no steps. */
  readonly newLeaks: readonly LeakingSite[] | undefined;
  /** The moments compared are at different lines, so some sites are live at one of them only. */
  readonly differsInPlace: boolean;
  readonly movedFiles: LineMatches['moved'];
  readonly editedFiles: LineMatches['edited'];
}

export interface DiffInput {
  readonly trace: Trace;
  readonly file: string;
}

export interface DiffOptions {
  readonly by?: AlignmentKind | undefined;
  readonly onProgress?: ((fraction: number, doing: string) => void) | undefined;
}

export function diffTraces(before: DiffInput, after: DiffInput, options: DiffOptions = {}): Diff {
  const progress = options.onProgress ?? (() => {});
  progress(0, 'finding steps');
  const runs = [before, after].map(({ trace }, index) => {
    const run = { curve: new LiveCurve(trace), steps: stepsOf(trace), summary: summarizeTrace(trace) };
    progress(0.2 * (index + 1), 'finding steps');
    return run;
  });
  const [first, second] = runs as [(typeof runs)[0], (typeof runs)[0]];
  const alignment = align(first, second, options.by);
  progress(0.5, 'matching lines');
  const matches = matchLines(before.trace, after.trace);
  progress(0.7, 'comparing call sites');
  const bySize = [before, after].every(({ trace }) => trace.symbols.stacks.count === 0);
  const held = {
    before: heldAt(before.trace, alignment.before.event, bySize),
    after: heldAt(after.trace, alignment.after.event, bySize),
  };
  const places = { before: placeOf(before.trace, alignment.before.event), after: placeOf(after.trace, alignment.after.event) };
  const side = ({ trace, file }: DiffInput, run: (typeof runs)[0], { located, total }: Held, place: Place | undefined): DiffSide => ({
    file,
    place: place?.label,
    gpu: trace.device,
    summary: run.summary,
    warnings: trace.warnings,
    steps: run.steps,
    located: total === 0 ? 1 : located / total,
    leaks: findLeaks(trace, run.steps, run.summary.peakLive),
  });
  const sides = { before: side(before, first, held.before, places.before), after: side(after, second, held.after, places.after) };
  progress(0.9, 'comparing call sites');
  return {
    ...sides,
    alignment,
    categories: categoryChanges(before.trace, after.trace, alignment),
    sites: siteChanges(held.before, held.after, matches),
    differsInPlace: places.before !== undefined && places.after !== undefined && keyThere(places.before, matches) !== keyIn(places.after),
    newLeaks: newLeaks(sides.before.leaks, sides.after.leaks, matches),
    movedFiles: matches.moved,
    editedFiles: matches.edited,
  };
}

/** Growth of live memory at the moment compared, in bytes. */
export function growthOf({ alignment }: Pick<Diff, 'alignment'>): number {
  return alignment.after.bytes - alignment.before.bytes;
}

type Place = Pick<HeldSite, 'label' | 'frame' | 'backward' | 'size'>;

/** The call site of the request at an event, or the last before it. */
function placeOf(trace: Trace, event: number): Place | undefined {
  const { events } = trace;
  for (let at = event; at >= 0; at--) {
    if (events.kind[at] !== EventKind.Alloc) continue;
    return events.stack[at] === NO_STACK ? undefined : originsOf(trace).of(events.stack[at]!);
  }
  return undefined;
}

interface HeldSite {
  readonly label: string;
  readonly frame: Frame | undefined;
  readonly backward: string | undefined;
  /** Bytes of each request, if requests are told apart by that alone. */
  readonly size?: number | undefined;
  bytes: number;
  allocations: number;
  /** Bytes by the callers' lines. */
  readonly callers: Map<string, { readonly frames: readonly Frame[]; bytes: number }>;
}

interface Held {
  readonly sites: readonly HeldSite[];
  /** All sites that ask for memory in the run, at any moment; see `keyIn`. */
  readonly everywhere: readonly Place[];
  /** Bytes allocated while recording. */
  readonly total: number;
  readonly located: number;
}

const UNKNOWN_SITE = 'no stack';

/** What is live after an event, by call site. Sites are told apart by their whole path; without any stacks, requests by their size. */
function heldAt(trace: Trace, event: number, bySize: boolean): Held {
  const { allocations } = trace;
  const ends = endsOf(trace);
  const sites = new Map<string, HeldSite>();
  const byStack = new Map<number, { site: HeldSite; callers: { bytes: number } }>();
  let total = 0;
  let located = 0;
  for (let allocation = 0; allocation < allocations.count; allocation++) {
    if (!ends.isLiveAt(allocation, event)) continue;
    const stack = stackOf(trace, allocation);
    const older = isOlder(trace, allocation);
    const bytes = liveSize(allocations.requested[allocation]!);
    const key = older ? OLDER_STACK : bySize ? bytes : stack;
    let entry = byStack.get(key);
    if (!entry) {
      entry = bySize && !older ? sizeSite(bytes, sites) : heldSite(trace, stack, older, sites);
      byStack.set(key, entry);
    }
    entry.site.bytes += bytes;
    entry.site.allocations++;
    entry.callers.bytes += bytes;
    if (!older) total += bytes;
    if (stack !== NO_STACK) located += bytes;
  }
  return { sites: [...sites.values()], everywhere: placesIn(trace, bySize), total, located };
}

function placesIn(trace: Trace, bySize: boolean): Place[] {
  const { events } = trace;
  const known = new Map<number, Place>();
  for (let event = 0; event < events.count; event++) {
    if (events.kind[event] !== EventKind.Alloc) continue;
    const stack = events.stack[event]!;
    const bytes = liveSize(events.size[event]!);
    const key = bySize ? bytes : stack;
    if (known.has(key)) continue;
    if (bySize) known.set(key, sizePlace(bytes));
    else
      known.set(
        key,
        stack === NO_STACK ? { label: labelOf(trace, stack, false), frame: undefined, backward: undefined } : originsOf(trace).of(stack),
      );
  }
  return [...known.values()];
}

function sizePlace(size: number): Place {
  const rounded = formatBytes(size);
  const exact = parseBytes(rounded) === size ? '' : `${formatCount(size)} B, `;
  return { label: `requests of ${rounded} (${exact}no stack recorded)`, frame: undefined, backward: undefined, size };
}

function sizeSite(bytes: number, sites: Map<string, HeldSite>): { site: HeldSite; callers: { bytes: number } } {
  const site: HeldSite = { ...sizePlace(bytes), bytes: 0, allocations: 0, callers: new Map() };
  sites.set(siteKey(site), site);
  return { site, callers: { bytes: 0 } };
}

function heldSite(
  trace: Trace,
  stack: number,
  older: boolean,
  sites: Map<string, HeldSite>,
): { site: HeldSite; callers: { bytes: number } } {
  const found = stack === NO_STACK ? undefined : originsOf(trace).of(stack);
  const label = found?.label ?? labelOf(trace, stack, older);
  const key = siteKey({ label: found || older ? label : UNKNOWN_SITE, frame: found?.frame, backward: found?.backward });
  let site = sites.get(key);
  if (!site) {
    site = { label, frame: found?.frame, backward: found?.backward, bytes: 0, allocations: 0, callers: new Map() };
    sites.set(key, site);
  }
  const frames = found?.callers ?? [];
  const path = frames.map(frameKey).join('\n');
  let callers = site.callers.get(path);
  if (!callers) {
    callers = { frames, bytes: 0 };
    site.callers.set(path, callers);
  }
  return { site, callers };
}

function frameKey({ filename, line, name }: Frame): string {
  return `${filename}\0${line}\0${name}`;
}

function siteKey({ label, frame, backward, size }: Place): string {
  if (size !== undefined) return `size\0${size}`;
  return frame ? `${backward ?? '-'}\0${frameKey(frame)}` : label;
}

const MOST_CALLERS = 3;

function siteChanges(before: Held, after: Held, matches: LineMatches): SiteChange[] {
  // Several sites of one run may be one of the other. All of them count: changes add up to the growth.
  const pairs = new Map<string, { before: HeldSite[]; after: HeldSite[] }>();
  const add = (key: string, side: 'before' | 'after', site: HeldSite) => {
    const pair = pairs.get(key) ?? { before: [], after: [] };
    pair[side].push(site);
    pairs.set(key, pair);
  };
  for (const site of after.sites) add(keyIn(site), 'after', site);
  for (const site of before.sites) add(keyThere(site, matches), 'before', site);
  const known = {
    before: new Set(before.everywhere.map((place) => keyThere(place, matches))),
    after: new Set(after.everywhere.map(keyIn)),
  };
  const sum = (sites: readonly HeldSite[], figure: 'bytes' | 'allocations') => sites.reduce((total, site) => total + site[figure], 0);
  const changes = [...pairs].map(([key, pair]) => {
    const [old, now] = [pair.before[0], pair.after[0]];
    const hasMoved = old?.frame && now?.frame && old.frame.line !== now.frame.line;
    return {
      label: (now ?? old)!.label,
      before: sum(pair.before, 'bytes'),
      after: sum(pair.after, 'bytes'),
      isOnly: (!old && !known.before.has(key)) || (!now && !known.after.has(key)),
      allocationsBefore: sum(pair.before, 'allocations'),
      allocationsAfter: sum(pair.after, 'allocations'),
      movedFrom: hasMoved ? old.label : undefined,
      callers: mainCallers(pair.before, pair.after, matches),
    };
  });
  return changes
    .filter((change) => change.before !== change.after)
    .sort((a, b) => Math.abs(b.after - b.before) - Math.abs(a.after - a.before) || (a.label < b.label ? -1 : 1));
}

/** The key that a site of the first run has in the second. */
function keyThere(site: Place, matches: LineMatches): string {
  const frame = site.frame && matches.of(site.frame);
  // A line that the second run does not have must not meet another one of the same number.
  return site.frame && !frame ? `gone\0${keyIn(site)}` : keyIn({ ...site, frame });
}

/** Whatever has no stack is one site, whatever it is called. */
function keyIn(site: Place): string {
  return siteKey(site.frame || !site.label.startsWith('(no stack') ? site : { ...site, label: UNKNOWN_SITE });
}

/** The callers through which a site changed most. */
function mainCallers(old: readonly HeldSite[], now: readonly HeldSite[], matches: LineMatches): string[] {
  const changes = new Map<string, { readonly frames: readonly Frame[]; change: number }>();
  const add = (frames: readonly Frame[], shown: readonly Frame[], change: number) => {
    const key = frames.map(frameKey).join('\n');
    const known = changes.get(key);
    if (known) known.change += change;
    else changes.set(key, { frames: shown, change });
  };
  for (const { callers } of now) for (const { frames, bytes } of callers.values()) add(frames, frames, bytes);
  for (const { callers } of old)
    for (const { frames, bytes } of callers.values())
      add(
        frames.map((frame) => matches.of(frame) ?? frame),
        frames,
        -bytes,
      );
  const largest = [...changes.values()].sort((a, b) => Math.abs(b.change) - Math.abs(a.change))[0];
  return largest?.frames.slice(0, MOST_CALLERS).map(lineOf) ?? [];
}

function categoryChanges(before: Trace, after: Trace, alignment: Alignment): CategoryChange[] | undefined {
  const [old, now] = [categoriesAt(before, alignment.before.event), categoriesAt(after, alignment.after.event)];
  if (old.bytes.unknown === old.live || now.bytes.unknown === now.live) return undefined;
  return CATEGORY_NAMES.map((category) => ({ category, before: old.bytes[category], after: now.bytes[category] }))
    .filter((change) => change.before > 0 || change.after > 0)
    .sort((a, b) => Math.abs(b.after - b.before) - Math.abs(a.after - a.before));
}

function newLeaks(before: Leaks, after: Leaks, matches: LineMatches): LeakingSite[] | undefined {
  if (!('sites' in after)) return undefined;
  const known = new Set(
    'sites' in before ? before.sites.map((site) => keyIn({ ...site, frame: site.frame && (matches.of(site.frame) ?? site.frame) })) : [],
  );
  return after.sites.filter((site) => !known.has(keyIn(site)));
}
