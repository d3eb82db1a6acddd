// Blocks that other streams use (record_stream). When such a block is freed, it is parked. It becomes free for its own stream
// once every stream recorded on it has passed the release. A query finds that out, or a wait on the GPU ensures it.
import { countParked } from '../abi/counters';
import { State } from '../abi/numbers';
import { larger } from '../base/units';
import { ownerOf } from '../records/arena-table';
import { NO_RANGE, Range } from '../records/nodes';
import { dropUse, NO_STREAM, NO_USE, newUse, Stream, settled, streamOf } from '../records/streams';
import { beginRound, cover, isCapturing, isOrdered, order, pollOnce, stamp } from './progress';

/** Parked blocks, oldest first. */
let oldest: Range = NO_RANGE;
let newest: Range = NO_RANGE;

/** Notes that another stream uses the block. False if the engine's own memory is exhausted. */
export function addUse(block: Range, id: u32): bool {
  const lane = streamOf(id);
  if (lane === NO_STREAM) return false;
  if (lane === ownerOf(block).lane) return true;
  for (let use = block.uses; use !== NO_USE; use = use.next) if (use.lane === lane) return true;
  const use = newUse();
  if (use === NO_USE) return false;
  use.lane = lane;
  use.next = block.uses;
  block.uses = use;
  return true;
}

export function hasUses(block: Range): bool {
  return block.uses !== NO_USE;
}

/** Parks a block that other streams use, and notes which release each of them must pass. */
export function park(block: Range, bytes: u64): void {
  for (let use = block.uses; use !== NO_USE; use = use.next) {
    use.point = stamp(use.lane, bytes);
    cover(use.lane, use.point);
  }
  block.state = State.Parked;
  block.nextParked = NO_RANGE;
  if (newest === NO_RANGE) oldest = block;
  else newest.nextParked = block;
  newest = block;
  countParked(1);
}

export function hasParked(): bool {
  return oldest !== NO_RANGE;
}

/**
 * Of the block that was unparked last: its release, if the host has waited for the device since. Its own stream released it at
 * the same time as the others. Else 0: the own stream may have to wait for the others, which is a new release.
 */
export let parkedPoint: u64 = 0;

function lastUse(block: Range): u64 {
  let point: u64 = 0;
  for (let use = block.uses; use !== NO_USE; use = use.next) point = larger(point, use.point);
  return point;
}

/** Removes a parked block, which follows `before`, from the list. The caller makes it free. */
function unpark(block: Range, before: Range): void {
  const next = block.nextParked;
  if (before === NO_RANGE) oldest = next;
  else before.nextParked = next;
  if (newest === block) newest = before;
  const point = lastUse(block);
  parkedPoint = point <= settled ? point : 0;
  forgetUses(block);
  block.state = State.Pending;
  block.requested = 0;
  countParked(-1);
}

function forgetUses(block: Range): void {
  let use = block.uses;
  while (use !== NO_USE) {
    const next = use.next;
    dropUse(use);
    use = next;
  }
  block.uses = NO_USE;
}

/** Polls the streams that parked blocks wait for, each once. */
export function pollUses(): void {
  if (isCapturing()) return;
  beginRound();
  for (let block = oldest; block !== NO_RANGE; block = block.nextParked) {
    for (let use = block.uses; use !== NO_USE; use = use.next) {
      if (use.point > use.lane.done && cover(use.lane, use.point)) pollOnce(use.lane);
    }
  }
}

/**
 * Removes the first parked block that its own stream may use from the list; the block is pending again. `lane`: only blocks of
 * this stream. With `waiting`, its stream is made to wait for the others.
 */
export function takeParked(lane: Stream, waiting: bool): Range {
  let before = NO_RANGE;
  for (let block = oldest; block !== NO_RANGE; block = block.nextParked) {
    const own = ownerOf(block).lane;
    if ((lane === NO_STREAM || lane === own) && mayEnd(block, own, waiting)) {
      unpark(block, before);
      return block;
    }
    before = block;
  }
  return NO_RANGE;
}

function mayEnd(block: Range, own: Stream, waiting: bool): bool {
  for (let use = block.uses; use !== NO_USE; use = use.next) {
    if (isOrdered(own, use.lane, use.point)) continue;
    if (!waiting || !order(own, use.lane, use.point)) return false;
  }
  return true;
}
