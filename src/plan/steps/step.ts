// The lifetimes of one step, on the circle of its period. A block may be freed in the next step or the one after.
// Blocks that outlive all steps are counted apart.
import { type Buffer, spansOnCircle } from '../offsets/buffers.ts';
import type { MemoryOps } from './memory-ops.ts';
import { longestStretch, type Period, type Stretch } from './period.ts';

export interface StepBlock {
  /** The operation of the step, from 0, that allocates the block. */
  readonly birth: number;
  /** The operation after which it is free. At or beyond the period if it lives into later steps. */
  readonly death: number;
  readonly size: number;
  readonly stream: number;
}

export interface Step {
  /** Operations per step. */
  readonly period: number;
  /** The operation at which the recorded step begins. */
  readonly start: number;
  readonly blocks: readonly StepBlock[];
  /** Steps after which offsets repeat. A block that lives longer than a step needs another place in the next one. */
  readonly turns: number;
  /** Bytes and number of blocks that live through all steps: parameters, optimizer state. */
  readonly wholeRunBytes: number;
  readonly wholeRunBlocks: number;
}

/** A block that lives longer than this many steps does not belong to the step. */
const MAX_TURNS = 4;

export function extractStep(ops: MemoryOps, period: Period): Step {
  const { length } = period;
  const start = startOf(ops, longestStretch(period), length);
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

/**
 * The second step of the stretch, cut where least is live so that few blocks cross the end. The plan does not depend on
 * the cut.
 */
function startOf(ops: MemoryOps, stretch: Stretch, length: number): number {
  const first = stretch.to - stretch.from >= 2 * length ? stretch.from + length : stretch.from;
  let live = 0;
  let least = 0;
  let best = first;
  for (let op = first; op < Math.min(first + length, stretch.to - length + 1); op++) {
    if (live < least) {
      least = live;
      best = op;
    }
    live += ops.isAlloc[op] ? ops.size[op]! : -ops.size[op]!;
  }
  return best;
}

/**
 * The longest lifetime of an alloc over all repetitions: streams finish sooner or later from step to step. -1 for
 * forever.
 * A repetition that lives far longer than most only looks the same, so it is ignored.
 */
function longestLife(ops: MemoryOps, period: Period, op: number): number {
  const lives: number[] = [];
  for (const stretch of period.stretches) {
    const first = stretch.from + ((((op - stretch.from) % period.length) + period.length) % period.length);
    for (let at = first; at < Math.min(stretch.to + period.length, ops.count); at += period.length) {
      if (!ops.isAlloc[at] || ops.size[at] !== ops.size[op]) continue;
      const end = ops.partner[at]!;
      // The recording may end before the frees of its last steps.
      if (end < 0 && at + 2 * period.length >= ops.count) continue;
      lives.push(end < 0 ? Number.POSITIVE_INFINITY : end + 1 - at);
    }
  }
  lives.sort((a, b) => a - b);
  const usual = lives[lives.length >> 1] ?? Number.POSITIVE_INFINITY;
  if (usual === Number.POSITIVE_INFINITY) return -1;
  return lives.findLast((life) => life <= usual + period.length / 2) ?? usual;
}

/** Counts the blocks that are live at the start of the step and outlive it. */
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

/** The step of the one stream that requests most. The engine follows a plan in the order of one stream's requests. */
export function mainStreamOf(step: Step): Step {
  const bytes = new Map<number, number>();
  for (const { stream, size } of step.blocks) bytes.set(stream, (bytes.get(stream) ?? 0) + size);
  const [main] = [...bytes].sort((a, b) => b[1] - a[1] || a[0] - b[0])[0] ?? [0];
  return { ...step, blocks: step.blocks.filter(({ stream }) => stream === main) };
}

/** The buffers to place: each block once per turn, on a circle of all turns. */
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
