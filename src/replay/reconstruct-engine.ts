// Reconstructs a run on Weir's own engine. Its recording has no segments, so the requests go through the same engine on a
// simulated backend, and only the peaks can be compared.

import type { EngineAllocatorName } from '../abi/allocators.ts';
import type { Allocator } from '../allocator/allocator.ts';
import { settingsFromRecording } from '../allocator/pytorch/settings.ts';
import { DEFAULT_RULES } from '../allocator/pytorch/versions.ts';
import { type AllocatorChoice, chooseAllocators, pytorchChoice } from '../allocator/registry.ts';
import { SimulatedBackend } from '../backend/simulated.ts';
import { recordedEngine } from '../trace/summary.ts';
import type { Trace } from '../trace/trace.ts';
import { findLimits } from './limits.ts';
import type { Reconstruction, ReconstructOptions } from './reconstruction.ts';
import { replay } from './replay.ts';

/** The allocator and the settings that the recording was made with. */
export function recordedChoice(trace: Trace, { settings }: Pick<Reconstruction, 'settings'>): AllocatorChoice {
  const engine = recordedEngine(trace);
  if (engine) return chooseAllocators(engine)[0]!;
  return pytorchChoice(settings.expandableSegments ? 'expandable' : 'pytorch', { ...settings, memoryFraction: 1 });
}

export function reconstructOnEngine(trace: Trace, engine: EngineAllocatorName, options: ReconstructOptions): Reconstruction {
  const settings = options.settings ?? settingsFromRecording(trace.settings, trace.limits.memoryFraction);
  const limits = options.limits ?? findLimits(trace, settings);
  const capacity = limits.allowedBytes ?? limits.capacity;
  const backend = new SimulatedBackend({ capacity });
  const { allocator, ...result } = replay(trace, chooseAllocators(engine)[0]!.create, {
    backend,
    deviceBytes: capacity,
    stopBefore: options.stopBefore,
    checkEvery: options.checkEvery,
    onProgress: options.onProgress,
    observer: options.observer,
  });
  return {
    allocator: allocator as Allocator,
    settings,
    rules: DEFAULT_RULES,
    rulesOrigin: 'assumed',
    limits,
    peakReserved: result.peakReserved,
    peakReservedEvent: result.peakReservedEvent,
    finalReserved: result.finalReserved,
    peakAllocated: result.peakAllocated,
    retries: result.retries,
    ooms: result.ooms,
    // These recordings hold the calls of empty_cache() as events.
    emptyCacheBefore: [],
    states: new Map(),
    differences: { addresses: 0, segments: 0, outcomes: 0, compared: 0, firstEvent: -1 },
    driver: backend.ledger,
  };
}
