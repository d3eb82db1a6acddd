// The exports of the engine. Functions with u64 are for C; JavaScript uses those with f64, exact below 2^53.
// A block is a number, valid until the block is complete. Result 0 means failure.
import { planCount, restartNeed } from './abi/counters';
import { ABI_DIGEST, Freed, State } from './abi/numbers';
import { applyPreset, setSetting, settingOf } from './abi/settings';
import { explanationOf, statisticOf } from './abi/statistics';
import { completeBlock as complete_, endBlock, freeBlock as free_, mallocBlock as malloc_, recordUse } from './blocks';
import { checkEngine } from './check';
import { emptyPlanned, forgetPlan, installPlan } from './plans/following';
import { openRows } from './plans/installed';
import { completeParked } from './policy/completion';
import { forgetAddress, forgetRecalled, recall, remember } from './records/address-table';
import { ownerOf } from './records/arena-table';
import { take } from './records/memory';
import { NO_RANGE, Range } from './records/nodes';
import { setSettled, settled } from './records/streams';
import { replayEvents } from './replay';
import { snapshotAddress as rowsAddress, takeSnapshot } from './report';
import { blockSize } from './space/ranges';
import { releaseAll } from './space/release';
import { completedCount, drainCompleted as drainCompleted_ } from './streams/completed';
import { isCapturing, latestRelease as latestRelease_, pollStreams, setCapture, settleStreams } from './streams/progress';

/** Hash over all tables of abi/: callers of another build must not use this engine. */
export function abiDigest(): u64 {
  return ABI_DIGEST;
}

export function abiDigestF64(): f64 {
  return <f64>(<i64>ABI_DIGEST);
}

/** Sets a setting by number, before the first request. 1 if it was accepted. */
export function configure(index: u32, value: u64): u32 {
  return setSetting(index, value) ? 1 : 0;
}

export function configureF64(index: u32, value: f64): u32 {
  return setSetting(index, <u64>(<i64>value)) ? 1 : 0;
}

/** Applies a preset by number, before the first request and after the handle unit is set. 1 if there is such a preset. */
export function preset(index: u32): u32 {
  return applyPreset(index) ? 1 : 0;
}

/** The value of a setting. */
export function settingF64(index: u32): f64 {
  return <f64>(<i64>settingOf(index));
}

/** The address of memory for the request; 0 if there is none. */
export function malloc(bytes: u64, stream: u32, pool: u32): u64 {
  const block = malloc_(bytes, stream, pool);
  return block !== NO_RANGE && keepAddress(block) ? block.va : 0;
}

/** The same, but gives the block. `blockAt` finds it by its address. */
export function allocate(bytes: u64, stream: u32, pool: u32): u32 {
  const block = malloc_(bytes, stream, pool);
  return block !== NO_RANGE && keepAddress(block) ? (changetype<usize>(block) as u32) : 0;
}

/** Remembers a new block by its address. If the engine's own memory is exhausted, the block ends. */
function keepAddress(block: Range): bool {
  if (remember(block)) return true;
  endBlock(block);
  return false;
}

/** The live block at an address that `malloc` or `allocate` gave; 0 if there is none. */
export function blockAt(address: u64): u32 {
  return changetype<usize>(recall(address)) as u32;
}

/** Frees a block; says by a number of `Freed` what became of it. */
export function deallocate(block: u32): u32 {
  const range = changetype<Range>(<usize>block);
  if (range.state !== State.Live) return Freed.NotLive;
  forgetAddress(range.va);
  if (!endBlock(range)) return Freed.NotLive;
  return range.state === State.Parked ? Freed.Parked : Freed.Freed;
}

/** Frees the block at an address; its memory can be used again at once. 0 if nothing is live there. */
export function free(address: u64): u32 {
  const block = recall(address);
  if (block === NO_RANGE || block.state !== State.Live) return 0;
  forgetRecalled();
  return endBlock(block) ? 1 : 0;
}

/**
 * The first half of `free`: gives the block, whose memory stays in use until `completeBlock`. 0 if nothing is live at the
 * address.
 */
export function letGo(address: u64): u32 {
  const block = recall(address);
  if (block === NO_RANGE || !free_(block)) return 0;
  forgetRecalled();
  return changetype<usize>(block) as u32;
}

export function mallocBlockF64(bytes: f64, stream: u32, pool: u32): u32 {
  return changetype<usize>(malloc_(<u64>(<i64>bytes), stream, pool)) as u32;
}

/** The program frees a block. 0 if it is not live. */
export function freeBlock(block: u32): u32 {
  return free_(changetype<Range>(<usize>block)) ? 1 : 0;
}

/** Nobody uses the freed block any more, so its memory can be given out again. 0 if it was not freed. */
export function completeBlock(block: u32): u32 {
  return complete_(changetype<Range>(<usize>block)) ? 1 : 0;
}

/** Another stream uses the live block. Its memory is free only after that work. */
export function recordStreamBlock(block: u32, stream: u32): u32 {
  return recordUse(changetype<Range>(<usize>block), stream) ? 1 : 0;
}

/** The same by address. 0 if nothing is live there. */
export function recordStream(address: u64, stream: u32): u32 {
  const block = recall(address);
  return block !== NO_RANGE && recordUse(block, stream) ? 1 : 0;
}

/** A stream begins or ends being captured into a graph. Meanwhile nothing is lent and no event is touched. */
export function setCapturing(stream: u32, on: u32): void {
  setCapture(stream, on !== 0);
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

/** How many blocks completed later than their free since the queue was last drained (setting queueCompleted). */
export function completed(): u32 {
  return <u32>completedCount();
}

/** Empties the queue. Gives where their addresses lie (u64 each), until the next request. */
export function drainCompleted(): u32 {
  return <u32>drainCompleted_();
}

/** The number of the latest release. The caller reads it before it waits for the device. */
export function latestRelease(): u64 {
  return latestRelease_();
}

export function latestReleaseF64(): f64 {
  return <f64>(<i64>latestRelease_());
}

/**
 * The host has waited for the device, so all releases up to this number are over. Blocks that were freed during the wait have
 * larger numbers.
 */
export function streamsIdle(release: u64): void {
  settleStreams(release);
  completeParked();
}

export function streamsIdleF64(release: f64): void {
  streamsIdle(<u64>(<i64>release));
}

/**
 * The same for unmapping alone: what streams lend does not change. A replay has no GPU to wait for, so its waits must not order
 * streams.
 */
export function memoryIdleF64(release: f64): void {
  setSettled(<u64>(<i64>release));
}

/** Frees all memory that can be freed and that the GPU has finished with. Nothing during a capture. */
export function emptyCache(): void {
  if (isCapturing()) return;
  if (settled < latestRelease_()) pollStreams();
  emptyPlanned();
  releaseAll();
  // With plans the engine knows what is needed.
  if (planCount === 0) restartNeed();
}

/** Checks the invariants. Gives 0 or the number of the broken rule. */
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

/** Writes every range to linear memory. Gives their number. */
export function snapshot(): u32 {
  return takeSnapshot();
}

export function snapshotAddress(): u32 {
  return <u32>rowsAddress();
}

/** Linear memory for the caller, never freed; 0 if there is none. */
export function buffer(bytes: u32): u32 {
  return <u32>take(<usize>bytes);
}

export function replay(events: u32, count: u32, slots: u32, addresses: u32): u32 {
  return replayEvents(<usize>events, count, <usize>slots, <usize>addresses);
}

/**
 * Linear memory for the rows of a plan, one per request of a step: bytes (u64, a multiple of 512), stream (u32), 4 unused
 * bytes, then an offset (u64) for each turn. 0 if the plan is too long. One plan at a time.
 */
export function planBuffer(requests: u32, turns: u32): u32 {
  return <u32>openRows(requests, turns);
}

/** Installs the plan in that memory. Gives its number, or 0 if it is refused. The memory is freed in any case. */
export function planInstall(plan: u32, footprint: u64): u32 {
  return installPlan(<usize>plan, footprint);
}

export function planInstallF64(plan: u32, footprint: f64): u32 {
  return installPlan(<usize>plan, <u64>(<i64>footprint));
}

/** Forgets a plan, or all with 0. Gives 0 if there is no such plan. */
export function planForget(plan: u32): u32 {
  return forgetPlan(plan) ? 1 : 0;
}
