// The what-if table as facts. Each row says what an allocator takes for the recorded run: without a limit, on the GPU in
// question, and at the least. Plain data, so that a row can cross from a worker.
import { type AllocatorChoice, chooseAllocators } from '../allocator/registry.ts';
import type { ReplayResult } from '../replay/replay.ts';
import { smallestGpu, UNLIMITED_GPU, type WhatIfGpu, type WhatIfOptions, whatIf } from '../replay/what-if.ts';
import type { TraceSummary } from '../trace/summary.ts';
import type { Trace } from '../trace/trace.ts';

export interface WhatIfRow {
  /** The allocator as the command line writes it: `pytorch[max_split_size_mb:128]`. */
  readonly allocator: string;
  /** `pytorch`, `weir`, ... */
  readonly kind: string;
  /** What to set in PYTORCH_CUDA_ALLOC_CONF to get it; undefined: it is not one of PyTorch's allocators. */
  readonly conf: string | undefined;
  /** The allocator and settings the recording was made with. */
  readonly isRecorded: boolean;
  /** Without a limit. Requests that failed in the recording are served too. */
  readonly unlimited: ReplayResult;
  /** Peak reserved / peak live; requests that failed count as live. */
  readonly reservedOverLive: number;
  /** The same run on the GPU in question; undefined: its size is unknown. */
  readonly limited: ReplayResult | undefined;
  /** Whether the run fits even if the GPU has only its least size; undefined: the size is certain, or the run does not fit. */
  readonly isSure: boolean | undefined;
  /** The least memory on which no request fails; undefined: not searched for, or not found. */
  readonly smallestGpu: number | undefined;
  readonly wallMs: number;
}

export interface RowOptions {
  readonly isRecorded: boolean;
  readonly emptyCacheBefore: readonly number[];
  /** What depends on the version of PyTorch that the job ran on. */
  readonly rules: WhatIfOptions['rules'];
  /** The GPU in question; undefined: unknown. */
  readonly gpu: WhatIfGpu | undefined;
  /** The same GPU at its least size, if its size is a range. */
  readonly leastGpu: WhatIfGpu | undefined;
  /** Searching for the smallest GPU takes about ten replays. */
  readonly findSmallest: boolean;
  readonly onProgress?: ((fraction: number) => void) | undefined;
}

/** The settings people try first, besides the defaults. */
const USUAL_CHOICES =
  'pytorch,expandable,pytorch[max_split_size_mb:128],pytorch[max_split_size_mb:512],pytorch[roundup_power2_divisions:8],cnmem,gmlake,weir';

/** Replays of a search for the smallest GPU, for the share of progress that each gets. */
const USUAL_TRIES = 10;

/** Allocators that nobody runs today: compared for their historical interest. */
const HISTORY: readonly string[] = ['cnmem', 'gmlake'];

/** Whether an allocator is compared only if users ask for all of them. */
export function isHistory(kind: string): boolean {
  return HISTORY.includes(kind);
}

export function historyChoices(): AllocatorChoice[] {
  return chooseAllocators(HISTORY.join(','));
}

/** The recorded allocator first, then the usual ones that differ from it. */
export function usualChoices(recorded: AllocatorChoice, withHistory = true): AllocatorChoice[] {
  const others = chooseAllocators(USUAL_CHOICES).filter(
    ({ name, conf, kind }) => name !== recorded.name && conf !== recorded.conf && (withHistory || !isHistory(kind)),
  );
  return [recorded, ...others];
}

export function whatIfRow(trace: Trace, summary: TraceSummary, choice: AllocatorChoice, options: RowOptions): WhatIfRow {
  const started = performance.now();
  const { isRecorded, emptyCacheBefore, rules, onProgress } = options;
  const on = (gpu: WhatIfGpu, more: WhatIfOptions = {}) => whatIf(trace, choice, gpu, { isRecorded, emptyCacheBefore, rules, ...more });
  // Every replay reports, since an analysis can be cancelled only where it reports.
  const part = (from: number, to: number) => (done: number) => onProgress?.(from + (to - from) * done);
  let tries = 0;
  const fits = (gpu: WhatIfGpu) => {
    const share = 0.5 / USUAL_TRIES;
    const from = 0.5 + share * Math.min(tries++, USUAL_TRIES - 1);
    return on(gpu, { stopAtOom: true, onProgress: part(from, from + share) }).ooms === 0;
  };
  const unlimited = on(UNLIMITED_GPU, { onProgress: part(0, 1 / 3) });
  const limited = options.gpu && on(options.gpu, { onProgress: part(1 / 3, 0.5) });
  const isSure = options.leastGpu && limited?.ooms === 0 ? fits(options.leastGpu) : undefined;
  const smallest = options.findSmallest ? smallestGpu(summary.peakDemand, unlimited.peakReserved, fits) : undefined;
  onProgress?.(1);
  return {
    allocator: choice.name,
    kind: choice.kind,
    conf: choice.conf,
    isRecorded,
    unlimited,
    reservedOverLive: summary.peakDemand > 0 ? unlimited.peakReserved / summary.peakDemand : 1,
    limited,
    isSure,
    smallestGpu: smallest,
    wallMs: performance.now() - started,
  };
}

/** Whether the run fits the GPU in question. */
export type Fit = { readonly kind: 'fits' | 'may-fit'; readonly retries: number } | { readonly kind: 'fails'; readonly ooms: number };

/** Undefined: the GPU's size is unknown. */
export function fitOf({ limited, isSure }: WhatIfRow): Fit | undefined {
  if (!limited) return undefined;
  if (limited.ooms > 0) return { kind: 'fails', ooms: limited.ooms };
  return { kind: isSure === false ? 'may-fit' : 'fits', retries: limited.retries };
}

export function recordedRow(rows: readonly WhatIfRow[]): WhatIfRow | undefined {
  return rows.find((row) => row.isRecorded);
}
