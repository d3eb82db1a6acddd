// Checks the swap plan of a recorded step by going through five steps with plain comparisons.
// On purpose it shares no code with the planner or the simulator.
import type { Fault } from '../offsets/verifier.ts';
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
    if (swap.outEndUs - swap.outStartUs < swap.size / costs.out.alone - ROUNDING_US)
      report(`swap ${index} copies out faster than the link can`);
    if (swap.inEndUs - swap.inStartUs < swap.size / costs.in.alone - ROUNDING_US)
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
  const byBlock = new Map<number, Swap[]>();
  for (const swap of swaps) byBlock.set(swap.block, [...(byBlock.get(swap.block) ?? []), swap]);
  for (const [block, own] of byBlock) {
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

/** The load at every moment of a step in the middle of many. */
function checkLoad(step: SwapStep, swaps: readonly Swap[], limit: number, report: (message: string) => void): void {
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
  for (const { us, bytes } of changes) {
    live += bytes;
    if (us < STEPS * periodUs || us >= (STEPS + 1) * periodUs) continue;
    if (live <= limit) continue;
    report(`at ${us - STEPS * periodUs} us ${live} bytes are held, above the limit of ${limit}`);
    return;
  }
}
