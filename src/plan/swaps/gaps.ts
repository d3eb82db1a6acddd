// Gaps: times in which a live block is neither read nor written. Also the load curve that swaps can lower, and bounds for the lowest
// peak that any schedule can reach.
import type { SwapBlock, SwapStep } from './accesses.ts';
import type { CopyCosts } from './copy-costs.ts';

export interface Gap {
  /** Index into the step's blocks. */
  readonly block: number;
  readonly size: number;
  /** End of the access before. */
  readonly fromUs: number;
  /** Start of the access after; beyond the period if the gap crosses the end of the step. */
  readonly toUs: number;
}

/** Smaller blocks are not worth a copy. */
export const MIN_SWAP_BYTES: number = 2 ** 20;

export function findGaps(step: SwapStep, minBytes: number = MIN_SWAP_BYTES): Gap[] {
  const gaps: Gap[] = [];
  step.blocks.forEach((block, index) => {
    if (block.size < minBytes) return;
    const { accesses } = block;
    for (let at = 1; at < accesses.length; at++) push(gaps, index, block, latestEnd(accesses, at), accesses[at]!.fromUs);
    // A block of the whole run is used again in the next step.
    if (block.wholeRun && accesses.length > 0) {
      push(gaps, index, block, latestEnd(accesses, accesses.length), accesses[0]!.fromUs + step.periodUs);
    }
  });
  return gaps;
}

/** The end of all accesses before `at`: operators on different streams may overlap. */
function latestEnd(accesses: SwapBlock['accesses'], at: number): number {
  let end = Number.NEGATIVE_INFINITY;
  for (let before = 0; before < at; before++) end = Math.max(end, accesses[before]!.toUs);
  return end;
}

function push(gaps: Gap[], block: number, { size }: SwapBlock, fromUs: number, toUs: number): void {
  if (toUs > fromUs) gaps.push({ block, size, fromUs, toUs });
}

/** Bytes live over the step: `bytes[i]` from `timeUs[i]` to `timeUs[i + 1]`, the last up to the period. */
export interface LoadCurve {
  readonly timeUs: Float64Array;
  readonly bytes: Float64Array;
  readonly peak: number;
}

export function loadCurve(step: SwapStep): LoadCurve {
  const changes = new Map<number, number>([[0, 0]]);
  const add = (time: number, bytes: number) => changes.set(time, (changes.get(time) ?? 0) + bytes);
  let atStart = step.untouchedBytes;
  for (const block of step.blocks) {
    if (block.wholeRun) {
      atStart += block.size;
      continue;
    }
    const turns = Math.floor((block.toUs - block.fromUs) / step.periodUs);
    atStart += turns * block.size;
    const from = wrap(block.fromUs, step.periodUs);
    const to = wrap(block.toUs, step.periodUs);
    if (from > to) atStart += block.size;
    add(from, block.size);
    add(to, -block.size);
  }
  const timeUs = Float64Array.from(changes.keys()).sort();
  const bytes = new Float64Array(timeUs.length);
  let live = atStart;
  let peak = 0;
  timeUs.forEach((time, index) => {
    live += changes.get(time)!;
    bytes[index] = live;
    if (live > peak) peak = live;
  });
  return { timeUs, bytes, peak };
}

export function wrap(time: number, period: number): number {
  const wrapped = time % period;
  return wrapped < 0 ? wrapped + period : wrapped;
}

export interface SwapBounds {
  /** The peak if copies took no time. */
  readonly instant: number;
  /** The lowest peak that the bandwidths allow without stalls. */
  readonly bandwidth: number;
  /** The moment that decides `bandwidth`. */
  readonly decisive: DecisiveMoment;
}

/** Bytes at the moment at which the link allows the least. */
export interface DecisiveMoment {
  readonly live: number;
  /** In gaps: could be away if copies took no time. */
  readonly idle: number;
  /** The most that can have been copied out by then, and the most that can be copied back in time. */
  readonly out: number;
  readonly back: number;
}

/**
 * At each moment, the bytes away are limited twice: by what can be copied out since the gaps began, and by what can be copied in
 * before they end.
 */
export function swapBounds(step: SwapStep, gaps: readonly Gap[], costs: CopyCosts): SwapBounds {
  const { periodUs } = step;
  const curve = loadCurve(step);
  let instant = 0;
  let bandwidth = 0;
  let decisive: DecisiveMoment = { live: 0, idle: 0, out: 0, back: 0 };
  const order = Array.from(curve.bytes.keys()).sort((a, b) => curve.bytes[b]! - curve.bytes[a]!);
  for (const at of order) {
    const load = curve.bytes[at]!;
    if (load <= bandwidth) break;
    const time = curve.timeUs[at]!;
    const since: { us: number; size: number }[] = [];
    const until: { us: number; size: number }[] = [];
    let covered = 0;
    for (const gap of gaps) {
      // The same moment, in this step and in later ones that the gap reaches.
      for (let now = time; now < gap.toUs; now += periodUs) {
        if (now < gap.fromUs) continue;
        covered += gap.size;
        since.push({ us: now - gap.fromUs, size: gap.size });
        until.push({ us: gap.toUs - now, size: gap.size });
      }
    }
    const out = mostCopied(since, costs.out.alone);
    const back = mostCopied(until, costs.in.alone);
    instant = Math.max(instant, load - covered);
    const least = load - Math.min(out, back);
    if (least <= bandwidth) continue;
    bandwidth = least;
    decisive = { live: load, idle: covered, out, back };
  }
  return { instant, bandwidth, decisive };
}

/** Most bytes that a link can copy if each piece has only its own time. */
function mostCopied(pieces: { us: number; size: number }[], bytesPerUs: number): number {
  pieces.sort((a, b) => a.us - b.us);
  let copied = 0;
  for (const piece of pieces) copied = Math.min(copied + piece.size, piece.us * bytesPerUs);
  return copied;
}
