// What the page shows about runs of other values: the parameters, the largest value that fits on each allocator, what grows.
import type { Point } from '../fit/monomials.ts';
import type { PredictedPeak } from '../fit/prediction.ts';
import type { Largest } from '../fit/search.ts';

/** Of a source whose run can be given other values. */
export interface ValueInfo {
  /** Of the parameters. */
  readonly names: readonly string[];
  readonly point: Point;
  /** The runs that were made. */
  readonly tried: readonly Point[];
  readonly gpuBytes: number;
  /** The first parameter takes only multiples of this. */
  readonly multiple: number;
  /** How far to go with each parameter. */
  readonly most: Point;
}

export interface ValueChoice {
  readonly allocator: string;
  readonly sure: Largest;
  readonly possible: Largest;
  /** Peak reserved at the point, without a limit. */
  readonly peak: PredictedPeak | undefined;
}

export interface ValueTable {
  readonly point: Point;
  readonly gpuBytes: number;
  readonly rows: readonly ValueChoice[];
  /** How far to go with the first parameter. */
  readonly most: number;
  readonly growthTitle: string;
  /** Lines whose memory grows, the fastest first. */
  readonly sites: readonly {
    readonly label: string;
    readonly adds: number;
    readonly bytes: number;
    readonly allocations: number;
    readonly grows: string;
  }[];
  readonly sentences: readonly string[];
}
