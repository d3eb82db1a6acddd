// What a reconstruction of a recorded run finds, and how exact it is.
import type { Allocator, AllocatorContext } from '../allocator/allocator.ts';
import type { PyTorchSettings } from '../allocator/pytorch/settings.ts';
import type { PyTorchRules } from '../allocator/pytorch/versions.ts';
import type { SimulatedBackend } from '../backend/simulated.ts';
import type { Segment } from '../trace/trace.ts';
import type { MemoryLimits } from './limits.ts';
import type { AllocatorState } from './moments.ts';
import type { ReplayObserver } from './replay.ts';

export interface Reconstruction {
  /** Only PyTorch's allocator has segments. */
  readonly allocator: Allocator & { layout?(): Segment[] };
  readonly settings: PyTorchSettings;
  /** What depends on PyTorch's version, and how it was found. */
  readonly rules: PyTorchRules;
  readonly rulesOrigin: 'recorded' | 'matched' | 'assumed';
  readonly limits: MemoryLimits;
  readonly peakReserved: number;
  readonly peakReservedEvent: number;
  readonly finalReserved: number;
  readonly peakAllocated: number;
  readonly retries: number;
  readonly ooms: number;
  /** Events before which the program must have called empty_cache(). */
  readonly emptyCacheBefore: readonly number[];
  /** The allocator after those events of `lookAt` at which it could be seen. */
  readonly states: ReadonlyMap<number, AllocatorState>;
  readonly differences: Differences;
  readonly driver: SimulatedBackend['ledger'];
}

/** How the model and the recording differ; all zero: every event was reproduced. */
export interface Differences {
  /** Allocations that the model put at another address. */
  addresses: number;
  /** Segment events that the model did not make, or made differently. */
  segments: number;
  /** Requests that failed in one and not in the other. */
  outcomes: number;
  /** Events compared. */
  compared: number;
  firstEvent: number;
}

export interface ReconstructOptions {
  /** Limits found by an earlier reconstruction of the same trace. */
  readonly limits?: MemoryLimits | undefined;
  readonly settings?: PyTorchSettings | undefined;
  readonly rules?: PyTorchRules | undefined;
  /** Stop before this event, to look at the allocator at that moment. */
  readonly stopBefore?: number | undefined;
  /** Requests after which to look at the allocator, ascending (see `Reconstruction.states`). */
  readonly lookAt?: readonly number[] | undefined;
  readonly checkEvery?: number | undefined;
  readonly onProgress?: ((fraction: number) => void) | undefined;
  readonly observer?: (ReplayObserver & { segment: NonNullable<AllocatorContext['onSegment']> }) | undefined;
}

/** Events that the model did not repeat. */
export function differing({ differences: { addresses, segments, outcomes } }: Pick<Reconstruction, 'differences'>): number {
  return addresses + segments + outcomes;
}

export function isExact(reconstruction: Pick<Reconstruction, 'differences'>): boolean {
  return differing(reconstruction) === 0;
}
