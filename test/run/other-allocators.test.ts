// One what-if: the summary of `weir run`, `weir analyze` and `weir replay` say the same of a job with a memory fraction.
import { describe, expect, it } from 'vitest';
import { chooseAllocators } from '../../src/allocator/registry.ts';
import { reconstruct } from '../../src/replay/reconstruct.ts';
import { whatIf } from '../../src/replay/what-if.ts';
import { analyzeTrace } from '../../src/report/analysis.ts';
import { otherAllocators } from '../../src/run/summary/other-allocators.ts';
import { sampleTrace } from '../support/traces.ts';

// Both had 5 % of a GPU. In gc-exp garbage collection starts at a share of that, which a smaller GPU would not show.
describe.each([
  ['exact/frac.pkl.gz', { expandable: 0, weir: 0 }],
  ['exact/gc-exp.pkl.gz', { 'pytorch[garbage_collection_threshold:0.7]': 8, weir: 2 }],
])('%s', (name, failures) => {
  const trace = sampleTrace(name);
  const { results } = otherAllocators(trace);

  it('fails as often as the recorded fraction makes it', () => {
    expect(trace.limits.memoryFraction).toBe(0.05);
    expect(Object.fromEntries(results.map(({ allocator, ooms }) => [allocator, ooms]))).toEqual(failures);
  });

  it('is what weir analyze says', () => {
    const choices = results.flatMap(({ allocator }) => chooseAllocators(allocator));
    const { whatIf: rows } = analyzeTrace(trace, { allocators: choices, findSmallest: false });
    const seen = rows.slice(1).map(({ allocator, unlimited, limited }) => [allocator, unlimited.peakReserved, limited!.ooms]);
    expect(results.map(({ allocator, peakReserved, ooms }) => [allocator, peakReserved, ooms])).toEqual(seen);
  });

  it('is what weir replay says of the fraction as a setting', () => {
    const { emptyCacheBefore } = reconstruct(trace);
    for (const { allocator, ooms } of results.filter((result) => !result.allocator.startsWith('weir'))) {
      const [base, settings = ''] = allocator.replace(']', '').split('[');
      const [choice] = chooseAllocators(`${base}[${[settings, 'per_process_memory_fraction:0.05'].filter(Boolean).join(',')}]`);
      const gpu = { reportedBytes: trace.limits.deviceBytes };
      expect(whatIf(trace, choice!, gpu, { emptyCacheBefore }).ooms).toBe(ooms);
    }
  });
});
