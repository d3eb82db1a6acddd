// Figures of ranges: the same as counting through the events one by one, for many ranges and from the first event on.
import { describe, expect, it } from 'vitest';
import { liveSize } from '../../src/trace/summary.ts';
import { watchRecorded } from '../../src/view/history.ts';
import { Lifetimes } from '../../src/view/lifetimes.ts';
import { MinMax } from '../../src/view/min-max.ts';
import { rangeFigures } from '../../src/view/range-figures.ts';
import { liveBytes } from '../../src/view/timeline.ts';
import { sampleTrace } from '../support/traces.ts';

describe.each(['vgg16-b100.native.pickle.gz', 'exact/late.pkl.gz'])('figures of ranges in %s', (name) => {
  const trace = sampleTrace(name);
  const { history } = watchRecorded(trace);
  const lifetimes = new Lifetimes(trace);
  const live = liveBytes(trace);
  const levels = { live, liveRange: new MinMax(live), history };
  const { requested } = trace.allocations;
  const last = trace.events.count - 1;
  const ranges = [
    [0, last],
    [0, 0],
    [last, last],
    ...Array.from({ length: 60 }, (_, index) => {
      const first = (index * 7919) % last;
      return [first, Math.min(last, first + ((index * 104_729) % 400))] as const;
    }),
  ] as const;

  it.each(ranges)('%d to %d', (first, end) => {
    const left = lifetimes.liveAfter(end, first);
    const figures = rangeFigures(trace, lifetimes, levels, { first, last: end, left });
    const all = Array.from({ length: lifetimes.count }, (_, index) => index);
    const inside = all.filter((index) => lifetimes.start[index]! >= first && lifetimes.start[index]! <= end);
    const bytes = (indices: readonly number[]) => indices.reduce((sum, index) => sum + liveSize(requested[index]!), 0);
    const liveBefore = bytes(all.filter((index) => lifetimes.start[index]! < first && lifetimes.released[index]! >= first));
    const events = Array.from({ length: end - first + 1 }, (_, index) => first + index);
    const reservedBefore = first > 0 ? history.reserved[first - 1]! : trace.startSegments.reduce((sum, segment) => sum + segment.size, 0);
    expect(figures).toEqual({
      first,
      last: end,
      allocatedBytes: bytes(inside),
      allocations: inside.length,
      leftBytes: bytes(inside.filter((index) => lifetimes.released[index]! > end)),
      left: inside.filter((index) => lifetimes.released[index]! > end).length,
      liveGrowth: live[end]! - liveBefore,
      reservedGrowth: history.reserved[end]! - reservedBefore,
      peakLive: Math.max(...events.map((event) => live[event]!)),
      peakReserved: Math.max(...events.map((event) => history.reserved[event]!)),
    });
  });
});
