// Recordings that begin late: the beginning of real ones is cut off, and the rest must still be reproduced event by event.
// Left out are those whose beginning hides more: blocks that were pending, or a limit that no later request shows.
import { describe, expect, it } from 'vitest';
import { reconstruct } from '../../src/replay/reconstruct.ts';
import { assembleTrace } from '../../src/trace/assemble.ts';
import { EventStore } from '../../src/trace/event-store.ts';
import { EventKind, type Trace } from '../../src/trace/trace.ts';
import { sampleTrace } from '../support/traces.ts';

const SAMPLES = [
  'vgg16-b100.native.pickle.gz',
  'resnet50-b100.native.pickle.gz',
  'exact/def.pkl.gz',
  'exact/tdef.pkl.gz',
  'exact/texp.pkl.gz',
  'exact/round.pkl.gz',
  'exact/pools.pkl.gz',
  'exact/large-segment.pkl.gz',
  'exact/frac.pkl.gz',
  'exact/split.pkl.gz',
];
const CUTS = [0.1, 0.3, 0.5, 0.7, 0.9];

/** The trace without its first events: what a ring buffer that overflowed leaves. */
function withoutBeginning(trace: Trace, share: number): Trace {
  const { events } = trace;
  let first = Math.floor(events.count * share);
  // Between two calls of the allocator: right behind an allocation.
  while (first > 0 && events.kind[first - 1] !== EventKind.Alloc) first--;
  const store = new EventStore();
  for (let event = first; event < events.count; event++) {
    store.append(
      events.kind[event] as EventKind,
      events.address[event]!,
      events.size[event]!,
      events.timeUs[event]!,
      events.stream[event]!,
      events.pool[event]!,
      -1,
      0,
    );
  }
  const { device, endSegments, streams, pools, symbols, settings, limits } = trace;
  const parts = { device, endSegments, streams, pools, symbols, settings, limits };
  return assembleTrace({ ...parts, events: store.view(), startSegments: undefined, annotations: [], warnings: [] });
}

describe.each(SAMPLES)('%s without its beginning', (name) => {
  it.each(CUTS)('is reproduced from %f on', (share) => {
    const trace = withoutBeginning(sampleTrace(name), share);
    const { differences } = reconstruct(trace, { checkEvery: 97 });
    expect(trace.allocations.liveAtStart).toBeGreaterThan(0);
    expect(differences).toMatchObject({ addresses: 0, segments: 0, outcomes: 0 });
  });
});
