// All facts about one recording: what it shows, what was lost to what, what other allocators would need, what to do.
// Plain data that can cross from a worker; terminal/, json.ts and the page each render it.
import { ENGINE_ALLOCATORS, type EngineAllocatorName } from '../abi/allocators.ts';
import type { AllocatorChoice } from '../allocator/registry.ts';
import { plannedChoice, withPlan } from '../plan/steps/planned-choice.ts';
import { likelyMoments } from '../replay/moments.ts';
import { reconstruct } from '../replay/reconstruct.ts';
import { recordedChoice } from '../replay/reconstruct-engine.ts';
import type { Reconstruction } from '../replay/reconstruction.ts';
import { censusOf, gpuWith } from '../replay/what-if.ts';
import { leavesOutEvents } from '../trace/assemble.ts';
import { summarizeTrace, type TraceSummary } from '../trace/summary.ts';
import type { HostMemory, OtherMemory, Trace, Warning } from '../trace/trace.ts';
import { type Advice, advise } from './advice.ts';
import { type CategoryBytes, categoriesAt } from './categories.ts';
import { findLeaks, type Leaks } from './leaks.ts';
import { liveAt } from './live-curve.ts';
import { type Breakdown, breakDown, breakdownAt, explainOom, type OomFinding } from './moment.ts';
import { type OversizedRequest, oversizedRequest } from './oversized.ts';
import { stepsOf } from './run-steps.ts';
import { type CallSite, topSites } from './sites.ts';
import { usualChoices, type WhatIfRow, whatIfRow } from './what-if.ts';

export interface Analysis {
  readonly device: number;
  readonly summary: TraceSummary;
  readonly warnings: readonly Warning[];
  /** How far the model of the recorded allocator is from the recording. */
  readonly replayError: ReplayError;
  /** Where memory was when reserved memory peaked. */
  readonly peak: Breakdown;
  readonly oom: OomFinding | undefined;
  readonly sites: readonly CallSite[];
  /** What live memory held at its peak. The parts add up to `summary.peakLive`. */
  readonly categories: CategoryBytes;
  /** Pinned host memory of the process; undefined: not recorded. */
  readonly hostMemory: HostMemory | undefined;
  /** Memory of the GPU that is not PyTorch's; undefined: not recorded. */
  readonly otherMemory: OtherMemory | undefined;
  /** Memory of the GPU in question; undefined: unknown. */
  readonly capacity: number | undefined;
  /** If the recording shows a range only, `capacity` is its upper end and this its lower. */
  readonly capacityAtLeast: number | undefined;
  /** Where `capacity` comes from. */
  readonly capacityOrigin: 'given' | 'recorded' | 'inferred' | 'unknown';
  /** The recorded allocator on the GPU that was given with `AnalysisOptions.capacity`; undefined: none was given. */
  readonly onGivenGpu: GivenGpu | undefined;
  /** A request that no GPU of this size can serve, or that dwarfs all live memory. */
  readonly oversized: OversizedRequest | undefined;
  readonly whatIf: readonly WhatIfRow[];
  readonly advice: readonly Advice[];
  /** All memory live at the moment of `sites`: when the last request failed, else at the peak of live memory. */
  readonly liveAtSites: number;
  /** Call sites that grow from step to step. */
  readonly leaks: Leaks;
}

/** What the recorded allocator does on a GPU of the given size. */
export interface GivenGpu {
  readonly ooms: number;
  readonly retries: number;
  /** Where memory is when reserved memory peaks there. */
  readonly peak: Breakdown;
}

export interface ReplayError {
  /** The preset of Weir's engine, if the job ran on one; then only the peaks are compared. */
  readonly engine: EngineAllocatorName | null;
  /** Events compared, and how many of them the model does differently. */
  readonly compared: number;
  readonly differing: number;
  /** The recording leaves out kinds of events, so a difference says nothing about the model. */
  readonly incomplete: boolean;
  readonly firstEvent: number;
  readonly recordedPeakReserved: number | undefined;
  readonly modelledPeakReserved: number;
  readonly emptyCaches: number;
  readonly retries: number;
  /** The versions of PyTorch that decide as the model does, and how they were found. */
  readonly pytorch: { readonly versions: string; readonly origin: Reconstruction['rulesOrigin'] };
}

export interface AnalysisOptions {
  readonly capacity?: number | undefined;
  /** Allocators to compare; the usual ones if absent. The recorded one always comes first. */
  readonly allocators?: readonly AllocatorChoice[] | undefined;
  /** Search for the smallest GPU of each allocator; by default only if that takes seconds. */
  readonly findSmallest?: boolean | undefined;
  /** Search for the smallest GPU of the recorded allocator in any case. */
  readonly findRecordedSmallest?: boolean | undefined;
  /** Compare allocators of historical interest too, if `allocators` is absent; by default true. */
  readonly withHistory?: boolean | undefined;
  /** The recording's file, for commands that name it. */
  readonly source?: string | undefined;
  readonly onProgress?: ((fraction: number, doing: string) => void) | undefined;
}

/** Beyond this many events, ten more replays per allocator take too long. */
const QUICK_EVENTS = 1_000_000;

export function analyzeTrace(trace: Trace, options: AnalysisOptions = {}): Analysis {
  const steps = analysisSteps(trace, options);
  for (;;) {
    const step = steps.next();
    if (step.done) return step.value;
  }
}

/** The same in steps, for a page that shows what is known so far: the verdict first, then one more allocator each time. */
export function* analysisSteps(trace: Trace, options: AnalysisOptions = {}): Generator<Analysis, Analysis> {
  const progress = options.onProgress ?? (() => {});
  const summary = summarizeTrace(trace);
  const lookAt = likelyMoments(trace);
  const whole = reconstruct(trace, { lookAt, onProgress: (done) => progress(done * 0.2, 'replaying as recorded') });
  const atPeak = (done: number) => progress(0.2 + done * 0.05, 'looking at the peak');
  const peak = breakdownAt(trace, whole, whole.peakReservedEvent, atPeak).breakdown;
  const oom = explainOom(trace, whole, (done) => progress(0.25 + done * 0.05, 'looking at the out-of-memory error'));
  const categories = categoriesAt(trace, summary.peakLiveEvent);
  const sites = topSites(trace, oom?.event ?? summary.peakLiveEvent, 5);

  const inferred = whole.limits.allowedBytes ?? whole.limits.capacity;
  const capacity = options.capacity ?? inferred;
  const granted = options.capacity === undefined ? whole.limits.grantedBytes : undefined;
  const capacityAtLeast = granted !== undefined && capacity !== undefined && granted < capacity ? granted : undefined;
  const recorded = recordedChoice(trace, whole);
  const oversized = oversizedRequest(trace, summary, options.capacity ?? trace.limits.deviceBytes ?? capacity);
  const liveAtSites = oom ? liveAt(trace, oom.event) : summary.peakLive;
  const leaks = findLeaks(trace, stepsOf(trace), summary.peakLive);
  let onGivenGpu: GivenGpu | undefined;
  const analysisWith = (whatIf: readonly WhatIfRow[]): Analysis => ({
    device: trace.device,
    summary,
    warnings: trace.warnings,
    replayError: replayErrorOf(whole, summary, trace.warnings),
    peak,
    oom,
    sites,
    categories,
    hostMemory: trace.hostMemory,
    otherMemory: trace.otherMemory,
    capacity,
    capacityAtLeast,
    capacityOrigin: options.capacity !== undefined ? 'given' : whole.limits.origin,
    onGivenGpu,
    oversized,
    whatIf,
    advice: advise(whatIf, {
      summary,
      capacity,
      capacityAtLeast,
      oversized,
      warnings: trace.warnings,
      source: options.source ?? 'SNAPSHOT',
    }),
    liveAtSites,
    leaks,
  });
  const gpuOf = (bytes: number) => gpuWith(bytes, options.capacity === undefined ? whole.limits : undefined);
  yield analysisWith([]);
  // Where nothing was asked for, there is nothing to compare.
  if (summary.peakDemand === 0) return analysisWith([]);
  const findSmallest = options.findSmallest ?? summary.events <= QUICK_EVENTS;
  const usual = usualChoices(recorded, options.withHistory);
  const expected = (options.allocators ?? usual).length + 1;
  const rows: WhatIfRow[] = [];
  for (const choice of choicesFor(trace, recorded, options.allocators, usual)) {
    const index = rows.length;
    rows.push(
      whatIfRow(trace, summary, choice, {
        isRecorded: index === 0,
        emptyCacheBefore: whole.emptyCacheBefore,
        rules: whole.rules,
        gpu: capacity === undefined ? undefined : gpuOf(capacity),
        leastGpu: capacityAtLeast === undefined ? undefined : gpuOf(capacityAtLeast),
        findSmallest: findSmallest || (index === 0 && options.findRecordedSmallest === true),
        onProgress: (done) => progress(0.3 + (0.7 * (index + done)) / Math.max(expected, index + 1), `trying ${choice.name}`),
      }),
    );
    if (index === 0 && options.capacity !== undefined)
      onGivenGpu = givenGpu(trace, recorded, rows[0]!, {
        capacity: options.capacity,
        emptyCacheBefore: whole.emptyCacheBefore,
        rules: whole.rules,
      });
    yield analysisWith([...rows]);
  }
  return analysisWith(rows);
}

function givenGpu(
  trace: Trace,
  recorded: AllocatorChoice,
  { limited }: WhatIfRow,
  { capacity, emptyCacheBefore, rules }: { capacity: number } & Pick<Reconstruction, 'emptyCacheBefore' | 'rules'>,
): GivenGpu {
  const { ooms, retries, peakReservedEvent: event } = limited!;
  const groups = censusOf(trace, recorded, { capacity }, { isRecorded: true, emptyCacheBefore, rules, stopBefore: event + 1 });
  return { ooms, retries, peak: breakDown(trace, groups, event) };
}

/** The recorded allocator comes first. A plan comes last, since finding the step of a long run takes a while. */
function* choicesFor(
  trace: Trace,
  recorded: AllocatorChoice,
  allocators: readonly AllocatorChoice[] | undefined,
  usual: readonly AllocatorChoice[],
): Generator<AllocatorChoice> {
  if (allocators) {
    yield recorded;
    for (const choice of allocators) if (choice.name !== recorded.name) yield withPlan(choice, trace);
    return;
  }
  yield* usual;
  const planned = plannedChoice(trace);
  if (!('periodic' in planned)) yield planned;
}

function isEngine(allocator: TraceSummary['recordedAllocator']): allocator is EngineAllocatorName {
  return ENGINE_ALLOCATORS.some((engine) => engine === allocator);
}

function replayErrorOf(whole: Reconstruction, summary: TraceSummary, warnings: readonly Warning[]): ReplayError {
  const { addresses, segments, outcomes, compared, firstEvent } = whole.differences;
  return {
    engine: isEngine(summary.recordedAllocator) ? summary.recordedAllocator : null,
    compared,
    differing: addresses + segments + outcomes,
    incomplete: leavesOutEvents(warnings),
    firstEvent,
    recordedPeakReserved: summary.recordedPeakReserved,
    modelledPeakReserved: whole.peakReserved,
    emptyCaches: whole.emptyCacheBefore.length,
    retries: whole.retries,
    pytorch: { versions: whole.rules.versions, origin: whole.rulesOrigin },
  };
}
