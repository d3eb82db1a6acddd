// Serves requests at their planned places, without a search and without a driver call; see engine/README.md.
// Decides which plan to follow, when to trust it, and when to lend or take back its memory.
import { countPlanHit, countPlanMiss, countPlanOccupied, planBlocks, planBytes, planCount, reserved, setActivePlan } from '../abi/counters';
import { unmapFinished } from '../abi/settings';
import { Arena, NO_ARENA, NO_RANGE, Range } from '../records/nodes';
import { ensureRanges } from '../records/range-pool';
import { Stream } from '../records/streams';
import { arenaOf } from '../space/arenas';
import { releaseAll } from '../space/release';
import { cover, coverStreams, isCapturing, latestRelease, pollStreams } from '../streams/progress';
import { addPlanned, dropPlanned } from './blocks';
import { takeFreeCells, takenEnd } from './cells';
import { forget, installRows, placeOf, planAt, planStream, planWithId } from './installed';
import { closePlanned, giveBackAbove, lendUpTo, notePlannedRelease, plannedAddress } from './memory';
import { CONTEXT, distrust, NO_PLAN, noteRequest, Plan } from './position';

/** Requests after which plans are judged. If more than three quarters of them missed, no plan is trusted any more. */
const WATCHED: u32 = 1024;
/** Misses in a row after which plans without blocks give back their memory, until their step begins again. */
const LULL: u32 = 16;
/** Steps after which plans that are not followed give back their memory. */
const IDLE_STEPS: u64 = 3;
/** Most followed steps that superfluous memory is kept for. */
const MOST_PATIENCE: u32 = 256;

let active: Plan = NO_PLAN;
/** The arena of the planned stream, which lends memory to the plans. */
let home: Arena = NO_ARENA;
let requests: u64 = 0;
let watched: u32 = 0;
let watchedMisses: u32 = 0;
/** Misses since the last hit. */
let lull: u64 = 0;
/** Whether memory that plans made superfluous was freed since more was last reserved. */
let settled: bool = true;
/** Bytes reserved when a step last began. */
let reservedBefore: u64 = 0;
/** Followed steps in a row for which nothing more was reserved, and how many it takes until superfluous memory is freed. */
let quietSteps: u32 = 0;
let patience: u32 = 1;
/** The latest release when that memory became superfluous; 0: it has not. */
let superfluousSince: u64 = 0;

function activate(plan: Plan): void {
  active = plan;
  setActivePlan(plan === NO_PLAN ? 0 : plan.id);
}

/** Whether plans can serve such a request. */
export function mayBePlanned(stream: u32, pool: u32): bool {
  return planCount !== 0 && pool === 0 && stream === planStream;
}

/** A block at the planned place of the request; NO_RANGE if there is none, and then the request is served as any other. */
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
      if (takeFreeCells(first, end)) {
        const block = addPlanned(home, plannedAddress() + offset, size, bytes, first, end);
        // Last: if the plans stand down now, they keep the memory of all blocks that they know.
        hit(plan);
        return block;
      }
      taken = true;
    }
  }
  if (taken) {
    countPlanOccupied();
    watch(true);
  } else {
    // Memory is missing at the place, but the program does follow the plan.
    countPlanMiss();
  }
  return NO_RANGE;
}

/**
 * The plan that serves the request. The plan in use comes first. Another replaces it if it expects the request and the plan in
 * use does not.
 */
function choose(units: u32): Plan {
  for (let index: u32 = 0; index < planCount; index++) noteRequest(planAt(index), units);
  const current = active;
  if (current !== NO_PLAN && current.named >= 0) return current;
  // At the end of a step any plan may follow. Within a step, a few equal requests may be chance.
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
 * At the beginning of a step least memory is live. So this is the moment to lend memory to places that have none. Once a step
 * was served from the plan without new memory, what is free beside the plan is superfluous. It is freed when the GPU has finished
 * with it. If a later step needs memory all the same, the next time takes twice as many steps: unmapping and mapping take time.
 */
function beginStep(plan: Plan): void {
  const followed = <u64>plan.served * 5 >= <u64>plan.count * 4;
  plan.began = false;
  plan.served = 0;
  home = arenaOf(planStream, 0, false);
  if (home === NO_ARENA) return;
  const before = planBytes;
  if (before < plan.footprint) {
    // If more than a little is missing, planned and other memory would each have to hold the peak of the step.
    const enough = plan.footprint - (plan.footprint >> 5);
    // After many failures attempts become rarer.
    if (popcnt<u32>(plan.hungry) < 2) lendUpTo(home, plan.footprint, enough, plan.hungry > 1 && before < enough);
    plan.hungry = planBytes >= plan.footprint ? 0 : plan.hungry + 1;
    if (planBytes < enough) giveBackAbove(takenEnd());
  }
  const grew = reserved > reservedBefore;
  reservedBefore = reserved;
  if (planBytes !== before || grew) {
    settled = false;
    superfluousSince = 0;
    quietSteps = 0;
  } else if (!settled && followed && ++quietSteps >= patience && !isCapturing()) {
    freeSuperfluous(home.lane);
  }
}

function freeSuperfluous(lane: Stream): void {
  if (superfluousSince === 0) {
    superfluousSince = latestRelease();
    coverStreams();
  }
  cover(lane, superfluousSince);
  pollStreams();
  if (unmapFinished !== 0 && superfluousSince > lane.done) return;
  settled = true;
  superfluousSince = 0;
  releaseAll();
  // What nothing needed is no reason to wait longer the next time.
  if (reserved < reservedBefore && patience < MOST_PATIENCE) patience <<= 1;
  reservedBefore = reserved;
}

/** If the program does not follow its plans, it gets their memory back. The plans stay and watch on. */
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

/** Called before another request takes new memory. Gives back memory of plans that are not followed and hold no block. */
export function lendIdle(): void {
  if (planBytes > 0 && lull >= LULL && planBlocks === 0) giveBackAbove(0);
}

/** Called when memory has run out. Gives back the plans' memory above their highest block. */
export function yieldPlanned(): void {
  if (planBytes > 0) giveBackAbove(takenEnd());
}

/** emptyCache() also frees the plans' memory. */
export function emptyPlanned(): void {
  yieldPlanned();
  for (let index: u32 = 0; index < planCount; index++) planAt(index).hungry = 0;
  if (planBytes === 0) closePlanned();
}

/** `released`: the number of the release; 0: it is released now. */
export function finishPlanned(block: Range, released: u64): void {
  notePlannedRelease(released);
  dropPlanned(block);
  if (active === NO_PLAN && planBytes > 0 && planBlocks === 0) giveBackAbove(0);
}

/** Installs the plan in the rows. Gives its number, or 0 if it is refused. */
export function installPlan(rows: usize, footprint: u64): u32 {
  const id = installRows(rows, footprint);
  // The oldest plan may have been forgotten to make room.
  activate(NO_PLAN);
  patience = 1;
  return id;
}

/** Forgets a plan, or all with 0. Blocks at its places stay there. */
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
