// Unused Range records. Code takes as many as it needs before it begins, so that it cannot fail half way.
import { fresh } from './memory';
import { NO_RANGE, NO_STITCH, Range, Region } from './nodes';

let spareRanges: usize = 0;
let spareCount: u32 = 0;
const SLAB_RANGES: usize = 512;

/** Makes sure that `count` ranges can be taken. False if the engine's own memory is exhausted. */
export function ensureRanges(count: u32): bool {
  while (spareCount < count) {
    const slab = fresh(SLAB_RANGES * offsetof<Range>());
    if (slab === 0) return false;
    for (let index: usize = 0; index < SLAB_RANGES; index++) {
      const range = slab + index * offsetof<Range>();
      store<usize>(range, spareRanges);
      spareRanges = range;
    }
    spareCount += <u32>SLAB_RANGES;
  }
  return true;
}

function takeSpare(): Range {
  assert(spareCount > 0);
  const range = changetype<Range>(spareRanges);
  spareRanges = load<usize>(spareRanges);
  spareCount--;
  return range;
}

/** A new range, linked to nothing. Call ensureRanges first. */
export function newRange(region: Region, address: u64, size: u64, state: u8): Range {
  const range = takeSpare();
  range.address = address;
  range.size = size;
  range.prev = NO_RANGE;
  range.next = NO_RANGE;
  range.nextPiece = NO_RANGE;
  range.stitch = NO_STITCH;
  range.region = region;
  range.owner = region.arena.index;
  range.releasePoint = 0;
  range.va = 0;
  range.state = state;
  return range;
}

/** A new range for a part of another: it gets its region, owner and release. Call ensureRanges first. */
export function newPart(whole: Range, address: u64, size: u64, state: u8): Range {
  const range = takeSpare();
  range.address = address;
  range.size = size;
  range.va = whole.va;
  range.releasePoint = whole.releasePoint;
  range.region = whole.region;
  range.stitch = NO_STITCH;
  range.nextPiece = NO_RANGE;
  range.owner = whole.owner;
  range.state = state;
  return range;
}

export function dropRange(range: Range): void {
  range.state = 0;
  store<usize>(changetype<usize>(range), spareRanges);
  spareRanges = changetype<usize>(range);
  spareCount++;
}
