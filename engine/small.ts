// Small requests: slabs of one handle unit, cut at 512 bytes. A slab is a handle of its own while memory is to be had
// without exceeding the budget, else it is borrowed from the arena of large requests and returned when empty.
import { addLoan, arenaOf, removeRegion } from './arenas';
import { countWay, reserved, Way } from './counters';
import { bestFit, takeFree } from './free-set';
import { grow } from './growth';
import { borrowBlock, pollLenders } from './lending';
import { Arena, ensureRanges, NO_ARENA, NO_RANGE, Range, State } from './nodes';
import { setFree, takeFront } from './ranges';
import { borrow, handleUnit } from './settings';
import { budgetWith } from './weir';

/** A free range that holds `size`, from a new slab. */
export function addSlab(arena: Arena, size: u64): Range {
  const thrifty = borrow !== 0;
  if (thrifty && reserved + handleUnit > budgetWith(size)) {
    const slab = borrowSlab(arena);
    if (slab !== NO_RANGE) return slab;
  }
  const slab = grow(arena, handleUnit);
  if (slab !== NO_RANGE) {
    countWay(Way.Growth);
    return slab;
  }
  return thrifty ? borrowSlab(arena) : NO_RANGE;
}

function borrowSlab(arena: Arena): Range {
  const lender = arenaOf(arena.stream, arena.pool, false);
  if (lender === NO_ARENA || !ensureRanges(2)) return NO_RANGE;
  let fit = bestFit(lender, handleUnit);
  if (fit !== NO_RANGE) {
    takeFront(fit, handleUnit, State.Loan);
  } else {
    fit = pollLenders(lender) ? borrowBlock(lender, handleUnit, true) : NO_RANGE;
    if (fit === NO_RANGE) return NO_RANGE;
    fit.state = State.Loan;
  }
  const slab = addLoan(arena, fit);
  if (slab === NO_RANGE) {
    setFree(fit, fit.requested);
    return NO_RANGE;
  }
  countWay(Way.Loan);
  return setFree(slab, fit.requested);
}

/** Returns the slab that `range` is the whole of, if it is borrowed. */
export function returnSlab(range: Range): void {
  const region = range.region;
  const loan = region.loan;
  if (loan === NO_RANGE || range.size !== region.bytes) return;
  const point = range.requested;
  takeFree(region.arena, range);
  removeRegion(region);
  setFree(loan, point);
}
