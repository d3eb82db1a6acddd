// Checks the swap plan of a recorded step by going through five steps with plain comparisons.
// On purpose it shares no code with the planner or the simulator.
import type { Buffer, Span } from '../offsets/buffers.ts';
import { type Fault, verifyOffsets } from '../offsets/verifier.ts';
import type { SwapStep } from './accesses.ts';
import type { CopyCosts } from './copy-costs.ts';
import type { Swap } from './schedule.ts';

const STEPS = 5;
/** Smaller differences are rounding errors. */
const ROUNDING_US = 1e-3;

export function verifySwaps(step: SwapStep, swaps: readonly Swap[], limit: number, costs: CopyCosts, maxFaults = 10): Fault[] {
  const faults: Fault[] = [];
  const report = (message: string) => {
    if (faults.length < maxFaults) faults.push({ message });
  };
  for (const [index, swap] of swaps.entries()) {
    const block = step.blocks[swap.block];
    if (!block) {
      report(`swap ${index} is of block ${swap.block}, and there are ${step.blocks.length}`);
      continue;
    }
    if (block.size !== swap.size) report(`swap ${index} copies ${swap.size} bytes of a block of ${block.size}`);
    const times = [swap.outStartUs, swap.outEndUs, swap.inStartUs, swap.inEndUs];
    if (!times.every(Number.isFinite) || times.some((time, at) => at > 0 && time < times[at - 1]! - ROUNDING_US)) {
      report(`swap ${index} has its times out of order: ${times.join(', ')}`);
      continue;
    }
    if (swap.outEndUs - swap.outStartUs < costs.out.fixedUs + swap.size / costs.out.alone - ROUNDING_US)
      report(`swap ${index} copies out faster than the link can`);
    if (swap.inEndUs - swap.inStartUs < costs.in.fixedUs + swap.size / costs.in.alone - ROUNDING_US)
      report(`swap ${index} copies in faster than the link can`);
    if (!block.wholeRun && (swap.outStartUs < block.fromUs - ROUNDING_US || swap.inEndUs > block.toUs + ROUNDING_US)) {
      report(`swap ${index} goes on when its block is not live`);
    }
    for (let round = -STEPS; round <= STEPS; round++) {
      // A block of one step is used only in it. A block of the whole run is used in all steps.
      if (!block.wholeRun && round !== 0) continue;
      for (const access of block.accesses) {
        const from = access.fromUs + round * step.periodUs;
        const to = access.toUs + round * step.periodUs;
        if (from < swap.inEndUs - ROUNDING_US && to > swap.outStartUs + ROUNDING_US) {
          report(`swap ${index}: block ${swap.block} is used at ${from} us, while it is away or being copied`);
        }
      }
    }
  }
  if (faults.length > 0) return faults;
  checkQueue(step, swaps, 'out', report);
  checkQueue(step, swaps, 'in', report);
  checkOverlaps(step, swaps, report);
  checkLoad(step, swaps, limit, report);
  return faults;
}

/** One copy at a time in each direction: two would be slower than planned. */
function checkQueue(step: SwapStep, swaps: readonly Swap[], direction: 'out' | 'in', report: (message: string) => void): void {
  const copies: { from: number; to: number }[] = [];
  for (const swap of swaps) {
    for (let round = 0; round < STEPS; round++) {
      const shift = round * step.periodUs;
      if (direction === 'out') copies.push({ from: swap.outStartUs + shift, to: swap.outEndUs + shift });
      else copies.push({ from: swap.inStartUs + shift, to: swap.inEndUs + shift });
    }
  }
  copies.sort((a, b) => a.from - b.from);
  for (let at = 1; at < copies.length; at++) {
    if (copies[at]!.from >= copies[at - 1]!.to - ROUNDING_US) continue;
    report(`two copies ${direction} run at ${copies[at]!.from} us`);
    return;
  }
}

/** A block cannot leave again before it is back. */
function checkOverlaps(step: SwapStep, swaps: readonly Swap[], report: (message: string) => void): void {
  for (const [block, own] of byBlock(swaps)) {
    const repeats = step.blocks[block]!.wholeRun ? STEPS : 1;
    const trips = own.flatMap((swap) =>
      Array.from({ length: repeats }, (_, round) => ({
        from: swap.outStartUs + round * step.periodUs,
        to: swap.inEndUs + round * step.periodUs,
      })),
    );
    trips.sort((a, b) => a.from - b.from);
    for (let at = 1; at < trips.length; at++) {
      if (trips[at]!.from >= trips[at - 1]!.to - ROUNDING_US) continue;
      report(`block ${block} leaves at ${trips[at]!.from} us, before it is back`);
      return;
    }
  }
}

function byBlock(swaps: readonly Swap[]): Map<number, Swap[]> {
  const groups = new Map<number, Swap[]>();
  for (const swap of swaps) {
    const own = groups.get(swap.block);
    if (own) own.push(swap);
    else groups.set(swap.block, [swap]);
  }
  return groups;
}

/** The load at every moment of a step in the middle of many. */
function checkLoad(step: SwapStep, swaps: readonly Swap[], limit: number, report: (message: string) => void): void {
  for (const { us, live } of loadsOf(step, swaps)) {
    if (live <= limit) continue;
    report(`at ${us} us ${live} bytes are held, above the limit of ${limit}`);
    return;
  }
}

/** The most bytes of the step that are live at once, if nothing is swapped. */
export function peakWithoutSwaps(step: SwapStep): number {
  return loadsOf(step, []).reduce((most, { live }) => Math.max(most, live), 0);
}

/** Bytes held after every change in a step in the middle of many. */
function loadsOf(step: SwapStep, swaps: readonly Swap[]): { us: number; live: number }[] {
  const { periodUs } = step;
  const changes: { us: number; bytes: number }[] = [];
  let live = step.untouchedBytes;
  const rounds = 2 * STEPS;
  for (const block of step.blocks) {
    if (block.wholeRun) live += block.size;
    else {
      for (let round = 0; round < rounds; round++) {
        changes.push({ us: block.fromUs + round * periodUs, bytes: block.size }, { us: block.toUs + round * periodUs, bytes: -block.size });
      }
    }
  }
  for (const swap of swaps) {
    for (let round = 0; round < rounds; round++) {
      changes.push(
        { us: swap.outEndUs + round * periodUs, bytes: -swap.size },
        { us: swap.inStartUs + round * periodUs, bytes: swap.size },
      );
    }
  }
  changes.sort((a, b) => a.us - b.us || a.bytes - b.bytes);
  const loads: { us: number; live: number }[] = [];
  let before = live;
  for (const { us, bytes } of changes) {
    live += bytes;
    if (us < STEPS * periodUs) before = live;
    else if (us < (STEPS + 1) * periodUs) loads.push({ us: us - STEPS * periodUs, live });
  }
  return [{ us: 0, live: before }, ...loads];
}

/** Checks the places of the blocks, step after step: where a block is swapped out, its place is free. */
export function verifySwapLayout(
  step: SwapStep,
  swaps: readonly Swap[],
  turns: number,
  layout: { readonly offsets: readonly number[]; readonly footprint: number },
): Fault[] {
  const { periodUs, blocks } = step;
  const needed = blocks.reduce((sum, block) => sum + (block.wholeRun ? 1 : turns), 0);
  if (layout.offsets.length !== needed) {
    return [{ message: `the plan has ${layout.offsets.length} offsets, but the blocks of the step need ${needed}` }];
  }
  const rounds = 2 * turns + 1;
  const buffers: Buffer[] = [];
  const offsets: number[] = [];
  const place = (id: string, size: number, spans: readonly Span[], offset: number) => {
    const lasting = spans.filter(({ from, to }) => to > from);
    if (lasting.length === 0) return;
    buffers.push({ id, size, spans: lasting, alignment: 1 });
    offsets.push(offset);
  };
  const swapsOf = byBlock(swaps);
  let at = 0;
  blocks.forEach((block, index) => {
    const own = (swapsOf.get(index) ?? []).sort((a, b) => a.outEndUs - b.outEndUs);
    if (block.wholeRun) {
      const trips: { from: number; to: number }[] = [];
      for (let round = -rounds; round < 2 * rounds; round++) {
        for (const { outEndUs, inStartUs } of own) trips.push({ from: outEndUs + round * periodUs, to: inStartUs + round * periodUs });
      }
      trips.sort((a, b) => a.from - b.from);
      place(`${index}`, block.size, spansBetween(trips, 0, rounds * periodUs), layout.offsets[at]!);
      at++;
      return;
    }
    for (let round = 0; round < rounds; round++) {
      const shift = round * periodUs;
      const trips = own.map(({ outEndUs, inStartUs }) => ({ from: outEndUs + shift, to: inStartUs + shift }));
      const spans = spansBetween(trips, block.fromUs + shift, block.toUs + shift);
      place(`${index} of step ${round}`, block.size, spans, layout.offsets[at + (round % turns)]!);
    }
    at += turns;
  });
  return verifyOffsets(buffers, { offsets: Float64Array.from(offsets), footprint: layout.footprint });
}

/** The time from `from` to `to` without the trips, which are in order and do not overlap. */
function spansBetween(trips: readonly Span[], from: number, to: number): Span[] {
  const spans: Span[] = [];
  let since = from;
  for (const trip of trips) {
    if (trip.to <= from || trip.from >= to) continue;
    spans.push({ from: since, to: trip.from });
    since = trip.to;
  }
  if (since < to) spans.push({ from: since, to });
  return spans;
}
