// What a recorded run would take with another allocator on a given GPU. The only place that models a memory fraction:
// `weir analyze`, `weir replay` and the summary of `weir run` all ask here.
import type { CensusGroup } from '../allocator/allocator.ts';
import type { AllocatorChoice } from '../allocator/registry.ts';
import { SimulatedBackend } from '../backend/simulated.ts';
import { MIB, roundUp } from '../base/bytes.ts';
import type { Trace } from '../trace/trace.ts';
import type { MemoryLimits } from './limits.ts';
import { RecordedPlacement } from './recorded-placement.ts';
import { type Replayed, type ReplayOptions, type ReplayResult, replay } from './replay.ts';

/** The GPU to try. */
export interface WhatIfGpu {
  /** Memory that the driver can give out; undefined: no limit. */
  readonly capacity?: number | undefined;
  /** Memory that a memory fraction lets the job reserve; undefined: no fraction. */
  readonly allowedBytes?: number | undefined;
  /** Memory that the GPU reports, if that is not `capacity`: PyTorch's fractions are parts of it. */
  readonly reportedBytes?: number | undefined;
}

export const UNLIMITED_GPU: WhatIfGpu = {};

export interface WhatIfOptions
  extends Pick<ReplayOptions, 'emptyCacheBefore' | 'rules' | 'stopAtOom' | 'checkEvery' | 'onProgress' | 'swappable'> {
  /** The choice is what the recording was made with: segments then lie where they were recorded, from the start on. */
  readonly isRecorded?: boolean | undefined;
}

export function whatIf(trace: Trace, choice: AllocatorChoice, gpu: WhatIfGpu, options: WhatIfOptions = {}): ReplayResult {
  return withoutAllocator(replayOn(trace, choice, gpu, options));
}

/** The memory of the allocator before event `stopBefore`, by its state. */
export function censusOf(
  trace: Trace,
  choice: AllocatorChoice,
  gpu: WhatIfGpu,
  options: WhatIfOptions & Pick<ReplayOptions, 'stopBefore'>,
): CensusGroup[] {
  return replayOn(trace, choice, gpu, options).allocator.census();
}

function replayOn(
  trace: Trace,
  choice: AllocatorChoice,
  gpu: WhatIfGpu,
  options: WhatIfOptions & Pick<ReplayOptions, 'stopBefore'>,
): Replayed {
  const { isRecorded = false, ...replayOptions } = options;
  const { capacity, ...limits } = limitsFor(choice, gpu);
  return replay(trace, choice.create, {
    ...replayOptions,
    ...limits,
    backend: new SimulatedBackend({ capacity, placement: isRecorded ? RecordedPlacement.of(trace) : undefined }),
    restoreStart: isRecorded,
  });
}

/** What a GPU means to an allocator: the backend's capacity, and what the allocator is told. */
export function limitsFor(
  choice: AllocatorChoice,
  gpu: WhatIfGpu,
): Pick<ReplayOptions, 'deviceBytes' | 'allowedBytes'> & { readonly capacity: number | undefined } {
  // PyTorch's allocators know a fraction: it fails requests and starts garbage collection. To others it is a smaller GPU.
  const knowsFraction = choice.kind === 'pytorch' || choice.kind === 'expandable';
  const capacity = knowsFraction ? gpu.capacity : (gpu.allowedBytes ?? gpu.capacity);
  return { capacity, deviceBytes: gpu.reportedBytes ?? capacity, allowedBytes: knowsFraction ? gpu.allowedBytes : undefined };
}

/** A GPU on which the job may reserve so much. If the recording shows a memory fraction, the size is what that fraction allows. */
export function gpuWith(bytes: number, limits: MemoryLimits | undefined): WhatIfGpu {
  return limits?.allowedBytes === undefined ? { capacity: bytes } : { capacity: limits.capacity, allowedBytes: bytes };
}

/** Without the allocator, which can be large and cannot be sent to another thread. */
export function withoutAllocator({ allocator: _, ...result }: Replayed): ReplayResult {
  return result;
}

const SEARCH_UNIT = 2 * MIB;
/** Precision of the search, as a share of the answer. */
const SEARCH_PRECISION = 1 / 256;
/** The search ends here: even a segment of one block, rounded up to 2 MiB, is bounded by this. */
const MOST_ABOVE_PEAK = 4096;

/** How far the answer of `smallestGpu` may be above the true one. */
export function searchStep(enoughBytes: number): number {
  return Math.max(SEARCH_UNIT, roundUp(enoughBytes * SEARCH_PRECISION, SEARCH_UNIT));
}

/**
 * The smallest GPU on which no request fails, by bisection between the floor and a size that is enough. An allocator could
 * fail with more memory and not with less, so the answer is always a size that was tried. Undefined: none was found.
 */
export function smallestGpu(floorBytes: number, enoughBytes: number, fits: (gpu: WhatIfGpu) => boolean): number | undefined {
  let low = roundUp(floorBytes, SEARCH_UNIT);
  let high = Math.max(low, roundUp(enoughBytes, SEARCH_UNIT));
  if (fits({ capacity: low })) return low;
  const step = searchStep(high);
  // The driver rounds every segment up, so a run may need more than what it reserves.
  for (let more = step; !fits({ capacity: high }); more *= 2) {
    if (more > MOST_ABOVE_PEAK * enoughBytes) return undefined;
    low = high;
    high += more;
  }
  while (high - low > step) {
    const middle = roundUp((low + high) / 2, SEARCH_UNIT);
    if (fits({ capacity: middle })) high = middle;
    else low = middle;
  }
  return high;
}
