// A sample of a rank's memory while its job runs. The server sends it, the page draws it.

/** One rank since its previous sample. */
export interface LiveSample {
  readonly rank: number;
  /** The rank's name, if ranks can appear while the job runs. */
  readonly name?: string;
  /** Microseconds since the rank's first event. */
  readonly timeUs: number;
  readonly event: number;
  readonly allocated: number;
  readonly reserved: number;
  readonly live: number;
  /** The maximum since the previous sample. */
  readonly highAllocated: number;
  readonly highReserved: number;
  /** Requests that have failed so far. */
  readonly ooms: number;
  readonly isOver: boolean;
}
