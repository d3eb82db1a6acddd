// Keeps the number of stitches within its limit. A stitch is dropped only if the GPU has finished with it. Nobody waits for that:
// while the GPU is behind, there are more stitches than the limit.
import { stitchLimit, unmapFinished } from '../abi/settings';
import { Arena, NO_STITCH, Stitch } from '../records/nodes';
import { NO_STREAM, NO_USE, Stream } from '../records/streams';
import { isStitchOver } from '../space/last-use';
import { dismiss } from '../space/stitches';
import { beginRound, cover, isCapturing, mark, pollOnce } from './progress';

/** Most stitches that an arena keeps because the GPU may still use them, as a multiple of the limit. */
const MOST_KEPT: u64 = 4;

/**
 * Drops idle stitches of the arena, least recently used first, until there is room for another. False if no further stitch may
 * be made: then the arena has to grow, or a wait for the device helps. During a capture nobody can wait, so a `pressed` request,
 * which would fail, may exceed every limit.
 */
export function makeWay(arena: Arena, pressed: bool): bool {
  // Near the limit an event follows each new stitch, so that old ones are known to be over when the limit is reached.
  if (<u64>arena.stitchCount < stitchLimit - (stitchLimit >> 2)) return true;
  if (unmapFinished !== 0) mark(arena.lane);
  let stitch = arena.oldestStitch;
  let kept = false;
  beginRound();
  while (stitch !== NO_STITCH && <u64>arena.stitchCount >= stitchLimit) {
    const newer = stitch.newer;
    if (stitch.live === 0 && (isCapturing() || !isFinished(stitch) || !dismiss(stitch))) kept = true;
    stitch = newer;
  }
  return !kept || (pressed && isCapturing()) || <u64>arena.stitchCount < stitchLimit * MOST_KEPT;
}

/** Whether the GPU has finished with a stitch. Asks the streams that have released blocks in it. */
function isFinished(stitch: Stitch): bool {
  if (isStitchOver(stitch)) return true;
  ask(stitch.lane, stitch.releasePoint);
  for (let use = stitch.otherUses; use !== NO_USE; use = use.next) ask(use.lane, use.point);
  return isStitchOver(stitch);
}

function ask(lane: Stream, point: u64): void {
  if (lane !== NO_STREAM && point > lane.done && cover(lane, point)) pollOnce(lane);
}
