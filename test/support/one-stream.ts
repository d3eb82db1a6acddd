// A trace of events that a test has made: one stream, no private pool, nothing live at the start.
import { assembleTrace } from '../../src/trace/assemble.ts';
import type { Symbols } from '../../src/trace/symbols.ts';
import type { Annotation, EventColumns, Trace } from '../../src/trace/trace.ts';

export function oneStreamTrace(
  events: EventColumns,
  symbols: Symbols,
  { device = 0, annotations = [] }: { readonly device?: number | undefined; readonly annotations?: readonly Annotation[] } = {},
): Trace {
  return assembleTrace({
    device,
    events,
    startSegments: undefined,
    endSegments: undefined,
    streams: [0],
    pools: [[0, 0]],
    symbols,
    settings: new Map(),
    limits: {},
    annotations,
    warnings: [],
  });
}
