// Makes the swap plan for a profile: the search works on GPU time, its swaps are rounded to ticks, widened to keep a limit, and gathered.
// Pure. The result is checked by verifier.ts before it is sent.

import type { StateItem, SwapBound, SwapMove, SwapPlan } from '../../../abi/exchange.ts';
import { Format } from '../../../abi/formats.ts';
import { formatTimes } from '../../../base/counts.ts';
import type { Access, SwapBlock, SwapStep } from '../accesses.ts';
import type { CopyCosts } from '../copy-costs.ts';
import { swapBounds } from '../gaps.ts';
import { planSwaps, usableGaps } from '../search.ts';
import { followMoves, gapOf, hostBytesOf, isSound } from './following.ts';
import { gatherState } from './gathering.ts';
import { type Gap, gapOfPassage, gapOfRecord, type SwapProfile } from './profile.ts';

export interface ProfilePlanOptions {
  readonly budgetMs?: number | undefined;
  readonly seed?: number | undefined;
}

/** More time hardly makes a plan better, and steps without a plan take the most memory. A plan takes one to four searches. */
const BUDGET_STEPS = 0.5;
const LEAST_BUDGET_MS = 20;
const MOST_BUDGET_MS = 1000;
/** Copies are a little slower beside kernels than alone, and step times vary. */
const CAUTION = 0.95;
const MARGIN_US = 100;
/** The share of a limit that tensors should take if that costs nothing: memory between them may be unusable. */
const ROOM = 0.95;
/** Least time between two ticks: memory is counted between them. */
const APART_US = 0.01;

type Subject = Pick<SwapMove, 'class' | 'index'>;

/** Parameters are swapped only if nothing else keeps the limit. */
export function planProfile(profile: SwapProfile, options: ProfilePlanOptions = {}): SwapPlan {
  const plan = planClasses({ ...profile, passages: [] }, options);
  return plan.expected.keepsLimit || profile.passages.length === 0 ? plan : planClasses(profile, options);
}

function planClasses(profile: SwapProfile, options: ProfilePlanOptions): SwapPlan {
  const apart = withTicksApart(profile);
  const { step, subjects } = stepOf(apart);
  const costs = costsOf(apart);
  const ticksUs = Float64Array.from(apart.ticks.us);
  const search = {
    costs,
    // The process has already left out small tensors.
    minBytes: 1,
    budgetMs: options.budgetMs ?? budgetOf(profile),
    seed: options.seed,
    ticksUs,
  };
  const lowest = planSwaps(step, { ...search, limit: apart.limit === undefined ? undefined : ROOM * apart.limit });
  const { share = 1 } = apart;
  const aim = lowest.peak - share * (lowest.peak - lowest.limit);
  const choice = share === 1 || apart.limit !== undefined ? lowest : planSwaps(step, { ...search, limit: aim });
  const byStart = [...choice.swaps].sort((a, b) => a.outStartUs - b.outStartUs);
  const byReturn = [...choice.swaps].sort((a, b) => a.inStartUs - b.inStartUs);
  let moves: SwapMove[] = [];
  for (const swap of byStart) {
    const subject = subjects[swap.block]!;
    // Copies out begin as late as possible: the program's own copies queue behind them.
    const out = Math.max(gapOf(apart, subject)?.free ?? 0, tickBefore(ticksUs, swap.outStartUs, step.periodUs));
    const drop = tickAfter(ticksUs, swap.outEndUs, step.periodUs);
    const back = tickBefore(ticksUs, swap.inStartUs, step.periodUs);
    moves.push({ ...subject, size: swap.size, out, drop, back, turn: byReturn.indexOf(swap) });
  }
  moves = withinHostMemory(
    apart,
    moves.filter((move) => isSound(apart, move)),
  );
  if (apart.limit !== undefined) moves = forced(apart, moves, apart.limit);
  moves = gatherState(apart, moves);
  const following = followMoves(apart, moves);
  const from = Math.max(...profile.ticks.peak);
  return {
    version: Format.exchange.version,
    key: profile.key,
    moves,
    hostBytes: following.hostBytes,
    expected: {
      from,
      peak: following.peak,
      stalls: following.stalls,
      stallUs: following.stallUs,
      moved: moves.reduce((sum, move) => sum + move.size, 0),
      periodUs: profile.periodUs,
      limit: profile.limit,
      keepsLimit: profile.limit === undefined || following.peak <= profile.limit,
      bound: boundOf(step, apart),
      share: share < 1 ? share : undefined,
    },
  };
}

/** With the speed that was measured, since a bound needs no caution. */
function boundOf(step: SwapStep, profile: SwapProfile): SwapBound {
  const { name, ...directions } = costsOf(profile, 1);
  const costs = { name, out: unshared(directions.out), in: unshared(directions.in) };
  const { bandwidth, decisive } = swapBounds(step, usableGaps(step, { costs, minBytes: 1 }), costs);
  return { peak: bandwidth, ...decisive };
}

/** As if the other direction were never busy. */
function unshared(direction: CopyCosts['out']): CopyCosts['out'] {
  return { ...direction, both: direction.alone };
}

/** Milliseconds of one search. */
function budgetOf({ periodUs }: SwapProfile): number {
  return Math.min(MOST_BUDGET_MS, Math.max(LEAST_BUDGET_MS, (BUDGET_STEPS * periodUs) / 1000));
}

/** One line for the user. */
export function describePlan(plan: SwapPlan): string {
  const gib = (bytes: number) => (bytes / 2 ** 30).toFixed(1);
  const { from, peak, stalls, moved, keepsLimit, limit } = plan.expected;
  const short = keepsLimit || limit == null ? '' : `; the limit of ${gib(limit)} GiB cannot be kept`;
  return `swap plan: peak ${gib(from)} -> ${gib(peak)} GiB, ${formatTimes(stalls, 'stall', 'stalls')} expected, ${gib(moved)} GiB out and in per step${short}`;
}

function withTicksApart(profile: SwapProfile): SwapProfile {
  const us = [...profile.ticks.us];
  us[0] = 0;
  for (let tick = 1; tick < us.length; tick++) us[tick] = Math.max(us[tick]!, us[tick - 1]! + APART_US);
  const periodUs = Math.max(profile.periodUs, us.at(-1)! + APART_US);
  return { ...profile, periodUs, ticks: { ...profile.ticks, us } };
}

function costsOf({ copies }: SwapProfile, caution = CAUTION): CopyCosts {
  const direction = (alone: number, both: number) => ({
    fixedUs: copies.fixedUs,
    alone: (caution * alone) / 1e6,
    both: (caution * Math.min(alone, both)) / 1e6,
  });
  return { name: 'measured', out: direction(copies.outAlone, copies.outBoth), in: direction(copies.inAlone, copies.inBoth) };
}

/** Tensors that may be swapped become blocks of the step. All other memory becomes one block per tick that is never accessed. */
function stepOf(profile: SwapProfile): { step: SwapStep; subjects: Subject[] } {
  const { us, peak } = profile.ticks;
  const { periodUs } = profile;
  const blocks: SwapBlock[] = [];
  const subjects: Subject[] = [];
  const tracked = new Float64Array(us.length);
  const timeAfter = (tick: number) => us[tick + 1] ?? periodUs;
  for (const { subject, gap } of gapsOf(profile)) {
    const { size, first, free, use, last } = gap;
    const idleUntil = us[use]! - MARGIN_US;
    if (idleUntil <= us[free]!) continue;
    for (let tick = first; tick <= last; tick++) tracked[tick]! += size;
    subjects.push(subject);
    blocks.push({
      size,
      fromUs: us[first]!,
      toUs: timeAfter(last),
      wholeRun: false,
      accesses: [
        { fromUs: us[first]!, toUs: us[free]!, writes: true },
        { fromUs: idleUntil, toUs: us[last]!, writes: false },
      ],
    });
  }
  profile.items.forEach((item, index) => {
    if (item.pre < 0) return;
    for (let tick = 0; tick < us.length; tick++) tracked[tick]! += item.size;
    subjects.push({ class: 'item', index });
    const fromUs = Math.max(0, us[item.pre]! - MARGIN_US);
    blocks.push({ size: item.size, fromUs: 0, toUs: periodUs, wholeRun: true, accesses: accessesOf(item, fromUs, us, periodUs) });
  });
  us.forEach((fromUs, tick) => {
    const size = Math.max(0, peak[tick]! - tracked[tick]!);
    blocks.push({ size, fromUs, toUs: timeAfter(tick), wholeRun: false, accesses: [] });
  });
  return { step: { name: profile.key, periodUs, blocks, untouchedBytes: 0, momentsUs: Float64Array.from(us) }, subjects };
}

/** State leaves a tick after its optimizer's step at the earliest: right after the step, programs read their loss. */
function accessesOf({ post }: StateItem, fromUs: number, us: readonly number[], periodUs: number): Access[] {
  const untilUs = us[post + 1] ?? periodUs;
  const step = { fromUs, toUs: Math.max(fromUs, post === 0 ? periodUs : untilUs), writes: true };
  return post === 0 ? [{ fromUs: 0, toUs: untilUs, writes: true }, step] : [step];
}

/** The gaps of saved tensors and layers. */
function gapsOf(profile: SwapProfile): { subject: Subject; gap: Gap }[] {
  const found: { subject: Subject; gap: Gap }[] = [];
  const add = (kind: 'record' | 'layer', index: number, gap: Gap | undefined) => {
    if (gap) found.push({ subject: { class: kind, index }, gap });
  };
  for (const [index, record] of profile.records.entries()) add('record', index, gapOfRecord(record));
  for (const [index, passage] of profile.passages.entries()) add('layer', index, gapOfPassage(passage));
  return found;
}

/** The first tick at or after a time; times past the end of the step are in the next one. */
function tickAfter(ticks: Float64Array, us: number, periodUs: number): number {
  const time = us % periodUs;
  const tick = ticks.findIndex((at) => at >= time - APART_US / 4);
  return tick < 0 ? 0 : tick;
}

/** The last tick at or before a time. */
function tickBefore(ticks: Float64Array, us: number, periodUs: number): number {
  const time = us % periodUs;
  let tick = ticks.length - 1;
  while (tick > 0 && ticks[tick]! > time + APART_US / 4) tick--;
  return tick;
}

/** Leaves out the moves that save least until the rest fits into host memory. */
function withinHostMemory(profile: SwapProfile, moves: readonly SwapMove[]): SwapMove[] {
  const { us } = profile.ticks;
  const worth = (move: SwapMove) => {
    const away = us[move.back]! - us[move.drop]!;
    return move.size * (away > 0 ? away : away + profile.periodUs);
  };
  const kept = [...moves];
  const byWorth = [...moves].sort((a, b) => worth(a) - worth(b));
  for (const move of byWorth) {
    if (hostBytesOf(profile, kept) <= profile.hostLimit) break;
    kept.splice(kept.indexOf(move), 1);
  }
  return kept;
}

/** Widens moves and adds more until the peak is within the limit, although the GPU will wait for the copies. */
function forced(profile: SwapProfile, moves: readonly SwapMove[], limit: number): SwapMove[] {
  const all = [...moves];
  for (let round = 0; round < 4 * (profile.records.length + profile.items.length + profile.passages.length); round++) {
    const { load } = followMoves(profile, all);
    let top = 0;
    load.forEach((bytes, tick) => {
      if (bytes > load[top]!) top = tick;
    });
    if (load[top]! <= limit) break;
    const wider = candidates(profile, all, load, limit, top);
    // The smallest that is enough, else the largest: the GPU waits for every byte.
    const needed = load[top]! - limit;
    const enough = wider.filter((move) => move.size >= needed).sort((a, b) => a.size - b.size);
    const tooSmall = wider.filter((move) => move.size < needed).sort((a, b) => b.size - a.size);
    const fits = (move: SwapMove) => {
      const others = all.filter((other) => other.class !== move.class || other.index !== move.index);
      return hostBytesOf(profile, [...others, move]) <= profile.hostLimit;
    };
    const chosen = [...enough, ...tooSmall].find(fits);
    if (!chosen) break;
    const place = all.findIndex((other) => other.class === chosen.class && other.index === chosen.index);
    if (place >= 0) all[place] = chosen;
    else all.push(chosen);
  }
  const { us } = profile.ticks;
  const order = [...all].sort((a, b) => us[a.out]! - us[b.out]!);
  const returns = [...all].sort((a, b) => us[a.back]! - us[b.back]! || a.turn - b.turn);
  return order.map((move) => ({ ...move, turn: returns.indexOf(move) }));
}

/** New or widened moves, each of a tensor that is then away at tick `top`. */
function candidates(profile: SwapProfile, moves: readonly SwapMove[], load: Float64Array, limit: number, top: number): SwapMove[] {
  const count = load.length;
  const found: SwapMove[] = [];
  const consider = ({ class: kind, index }: Subject, size: number, out: number, from: number, to: number) => {
    // Away in [drop, back) within [from, to]: from the first tick at which the load is too high to the last.
    if (top < from || top >= to) return;
    let drop = top;
    let back = top + 1;
    for (let tick = from; tick < to; tick++) {
      if (load[tick]! <= limit) continue;
      drop = Math.min(drop, tick);
      back = Math.max(back, tick + 1);
    }
    const old = moves.find((move) => move.class === kind && move.index === index);
    if (old && old.drop <= top && top < old.back) return;
    if (old) {
      drop = Math.min(drop, old.drop);
      back = Math.max(back, old.back);
    }
    found.push({ class: kind, index, size, out, drop, back: Math.min(back, to, count - 1), turn: count + index });
  };
  for (const { subject, gap } of gapsOf(profile)) consider(subject, gap.size, gap.free, gap.free + 1, gap.use);
  profile.items.forEach((item, index) => {
    // Only state that is updated at the end of the step: its gap is in one piece.
    if (item.pre > 1 && item.post === 0) consider({ class: 'item', index }, item.size, 1, 2, item.pre);
  });
  return found.filter((move) => isSound(profile, move));
}
