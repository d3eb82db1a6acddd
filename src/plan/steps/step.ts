// The lifetimes of one step, on the circle of its period: what is allocated in a step and how much later it is freed,
// which may be in the next step or the one after. What outlives all steps is kept apart.
import { type Buffer, type Layout, normalizeSpans, type Span, spansOnCircle } from '../offsets/buffers.ts';
import type { MemoryOps } from './memory-ops.ts';
import type { Period } from './period.ts';

export interface StepBlock {
  /** Operation of the step, from 0, that allocates the block. */
  readonly birth: number;
  /** First operation after which it is free again; at or beyond the period when it lives into later steps. */
  readonly death: number;
  readonly size: number;
  readonly stream: number;
}

export interface Step {
  /** Operations per step. */
  readonly period: number;
  /** The operation at which the observed step begins. */
  readonly start: number;
  readonly blocks: readonly StepBlock[];
  /** Steps after which offsets repeat: a block that lives longer than a step needs another place in the next one. */
  readonly turns: number;
  /** Bytes, and number, of what lives before, during and after all steps: parameters, optimizer state. */
  readonly wholeRunBytes: number;
  readonly wholeRunBlocks: number;
}

/** A block that lives longer than this many steps is no part of the step. */
const MAX_TURNS = 4;

export function extractStep(ops: MemoryOps, period: Period): Step {
  const { length } = period;
  const run = period.runs.reduce((longest, candidate) => (candidate.to - candidate.from > longest.to - longest.from ? candidate : longest));
  const start = startOf(ops, run, length);
  const blocks: StepBlock[] = [];
  for (let offset = 0; offset < length; offset++) {
    if (!ops.isAlloc[start + offset]) continue;
    const life = longestLife(ops, period, start + offset);
    if (life < 0 || life > MAX_TURNS * length) continue;
    blocks.push({ birth: offset, death: offset + life, size: ops.size[start + offset]!, stream: ops.stream[start + offset]! });
  }
  const longest = blocks.reduce((most, block) => Math.max(most, block.death - block.birth), 1);
  const wholeRun = wholeRunOf(ops, start, length);
  return { period: length, start, blocks, turns: Math.ceil(longest / length), ...wholeRun };
}

/** The second step of the run, cut where least is live: fewest blocks then cross the end. Planning does not depend on the cut. */
function startOf(ops: MemoryOps, run: { from: number; to: number }, length: number): number {
  const first = run.to - run.from >= 2 * length ? run.from + length : run.from;
  let live = 0;
  let least = 0;
  let best = first;
  for (let op = first; op < Math.min(first + length, run.to - length + 1); op++) {
    if (live < least) {
      least = live;
      best = op;
    }
    live += ops.isAlloc[op] ? ops.size[op]! : -ops.size[op]!;
  }
  return best;
}

/**
 * The longest that the blocks of all repetitions of an alloc live: streams finish sooner or later from step to step.
 * A repetition that lives far longer than most is something else that happened to look the same, and does not count. -1 for forever.
 */
function longestLife(ops: MemoryOps, period: Period, op: number): number {
  const lives: number[] = [];
  for (const run of period.runs) {
    const first = run.from + ((((op - run.from) % period.length) + period.length) % period.length);
    for (let at = first; at < Math.min(run.to + period.length, ops.count); at += period.length) {
      if (!ops.isAlloc[at] || ops.size[at] !== ops.size[op]) continue;
      const end = ops.partner[at]!;
      // The recording may simply stop before the free of its last steps.
      if (end < 0 && at + 2 * period.length >= ops.count) continue;
      lives.push(end < 0 ? Number.POSITIVE_INFINITY : end + 1 - at);
    }
  }
  lives.sort((a, b) => a - b);
  const usual = lives[lives.length >> 1] ?? Number.POSITIVE_INFINITY;
  if (usual === Number.POSITIVE_INFINITY) return -1;
  return lives.findLast((life) => life <= usual + period.length / 2) ?? usual;
}

/** What is live at the start of the step and outlives any block of a step. */
function wholeRunOf(ops: MemoryOps, start: number, period: number): { wholeRunBytes: number; wholeRunBlocks: number } {
  let wholeRunBytes = ops.liveBefore;
  let wholeRunBlocks = 0;
  for (let op = 0; op < ops.count; op++) {
    if (ops.isAlloc[op]) {
      const end = ops.partner[op]!;
      if (op >= start || (end >= 0 && (end < start + period || end - op < MAX_TURNS * period))) continue;
      wholeRunBytes += ops.size[op]!;
      wholeRunBlocks++;
    } else if (ops.partner[op] === -1 && op < start + period) wholeRunBytes -= ops.size[op]!;
  }
  return { wholeRunBytes, wholeRunBlocks };
}

/** The step of one stream alone, the one that asks for most: what follows a plan at run time is the order of one stream's work. */
export function mainStreamOf(step: Step): Step {
  const bytes = new Map<number, number>();
  for (const { stream, size } of step.blocks) bytes.set(stream, (bytes.get(stream) ?? 0) + size);
  const [main] = [...bytes].sort((a, b) => b[1] - a[1] || a[0] - b[0])[0] ?? [0];
  return { ...step, blocks: step.blocks.filter(({ stream }) => stream === main) };
}

/** The buffers to place: each block once per turn, on the circle of all turns. */
export function buffersOfStep(step: Step, alignment: number): Buffer[] {
  const circle = step.period * step.turns;
  return step.blocks.flatMap((block, index) =>
    Array.from({ length: step.turns }, (_, turn) => ({
      id: `${index}.${turn}`,
      size: block.size,
      spans: spansOnCircle(block.birth + turn * step.period, block.death + turn * step.period, circle),
      alignment,
    })),
  );
}

/** The same lifetimes as they would be seen in a long run: for the verifier, which knows nothing of circles. */
export function unrollStep(step: Step, layout: Layout, gaps: readonly (readonly Span[])[] = []): { buffers: Buffer[]; layout: Layout } {
  const buffers: Buffer[] = [];
  const offsets: number[] = [];
  const rounds = 2 * step.turns + 1;
  step.blocks.forEach((block, index) => {
    for (let round = 0; round < rounds; round++) {
      const shift = round * step.period;
      const away = gaps[index] ?? [];
      const spans: Span[] = [];
      let from = block.birth + shift;
      for (const gap of normalizeSpans(away)) {
        spans.push({ from, to: gap.from + shift });
        from = gap.to + shift;
      }
      spans.push({ from, to: block.death + shift });
      buffers.push({ id: `${index} of step ${round}`, size: block.size, spans: normalizeSpans(spans), alignment: 1 });
      offsets.push(layout.offsets[index * step.turns + (round % step.turns)]!);
    }
  });
  return { buffers, layout: { offsets: Float64Array.from(offsets), footprint: layout.footprint } };
}
