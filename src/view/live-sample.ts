// A running job as its page follows it: samples of each rank, and the end of the job. The server sends them, the page draws them.

/** One rank since its previous sample. */
export interface LiveSample {
  readonly rank: number;
  /** The rank's name, if ranks can appear while the job runs. */
  readonly name?: string;
  /** Microseconds since 1970 of the rank's first event; the ranks of a job are drawn on one clock. */
  readonly startUs: number;
  /** Microseconds since the rank's first event. */
  readonly timeUs: number;
  readonly event: number;
  readonly allocated: number;
  readonly reserved: number;
  readonly live: number;
  /** The maximum since the previous sample. */
  readonly highLive: number;
  readonly highReserved: number;
  /** Most bytes that the rank may reserve; undefined: unknown. */
  readonly limit?: number | undefined;
  /** Requests that have failed so far. */
  readonly ooms: number;
  readonly state: RankState;
}

/** `gone`: the process is no longer there and did not say that it ends, as if it was killed or crashed. */
export type RankState = 'running' | 'ended' | 'gone';

/** How a job ended. A supervisor that did not start the job knows neither code nor signal. */
export interface JobEnd {
  readonly kind: 'ended' | 'played';
  readonly code: number | null;
  readonly signal: string | null;
  readonly signalNumber?: number | undefined;
}

/** The last message about a job. */
export interface JobOver {
  readonly end: JobEnd;
  /** Microseconds since 1970. */
  readonly atUs: number;
  /** What the page opens now: a recording that the server still has, or one of its sources. */
  readonly opens: OpensRecording | OpensSource | undefined;
  /** Why it opens nothing. */
  readonly reason: string | undefined;
}

export interface OpensRecording {
  readonly rank: number;
  readonly name: string;
  readonly bytes: number;
  readonly gpu: number;
}

export interface OpensSource {
  readonly rank: number;
  readonly source: number;
  readonly gpu: number;
}
