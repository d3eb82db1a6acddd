// An analysis as the page shows it: the numbers of `weir analyze --json` and the sentences of `weir analyze`, made by the
// same code, as plain data that can cross from a worker.
import type { Analysis } from '../report/analysis.ts';
import { analysisJson } from '../report/json.ts';
import { change, describeRecording, fitWord, formatOom, formatPeak, formatReplayError, losses, PLAIN, sizeWords } from '../report/text.ts';

export interface AnalysisView {
  readonly json: ReturnType<typeof analysisJson>;
  /** What the recording is: GPU, events, seconds. */
  readonly recording: string;
  /** What went wrong, a headline and details; empty if nothing did. */
  readonly oom: readonly string[];
  readonly peakHeadline: string;
  /** Bytes, share and meaning of each loss at the peak, in words. */
  readonly losses: readonly (readonly string[])[];
  readonly floor: string;
  readonly replayError: string;
  readonly isExact: boolean;
  readonly rows: readonly WhatIfView[];
  /** Memory of the GPU in question, perhaps as a range; undefined when unknown. */
  readonly capacity: string | undefined;
  /** Allocators still to come. */
  readonly isComplete: boolean;
  readonly noAdvice: string | undefined;
}

export interface WhatIfView {
  readonly allocator: string;
  readonly isRecorded: boolean;
  readonly peakReserved: number;
  readonly change: string;
  readonly reservedOverLive: number;
  readonly smallestGpu: number | undefined;
  readonly fit: string;
  /** Undefined when no GPU size is known. */
  readonly fits: boolean | undefined;
  /** Fits, if the GPU is as large as it may be. */
  readonly mayFit: boolean;
  readonly driverUs: number;
}

export function analysisView(analysis: Analysis, file: string, isComplete: boolean): AnalysisView {
  const recorded = analysis.whatIf.find((row) => row.isRecorded);
  const peak = formatPeak(analysis, PLAIN);
  return {
    json: analysisJson(analysis, file),
    recording: describeRecording(analysis),
    oom: analysis.oom ? formatOom(analysis.oom, analysis.summary.ooms, PLAIN).map((line) => line.trim()) : [],
    peakHeadline: peak[0] ?? '',
    losses: losses(analysis.peak),
    floor: peak.length > 1 ? peak.at(-1)! : '',
    replayError: formatReplayError(analysis.replayError),
    isExact:
      analysis.replayError.differing === 0 && analysis.replayError.recordedPeakReserved !== undefined && !analysis.replayError.engine,
    rows: analysis.whatIf.map((row) => ({
      allocator: row.choice.name,
      isRecorded: row.isRecorded,
      peakReserved: row.unlimited.peakReserved,
      change: row.isRecorded || !recorded ? '' : change(row.unlimited.peakReserved, recorded.unlimited.peakReserved),
      reservedOverLive: row.reservedOverLive,
      smallestGpu: row.smallestGpu,
      fit: fitWord(row),
      fits: row.limited ? row.limited.ooms === 0 : undefined,
      mayFit: row.isSure === false,
      driverUs: row.unlimited.driver.timeUs,
    })),
    capacity: analysis.capacity === undefined ? undefined : sizeWords(analysis.capacity, analysis.capacityAtLeast),
    isComplete,
    noAdvice:
      isComplete && analysis.advice.length === 0 && analysis.peak.reserved > 0
        ? "No setting of PyTorch's allocator would have saved 3 % or more."
        : undefined,
  };
}
