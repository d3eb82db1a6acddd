// What each allocator would have needed on the recorded run: without a limit, within a given GPU, and at the least.
import { type AllocatorChoice, chooseAllocators } from '../allocator/registry.ts';
import { SimulatedBackend } from '../backend/simulated.ts';
import { MIB, roundUp } from '../base/bytes.ts';
import type { MemoryLimits } from '../replay/limits.ts';
import { RecordedPlacement } from '../replay/recorded-placement.ts';
import { type ReplayOptions, type ReplayResult, replay } from '../replay/replay.ts';
import type { TraceSummary } from '../trace/summary.ts';
import type { Trace } from '../trace/trace.ts';

export interface WhatIfRow {
  readonly choice: AllocatorChoice;
  /** The allocator and settings the recording was made with. */
  readonly isRecorded: boolean;
  /** Every request served, those that failed in the recording too, and no limit. */
  readonly unlimited: ReplayResult;
  /** `unlimited.peakReserved` over the floor: peak live, failed requests included. */
  readonly reservedOverLive: number;
  /** The same run on a GPU of the given size; undefined when no size is known. */
  readonly limited: ReplayResult | undefined;
  /** Whether it fits even in the least that the GPU in question may be; undefined where its size is certain, or it does not fit at all. */
  readonly isSure: boolean | undefined;
  /** The least memory on which no request fails; undefined when it was not searched for or not found. */
  readonly smallestGpu: number | undefined;
  readonly wallMs: number;
}

export interface WhatIfOptions {
  readonly emptyCacheBefore: readonly number[];
  /** Memory of the GPU in question; undefined when unknown. */
  readonly capacity: number | undefined;
  /** Where `capacity` is what it is at most, what it is at least. */
  readonly capacityAtLeast?: number | undefined;
  /** Where `capacity` is from the recording: what PyTorch's allocators knew of it. */
  readonly limits?: MemoryLimits | undefined;
  /** Whether to search for the smallest GPU, which takes about ten replays. */
  readonly findSmallest: boolean;
  readonly onProgress?: ((fraction: number) => void) | undefined;
}

/** The settings people try first, besides the defaults. */
export const USUAL_CHOICES =
  'pytorch,expandable,pytorch[max_split_size_mb:128],pytorch[max_split_size_mb:512],pytorch[roundup_power2_divisions:8],cnmem,gmlake,weir';

/** The recorded allocator first, then the usual ones that differ from it. */
export function usualChoices(recorded: AllocatorChoice): AllocatorChoice[] {
  const others = chooseAllocators(USUAL_CHOICES).filter((choice) => choice.name !== recorded.name && choice.conf !== recorded.conf);
  return [recorded, ...others];
}

export function tryChoice(
  trace: Trace,
  summary: TraceSummary,
  choice: AllocatorChoice,
  isRecorded: boolean,
  options: WhatIfOptions,
): WhatIfRow {
  const started = performance.now();
  const { emptyCacheBefore, capacity } = options;
  const run = (bytes: number | undefined, more: Partial<ReplayOptions>) =>
    replay(trace, choice.create, {
      backend: new SimulatedBackend({ capacity: bytes, placement: isRecorded ? RecordedPlacement.of(trace) : undefined }),
      deviceBytes: bytes,
      emptyCacheBefore,
      restoreStart: isRecorded,
      ...more,
    });
  // A memory fraction is not a smaller GPU to PyTorch: it collects garbage by it.
  const knowsFraction = options.limits?.allowedBytes !== undefined && (choice.kind === 'pytorch' || choice.kind === 'expandable');
  const runLimited = (bytes: number, more: Partial<ReplayOptions> = {}) =>
    knowsFraction ? run(options.limits?.capacity, { allowedBytes: bytes, ...more }) : run(bytes, more);
  const unlimited = resultOf(run(undefined, { onProgress: (done) => options.onProgress?.(done / 3) }));
  const fits = (bytes: number) => run(bytes, { stopAtOom: true }).ooms === 0;
  const limited = capacity === undefined ? undefined : resultOf(runLimited(capacity));
  const isOpen = options.capacityAtLeast !== undefined && limited !== undefined && limited.ooms === 0;
  const isSure = isOpen ? runLimited(options.capacityAtLeast!, { stopAtOom: true }).ooms === 0 : undefined;
  options.onProgress?.(0.5);
  const smallestGpu = options.findSmallest ? findSmallest(summary.peakDemand, unlimited.peakReserved, fits) : undefined;
  options.onProgress?.(1);
  return {
    choice,
    isRecorded,
    unlimited,
    reservedOverLive: summary.peakDemand > 0 ? unlimited.peakReserved / summary.peakDemand : 1,
    limited,
    isSure,
    smallestGpu,
    wallMs: performance.now() - started,
  };
}

/** The allocator itself is left out: it can be large, and nobody looks at it again. */
export function resultOf({ allocator: _, ...result }: ReturnType<typeof replay>): ReplayResult {
  return result;
}

const SEARCH_UNIT = 2 * MIB;
/** Precision of the search, as a share of the answer. */
const SEARCH_PRECISION = 1 / 256;
/** The search ends here: even a segment of one block, rounded up to 2 MiB, is bounded by this. */
const MOST_ABOVE_PEAK = 4096;

/**
 * Bisects between what no allocator can do without and what suffices. More memory hardly ever makes an allocator fail, but
 * nothing rules it out; the answer is a size that was tried and fits. Undefined if none was found.
 */
export function findSmallest(floor: number, enough: number, fits: (bytes: number) => boolean): number | undefined {
  let low = roundUp(floor, SEARCH_UNIT);
  let high = Math.max(low, roundUp(enough, SEARCH_UNIT));
  if (fits(low)) return low;
  const step = Math.max(SEARCH_UNIT, roundUp(high * SEARCH_PRECISION, SEARCH_UNIT));
  // The driver rounds every segment up, so a run may need more than what it reserves.
  for (let more = step; !fits(high); more *= 2) {
    if (more > MOST_ABOVE_PEAK * enough) return undefined;
    low = high;
    high += more;
  }
  while (high - low > step) {
    const middle = roundUp((low + high) / 2, SEARCH_UNIT);
    if (fits(middle)) high = middle;
    else low = middle;
  }
  return high;
}
