// Turns what a reader found into a Trace: links allocations to their frees, rebuilds the state before the
// first event, fills in pools, and says what is missing from the recording.
import type { Symbols } from './symbols.ts';
import type { Annotation, EventColumns, PoolId, RecordedLimits, Segment, SettingValue, Trace, Warning } from './trace.ts';

/** What a reader hands over for one GPU. */
export interface TraceParts {
  readonly device: number;
  readonly events: EventColumns;
  /** Segments before the first event, if the format records them (with their blocks); else undefined and they are rebuilt. */
  readonly startSegments: readonly Segment[] | undefined;
  /** Segments at the end, if the format records them. */
  readonly endSegments: readonly Segment[] | undefined;
  readonly streams: readonly number[];
  readonly pools: readonly PoolId[];
  readonly symbols: Symbols;
  readonly settings: ReadonlyMap<string, SettingValue>;
  readonly limits: RecordedLimits;
  readonly annotations: readonly Annotation[];
  /** What the reader itself noticed (a truncated file, unknown actions). */
  readonly warnings: readonly Warning[];
}

export function assembleTrace(parts: TraceParts): Trace {
  throw new Error(`not yet ${parts.device}`);
}
