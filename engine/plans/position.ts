// Where in a plan the program is, judged by its requests.
// One extra or missing request must not shift all later ones. So the last few requests are looked up in the plan.
import { sortWords } from '../base/sorting';
import { take, takeClear } from '../records/memory';

/** How many requests in a row are looked up. */
export const CONTEXT: u32 = 6;
const MULTIPLIER: u32 = 0x2c1b3c6d;

/** A plan is trusted after a step in which this share of its requests was made, in fifths. */
const TRUSTED_FIFTHS: u64 = 4;

/** An installed plan, and how far the program is in it. */
@unmanaged
export class Plan {
  /** Number of the plan; 0 is none. */
  id: u32 = 0;
  /** Requests of a step. */
  count: u32 = 0;
  turns: u32 = 0;
  footprint: u64 = 0;
  /** Size of each request in units of 512 bytes: u32. */
  sizes: usize = 0;
  /** PLACE bytes for each request and turn: offset u64, first and end cell u32. */
  places: usize = 0;
  /** For each request, a sorted u64: the hash of the last requests in the upper half, its number in the lower. */
  contexts: usize = 0;
  /** A bit for each hash, by its low bits. One look rules out most requests that are not in the plan. */
  filter: usize = 0;
  filterMask: u32 = 0;
  // The position of the program.
  /** The request expected next, the last one made, and the one that the current request is, or -1. */
  next: u32 = 0;
  last: i32 = -1;
  named: i32 = -1;
  turn: u32 = 0;
  /** Requests of this step that were as planned; as planned in a row; served from the plan. */
  matched: u32 = 0;
  streak: u32 = 0;
  served: u32 = 0;
  /** A new step has begun, and following.ts has not dealt with it yet. */
  began: bool = false;
  /** A whole step followed the plan, and the plan has not been distrusted since. */
  trusted: bool = false;
  /** Steps at whose beginning the plan was trusted, but memory was missing. */
  hungry: u32 = 0;
  /** When it last served a request, counted in requests. */
  used: u64 = 0;
  // The rolling hash of the last `context` requests.
  hash: u32 = 0;
  leading: u32 = 1;
  context: u32 = 0;
  recent: usize = 0;
  recentAt: u32 = 0;
  seen: u32 = 0;
}

export const NO_PLAN: Plan = changetype<Plan>(0);
export const PLACE: usize = 16;

function mix(units: u32): u32 {
  const mixed = (units + 1) * 0x9e3779b1;
  return mixed ^ (mixed >>> 15);
}

export function sizeAt(plan: Plan, index: u32): u32 {
  return load<u32>(plan.sizes + ((<usize>index) << 2));
}

export function filterBytes(count: u32): usize {
  let bytes: usize = 8;
  while (bytes < (<usize>count) << 1) bytes <<= 1;
  return bytes;
}

/** Makes the index of the last requests. False if the engine's own memory is exhausted. Needs the sizes. */
export function indexContexts(plan: Plan): bool {
  const count = plan.count;
  plan.context = count < CONTEXT ? count : CONTEXT;
  plan.contexts = take((<usize>count) << 3);
  plan.filter = takeClear(filterBytes(count));
  plan.recent = takeClear((<usize>CONTEXT) << 2);
  if (plan.contexts === 0 || plan.filter === 0 || plan.recent === 0) return false;
  plan.filterMask = <u32>((filterBytes(count) << 3) - 1);
  plan.leading = 1;
  for (let index: u32 = 0; index < plan.context; index++) plan.leading *= MULTIPLIER;
  let hash: u32 = 0;
  for (let index: u32 = 0; index < plan.context; index++) hash = hash * MULTIPLIER + mix(sizeAt(plan, count - plan.context + index));
  for (let index: u32 = 0; index < count; index++) {
    const gone = sizeAt(plan, (index + count - plan.context) % count);
    hash = hash * MULTIPLIER + mix(sizeAt(plan, index)) - plan.leading * mix(gone);
    store<u64>(plan.contexts + ((<usize>index) << 3), ((<u64>hash) << 32) | index);
    const bit = hash & plan.filterMask;
    store<u8>(plan.filter + (bit >>> 3), load<u8>(plan.filter + (bit >>> 3)) | ((<u8>1) << (<u8>(bit & 7))));
  }
  sortWords<u64>(plan.contexts, count);
  return true;
}

/** Notes a request. Afterwards `named` is its number in the plan, or -1. */
export function noteRequest(plan: Plan, units: u32): void {
  if (sizeAt(plan, plan.next) === units) {
    if (plan.streak < plan.context) noteRecent(plan, units);
    advanceTo(plan, plan.next);
    return;
  }
  if (plan.streak >= plan.context) recallRecent(plan);
  noteRecent(plan, units);
  const place = plan.seen < plan.context ? -1 : placeAfter(plan, units);
  if (place >= 0) {
    advanceTo(plan, <u32>place);
  } else {
    // An extra request: the position stays.
    plan.named = -1;
    plan.streak = 0;
  }
}

function noteRecent(plan: Plan, units: u32): void {
  const mixed = mix(units);
  const slot = plan.recent + ((<usize>plan.recentAt) << 2);
  plan.hash = plan.hash * MULTIPLIER + mixed - plan.leading * load<u32>(slot);
  store<u32>(slot, mixed);
  plan.recentAt = plan.recentAt + 1 === plan.context ? 0 : plan.recentAt + 1;
  if (plan.seen < plan.context) plan.seen++;
}

/** While the program follows the plan, its last requests are not noted: they are those of the plan before its position. */
function recallRecent(plan: Plan): void {
  plan.hash = 0;
  plan.recentAt = 0;
  let index = (<u32>plan.last + plan.count + 1 - plan.context) % plan.count;
  for (let slot: u32 = 0; slot < plan.context; slot++) {
    const mixed = mix(sizeAt(plan, index));
    plan.hash = plan.hash * MULTIPLIER + mixed;
    store<u32>(plan.recent + ((<usize>slot) << 2), mixed);
    index = index + 1 === plan.count ? 0 : index + 1;
  }
}

/** The nearest place ahead where the plan has the last few requests. Requests are skipped more often than repeated. */
function placeAfter(plan: Plan, units: u32): i32 {
  const hash = plan.hash;
  const bit = hash & plan.filterMask;
  if ((load<u8>(plan.filter + (bit >>> 3)) & (1 << (bit & 7))) === 0) return -1;
  let found = contextFrom(plan, ((<u64>hash) << 32) | plan.next);
  if (found < 0) found = contextFrom(plan, (<u64>hash) << 32);
  return found >= 0 && sizeAt(plan, <u32>found) === units ? found : -1;
}

/** The number of the first entry at or after `key` with the same hash, or -1. */
function contextFrom(plan: Plan, key: u64): i32 {
  let low: u32 = 0;
  let high = plan.count;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (load<u64>(plan.contexts + ((<usize>middle) << 3)) < key) low = middle + 1;
    else high = middle;
  }
  if (low === plan.count) return -1;
  const entry = load<u64>(plan.contexts + ((<usize>low) << 3));
  return entry >> 32 === key >> 32 ? <i32>entry : -1;
}

function advanceTo(plan: Plan, place: u32): void {
  if (<i32>place <= plan.last) {
    plan.turn = plan.turn + 1 === plan.turns ? 0 : plan.turn + 1;
    if (<u64>plan.matched * 5 >= <u64>plan.count * TRUSTED_FIFTHS) plan.trusted = true;
    plan.matched = 0;
    plan.began = true;
  }
  plan.matched++;
  plan.streak++;
  plan.last = <i32>place;
  plan.next = place + 1 === plan.count ? 0 : place + 1;
  plan.named = <i32>place;
}

/** The plan must follow a whole step again before it is trusted. */
export function distrust(plan: Plan): void {
  plan.trusted = false;
  plan.matched = 0;
  plan.hungry = 0;
}
