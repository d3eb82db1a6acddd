// One training step with every use of every block: what a swap planner is given. Time is in microseconds from the start of
// the step and runs on a circle, since the next step does the same.

export interface Access {
  readonly fromUs: number;
  /** The operator is done with the block. */
  readonly toUs: number;
  readonly writes: boolean;
}

/** A block as recorded, in absolute time. */
export interface RecordedBlock {
  readonly size: number;
  /** -Infinity when it is older than the recording. */
  readonly birthUs: number;
  /** Infinity when the recording does not show its end. */
  readonly deathUs: number;
  /** By time. */
  readonly accesses: readonly Access[];
}

export interface AccessRecording {
  readonly name: string;
  readonly blocks: readonly RecordedBlock[];
  /** Start and end of each recorded step; a step begins where the one before ends. */
  readonly steps: readonly (readonly [number, number])[];
  /** Bytes that are there all the time and never touched, beyond the blocks. */
  readonly untouchedBytes: number;
  /** Moments the program does something, for schedules that count operations instead of time. */
  readonly momentsUs: Float64Array;
}

export interface SwapBlock {
  readonly size: number;
  /** From 0 to the period for a block that is there in every step. */
  readonly fromUs: number;
  /** Beyond the period when it lives into the next step. */
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

/** The steady state of a step: blocks born in it, and those that outlive it on both sides. */
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
      // Born in an earlier step and dying in this one: its like, born in this step, stands for it.
      if (block.deathUs < next) continue;
      const accesses = within(start, next);
      if (accesses.length === 0) untouchedBytes += block.size;
      else blocks.push({ size: block.size, fromUs: 0, toUs: periodUs, wholeRun: true, accesses });
    } else if (block.birthUs < next) {
      // Without a recorded end the block is taken to live a whole step: what grew forever would be no steady state.
      const death = block.deathUs === Number.POSITIVE_INFINITY ? block.birthUs + periodUs : block.deathUs;
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
