// Checks the plan of a step, by itself and against a recording. It shares no code with the planner:
// repetitions and lifetimes are found again here, by plain comparison of operations.
import { LIVE_UNIT } from '../../trace/summary.ts';
import type { Buffer } from '../offsets/buffers.ts';
import { type Fault, verifyOffsets } from '../offsets/verifier.ts';
import type { MemoryOps } from './memory-ops.ts';
import type { StepBlock } from './step.ts';
import type { StepPlan } from './step-plan.ts';

/** How a recording goes along with a plan. */
export interface FollowedPlan {
  readonly faults: readonly Fault[];
  /** How often the recording repeats the step of the plan exactly, and with some operations that differ. */
  readonly repetitions: number;
  readonly noisy: number;
  /** Requests for blocks of the plan in the exact repetitions, and how many of them are as planned. */
  readonly planned: number;
  readonly followed: number;
}

/** A block that lives longer than this many steps is not part of a step (docs/plan-format.md). */
const MOST_STEPS = 4;
/** An aligned round with this share of equal operations repeats the step, with noise. */
const ALIKE = 0.75;
const MAX_FAULTS = 10;

/** Checks a plan by itself: repeated step after step, its blocks must never share bytes. */
export function verifyStepPlan({ step, layout }: StepPlan): Fault[] {
  const { period, turns, blocks } = step;
  const faults: Fault[] = [];
  const report = (message: string) => {
    if (faults.length < MAX_FAULTS) faults.push({ message });
  };
  if (layout.offsets.length !== blocks.length * turns) {
    return [{ message: `the plan has ${layout.offsets.length} offsets for ${blocks.length} blocks in ${turns} turns` }];
  }
  blocks.forEach(({ birth, death }, index) => {
    if (birth < 0 || birth >= period) report(`block ${index} is born at operation ${birth} of a step of ${period}`);
    if (death <= birth) report(`block ${index} is born at operation ${birth} and dies at ${death}, not later`);
    if (index > 0 && birth <= blocks[index - 1]!.birth)
      report(`block ${index} is out of order: blocks must be sorted by birth, one per operation`);
  });
  if (faults.length > 0) return faults;
  const buffers: Buffer[] = [];
  const offsets: number[] = [];
  for (let round = 0; round < 2 * turns + 1; round++) {
    blocks.forEach(({ birth, death, size }, index) => {
      const spans = [{ from: birth + round * period, to: death + round * period }];
      buffers.push({ id: `${index} of step ${round}`, size, spans, alignment: LIVE_UNIT });
      offsets.push(layout.offsets[index * turns + (round % turns)]!);
    });
  }
  return verifyOffsets(buffers, { offsets: Float64Array.from(offsets), footprint: layout.footprint }, MAX_FAULTS);
}

/**
 * Checks that a plan is for the step of a recording: every block of the step is planned, with the size and the lifetime
 * that it has in the recording. With `stream`, only the blocks of that stream must be planned.
 */
export function verifyStepPlanOn(ops: MemoryOps, plan: StepPlan, stream?: number): FollowedPlan {
  const { period, start, blocks } = plan.step;
  const nothing = { repetitions: 0, noisy: 0, planned: 0, followed: 0 };
  if (start + period > ops.count) {
    const message = `the step of the plan ends at operation ${start + period}, but the recording has only ${ops.count}: it is from another run`;
    return { faults: [{ message }], ...nothing };
  }
  const rounds = repetitionsOf(ops, start, period);
  const seen = [...rounds, ...neighboursOf(rounds, period, ops.count)];
  const faults: Fault[] = [];
  const from = rounds.reduce((first, { at }) => Math.min(first, at), start);
  const share = (rounds.length * period) / (ops.count - from);
  if (rounds.length < 2 || share < 0.5) {
    const percent = Math.floor(share * 100);
    const how =
      rounds.length < 2 ? 'the recording does not repeat it' : `its ${rounds.length} repetitions are only ${percent} % of the recording`;
    faults.push({ message: `operations ${start} to ${start + period} are not the step of the recording: ${how}` });
  }
  const named = new Map(blocks.map((block) => [block.birth, block]));
  const missing: number[] = [];
  for (let birth = 0; birth < period; birth++) {
    const block = named.get(birth);
    const isOfStep = ops.isAlloc[start + birth] === 1 && (stream === undefined || ops.stream[start + birth] === stream);
    if (!block && !isOfStep) continue;
    const lives = livesAt(ops, seen, start + birth, birth, period);
    if (block) faults.push(...faultOf(ops, block, start + birth, lives));
    else if (lives.belongs) missing.push(birth);
  }
  if (missing.length > 0) {
    const first = `the first is born at operation ${missing[0]} and has ${ops.size[start + missing[0]!]} bytes`;
    faults.push({ message: `the plan lacks ${missing.length} of the ${missing.length + blocks.length} blocks of the step; ${first}` });
  }
  const exact = rounds.filter(({ kind }) => kind === 'exact');
  const counts = { repetitions: exact.length, noisy: rounds.length - exact.length, ...countFollowed(ops, exact, blocks) };
  return { faults: faults.slice(0, MAX_FAULTS), ...counts };
}

/** The difference between a planned block and the recorded one, if any. */
function faultOf(ops: MemoryOps, block: StepBlock, op: number, lives: Lives): Fault[] {
  const what = `the block born at operation ${block.birth}`;
  if (!ops.isAlloc[op]) return [{ message: `${what} does not exist: the recording frees a block there` }];
  if (ops.size[op] !== block.size) return [{ message: `${what} has ${block.size} bytes in the plan and ${ops.size[op]} in the recording` }];
  if (ops.stream[op] !== block.stream)
    return [{ message: `${what} is of stream ${block.stream} in the plan and of ${ops.stream[op]} in the recording` }];
  const life = block.death - block.birth;
  if (lives.all.length === 0) return [{ message: `${what} dies at ${block.death} in the plan and never in the recording` }];
  if (life >= lives.longest && lives.all.includes(life)) return [];
  return [{ message: `${what} dies at ${block.death} in the plan and at ${block.birth + lives.longest} in the recording` }];
}

/** Operations that repeat the step, from `at`. */
interface Round {
  readonly at: number;
  /** `noisy`: some operations differ. `next`: beside a repetition, but too different to be one; single blocks may agree. */
  readonly kind: 'exact' | 'noisy' | 'next';
}

/** All repetitions of the operations from `start`: a whole number of periods away, and exact ones anywhere between. */
function repetitionsOf(ops: MemoryOps, start: number, period: number): Round[] {
  const rounds: Round[] = [];
  const taken = new Uint8Array(ops.count);
  const take = (at: number, kind: Round['kind']) => {
    rounds.push({ at, kind });
    taken.fill(1, at, at + period);
  };
  for (let at = start % period; at + period <= ops.count; at += period) {
    let equal = 0;
    for (let offset = 0; offset < period; offset++) if (sameOp(ops, start + offset, at + offset)) equal++;
    if (equal >= ALIKE * period) take(at, equal === period ? 'exact' : 'noisy');
  }
  for (const at of exactCopies(ops, start, period)) if (!taken[at] && !taken[at + period - 1]) take(at, 'exact');
  return rounds;
}

/** The rounds right before and after repetitions that are none: an extra request shifts all that follow. */
function neighboursOf(rounds: readonly Round[], period: number, count: number): Round[] {
  const starts = new Set(rounds.map(({ at }) => at));
  return rounds.flatMap(({ at }) =>
    [at - period, at + period]
      .filter((next) => next >= 0 && next + period <= count && !starts.has(next))
      .map((next): Round => ({ at: next, kind: 'next' })),
  );
}

function sameOp(ops: MemoryOps, a: number, b: number): boolean {
  return ops.isAlloc[a] === ops.isAlloc[b] && ops.size[a] === ops.size[b] && ops.stream[a] === ops.stream[b];
}

/** Every place where the operations of the step occur, in linear time (Knuth, Morris and Pratt). */
function exactCopies(ops: MemoryOps, start: number, period: number): number[] {
  const border = new Int32Array(period + 1);
  border[0] = -1;
  for (let at = 0, length = -1; at < period; ) {
    while (length >= 0 && !sameOp(ops, start + at, start + length)) length = border[length]!;
    border[++at] = ++length;
  }
  const found: number[] = [];
  for (let at = 0, length = 0; at < ops.count; at++) {
    while (length >= 0 && (length === period || !sameOp(ops, at, start + length))) length = border[length]!;
    if (++length === period) found.push(at + 1 - period);
  }
  return found;
}

/** How long one block of the step lives, over all repetitions. */
interface Lives {
  readonly all: readonly number[];
  /** The longest in exact repetitions. A block that once lives half a step longer than usual is left out. */
  readonly longest: number;
  /** Whether it is part of the step, rather than kept for the whole run. */
  readonly belongs: boolean;
}

function livesAt(ops: MemoryOps, rounds: readonly Round[], planned: number, birth: number, period: number): Lives {
  const all: number[] = [];
  const exact: number[] = [];
  let kept = 0;
  for (const round of rounds) {
    const op = round.at + birth;
    if (!sameOp(ops, op, planned)) continue;
    const end = ops.partner[op]!;
    if (end < 0) {
      // The recording may end before the frees of its last steps.
      if (op + 2 * period < ops.count && round.kind !== 'next') kept++;
      continue;
    }
    all.push(end + 1 - op);
    if (round.kind === 'exact') exact.push(end + 1 - op);
  }
  all.sort((a, b) => a - b);
  const usual = all[(all.length + kept) >> 1] ?? Number.POSITIVE_INFINITY;
  const longest = exact.reduce((most, life) => (life <= usual + period / 2 ? Math.max(most, life) : most), 0);
  const belongs = all.length > kept && all.every((life) => life <= MOST_STEPS * period);
  return { all, longest, belongs };
}

function countFollowed(ops: MemoryOps, rounds: readonly Round[], blocks: readonly StepBlock[]): { planned: number; followed: number } {
  let followed = 0;
  for (const { at } of rounds) {
    for (const { birth, death, size, stream } of blocks) {
      const op = at + birth;
      const end = ops.partner[op]!;
      const inTime = end < 0 || end + 1 - op <= death - birth;
      if (ops.isAlloc[op] && ops.size[op] === size && ops.stream[op] === stream && inTime) followed++;
    }
  }
  return { planned: rounds.length * blocks.length, followed };
}
