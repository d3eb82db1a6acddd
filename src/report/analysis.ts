// The whole answer about one recording: what it shows, what was lost to what, what other allocators would have
// needed, and what to do. Pure data; text.ts and json.ts write it down.
import type { AllocatorChoice } from '../allocator/registry.ts';
import { plannedChoice, withPlan } from '../plan/steps/planned-choice.ts';
import { type Reconstruction, reconstruct } from '../replay/reconstruct.ts';
import { recordedChoice } from '../replay/reconstruct-engine.ts';
import { type RecordedEngine, summarizeTrace, type TraceSummary } from '../trace/summary.ts';
import type { Trace, Warning } from '../trace/trace.ts';
import { type Advice, advise } from './advice.ts';
import { type Breakdown, breakdownAt, explainOom, type OomFinding } from './moment.ts';
import { type CallSite, topSites } from './sites.ts';
import { tryChoice, usualChoices, type WhatIfRow } from './what-if.ts';

export interface Analysis {
  readonly device: number;
  readonly summary: TraceSummary;
  readonly warnings: readonly Warning[];
  /** The model of the recorded allocator against the recording. */
  readonly replayError: ReplayError;
  /** Memory at the moment reserved memory peaked. */
  readonly peak: Breakdown;
  readonly oom: OomFinding | undefined;
  readonly sites: readonly CallSite[];
  /** Memory of the GPU in question, and where that figure is from. */
  readonly capacity: number | undefined;
  /** Where `capacity` is the most that the recording allows for, the least. */
  readonly capacityAtLeast: number | undefined;
  readonly capacityOrigin: 'given' | 'recorded' | 'inferred' | 'unknown';
  readonly whatIf: readonly WhatIfRow[];
  readonly advice: readonly Advice[];
}

export interface ReplayError {
  /** The preset of Weir's engine that ran, where it did: then only the peaks are compared. */
  readonly engine: RecordedEngine | null;
  /** Events compared, and how many of them the model did otherwise. */
  readonly compared: number;
  readonly differing: number;
  readonly firstEvent: number;
  readonly recordedPeakReserved: number | undefined;
  readonly modelledPeakReserved: number;
  readonly emptyCaches: number;
  readonly retries: number;
}

export interface AnalysisOptions {
  readonly capacity?: number | undefined;
  /** Allocators to compare; the usual ones if absent. The recorded one always comes first. */
  readonly allocators?: readonly AllocatorChoice[] | undefined;
  /** Whether to search for the smallest GPU for each; by default only on traces where that takes seconds. */
  readonly findSmallest?: boolean | undefined;
  /** The recording's file, for advice that names it. */
  readonly source?: string | undefined;
  readonly onProgress?: ((fraction: number, doing: string) => void) | undefined;
}

/** Beyond this many events ten more replays per allocator are felt. */
const QUICK_EVENTS = 1_000_000;

export function analyzeTrace(trace: Trace, options: AnalysisOptions = {}): Analysis {
  const steps = analysisSteps(trace, options);
  for (;;) {
    const step = steps.next();
    if (step.done) return step.value;
  }
}

/** The same piece by piece, for pages that show what is known so far: the verdict first, then one allocator more each time. */
export function* analysisSteps(trace: Trace, options: AnalysisOptions = {}): Generator<Analysis, Analysis> {
  const progress = options.onProgress ?? (() => {});
  const summary = summarizeTrace(trace);
  const whole = reconstruct(trace, { onProgress: (done) => progress(done * 0.2, 'replaying as recorded') });
  progress(0.2, 'looking at the peak');
  const peak = breakdownAt(trace, whole, whole.peakReservedEvent).breakdown;
  const oom = explainOom(trace, whole);
  const sites = topSites(trace, oom?.event ?? summary.peakLiveEvent, 5);

  const inferred = whole.limits.allowedBytes ?? whole.limits.capacity;
  const capacity = options.capacity ?? inferred;
  const granted = options.capacity === undefined ? whole.limits.grantedBytes : undefined;
  const capacityAtLeast = granted !== undefined && capacity !== undefined && granted < capacity ? granted : undefined;
  const recorded = recordedChoice(trace, whole);
  const analysisWith = (whatIf: readonly WhatIfRow[]): Analysis => ({
    device: trace.device,
    summary,
    warnings: trace.warnings,
    replayError: replayErrorOf(whole, summary),
    peak,
    oom,
    sites,
    capacity,
    capacityAtLeast,
    capacityOrigin: options.capacity !== undefined ? 'given' : whole.limits.origin,
    whatIf,
    advice: advise(whatIf, { summary, capacity, capacityAtLeast, warnings: trace.warnings, source: options.source ?? 'SNAPSHOT' }),
  });
  yield analysisWith([]);
  // Where nothing was asked for, there is nothing to compare.
  if (summary.peakDemand === 0) return analysisWith([]);
  const findSmallest = options.findSmallest ?? summary.events <= QUICK_EVENTS;
  const expected = (options.allocators ?? usualChoices(recorded)).length + 1;
  const rows: WhatIfRow[] = [];
  for (const choice of choicesFor(trace, recorded, options.allocators)) {
    const index = rows.length;
    rows.push(
      tryChoice(trace, summary, choice, index === 0, {
        emptyCacheBefore: whole.emptyCacheBefore,
        capacity,
        capacityAtLeast,
        limits: options.capacity === undefined ? whole.limits : undefined,
        findSmallest,
        onProgress: (done) => progress(0.3 + (0.7 * (index + done)) / Math.max(expected, index + 1), `trying ${choice.name}`),
      }),
    );
    yield analysisWith([...rows]);
  }
  return analysisWith(rows);
}

/** The recorded allocator first, and last a plan: finding the step of a long run takes a while, which nothing else need wait for. */
function* choicesFor(
  trace: Trace,
  recorded: AllocatorChoice,
  allocators: readonly AllocatorChoice[] | undefined,
): Generator<AllocatorChoice> {
  if (allocators) {
    yield recorded;
    for (const choice of allocators) if (choice.name !== recorded.name) yield withPlan(choice, trace);
    return;
  }
  yield* usualChoices(recorded);
  const planned = plannedChoice(trace);
  if (!('periodic' in planned)) yield planned;
}

function isEngine(allocator: TraceSummary['recordedAllocator']): allocator is RecordedEngine {
  return allocator === 'weir' || allocator === 'gmlake';
}

export function replayErrorOf(whole: Reconstruction, summary: TraceSummary): ReplayError {
  const { addresses, segments, outcomes, compared, firstEvent } = whole.differences;
  return {
    engine: isEngine(summary.recordedAllocator) ? summary.recordedAllocator : null,
    compared,
    differing: addresses + segments + outcomes,
    firstEvent,
    recordedPeakReserved: summary.recordedPeakReserved,
    modelledPeakReserved: whole.peakReserved,
    emptyCaches: whole.emptyCacheBefore.length,
    retries: whole.retries,
  };
}
