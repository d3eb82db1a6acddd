// PYTORCH_CUDA_ALLOC_CONF as PyTorch 2.11 reads it, and the rounding that follows from it.
import { describe, expect, it } from 'vitest';
import { DEFAULT_SETTINGS, formatConf, parseConf, settingsFromRecording } from '../../src/allocator/pytorch/settings.ts';
import { roundRequest, segmentSizeFor } from '../../src/allocator/pytorch/sizes.ts';
import { chooseAllocators } from '../../src/allocator/registry.ts';
import { UsageError } from '../../src/base/errors.ts';
import { sampleTrace } from '../support/traces.ts';

const MIB = 2 ** 20;

describe('parseConf', () => {
  it('reads every setting that matters, and accepts those that do not', () => {
    expect(
      parseConf(
        'expandable_segments:True, max_split_size_mb:128,max_non_split_rounding_mb:64,large_segment_size_mb:32,' +
          'garbage_collection_threshold:0.8,per_process_memory_fraction:0.5,backend:native,pinned_use_cuda_host_register:True',
      ),
    ).toMatchObject({
      expandableSegments: true,
      maxSplitSize: 128 * MIB,
      maxNonSplitRounding: 64 * MIB,
      largeSegmentSize: 32 * MIB,
      garbageCollectionThreshold: 0.8,
      memoryFraction: 0.5,
    });
    expect(parseConf('')).toEqual(DEFAULT_SETTINGS);
  });

  it('fills the divisions as PyTorch does: below the first size named, and above the last for >', () => {
    expect(parseConf('roundup_power2_divisions:4').roundupPower2Divisions).toEqual(new Array(16).fill(4));
    expect(parseConf('roundup_power2_divisions:[64:8,256:4]').roundupPower2Divisions).toEqual([
      8, 8, 8, 8, 8, 8, 8, 0, 4, 0, 0, 0, 0, 0, 0, 0,
    ]);
    expect(parseConf('roundup_power2_divisions:[1:4,64:8,>:2]').roundupPower2Divisions).toEqual([
      4, 0, 0, 0, 0, 0, 8, 2, 2, 2, 2, 2, 2, 2, 2, 2,
    ]);
  });

  it('agrees with what PyTorch recorded for the same string', () => {
    for (const name of ['exact/round.pkl.gz', 'exact/round-exp.pkl.gz', 'exact/rounding.pkl.gz', 'exact/gc-split.pkl.gz']) {
      const { settings } = sampleTrace(name);
      expect(parseConf(settings.get('PYTORCH_CUDA_ALLOC_CONF') as string)).toEqual(settingsFromRecording(settings));
    }
  });

  it.each([
    ['max_split_size_mb:8', 'at least the large segment size'],
    ['max_split_size_mb:many', "whole number of MiB, not 'many'"],
    ['expandable_segments:true', 'True or False'],
    ['garbage_collection_threshold:1', 'between 0 and 1'],
    ['roundup_power2_divisions:3', 'must be a power of two'],
    ['roundup_power2_divisions:[3:4]', 'must be a power of two'],
    ['roundup_power2_divisions:[4:2', 'closing bracket'],
    ['large_segment_size_mb:10', 'more than 10'],
    ['backend:cudaMallocAsync', 'not modelled'],
    ['max_split_size:128', "'max_split_size' is not a setting"],
  ])('refuses %s', (conf, message) => {
    expect(() => parseConf(conf)).toThrow(UsageError);
    expect(() => parseConf(conf)).toThrow(message);
  });

  it('writes back what it reads', () => {
    for (const conf of [
      '',
      'expandable_segments:True',
      'max_split_size_mb:128,roundup_power2_divisions:8,garbage_collection_threshold:0.6',
      'large_segment_size_mb:32',
      'max_split_size_mb:64,max_non_split_rounding_mb:256',
      'roundup_power2_divisions:[1:4,2:0,4:0,8:0,16:0,32:0,64:8,128:2,256:2,512:2,1024:2,2048:2,4096:2,8192:2,16384:2,32768:2]',
    ]) {
      expect(formatConf(parseConf(conf))).toBe(conf);
    }
  });
});

describe('sizes', () => {
  it('rounds requests to 512 bytes', () => {
    expect([0, 1, 512, 513, 1000].map((size) => roundRequest(size, DEFAULT_SETTINGS))).toEqual([512, 512, 512, 1024, 1024]);
  });

  it('rounds to divisions of the power of two below where they are set', () => {
    const settings = parseConf('roundup_power2_divisions:4');
    expect(roundRequest(1200, settings)).toBe(1536);
    expect(roundRequest(4 * MIB, settings)).toBe(4 * MIB);
    expect(roundRequest(4 * MIB + 1, settings)).toBe(5 * MIB);
    expect(roundRequest(2 ** 36 + 1, settings)).toBe(2 ** 36 + 2 ** 34);
  });

  it('sizes segments by the request', () => {
    const size = (rounded: number) => segmentSizeFor(rounded, DEFAULT_SETTINGS);
    expect([512, MIB, MIB + 512, 10 * MIB - 512, 10 * MIB, 10 * MIB + 512].map(size)).toEqual([
      2 * MIB,
      2 * MIB,
      20 * MIB,
      20 * MIB,
      10 * MIB,
      12 * MIB,
    ]);
  });
});

describe('chooseAllocators', () => {
  it('reads names with settings, commas inside brackets included', () => {
    expect(
      chooseAllocators('pytorch, expandable,pytorch[max_split_size_mb:128,roundup_power2_divisions:4],cnmem[initial:1GiB]').map(
        ({ name }) => name,
      ),
    ).toEqual(['pytorch', 'expandable', 'pytorch[max_split_size_mb:128,roundup_power2_divisions:4]', 'cnmem[initial:1.00GiB]']);
  });

  it.each(['jemalloc', 'pytorch[', 'cnmem[size:3]'])('refuses %s', (text) => {
    expect(() => chooseAllocators(text)).toThrow(UsageError);
  });
});
