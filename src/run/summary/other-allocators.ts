// What the allocators that a process did not run on would have taken for the same requests, on the same GPU.
import { settingsFromRecording } from '../../allocator/pytorch/settings.ts';
import { recordedRules } from '../../allocator/pytorch/versions.ts';
import { type AllocatorChoice, chooseAllocators, pytorchChoice } from '../../allocator/registry.ts';
import { allowedByFraction } from '../../replay/limits.ts';
import { reconstruct } from '../../replay/reconstruct.ts';
import { UNLIMITED_GPU, type WhatIfGpu, whatIf } from '../../replay/what-if.ts';
import { recordedEngine, summarizeTrace } from '../../trace/summary.ts';
import type { Trace } from '../../trace/trace.ts';
import type { GpuWhatIf, WhatIfResult } from './what-if.ts';

export function otherAllocators(trace: Trace, onProgress: (fraction: number) => void = () => {}): GpuWhatIf {
  const summary = summarizeTrace(trace);
  // Recordings of PyTorch's allocator leave out the calls of empty_cache(); the reconstruction finds them.
  const reconstruction = recordedEngine(trace) ? undefined : reconstruct(trace, { onProgress: (done) => onProgress(done / 4) });
  const emptyCacheBefore = reconstruction?.emptyCacheBefore ?? [];
  const rules = reconstruction?.rules ?? recordedRules(trace.settings);
  const choices = otherChoices(trace, summary.recordedAllocator);
  const { deviceBytes } = trace.limits;
  const gpu: WhatIfGpu = { capacity: deviceBytes, allowedBytes: allowedByFraction(trace.limits, rules) };
  const most = gpu.allowedBytes ?? gpu.capacity;
  const results = choices.map((choice, index): WhatIfResult => {
    const on = (tried: WhatIfGpu) =>
      whatIf(trace, choice, tried, {
        emptyCacheBefore,
        rules,
        onProgress: (done) => onProgress((1 + (3 * (index + done)) / choices.length) / 4),
      });
    const unlimited = on(UNLIMITED_GPU);
    // A run that stays below the limit cannot fail: a second replay would say the same.
    const ooms = most === undefined ? null : unlimited.peakReserved > most ? on(gpu).ooms : 0;
    return { allocator: choice.name, peakReserved: unlimited.peakReserved, driverUs: unlimited.driver.timeUs, ooms };
  });
  const { addresses = 0, segments = 0, outcomes = 0, compared = 0 } = reconstruction?.differences ?? {};
  return {
    gpu: trace.device,
    events: trace.events.count,
    peakLive: summary.peakLive,
    recordedPeakReserved: summary.recordedPeakReserved ?? null,
    replayError: reconstruction ? { compared, differing: addresses + segments + outcomes } : null,
    results,
  };
}

/** PyTorch's allocators with the job's settings, and Weir's; without the one that ran. */
function otherChoices(trace: Trace, recorded: string): AllocatorChoice[] {
  // The fraction belongs to the GPU that is tried, not to the allocator.
  const settings = { ...settingsFromRecording(trace.settings), memoryFraction: 1 };
  const choices: AllocatorChoice[] = [
    pytorchChoice('pytorch', { ...settings, expandableSegments: false }),
    pytorchChoice('expandable', { ...settings, expandableSegments: true }),
    ...chooseAllocators('weir'),
  ];
  return choices.filter(({ kind }) => kind !== recorded);
}
