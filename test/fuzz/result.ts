// What supervisor and workers of a fuzz run tell each other, and the limits that make an input a defect.

export interface Limits {
  /** An input that takes longer is a hang. */
  readonly slowMs: number;
  /** A process that reads small inputs never needs more. */
  readonly mostMemory: number;
}

export const LIMITS: Limits = { slowMs: 5000, mostMemory: 2 ** 30 };

export interface ChunkTask {
  readonly seed: number;
  readonly from: number;
  readonly to: number;
  readonly limits: Limits;
  /** Look at memory after each input. */
  readonly isSlow?: boolean;
}

export interface Defect {
  readonly target: string;
  readonly seed: number;
  readonly number: number;
  readonly what: string;
}

export interface ChunkResult {
  readonly from: number;
  readonly to: number;
  /** `read`, or why inputs were refused, with their counts. */
  readonly outcomes: readonly (readonly [string, number])[];
  readonly slowestMs: number;
  readonly slowest: number;
  readonly peakMemory: number;
  readonly defects: readonly Defect[];
}

/** All chunks of one target together. */
export interface TargetResult {
  readonly target: string;
  readonly reads: string;
  readonly seed: number;
  readonly executions: number;
  readonly read: number;
  readonly refused: number;
  /** Inputs by the reason why they were refused, most frequent first. */
  readonly refusals: readonly (readonly [string, number])[];
  readonly slowestMs: number;
  /** Number of the slowest input. */
  readonly slowest: number;
  /** The most memory that any process had, in bytes. */
  readonly peakMemory: number;
  readonly seconds: number;
  readonly workers: number;
  readonly defects: readonly Defect[];
}
