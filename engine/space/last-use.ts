// The last use of memory by the GPU. Addresses are unmapped, and handles freed, only once the GPU has finished with them.
// Releases have numbers (streams/progress.ts). The release of a free range covers every use of its bytes, through any address.
// The release of a stitch covers the uses through the addresses of the stitch.
import { unmapFinished } from '../abi/settings';
import { larger } from '../base/units';
import { ownerOf } from '../records/arena-table';
import { Range, Stitch } from '../records/nodes';
import { dropUse, NO_STREAM, NO_USE, newUse, Stream, settled } from '../records/streams';

function isOver(lane: Stream, point: u64): bool {
  return point <= lane.done || point <= settled;
}

/** Whether the GPU has finished with the memory of a free range, as far as is known. */
export function isRangeOver(range: Range): bool {
  return unmapFinished === 0 || isOver(ownerOf(range).lane, range.releasePoint);
}

/** Whether the GPU has finished with the addresses of a stitch without blocks, as far as is known. */
export function isStitchOver(stitch: Stitch): bool {
  if (unmapFinished === 0) return true;
  if (stitch.lane !== NO_STREAM && !isOver(stitch.lane, stitch.releasePoint)) return false;
  for (let use = stitch.otherUses; use !== NO_USE; use = use.next) if (!isOver(use.lane, use.point)) return false;
  return stitch.blindPoint <= settled;
}

/** Notes that a stream has released a block in the stitch. */
export function noteRelease(stitch: Stitch, lane: Stream, point: u64): void {
  if (stitch.lane === lane) {
    stitch.releasePoint = larger(stitch.releasePoint, point);
    return;
  }
  if (stitch.lane !== NO_STREAM && !isOver(stitch.lane, stitch.releasePoint)) keepOther(stitch);
  stitch.lane = lane;
  stitch.releasePoint = point;
}

/** Keeps the last release when another stream follows. */
function keepOther(stitch: Stitch): void {
  let use = stitch.otherUses;
  while (use !== NO_USE && use.lane !== stitch.lane) use = use.next;
  if (use === NO_USE) {
    use = newUse();
    if (use === NO_USE) {
      stitch.blindPoint = larger(stitch.blindPoint, stitch.releasePoint);
      return;
    }
    use.lane = stitch.lane;
    use.next = stitch.otherUses;
    stitch.otherUses = use;
  }
  use.point = larger(use.point, stitch.releasePoint);
}

export function forgetReleases(stitch: Stitch): void {
  let use = stitch.otherUses;
  while (use !== NO_USE) {
    const next = use.next;
    dropUse(use);
    use = next;
  }
  stitch.otherUses = NO_USE;
}
