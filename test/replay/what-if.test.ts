// Predictions against what really happened: the same training runs recorded under both of PyTorch's allocators.
import { existsSync, readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { chooseAllocators } from '../../src/allocator/registry.ts';
import { reconstruct } from '../../src/replay/reconstruct.ts';
import type { ReplayResult } from '../../src/replay/replay.ts';
import { whatIf } from '../../src/replay/what-if.ts';
import { readRecording } from '../../src/trace/detect.ts';
import type { Trace } from '../../src/trace/trace.ts';
import { sampleTrace } from '../support/traces.ts';

function predict(trace: Trace, name: string, capacity?: number): ReplayResult {
  const { emptyCacheBefore } = reconstruct(trace);
  return whatIf(trace, chooseAllocators(name)[0]!, { capacity }, { emptyCacheBefore });
}

// Peak reserved as PyTorch reported it: native, expandable.
const RUNS: Record<string, [native: number, expandable: number | undefined]> = {
  'vgg16-b100': [16882073600, 11603542016],
  'resnet50-b100': [10821304320, 9053405184],
  'bert-wavelet': [11028922368, 10714349568],
  'opt1b3-N-var': [38866518016, 36523999232],
  'opt1b3-R': [38084280320, undefined],
  'gpt2xl-R-var': [35888562176, 23167238144],
  'llama7b-LRO-var': [53481570304, 21529362432],
  'opt13b-LR-var': [68763516928, 55067017216],
};

const SHARED = new URL('../../../shared/traces/train/', import.meta.url);
const SAMPLED = ['vgg16-b100', 'resnet50-b100'];

// GPT-2 XL run with other settings on a GPU with 139 GiB allowed, and what PyTorch reported.
const OTHER_SETTINGS = {
  'pytorch[max_split_size_mb:128]': 149216559104,
  'pytorch[max_split_size_mb:512]': 110905786368,
  'pytorch[roundup_power2_divisions:8]': 36895195136,
};

describe.each(Object.entries(RUNS))('%s', (name, [native, expandable]) => {
  const inSamples = SAMPLED.includes(name);
  const load = (kind: string): Trace => {
    const file = `${name}.${kind}.pickle.gz`;
    return inSamples ? sampleTrace(file) : readRecording(gunzipSync(readFileSync(new URL(file, SHARED)))).traces[0]!;
  };

  describe.skipIf(!inSamples && !existsSync(SHARED))('predictions', () => {
    it('replays the native recording to its own peak', () => {
      expect(predict(load('native'), 'pytorch').peakReserved).toBe(native);
    });

    it.skipIf(expandable === undefined)('predicts the expandable run from the native recording, and the other way round', () => {
      expect(predict(load('native'), 'expandable').peakReserved).toBe(expandable);
      expect(predict(load('expandable'), 'pytorch').peakReserved).toBe(native);
    });
  });
});

describe.skipIf(!existsSync(SHARED))('gpt2xl-R-var with other settings', () => {
  it.each(Object.entries(OTHER_SETTINGS))('%s is predicted to the byte', (name, peak) => {
    const trace = readRecording(gunzipSync(readFileSync(new URL('gpt2xl-R-var.native.pickle.gz', SHARED)))).traces[0]!;
    expect(predict(trace, name, 149250113536).peakReserved).toBe(peak);
  });
});

// samples/gpt2xl-oom is GPT-2 XL on a GPU cut down to 21 GiB, which died in its fourth step. The same training was also run
// with no limit (the peaks in RUNS), with expandable segments at 21 GiB (it finished) and natively at 22.72 GiB (it finished).
describe('gpt2xl-oom', () => {
  const trace = sampleTrace('gpt2xl-oom.pickle.gz');
  const GIB = 2 ** 30;

  it('says from the run that died what both allocators take when memory is no limit', () => {
    expect(predict(trace, 'pytorch').peakReserved).toBe(RUNS['gpt2xl-R-var']![0]);
    expect(predict(trace, 'expandable').peakReserved).toBe(RUNS['gpt2xl-R-var']![1]);
  });

  it('says which runs died and which finished', () => {
    expect(predict(trace, 'pytorch', 21 * GIB).ooms).toBe(1);
    expect(predict(trace, 'expandable', 21 * GIB).ooms).toBe(0);
    expect(predict(trace, 'pytorch', Math.floor(22.72 * GIB)).ooms).toBe(0);
    expect(predict(trace, 'expandable', Math.floor(19.64 * GIB)).ooms).toBe(1);
    expect(predict(trace, 'pytorch[max_split_size_mb:512]', Math.floor(21.22 * GIB)).ooms).toBe(0);
    expect(predict(trace, 'pytorch[max_split_size_mb:128]', Math.floor(21.22 * GIB)).ooms).toBe(1);
  });
});
