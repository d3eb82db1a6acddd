// The swap plan of one step, as the supervisor sends it to the process that runs the step.
// The file is DIR/<pid>.swap.json; python/weir/swap/plan.py reads it.

/**
 * One round trip to the host, in ticks of the step. The process acts at a tick in this order: drop, back, out; then the program uses
 * its tensors.
 */
export interface SwapMove {
  /** A saved tensor, a tensor of optimizer state, or the parameters of a layer. */
  readonly class: 'record' | 'item' | 'layer';
  /** Its number in that list of the profile. */
  readonly index: number;
  readonly size: number;
  /** The copy out begins. */
  readonly out: number;
  /** The memory is freed, after the copy out. */
  readonly drop: number;
  /** The copy in begins, into new memory. */
  readonly back: number;
  /** Copies in that begin at the same tick go in this order. */
  readonly turn: number;
}

export interface ProfilePlan {
  readonly version: 1;
  readonly key: string;
  readonly moves: readonly SwapMove[];
  /** Most host memory in use at once. */
  readonly hostBytes: number;
  readonly expected: ExpectedStep;
}

/** What a step is expected to take when it follows the plan. */
export interface ExpectedStep {
  /** Peak without swapping, and with it. */
  readonly from: number;
  readonly peak: number;
  /** Waits of the GPU for copies, and their time. */
  readonly stalls: number;
  readonly stallUs: number;
  /** Bytes copied out, and as many copied in. */
  readonly moved: number;
  readonly periodUs: number;
  readonly limit?: number | undefined;
  /** Whether the peak stays within the limit. */
  readonly keepsLimit: boolean;
}
