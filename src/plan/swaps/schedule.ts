// Times the copies of a set of gaps, in a circle: out as soon as the block is idle, in that order; in as late as possible.
// Such a schedule never stalls. Its result is a peak.
import type { SwapStep } from './accesses.ts';
import { type CopyCosts, plannedUs } from './copy-costs.ts';
import { type Gap, type LoadCurve, wrap } from './gaps.ts';

/** One copy out and in. Times count from the start of the step in which the gap begins, and may lie beyond its end. */
export interface Swap {
  readonly block: number;
  readonly size: number;
  readonly outStartUs: number;
  readonly outEndUs: number;
  readonly inStartUs: number;
  readonly inEndUs: number;
}

/** Rounds of the circle after which the queues have settled. */
const ROUNDS = 3;

export class SwapScheduler {
  private readonly gaps: readonly Gap[];
  private readonly periodUs: number;
  private readonly curve: LoadCurve;
  private readonly byStart: Int32Array;
  private readonly byEnd: Int32Array;
  private readonly outUs: Float64Array;
  private readonly inUs: Float64Array;
  private readonly outEnd: Float64Array;
  private readonly inStart: Float64Array;
  /** When memory is free and taken again: when copies end and begin, or at the tick after and before that. */
  private readonly freeFrom: Float64Array;
  private readonly takenFrom: Float64Array;
  private readonly ticksUs: Float64Array | undefined;
  private readonly changeTime: Float64Array;
  private readonly changeOrder: Int32Array;
  private readonly changeBytes: Float64Array;

  /** With `ticksUs` (within the step, ascending, from 0), memory is freed and taken only at these moments. */
  constructor(step: SwapStep, gaps: readonly Gap[], curve: LoadCurve, costs: CopyCosts, ticksUs?: Float64Array) {
    this.ticksUs = ticksUs;
    this.gaps = gaps;
    this.periodUs = step.periodUs;
    this.curve = curve;
    const indices = Int32Array.from(gaps.keys());
    this.byStart = indices.slice().sort((a, b) => this.phase(gaps[a]!.fromUs) - this.phase(gaps[b]!.fromUs) || a - b);
    this.byEnd = indices.slice().sort((a, b) => this.phase(gaps[b]!.toUs) - this.phase(gaps[a]!.toUs) || a - b);
    this.outUs = Float64Array.from(gaps, (gap) => plannedUs(costs.out, gap.size));
    this.inUs = Float64Array.from(gaps, (gap) => plannedUs(costs.in, gap.size));
    this.outEnd = new Float64Array(gaps.length);
    this.inStart = new Float64Array(gaps.length);
    this.freeFrom = ticksUs ? new Float64Array(gaps.length) : this.outEnd;
    this.takenFrom = ticksUs ? new Float64Array(gaps.length) : this.inStart;
    this.changeTime = new Float64Array(2 * gaps.length);
    this.changeBytes = new Float64Array(2 * gaps.length);
    this.changeOrder = new Int32Array(2 * gaps.length);
  }

  private phase(time: number): number {
    return wrap(time, this.periodUs);
  }

  /** Times all chosen copies. If a gap is too short, or a queue too slow, `inStart` comes before `outEnd`. */
  private schedule(chosen: Uint8Array): void {
    const { gaps, periodUs, outUs, inUs, outEnd, inStart } = this;
    let free = Number.NEGATIVE_INFINITY;
    for (let round = 0; round < ROUNDS; round++) {
      for (const gap of this.byStart) {
        if (chosen[gap] === 0) continue;
        const ready = this.phase(gaps[gap]!.fromUs) + round * periodUs;
        free = Math.max(ready, free) + outUs[gap]!;
        outEnd[gap] = free - ready + gaps[gap]!.fromUs;
      }
    }
    free = Number.POSITIVE_INFINITY;
    for (let round = 0; round < ROUNDS; round++) {
      for (const gap of this.byEnd) {
        if (chosen[gap] === 0) continue;
        const due = this.phase(gaps[gap]!.toUs) - round * periodUs;
        free = Math.min(due, free) - inUs[gap]!;
        inStart[gap] = free - due + gaps[gap]!.toUs;
      }
    }
    if (this.ticksUs) this.waitForTicks(chosen, this.ticksUs);
  }

  private waitForTicks(chosen: Uint8Array, ticks: Float64Array): void {
    for (let gap = 0; gap < chosen.length; gap++) {
      if (chosen[gap] === 0) continue;
      const ends = this.phase(this.outEnd[gap]!);
      const next = firstAtOrAfter(ticks, ends);
      this.freeFrom[gap] = this.outEnd[gap]! + (next < ticks.length ? ticks[next]! : this.periodUs) - ends;
      const begins = this.phase(this.inStart[gap]!);
      const last = firstAtOrAfter(ticks, begins);
      this.takenFrom[gap] = this.inStart[gap]! - begins + (ticks[last] === begins ? begins : ticks[Math.max(0, last - 1)]!);
    }
  }

  /** The peak with the chosen gaps, and the excess: the load above `limit`, integrated over time. */
  evaluate(chosen: Uint8Array, limit: number): { peak: number; excess: number; peakUs: number } {
    this.schedule(chosen);
    const { gaps, freeFrom: outEnd, takenFrom: inStart, periodUs, changeTime, changeBytes, changeOrder, curve } = this;
    let changes = 0;
    let away = 0;
    for (let gap = 0; gap < gaps.length; gap++) {
      if (chosen[gap] === 0 || inStart[gap]! <= outEnd[gap]!) continue;
      const { size } = gaps[gap]!;
      const from = this.phase(outEnd[gap]!);
      const to = this.phase(inStart[gap]!);
      away += size * Math.floor((inStart[gap]! - outEnd[gap]!) / periodUs);
      if (from > to) away += size;
      changeTime[changes] = from;
      changeBytes[changes++] = size;
      changeTime[changes] = to;
      changeBytes[changes++] = -size;
    }
    for (let at = 0; at < changes; at++) changeOrder[at] = at;
    const order = changeOrder.subarray(0, changes).sort((a, b) => changeTime[a]! - changeTime[b]! || changeBytes[a]! - changeBytes[b]!);
    let peak = 0;
    let peakUs = 0;
    let excess = 0;
    let now = 0;
    let next = 0;
    const { timeUs, bytes } = curve;
    const note = (load: number, until: number) => {
      if (load > peak) {
        peak = load;
        peakUs = now;
      }
      if (load > limit) excess += (load - limit) * (until - now);
      now = until;
    };
    for (let at = 0; at < timeUs.length; at++) {
      const end = at + 1 < timeUs.length ? timeUs[at + 1]! : periodUs;
      now = timeUs[at]!;
      while (next < changes && changeTime[order[next]!]! < end) {
        const change = order[next++]!;
        if (changeTime[change]! > now) note(bytes[at]! - away, changeTime[change]!);
        away += changeBytes[change]!;
      }
      if (end > now) note(bytes[at]! - away, end);
    }
    return { peak, excess, peakUs };
  }

  /** Whether the latest schedule frees any memory with this gap. */
  private isUseful(gap: number): boolean {
    return this.takenFrom[gap]! > this.freeFrom[gap]!;
  }

  /** The copies of the chosen gaps. Gaps too short for their copies are left out, and the others timed again. */
  swaps(chosen: Uint8Array): Swap[] {
    const kept = chosen.slice();
    for (;;) {
      this.schedule(kept);
      const useless = this.gaps.findIndex((_, gap) => kept[gap] === 1 && !this.isUseful(gap));
      if (useless < 0) break;
      kept[useless] = 0;
    }
    return this.gaps.flatMap((gap, index) => {
      if (kept[index] === 0) return [];
      const outEndUs = this.outEnd[index]!;
      const inStartUs = this.inStart[index]!;
      return [
        {
          block: gap.block,
          size: gap.size,
          outStartUs: outEndUs - this.outUs[index]!,
          outEndUs,
          inStartUs,
          inEndUs: inStartUs + this.inUs[index]!,
        },
      ];
    });
  }
}

function firstAtOrAfter(ticks: Float64Array, us: number): number {
  let low = 0;
  let high = ticks.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ticks[middle]! < us) low = middle + 1;
    else high = middle;
  }
  return low;
}
