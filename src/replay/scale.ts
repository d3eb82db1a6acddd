// Scales every request of a run, so that a trace of a large GPU can be replayed on the real memory of a small machine.
import type { Trace } from '../trace/trace.ts';

/** Multiplies every request by `factor`, to at least one byte. Recorded segments no longer apply and are dropped. */
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
