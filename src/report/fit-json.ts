// The answer of `weir fit` as JSON, schema 1 (docs/json.md).
import type { FitModel } from '../fit/model.ts';
import type { FitPrediction, PredictedPeak } from '../fit/prediction.ts';
import type { Largest } from '../fit/search.ts';
import { labelledSites } from './fit-sites.ts';
import { SCHEMA } from './json.ts';
import type { FitSections } from './terminal/fit.ts';
import { functionWords } from './words/fit.ts';

const MOST_SITES = 50;

export function fitJson(
  model: FitModel,
  prediction: FitPrediction,
  { frontier = [], draws, warnings = [] }: FitSections = {},
): Record<string, unknown> {
  const { growth, line, names } = prediction;
  return {
    schema: SCHEMA,
    gpuBytes: prediction.gpuBytes,
    parameters: names,
    searched: names[line.parameter],
    runs: prediction.points,
    repeats: prediction.repeats,
    learned: prediction.learned,
    warnings: [...model.warnings, ...warnings],
    results: prediction.rows.map(({ allocator, conf, sure, possible, onGpu, peak, nextPeak, asked, swap }) => ({
      allocator,
      conf: conf ?? null,
      largest: sure.value,
      largestPossible: boundOf(possible),
      isBounded: sure.isBounded,
      onGpu: onGpu ?? null,
      peak: peak ? peakJson(peak) : null,
      next: nextPeak ? peakJson(nextPeak) : null,
      asked: asked.map(peakJson),
      swappedBytes: swap?.bytes ?? 0,
      largestSwapped: swap?.largest.value ?? null,
    })),
    frontier: frontier.map(({ at, largest }) => ({
      at,
      largest: Object.fromEntries(largest.map(({ allocator, sure, possible }) => [allocator, [sure.value, boundOf(possible)]])),
    })),
    draws: draws
      ? draws.rows.map(({ batch, steps, epochs, failing }) => ({
          batch,
          steps,
          epochs,
          failing: Object.fromEntries(failing.map(({ allocator, share }) => [allocator, share])),
        }))
      : null,
    growth: {
      values: prediction.growthPoint,
      peakLive: growth.bytes,
      constant: growth.constantBytes,
      adds: growth.growth,
      sites: labelledSites(model.template.trace, growth)
        .slice(0, MOST_SITES)
        .map(({ size, ...site }) => ({ ...site, growsWith: functionWords(size, names) })),
    },
  };
}

/** Null: no value was found that is too large. */
function boundOf({ value, isBounded }: Largest): number | null {
  return isBounded ? value : null;
}

function peakJson({ point, lower, upper, liveLower, liveUpper }: PredictedPeak): Record<string, unknown> {
  return { values: point, peakReserved: upper, peakReservedAtLeast: lower, peakLive: liveUpper, peakLiveAtLeast: liveLower };
}
