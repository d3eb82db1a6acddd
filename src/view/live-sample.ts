// One reading of a rank's memory while its job runs: what the server sends and the page draws.

/** What happened on one rank since the sample before. */
export interface LiveSample {
  readonly rank: number;
  /** What the rank is called, where ranks may appear while the job runs. */
  readonly name?: string;
  /** Microseconds since the rank's first event. */
  readonly timeUs: number;
  readonly event: number;
  readonly allocated: number;
  readonly reserved: number;
  readonly live: number;
  /** The most in the time since the sample before. */
  readonly highAllocated: number;
  readonly highReserved: number;
  /** Requests that have failed so far. */
  readonly ooms: number;
  readonly isOver: boolean;
}
