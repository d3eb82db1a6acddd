// The model against real recordings from an H200: every address, segment, failure and retry, and the final layout.
import { describe, expect, it } from 'vitest';
import { reconstruct } from '../../src/replay/reconstruct.ts';
import { summarizeTrace } from '../../src/trace/summary.ts';
import type { Segment } from '../../src/trace/trace.ts';
import { sampleTrace } from '../support/traces.ts';

// What PyTorch's own counters said at the end of each run: peak reserved, retries, ooms. For recordings that began late or
// overflowed these counters also cover what the recording does not, so there only the recording itself is compared.
const RECORDINGS: Record<string, { peakReserved: number; retries: number; ooms: number } | undefined> = {
  'exact/def.pkl.gz': { peakReserved: 13390315520, retries: 0, ooms: 0 },
  'exact/frac.pkl.gz': { peakReserved: 7503609856, retries: 11, ooms: 3 },
  'exact/split.pkl.gz': { peakReserved: 7501512704, retries: 20, ooms: 5 },
  'exact/gc.pkl.gz': { peakReserved: 7344226304, retries: 4, ooms: 4 },
  'exact/exp.pkl.gz': { peakReserved: 7511998464, retries: 13, ooms: 4 },
  'exact/round.pkl.gz': { peakReserved: 11542724608, retries: 0, ooms: 0 },
  'exact/tdef.pkl.gz': { peakReserved: 2260729856, retries: 0, ooms: 0 },
  'exact/texp.pkl.gz': { peakReserved: 1870659584, retries: 0, ooms: 0 },
  'exact/async.pkl.gz': { peakReserved: 7493124096, retries: 23, ooms: 4 },
  'exact/async-exp.pkl.gz': { peakReserved: 7501512704, retries: 27, ooms: 2 },
  'exact/full.pkl.gz': { peakReserved: 7438598144, retries: 18, ooms: 7 },
  'exact/full-exp.pkl.gz': { peakReserved: 7419723776, retries: 12, ooms: 1 },
  'exact/pools.pkl.gz': { peakReserved: 12362711040, retries: 0, ooms: 0 },
  'exact/pools-exp.pkl.gz': { peakReserved: 12666798080, retries: 0, ooms: 0 },
  'exact/large-segment.pkl.gz': { peakReserved: 17427333120, retries: 0, ooms: 0 },
  'exact/large-segment-exp.pkl.gz': { peakReserved: 11974737920, retries: 0, ooms: 0 },
  'exact/rounding.pkl.gz': { peakReserved: 7495221248, retries: 20, ooms: 5 },
  'exact/split-exp.pkl.gz': { peakReserved: 7444889600, retries: 25, ooms: 3 },
  'exact/gc-exp.pkl.gz': { peakReserved: 7417626624, retries: 13, ooms: 2 },
  'exact/gc-split.pkl.gz': { peakReserved: 7275020288, retries: 3, ooms: 3 },
  'exact/round-exp.pkl.gz': { peakReserved: 13025411072, retries: 0, ooms: 0 },
  'exact/skip.pkl.gz': { peakReserved: 11324620800, retries: 0, ooms: 0 },
  // PyTorch 2.14.1.
  'exact/newest.pkl.gz': { peakReserved: 5179965440, retries: 0, ooms: 0 },
  'exact/newest-exp.pkl.gz': { peakReserved: 5572132864, retries: 0, ooms: 0 },
  'exact/late.pkl.gz': undefined,
  'exact/late-exp.pkl.gz': undefined,
  'exact/ring.pkl.gz': undefined,
  'exact/ring-exp.pkl.gz': undefined,
  'exact/s1.pickle': { peakReserved: 96468992, retries: 1, ooms: 1 },
  'gpt2xl-oom.pickle.gz': { peakReserved: 22198353920, retries: 3, ooms: 1 },
  'vgg16-b100.native.pickle.gz': { peakReserved: 16882073600, retries: 0, ooms: 0 },
  'vgg16-b100.expandable.pickle.gz': { peakReserved: 11603542016, retries: 0, ooms: 0 },
  'resnet50-b100.native.pickle.gz': { peakReserved: 10821304320, retries: 0, ooms: 0 },
  'resnet50-b100.expandable.pickle.gz': { peakReserved: 9053405184, retries: 0, ooms: 0 },
};

describe.each(Object.entries(RECORDINGS))('%s', (name, counters) => {
  const trace = sampleTrace(name);
  const result = reconstruct(trace, { checkEvery: 97 });

  it('is reproduced event by event', () => {
    expect(result.differences).toMatchObject({ addresses: 0, segments: 0, outcomes: 0 });
    expect(result.differences.compared).toBeGreaterThan(20);
    expect(result.peakReserved).toBe(summarizeTrace(trace).recordedPeakReserved);
  });

  it.runIf(counters !== undefined)("agrees with PyTorch's own counters", () => {
    expect({ peakReserved: result.peakReserved, retries: result.retries, ooms: result.ooms }).toEqual(counters);
  });

  it('ends with every block where the snapshot shows it', () => {
    expect(layoutLines(result.allocator.layout!())).toEqual(layoutLines(trace.endSegments ?? []));
  });
});

function layoutLines(segments: readonly Segment[]): string[] {
  return [...segments]
    .sort((a, b) => a.address - b.address)
    .map(({ address, size, stream, pool, small, expandable, blocks }) => {
      const parts = blocks.map((block) => `${block.address}+${block.size} ${block.state} ${block.state === 'free' ? '' : block.requested}`);
      return `${address}+${size} stream ${stream} pool ${pool} ${small} ${expandable}: ${parts.join(', ')}`;
    });
}
