// The engine's exports. Those with u64 are for C, their twins in f64 for JavaScript (exact below 2^53);
// a block is the number that mallocBlock gives, valid until it is complete. Results of 0 mean failure.
import { planCount, restartNeed } from './abi/counters';
import { explanationOf } from './abi/explanations';
import { State } from './abi/range-states';
import { setSetting, settingCount } from './abi/settings';
import { statisticOf } from './abi/statistics';
import { completeBlock as complete_, freeBlock as free_, mallocBlock as malloc_, recordUse } from './blocks';
import { checkEngine } from './check';
import { emptyPlanned, forgetPlan, installPlan } from './plans/following';
import { openRows } from './plans/installed';
import { completeParked } from './policy/completion';
import { forgetAddress, recall, remember } from './records/address-table';
import { ownerOf } from './records/arena-table';
import { take } from './records/memory';
import { NO_RANGE, Range } from './records/nodes';
import { replayEvents } from './replay';
import { snapshotAddress as rowsAddress, takeSnapshot } from './report';
import { blockSize } from './space/ranges';
import { releaseAll } from './space/release';
import { completedCount, drainCompleted as drainCompleted_ } from './streams/completed';
import { setCapture, settleStreams } from './streams/progress';

/** Bumped whenever an export, a setting or a statistic changes its meaning. */
export function abiVersion(): u32 {
  return 2;
}

/** Sets a setting by number, before the first request; 1 if it was accepted. */
export function configure(index: u32, value: u64): u32 {
  return setSetting(index, value) ? 1 : 0;
}

export function configureF64(index: u32, value: f64): u32 {
  return setSetting(index, <u64>(<i64>value)) ? 1 : 0;
}

export function settings(): u32 {
  return settingCount();
}

/** The address of memory for the request, 0 if there is none. */
export function malloc(bytes: u64, stream: u32, pool: u32): u64 {
  const block = allocate(bytes, stream, pool);
  return block === 0 ? 0 : addressOf(block);
}

/** The same as a block, which `blockAt` finds again by its address. */
export function allocate(bytes: u64, stream: u32, pool: u32): u32 {
  const block = malloc_(bytes, stream, pool);
  if (block === NO_RANGE) return 0;
  if (remember(block)) return changetype<usize>(block) as u32;
  free_(block);
  complete_(block);
  return 0;
}

/** The block that `malloc` or `allocate` gave at the address, 0 if none is live there. */
export function blockAt(address: u64): u32 {
  return changetype<usize>(recall(address)) as u32;
}

/** Frees a block of `blockAt`: 1 if its memory is free now, 2 if it is parked until other streams have passed, 0 if it is not live. */
export function deallocate(block: u32): u32 {
  const range = changetype<Range>(<usize>block);
  if (!free_(range)) return 0;
  forgetAddress(range.va);
  if (!complete_(range)) return 0;
  return range.state === State.Parked ? 2 : 1;
}

/** Frees what `malloc` gave, for use again at once; 0 if nothing is live at the address. */
export function free(address: u64): u32 {
  const block = recall(address);
  if (block === NO_RANGE || !free_(block)) return 0;
  forgetAddress(address);
  return complete_(block) ? 1 : 0;
}

/**
 * The first half of `free`: the program lets go of the address, the memory stays in use until `completeBlock` is given
 * the number this gives. 0 if nothing is live at the address.
 */
export function letGo(address: u64): u32 {
  const block = recall(address);
  if (block === NO_RANGE || !free_(block)) return 0;
  forgetAddress(address);
  return changetype<usize>(block) as u32;
}

export function mallocBlockF64(bytes: f64, stream: u32, pool: u32): u32 {
  return changetype<usize>(malloc_(<u64>(<i64>bytes), stream, pool)) as u32;
}

/** The program lets go of a block; 0 if it is not live. */
export function freeBlock(block: u32): u32 {
  return free_(changetype<Range>(<usize>block)) ? 1 : 0;
}

/** Nobody uses the block any more: its memory may be given out again. 0 if it was not freed. */
export function completeBlock(block: u32): u32 {
  return complete_(changetype<Range>(<usize>block)) ? 1 : 0;
}

/** Work of another stream uses the live block: its memory is free only after that, wherever it is freed. */
export function recordStreamBlock(block: u32, stream: u32): u32 {
  return recordUse(changetype<Range>(<usize>block), stream) ? 1 : 0;
}

/** The same for what `malloc` gave; 0 if nothing is live at the address. */
export function recordStream(address: u64, stream: u32): u32 {
  const block = recall(address);
  return block !== NO_RANGE && recordUse(block, stream) ? 1 : 0;
}

/** A stream begins or ends being captured into a graph. Until it ends nothing is lent and no event is touched. */
export function setCapturing(stream: u32, on: u32): u32 {
  return setCapture(stream, on !== 0) ? 1 : 0;
}

export function addressOf(block: u32): u64 {
  return changetype<Range>(<usize>block).va;
}

export function addressOfF64(block: u32): f64 {
  return <f64>(<i64>addressOf(block));
}

export function sizeOf(block: u32): u64 {
  return blockSize(changetype<Range>(<usize>block));
}

export function sizeOfF64(block: u32): f64 {
  return <f64>(<i64>sizeOf(block));
}

export function requestedOf(block: u32): u64 {
  return changetype<Range>(<usize>block).requested;
}

export function streamOf(block: u32): u32 {
  return ownerOf(changetype<Range>(<usize>block)).stream;
}

/** How many blocks have completed later than their free since the queue was last drained (setting queueCompleted). */
export function completed(): u32 {
  return <u32>completedCount();
}

/** Where their addresses lie (u64 each) until the next request; empties the queue. */
export function drainCompleted(): u32 {
  return <u32>drainCompleted_();
}

/** The host has waited for all streams: whatever they were given is over. */
export function streamsIdle(): void {
  settleStreams();
  completeParked();
}

/** Gives back to the driver all that can be. */
export function emptyCache(): void {
  emptyPlanned();
  releaseAll();
  // Plans know what is needed.
  if (planCount === 0) restartNeed();
}

/** 0, or the number of the broken rule. */
export function check(level: u32): u32 {
  return checkEngine(level);
}

export function statistic(index: u32): u64 {
  return statisticOf(index);
}

export function statisticF64(index: u32): f64 {
  return <f64>(<i64>statisticOf(index));
}

export function explanation(index: u32): u64 {
  return explanationOf(index);
}

export function explanationF64(index: u32): f64 {
  return <f64>(<i64>explanationOf(index));
}

/** Writes every range to linear memory; gives their number. */
export function snapshot(): u32 {
  return takeSnapshot();
}

export function snapshotAddress(): u32 {
  return <u32>rowsAddress();
}

/** Linear memory for the caller, for the life of the engine; 0 if there is none. */
export function buffer(bytes: u32): u32 {
  return <u32>take(<usize>bytes);
}

export function replay(events: u32, count: u32, slots: u32, addresses: u32): u32 {
  return replayEvents(<usize>events, count, <usize>slots, <usize>addresses);
}

/**
 * Linear memory for the rows of a plan, one per request of a step in order: bytes (u64, a multiple of 512), stream (u32),
 * 4 bytes unused, then for each turn the offset (u64). 0 if that is too much. One plan at a time.
 */
export function planBuffer(requests: u32, turns: u32): u32 {
  return <u32>openRows(requests, turns);
}

/** Installs the plan that was written there; its number, or 0 if it is refused. The buffer is gone either way. */
export function planInstall(plan: u32, footprint: u64): u32 {
  return installPlan(<usize>plan, footprint);
}

export function planInstallF64(plan: u32, footprint: f64): u32 {
  return installPlan(<usize>plan, <u64>(<i64>footprint));
}

/** Forgets a plan, or all of them with 0; 0 if there is none of that number. */
export function planForget(plan: u32): u32 {
  return forgetPlan(plan) ? 1 : 0;
}
