// One training step with every use of every block: the input of a swap planner. Time is in microseconds from the start of the step.
// It runs on a circle, since the next step does the same.
import { PLAN_MOST_TURNS } from '../../abi/ring.ts';

export interface Access {
  readonly fromUs: number;
  /** The operator has ended. */
  readonly toUs: number;
  readonly writes: boolean;
}

/** A block as recorded, in absolute time. */
export interface RecordedBlock {
  readonly size: number;
  /** -Infinity if the block is older than the recording. */
  readonly birthUs: number;
  /** Infinity if the recording does not show its end. */
  readonly deathUs: number;
  /** By time. */
  readonly accesses: readonly Access[];
}

export interface AccessRecording {
  readonly name: string;
  readonly blocks: readonly RecordedBlock[];
  /** Start and end of each step; a step begins where the one before ends. */
  readonly steps: readonly (readonly [number, number])[];
  /** Bytes that are always live and never accessed, besides the blocks. */
  readonly untouchedBytes: number;
  /** Times of the program's operations, for schedules that count operations. */
  readonly momentsUs: Float64Array;
}

export interface SwapBlock {
  readonly size: number;
  /** A block of the whole run lives from 0 to the period. */
  readonly fromUs: number;
  /** Beyond the period if the block lives into the next step. */
  readonly toUs: number;
  readonly wholeRun: boolean;
  readonly accesses: readonly Access[];
}

export interface SwapStep {
  readonly name: string;
  readonly periodUs: number;
  readonly blocks: readonly SwapBlock[];
  readonly untouchedBytes: number;
  /** Within the step, ascending, beginning with 0. */
  readonly momentsUs: Float64Array;
}

/** The steady state of a step: blocks born in it, and blocks that live before and after it. */
export function swapStepOf(recording: AccessRecording, index: number): SwapStep {
  const [start, end] = recording.steps[index]!;
  const next = recording.steps[index + 1]?.[0] ?? end;
  const periodUs = next - start;
  const blocks: SwapBlock[] = [];
  let untouchedBytes = recording.untouchedBytes;
  for (const block of recording.blocks) {
    const within = (from: number, to: number) =>
      block.accesses
        .filter((access) => access.fromUs >= from && access.fromUs < to)
        .map(({ fromUs, toUs, writes }) => ({ fromUs: fromUs - start, toUs: toUs - start, writes }));
    if (block.birthUs < start) {
      // Born in an earlier step and freed in this one: the same block of this step is counted instead.
      if (block.deathUs < next) continue;
      const accesses = within(start, next);
      if (accesses.length === 0) untouchedBytes += block.size;
      else blocks.push({ size: block.size, fromUs: 0, toUs: periodUs, wholeRun: true, accesses });
    } else if (block.birthUs < next) {
      // Without a recorded end, the block counts as living a whole step. Endless growth would be no steady state,
      // and a plan has no room for a block that lives through more steps than it has turns.
      const isEndless = !(block.deathUs - block.birthUs <= PLAN_MOST_TURNS * periodUs);
      const death = isEndless ? block.birthUs + periodUs : block.deathUs;
      blocks.push({
        size: block.size,
        fromUs: block.birthUs - start,
        toUs: death - start,
        wholeRun: false,
        accesses: within(block.birthUs, death),
      });
    }
  }
  const moments = [0];
  for (const moment of recording.momentsUs) {
    if (moment > start && moment < next && moment - start > moments.at(-1)!) moments.push(moment - start);
  }
  return { name: recording.name, periodUs, blocks, untouchedBytes, momentsUs: Float64Array.from(moments) };
}
