// Call sites whose live memory grows from step to step. The least that a site holds within a step is compared:
// activations and gradients come and go, what is forgotten stays.
import { KIB, MIB } from '../base/bytes.ts';
import { formatTimes } from '../base/counts.ts';
import { endsOf } from '../trace/ends.ts';
import { isOlder, stackOf } from '../trace/stacks.ts';
import { liveSize } from '../trace/summary.ts';
import { type Frame, NO_STACK } from '../trace/symbols.ts';
import { EventKind, type Trace } from '../trace/trace.ts';
import { lineOf, originsOf } from './origin.ts';
import { hasSteps, type NoSteps, type RunStep, type RunSteps } from './run-steps.ts';
import { labelOf, OLDER_STACK } from './sites.ts';

export interface LeakingSite {
  readonly label: string;
  /** The line, and what a backward pass runs there (see `Origin`); undefined: unknown. */
  readonly frame: Frame | undefined;
  readonly backward: string | undefined;
  /** Lines of the user's code that led there, innermost first. */
  readonly callers: readonly string[];
  readonly bytesPerStep: number;
  /** Bytes that stay over the first and the last step judged. */
  readonly first: number;
  readonly last: number;
}

export interface LeakReport {
  readonly by: RunSteps['by'];
  /** Steps from the first judged to the last. */
  readonly steps: number;
  /** Most bytes per step first. */
  readonly sites: readonly LeakingSite[];
}

export type Leaks = LeakReport | NoSteps;

export function hasLeaks(leaks: Leaks): leaks is LeakReport {
  return 'sites' in leaks && leaks.sites.length > 0;
}

/** Steps are judged in groups: at most this many, and fewer if there are very many call sites. */
const MOST_GROUPS = 64;
const MOST_CELLS = 2 ** 23;
/** Steps at the beginning in which memory is still set up: optimizer state, caches. */
const WARM_UP = 2;
const LEAST_GROUPS = 3;
/** The least growth over the run that is shown: this, or a share of the peak if that is less. */
const LEAST_GROWTH = 1 * MIB;
const LEAST_SHARE = 0.001;
const LEAST_BYTES = 4 * KIB;
/** Each third of the run has at least this share of the growth. Memory that is set up late grows once. */
const THIRD = 0.15;
/** What a site may shrink in between, as a share of its growth. */
const MOST_SHRINKING = 0.1;
/** A group of steps grows if it has at least this share of the average growth. */
const LEAST_RISE = 0.25;
/** A site that has not grown for this many of its longest pauses is full. */
const MOST_PAUSES = 2;
const MOST_CALLERS = 3;

export function findLeaks(trace: Trace, found: RunSteps | NoSteps, peakLive: number): Leaks {
  if (!hasSteps(found)) return found;
  const { siteOf, labels } = sitesOfAllocations(trace);
  const mostGroups = Math.max(LEAST_GROUPS, Math.min(MOST_GROUPS, Math.floor(MOST_CELLS / labels.length)));
  const complete = found.steps.filter((step) => step.isComplete);
  const groups = groupsOf(complete, mostGroups);
  if (groups.length < LEAST_GROUPS)
    return { reason: `the recording has ${formatTimes(complete.length, 'whole step', 'whole steps')}, too few to see growth` };
  const least = leastPerGroup(trace, siteOf, labels.length, groups);
  const before = groups.slice(0, groups.length - 1).reduce((sum, group) => sum + group.steps, 0);
  const threshold = Math.max(LEAST_BYTES, Math.min(LEAST_GROWTH, LEAST_SHARE * peakLive));
  const grown: { site: number; first: number; last: number }[] = [];
  for (let site = 0; site < labels.length; site++) {
    const series = groups.map((_, group) => least[group * labels.length + site]!);
    const [first, last] = [series[0]!, series.at(-1)!];
    if (last - first >= threshold && growsThroughout(series)) grown.push({ site, first, last });
  }
  const stacks = stacksThatGrew(trace, siteOf, new Set(grown.map(({ site }) => site)), [groups[0]!, groups.at(-1)!]);
  const sites = grown.map(({ site, first, last }): LeakingSite => {
    const stack = stacks.get(site) ?? NO_STACK;
    const found = stack === NO_STACK ? undefined : originsOf(trace).of(stack);
    const callers = (found?.callers ?? []).slice(0, MOST_CALLERS).map(lineOf);
    const where = { label: labels[site]!, frame: found?.frame, backward: found?.backward, callers };
    return { ...where, bytesPerStep: (last - first) / before, first, last };
  });
  return { by: found.by, steps: before + groups.at(-1)!.steps, sites: sites.sort((a, b) => b.bytesPerStep - a.bytesPerStep) };
}

interface StepGroup {
  readonly from: number;
  readonly to: number;
  readonly steps: number;
}

/** The steps after the first ones, in groups of about equal numbers. */
function groupsOf(steps: readonly RunStep[], mostGroups: number): StepGroup[] {
  const judged = steps.slice(Math.max(0, Math.min(WARM_UP, steps.length - LEAST_GROUPS - 1)));
  const perGroup = Math.ceil(judged.length / mostGroups);
  const groups: StepGroup[] = [];
  for (let at = 0; at < judged.length; at += perGroup) {
    const last = judged[Math.min(at + perGroup, judged.length) - 1]!;
    groups.push({ from: judged[at]!.from, to: last.to, steps: Math.min(perGroup, judged.length - at) });
  }
  return groups;
}

/** The stack of each site that grew most. One line may serve all callers, and one of them alone forget its memory. */
function stacksThatGrew(
  trace: Trace,
  siteOf: Int32Array,
  chosen: ReadonlySet<number>,
  groups: readonly [StepGroup, StepGroup],
): Map<number, number> {
  const numbers = new Map<number, number>();
  // Number 0 is everything else.
  const sites = [-1];
  const numberOf = siteOf.map((site, allocation) => {
    if (!chosen.has(site)) return 0;
    const stack = stackOf(trace, allocation);
    let number = numbers.get(stack);
    if (number === undefined) {
      number = sites.push(site) - 1;
      numbers.set(stack, number);
    }
    return number;
  });
  const least = leastPerGroup(trace, numberOf, sites.length, groups);
  const most = new Map<number, { stack: number; growth: number }>();
  for (const [stack, number] of numbers) {
    const growth = least[sites.length + number]! - least[number]!;
    const site = sites[number]!;
    if (growth > (most.get(site)?.growth ?? Number.NEGATIVE_INFINITY)) most.set(site, { stack, growth });
  }
  return new Map([...most].map(([site, { stack }]) => [site, stack]));
}

/** A number for the call site of each allocation; those with equal labels share one. */
function sitesOfAllocations(trace: Trace): { siteOf: Int32Array; labels: string[] } {
  const { allocations } = trace;
  const siteOf = new Int32Array(allocations.count);
  const labels: string[] = [];
  const ids = new Map<string, number>();
  const byStack = new Map<number, number>();
  for (let allocation = 0; allocation < allocations.count; allocation++) {
    const stack = stackOf(trace, allocation);
    const older = isOlder(trace, allocation);
    const key = older ? OLDER_STACK : stack;
    let site = byStack.get(key);
    if (site === undefined) {
      const label = labelOf(trace, stack, older);
      site = ids.get(label);
      if (site === undefined) {
        site = labels.push(label) - 1;
        ids.set(label, site);
      }
      byStack.set(key, site);
    }
    siteOf[allocation] = site;
  }
  return { siteOf, labels };
}

/** The least live bytes of each site within each group. */
function leastPerGroup(trace: Trace, siteOf: Int32Array, sites: number, groups: readonly StepGroup[]): Float64Array {
  const { allocations, events, allocationOf } = trace;
  const ends = endsOf(trace);
  const live = new Float64Array(sites);
  const least = new Float64Array(groups.length * sites);
  const sizeOf = (allocation: number) => liveSize(allocations.requested[allocation]!);
  for (let allocation = 0; allocation < allocations.liveAtStart; allocation++) live[siteOf[allocation]!]! += sizeOf(allocation);
  let group = -1;
  let next = 0;
  const release = (allocation: number) => {
    const site = siteOf[allocation]!;
    live[site]! -= sizeOf(allocation);
    if (group >= 0) least[group * sites + site] = Math.min(least[group * sites + site]!, live[site]!);
  };
  for (let event = 0; event < events.count; event++) {
    if (group >= 0 && event >= groups[group]!.to) group = -1;
    if (next < groups.length && event >= groups[next]!.from) {
      group = next++;
      least.set(live, group * sites);
    }
    const ending = ends.at(event);
    if (ending >= 0) release(ending);
    const allocation = allocationOf[event]!;
    if (events.kind[event] === EventKind.Alloc && allocation >= 0) live[siteOf[allocation]!]! += sizeOf(allocation);
  }
  return least;
}

function growsThroughout(series: readonly number[]): boolean {
  const growth = series.at(-1)! - series[0]!;
  let shrinking = 0;
  for (let at = 1; at < series.length; at++) shrinking += Math.max(0, series[at - 1]! - series[at]!);
  if (shrinking > MOST_SHRINKING * growth) return false;
  const parts = Math.min(3, series.length - 1);
  const at = (part: number) => series[Math.round((part * (series.length - 1)) / parts)]!;
  for (let part = 0; part < parts; part++) if (at(part + 1) - at(part) < THIRD * growth) return false;
  return !hasStopped(series);
}

/** Whether a site no longer grows at the end, judged by how long it paused before: a cache that is full does not grow again. */
function hasStopped(series: readonly number[]): boolean {
  const least = (LEAST_RISE * (series.at(-1)! - series[0]!)) / series.length;
  let level = series[0]!;
  let rose = 0;
  let longest = 1;
  series.forEach((bytes, at) => {
    if (bytes < level + least) return;
    longest = Math.max(longest, at - rose);
    level = bytes;
    rose = at;
  });
  return series.length - 1 - rose > MOST_PAUSES * longest;
}
