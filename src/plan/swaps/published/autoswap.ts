// AutoSwap (arXiv 1903.06631) as published, for comparison: gaps across the peak, four scores, a weighted search, a schedule in operations.
// As in the study, it takes three steps and judges the middle one, without the copies of the step before. Where the authors' code and
// text differ by a slip, this follows the text.

import { randomFrom } from '../../offsets/random.ts';
import type { SwapStep } from '../accesses.ts';
import type { CopyCosts } from '../copy-costs.ts';
import { loadCurve, MIN_SWAP_BYTES } from '../gaps.ts';

export const AUTOSWAP_SCORES = ['DOA', 'AOA', 'WDOA', 'SWDOA'] as const;
export type AutoSwapScore = (typeof AUTOSWAP_SCORES)[number];

export interface AutoSwapResult {
  readonly limit: number;
  /** Simulated waiting per step, as a share of the step. */
  readonly overhead: number;
  /** Peak of the schedule; above the limit when the limit cannot be met. */
  readonly peak: number;
  readonly swaps: number;
  readonly bytesMoved: number;
}

interface Candidate {
  readonly size: number;
  /** Operations of the last access before and the first after. */
  readonly r: number;
  readonly d: number;
  /** Operation after which the copy may start: the access runs on for some operations. */
  readonly ready: number;
}

const READ_DELAY = 4;
const WRITE_DELAY = 6;
/** Weight vectors tried besides the four scores; the study's optimiser took as many. */
const WEIGHT_TRIALS = 20;

export class AutoSwap {
  readonly candidates: readonly Candidate[];
  readonly peak: number;
  private readonly step: SwapStep;
  private readonly costs: CopyCosts;
  private readonly timeUs: Float64Array;
  private readonly load: Float64Array;
  private readonly peakOp: number;
  /** The first operation of the middle step. */
  private readonly first: number;
  private readonly scores: ReadonlyMap<AutoSwapScore, Float64Array>;

  constructor(step: SwapStep, costs: CopyCosts, minBytes: number = MIN_SWAP_BYTES) {
    this.step = step;
    this.costs = costs;
    const ops = step.momentsUs.length;
    this.first = ops;
    this.timeUs = new Float64Array(3 * ops);
    const curve = loadCurve(step);
    this.peak = curve.peak;
    this.load = new Float64Array(3 * ops);
    let at = 0;
    step.momentsUs.forEach((time, op) => {
      while (at + 1 < curve.timeUs.length && curve.timeUs[at + 1]! <= time) at++;
      for (let round = 0; round < 3; round++) {
        this.timeUs[round * ops + op] = time + (round - 1) * step.periodUs;
        this.load[round * ops + op] = curve.bytes[at]!;
      }
    });
    this.peakOp = ops + this.load.indexOf(this.load.reduce((most, bytes) => Math.max(most, bytes), 0));
    this.candidates = this.findCandidates(minBytes);
    this.scores = new Map(AUTOSWAP_SCORES.map((score) => [score, normalized(this.scoresOf(score))]));
  }

  /** The best of the scores, or of weighted sums of them, at a limit. */
  at(limit: number, score: AutoSwapScore | 'weighted' = 'weighted'): AutoSwapResult {
    if (score !== 'weighted') return this.run(this.scores.get(score)!, limit);
    const random = randomFrom(7);
    let best: AutoSwapResult | undefined;
    for (let trial = 0; trial < AUTOSWAP_SCORES.length + WEIGHT_TRIALS; trial++) {
      const weights = AUTOSWAP_SCORES.map((_, index) => (trial < AUTOSWAP_SCORES.length ? Number(index === trial) : 2 * random() - 1));
      const values = this.candidates.map((_, at) =>
        AUTOSWAP_SCORES.reduce((sum, name, index) => sum + weights[index]! * this.scores.get(name)![at]!, 0),
      );
      const result = this.run(Float64Array.from(values), limit);
      if (!best || result.overhead < best.overhead || (result.overhead === best.overhead && result.peak < best.peak)) best = result;
      if (best.overhead === 0 && best.peak <= limit) break;
    }
    return best!;
  }

  /** The lowest limit without overhead, by the study's sweep in steps of `stepBytes`. */
  zeroOverheadLimit(stepBytes: number, score: AutoSwapScore | 'weighted' = 'weighted'): number {
    let lowest = this.peak;
    for (let limit = Math.floor(this.peak / stepBytes) * stepBytes; limit > 0; limit -= stepBytes) {
      const { overhead, peak } = this.at(limit, score);
      if (overhead === 0 && peak <= limit) lowest = limit;
      // The curve is not monotone, but after a tenth of the peak without a hit there are none.
      else if (limit < lowest - this.peak / 10) break;
    }
    return lowest;
  }

  private run(score: Float64Array, limit: number): AutoSwapResult {
    const order = Array.from(score.keys()).sort((a, b) => score[b]! - score[a]! || a - b);
    const load = this.load.slice();
    const chosen: Candidate[] = [];
    for (const index of order) {
      if (this.middlePeak(load) <= limit) break;
      const candidate = this.candidates[index]!;
      for (let op = candidate.r; op < candidate.d; op++) load[op] = load[op]! - candidate.size;
      chosen.push(candidate);
    }
    return this.schedule(chosen, limit);
  }

  private schedule(chosen: readonly Candidate[], limit: number): AutoSwapResult {
    const { timeUs, peakOp } = this;
    const load = this.load.slice();
    const last = timeUs.length;
    let overheadUs = 0;
    let queueUs = Number.NEGATIVE_INFINITY;
    for (const candidate of [...chosen].sort((a, b) => a.r - b.r)) {
      const endUs = Math.max(timeUs[candidate.ready]!, queueUs) + this.outUs(candidate);
      let end = Math.min(this.firstAt(endUs), peakOp);
      queueUs = endUs;
      for (let op = Math.max(this.first, candidate.ready); op < end; op++) {
        if (load[op]! <= limit) continue;
        overheadUs += Math.max(0, endUs - timeUs[op]!);
        queueUs = timeUs[op]!;
        end = op;
      }
      for (let op = end; op < last; op++) load[op] = load[op]! - candidate.size;
    }
    let nextUs = Number.POSITIVE_INFINITY;
    for (const candidate of [...chosen].sort((a, b) => b.d - a.d)) {
      let startUs = Math.min(timeUs[candidate.d]!, nextUs) - this.inUs(candidate);
      let start = Math.max(peakOp + 1, this.firstAt(startUs));
      if (start < last && timeUs[start]! > startUs && start > peakOp + 1) start--;
      let fits = start;
      while (fits < candidate.d && load[fits]! + candidate.size > limit) fits++;
      if (fits > start) {
        start = fits;
        overheadUs += Math.max(0, timeUs[start]! - startUs);
        startUs = timeUs[start]!;
      }
      nextUs = startUs;
      for (let op = start; op < last; op++) load[op] = load[op]! + candidate.size;
    }
    return {
      limit,
      overhead: overheadUs / this.step.periodUs,
      peak: this.middlePeak(load),
      swaps: chosen.length,
      bytesMoved: chosen.reduce((sum, candidate) => sum + candidate.size, 0),
    };
  }

  private middlePeak(load: Float64Array): number {
    let peak = 0;
    for (let op = this.first; op < 2 * this.first; op++) if (load[op]! > peak) peak = load[op]!;
    return peak;
  }

  private findCandidates(minBytes: number): Candidate[] {
    const found: Candidate[] = [];
    for (const block of this.step.blocks) {
      if (block.size < minBytes) continue;
      const { periodUs } = this.step;
      const shifts = block.wholeRun ? [-periodUs, 0, periodUs] : [0];
      const accesses = shifts.flatMap((shift) => block.accesses.map(({ fromUs, writes }) => ({ us: fromUs + shift, writes })));
      for (let at = 1; at < accesses.length; at++) {
        const r = this.firstAt(accesses[at - 1]!.us);
        const d = this.firstAt(accesses[at]!.us);
        const ready = Math.min(r + (accesses[at - 1]!.writes ? WRITE_DELAY : READ_DELAY), this.timeUs.length - 1);
        if (r < this.peakOp && this.peakOp < d) found.push({ size: block.size, r, d, ready });
      }
    }
    return found;
  }

  private scoresOf(score: AutoSwapScore): Float64Array {
    const { candidates, timeUs, load } = this;
    const absence = (candidate: Candidate) => timeUs[candidate.d]! - timeUs[candidate.r]! - this.outUs(candidate) - this.inUs(candidate);
    const weighted = (candidate: Candidate, over: Float64Array) => {
      let sum = 0;
      for (let op = candidate.r; op < candidate.d; op++) sum += over[op]!;
      return sum;
    };
    switch (score) {
      case 'DOA':
        return Float64Array.from(candidates, absence);
      case 'AOA':
        return Float64Array.from(candidates, (candidate) => {
          const time = absence(candidate);
          return time >= 0 ? time * candidate.size : time / candidate.size;
        });
      case 'WDOA':
        return Float64Array.from(candidates, (candidate) => weighted(candidate, load));
      case 'SWDOA': {
        const rest = new Set(candidates.keys());
        const current = load.slice();
        const result = new Float64Array(candidates.length);
        while (rest.size > 0) {
          let best = -1;
          let bestSum = Number.NEGATIVE_INFINITY;
          for (const index of rest) {
            const sum = weighted(candidates[index]!, current);
            if (sum > bestSum) {
              best = index;
              bestSum = sum;
            }
          }
          // Only the order in which they are taken matters.
          result[best] = rest.size;
          rest.delete(best);
          const { r, d, size } = candidates[best]!;
          for (let op = r; op < d; op++) current[op] = current[op]! - size;
        }
        return result;
      }
    }
  }

  private outUs(candidate: Candidate): number {
    return this.costs.out.fixedUs + candidate.size / this.costs.out.alone;
  }

  private inUs(candidate: Candidate): number {
    return this.costs.in.fixedUs + candidate.size / this.costs.in.alone;
  }

  /** The first operation at or after a time. */
  private firstAt(us: number): number {
    const { timeUs } = this;
    let low = 0;
    let high = timeUs.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (timeUs[middle]! < us) low = middle + 1;
      else high = middle;
    }
    return Math.min(low, timeUs.length - 1);
  }
}

/** Scaled to mean 0 and deviation 1, so that scores of different units can be added. */
function normalized(values: Float64Array): Float64Array {
  const mean = values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);
  const deviation = Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / Math.max(1, values.length)) || 1;
  return values.map((value) => (value - mean) / deviation);
}
