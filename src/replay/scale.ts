// The same run with every request smaller (or larger), so that a trace of a large GPU can be replayed on real memory
// of a small machine.
import type { Trace } from '../trace/trace.ts';

/** Every request times `factor`, at least one byte. What a recording says of segments no longer applies and is dropped. */
export function scaleTrace(trace: Trace, factor: number): Trace {
  if (factor === 1) return trace;
  const scaled = (sizes: Float64Array) => sizes.map((size) => Math.max(1, Math.round(size * factor)));
  return {
    ...trace,
    events: { ...trace.events, size: scaled(trace.events.size) },
    allocations: { ...trace.allocations, requested: scaled(trace.allocations.requested) },
    startSegments: [],
    endSegments: undefined,
    limits: {},
  };
}
