// Memory that is live in a step: highest, lowest, and outside of the plan. Cuts a step where least is live.
// Pure.
import type { MemoryOps } from './memory-ops.ts';
import { mainStreamOf, type Step } from './step.ts';

/** Least share of the bytes that the planned stream must ask for. Two busy streams need less memory by lending. */
export const MAIN_SHARE = 0.8;

/** Share of the bytes of a step that its main stream asks for. */
export function mainShareOf(step: Step): number {
  const bytesOf = ({ blocks }: Step) => blocks.reduce((sum, { size }) => sum + size, 0);
  const all = bytesOf(step);
  return all === 0 ? 0 : bytesOf(mainStreamOf(step)) / all;
}

/** Highest and lowest number of live bytes from an operation on. */
export function levelsIn(ops: MemoryOps, from: number): { peak: number; least: number } {
  let live = ops.liveBefore;
  let peak = 0;
  let least = Number.POSITIVE_INFINITY;
  for (let op = 0; op < ops.count; op++) {
    live += ops.isAlloc[op] ? ops.size[op]! : -ops.size[op]!;
    if (op < from) continue;
    peak = Math.max(peak, live);
    least = Math.min(least, live);
  }
  return { peak, least };
}

/** The same step, begun where least is live: there the engine has most free memory to choose from for the plan. */
export function cutWhereLeastIsLive(step: Step, ops: MemoryOps): Step {
  const { period, start, blocks } = step;
  let cut = 0;
  let live = 0;
  let least = 0;
  for (let at = 0; at < period && start + at < ops.count; at++) {
    if (live < least) {
      least = live;
      cut = at;
    }
    live += ops.isAlloc[start + at] ? ops.size[start + at]! : -ops.size[start + at]!;
  }
  if (cut === 0) return step;
  const moved = blocks.map((block) => {
    const birth = block.birth >= cut ? block.birth - cut : block.birth + period - cut;
    return { ...block, birth, death: birth + block.death - block.birth };
  });
  // The last step may have been seen in part only: then the one before it is taken.
  const begin = start + cut + period <= ops.count ? start + cut : start + cut - period;
  return { ...step, start: begin, blocks: moved.sort((a, b) => a.birth - b.birth) };
}

/** Most bytes live at once in the step that are not in the plan. */
export function besidePlan(ops: MemoryOps, { period, start, blocks }: Step): number {
  const change = new Float64Array(period + 1);
  let always = 0;
  for (const { birth, death, size } of blocks) {
    const life = death - birth;
    always += Math.floor(life / period) * size;
    const end = birth + (life % period);
    change[birth]! += size;
    if (end <= period) change[end]! -= size;
    else {
      change[0]! += size;
      change[end - period]! -= size;
    }
  }
  let live = ops.liveBefore;
  for (let op = 0; op < start; op++) live += ops.isAlloc[op] ? ops.size[op]! : -ops.size[op]!;
  let planned = always;
  let most = 0;
  for (let at = 0; at < period && start + at < ops.count; at++) {
    planned += change[at]!;
    live += ops.isAlloc[start + at] ? ops.size[start + at]! : -ops.size[start + at]!;
    most = Math.max(most, live - planned);
  }
  return most;
}
