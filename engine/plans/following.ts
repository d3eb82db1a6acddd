// Requests that follow a plan are served at their planned places, without a search and without a driver call; see README.
// Which plan it is, when it is believed, when its memory comes and goes: all that is decided here.
import { countPlanHit, countPlanMiss, countPlanOccupied, planBlocks, planBytes, planCount, setActivePlan } from '../abi/counters';
import { Arena, NO_ARENA, NO_RANGE, Range } from '../records/nodes';
import { ensureRanges } from '../records/range-pool';
import { arenaOf } from '../space/arenas';
import { releaseAll } from '../space/release';
import { isCapturing } from '../streams/progress';
import { addPlanned, dropPlanned } from './blocks';
import { areFree, takenEnd } from './cells';
import { forget, installRows, placeOf, planAt, planStream, planWithId } from './installed';
import { closePlanned, giveBackAbove, lendUpTo, plannedAddress } from './memory';
import { CONTEXT, distrust, NO_PLAN, noteRequest, Plan } from './position';

/** Of so many requests in a row, if more than three quarters miss, no plan is believed any more. */
const WATCHED: u32 = 1024;
/** After so many misses in a row a plan whose memory is empty lends it back until its step begins again. */
const LULL: u32 = 16;
/** Plans that were not followed for so many steps give back what they can. */
const IDLE_STEPS: u64 = 3;

let active: Plan = NO_PLAN;
/** The arena of the planned stream, which lends the plans their memory. */
let home: Arena = NO_ARENA;
let requests: u64 = 0;
let watched: u32 = 0;
let watchedMisses: u32 = 0;
/** Misses since the last hit. */
let lull: u64 = 0;
/** What the plans made superfluous was given back since their memory last grew. */
let settled: bool = true;

function activate(plan: Plan): void {
  active = plan;
  setActivePlan(plan === NO_PLAN ? 0 : plan.id);
}

/** Whether requests like this one are planned at all. */
export function mayBePlanned(stream: u32, pool: u32): bool {
  return planCount !== 0 && pool === 0 && stream === planStream;
}

/** A block for the request at its planned place, or NO_RANGE: then it is as any other request. */
export function servePlanned(bytes: u64, size: u64): Range {
  requests++;
  const plan = size >> 41 === 0 ? choose(<u32>(size >> 9)) : NO_PLAN;
  if (plan === NO_PLAN) {
    miss();
    return NO_RANGE;
  }
  if (plan.began) beginStep(plan);
  let taken = false;
  if (ensureRanges(1)) {
    for (let other: u32 = 0; other < plan.turns; other++) {
      const turn = plan.turn + other;
      const place = placeOf(plan, <u32>plan.named, turn < plan.turns ? turn : turn - plan.turns);
      const offset = load<u64>(place);
      if (offset + size > planBytes) continue;
      const first = load<u32>(place, 8);
      const end = load<u32>(place, 12);
      if (areFree(first, end)) {
        hit(plan);
        return addPlanned(home, plannedAddress() + offset, size, bytes, first, end);
      }
      taken = true;
    }
  }
  if (taken) {
    countPlanOccupied();
    watch(true);
  } else {
    // Where memory is lacking, the plan is followed all the same.
    countPlanMiss();
  }
  return NO_RANGE;
}

/** The plan to serve the request from. The one in use comes first; another takes over when it knows the way and this one does not. */
function choose(units: u32): Plan {
  for (let index: u32 = 0; index < planCount; index++) noteRequest(planAt(index), units);
  const current = active;
  if (current !== NO_PLAN && current.named >= 0) return current;
  // Where a step has ended anything may follow; in the middle of one, a few requests alike may be chance.
  const over = current === NO_PLAN || current.next === 0;
  for (let index: u32 = 0; index < planCount; index++) {
    const plan = planAt(index);
    if (!plan.trusted || plan.named < 0 || (!over && plan.streak < CONTEXT)) continue;
    activate(plan);
    return plan;
  }
  return NO_PLAN;
}

function hit(plan: Plan): void {
  countPlanHit();
  plan.served++;
  plan.used = requests;
  lull = 0;
  watch(false);
}

function miss(): void {
  countPlanMiss();
  lull++;
  if (active !== NO_PLAN) watch(true);
  else if (planBytes > 0 && lull > IDLE_STEPS * longest()) giveBackAbove(takenEnd());
}

/**
 * A step begins, where least is live: the moment to take memory for the places that have none, and once a step has been
 * served from the plan to give back what served it before. Unmapping waits for the device, so that is done only once.
 */
function beginStep(plan: Plan): void {
  const followed = <u64>plan.served * 5 >= <u64>plan.count * 4;
  plan.began = false;
  plan.served = 0;
  home = arenaOf(planStream, 0, false);
  if (home === NO_ARENA) return;
  const before = planBytes;
  if (before < plan.footprint) {
    // With more than a little missing, two halves of memory would each have to hold the step's peak.
    const enough = plan.footprint - (plan.footprint >> 5);
    // What failed often is tried ever more rarely.
    if (popcnt<u32>(plan.hungry) < 2) lendUpTo(home, plan.footprint, enough, plan.hungry > 1 && before < enough);
    plan.hungry = planBytes >= plan.footprint ? 0 : plan.hungry + 1;
    if (planBytes < enough) giveBackAbove(takenEnd());
  }
  if (planBytes !== before) {
    settled = false;
  } else if (!settled && followed && !isCapturing()) {
    settled = true;
    releaseAll();
  }
}

/** A program that does something else than was planned gets its memory back; plans are kept, and watch on. */
function watch(missed: bool): void {
  watched++;
  if (missed) watchedMisses++;
  if (watched < WATCHED) return;
  if (watchedMisses > (WATCHED >> 2) * 3) standDown();
  watched = 0;
  watchedMisses = 0;
}

function standDown(): void {
  for (let index: u32 = 0; index < planCount; index++) distrust(planAt(index));
  activate(NO_PLAN);
  giveBackAbove(takenEnd());
}

/** Requests of the longest plan. */
function longest(): u64 {
  let most: u32 = WATCHED;
  for (let index: u32 = 0; index < planCount; index++) if (planAt(index).count > most) most = planAt(index).count;
  return most;
}

/** Before an unplanned request takes new memory: what plans hold and do not use while the program does something else. */
export function lendIdle(): void {
  if (planBytes > 0 && lull >= LULL && planBlocks === 0) giveBackAbove(0);
}

/** When memory has run out: all of the plans' memory above the highest block that lies in it. */
export function yieldPlanned(): void {
  if (planBytes > 0) giveBackAbove(takenEnd());
}

/** The cache is emptied, and the plans' memory is part of it. */
export function emptyPlanned(): void {
  yieldPlanned();
  for (let index: u32 = 0; index < planCount; index++) planAt(index).hungry = 0;
  if (planBytes === 0) closePlanned();
}

export function finishPlanned(block: Range): void {
  dropPlanned(block);
  if (active === NO_PLAN && planBytes > 0 && planBlocks === 0) giveBackAbove(0);
}

/** Installs the plan in the rows; its number, or 0 if it is refused. */
export function installPlan(rows: usize, footprint: u64): u32 {
  const id = installRows(rows, footprint);
  // To make room the oldest plan may have gone.
  activate(NO_PLAN);
  return id;
}

/** Forgets a plan, or all with 0. What lies at its places stays there. */
export function forgetPlan(id: u32): bool {
  if (id === 0) {
    while (planCount > 0) forget(planAt(0));
  } else {
    const plan = planWithId(id);
    if (plan === NO_PLAN) return false;
    forget(plan);
  }
  activate(NO_PLAN);
  if (planCount === 0) giveBackAbove(takenEnd());
  return true;
}
