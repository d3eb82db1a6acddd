// Small requests: slabs of one handle unit, cut at 512 bytes. Within the budget a slab is a new handle. Beyond it, the slab is
// carved out of the arena of large requests, and returned when it is empty.
import { countWay, reserved, Way } from '../abi/counters';
import { State } from '../abi/numbers';
import { carveSlabs, handleUnit } from '../abi/settings';
import { Arena, NO_ARENA, NO_RANGE, Range } from '../records/nodes';
import { ensureRanges } from '../records/range-pool';
import { addCarved, arenaOf, removeRegion } from '../space/arenas';
import { budgetWith } from '../space/budget';
import { bestFit, takeFree } from '../space/free-set';
import { grow } from '../space/growth';
import { setFree, takeFront } from '../space/ranges';
import { borrowBlock, pollLenders } from '../streams/lending';
import { stamp } from '../streams/progress';

/** A free range of at least `size` in a new slab. */
export function addSlab(arena: Arena, size: u64): Range {
  const thrifty = carveSlabs !== 0;
  if (thrifty && reserved + handleUnit > budgetWith(size)) {
    const slab = carveSlab(arena);
    if (slab !== NO_RANGE) return slab;
  }
  const slab = grow(arena, handleUnit);
  if (slab !== NO_RANGE) {
    countWay(Way.Growth);
    return slab;
  }
  return thrifty ? carveSlab(arena) : NO_RANGE;
}

function carveSlab(arena: Arena): Range {
  const lender = arenaOf(arena.stream, arena.pool, false);
  if (lender === NO_ARENA || !ensureRanges(2)) return NO_RANGE;
  let fit = bestFit(lender, handleUnit);
  if (fit !== NO_RANGE) {
    takeFront(fit, handleUnit, State.Carved);
  } else {
    fit = pollLenders(lender) ? borrowBlock(lender, handleUnit, true) : NO_RANGE;
    if (fit === NO_RANGE) return NO_RANGE;
    fit.state = State.Carved;
    // The number of the release is that of another stream, which ours may have to wait for.
    fit.releasePoint = stamp(lender.lane, 0);
  }
  const slab = addCarved(arena, fit);
  if (slab === NO_RANGE) {
    setFree(fit, fit.releasePoint);
    return NO_RANGE;
  }
  countWay(Way.Carve);
  return setFree(slab, fit.releasePoint);
}

/** Returns a carved slab if `range` is the whole of it. */
export function returnSlab(range: Range): void {
  const region = range.region;
  const carved = region.carvedFrom;
  if (carved === NO_RANGE || range.size !== region.bytes) return;
  const point = range.releasePoint;
  takeFree(region.arena, range);
  removeRegion(region);
  setFree(carved, point);
}
