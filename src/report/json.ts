// Reports as JSON, schema 1 (docs/json.md). Fields are only ever added; bytes and microseconds are numbers.
import { Format } from '../abi/formats.ts';
import type { TraceSummary } from '../trace/summary.ts';
import type { HostMemory } from '../trace/trace.ts';
import type { Analysis } from './analysis.ts';
import type { CategoryBytes } from './categories.ts';
import type { LeakingSite, Leaks } from './leaks.ts';
import type { Breakdown } from './moment.ts';
import type { OffsetsFacts, StepFacts, SwapFacts } from './plan.ts';
import type { ReplayRow } from './replay-row.ts';
import { adviceEffect, adviceLine } from './words/advice.ts';

export const SCHEMA: number = Format.output.version;

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

function traceJson(summary: TraceSummary): Json {
  return {
    events: summary.events,
    allocs: summary.allocs,
    ooms: summary.ooms,
    durationUs: summary.durationUs,
    peakRequested: summary.peakRequested,
    peakLive: summary.peakLive,
    peakDemand: summary.peakDemand,
    liveAtStart: summary.liveAtStart,
    recordedPeakReserved: summary.recordedPeakReserved ?? null,
    recordedAllocator: summary.recordedAllocator,
  };
}

function replayRowJson(row: ReplayRow): { [key: string]: Json } {
  const { result } = row;
  return {
    allocator: row.allocator,
    device: row.backend,
    capacity: row.capacity ?? null,
    peakReserved: result.peakReserved,
    peakAllocated: result.peakAllocated,
    finalReserved: result.finalReserved,
    reservedOverLive: row.floor > 0 ? result.peakReserved / row.floor : 1,
    ooms: result.ooms,
    firstOomEvent: result.firstOomEvent,
    retries: result.retries,
    driver: {
      timeUs: result.driver.timeUs,
      steadyTimeUs: result.driver.steadyTimeUs,
      calls: { ...result.driver.calls },
      times: { ...result.driver.times },
    },
    streams: { ...result.streams },
    wallMs: row.wallMs,
    ...(row.modelled
      ? {
          modelled: {
            timeUs: row.modelled.driver.timeUs,
            steadyTimeUs: row.modelled.driver.steadyTimeUs,
            times: { ...row.modelled.driver.times },
          },
        }
      : {}),
    ...(row.verification ? { verification: { ...row.verification } } : {}),
    ...(row.description ? { deviceDescription: row.description } : {}),
  };
}

export function replayJson(summary: TraceSummary, rows: readonly ReplayRow[]): Json {
  return { schema: SCHEMA, trace: traceJson(summary), results: rows.map(replayRowJson) };
}

export function analysisJson(analysis: Analysis, file: string): { [key: string]: Json } {
  const { summary, oom, replayError } = analysis;
  return {
    schema: SCHEMA,
    file,
    device: analysis.device,
    trace: traceJson(summary),
    warnings: analysis.warnings.map(({ code, message }) => ({ code, message })),
    replayError: { ...replayError, recordedPeakReserved: replayError.recordedPeakReserved ?? null },
    peak: breakdownJson(analysis.peak),
    oom: oom
      ? {
          event: oom.event,
          timeUs: oom.timeUs,
          asked: oom.asked,
          site: oom.site ?? null,
          stack: oom.stack.map((frame) => ({ ...frame })),
          categories: { ...oom.categories },
          deviceFree: oom.deviceFree,
          limit: oom.limit ?? null,
          limitOrigin: oom.limitOrigin,
          cause: oom.cause,
          pinning: { ...oom.pinning },
          ...breakdownJson(oom.breakdown),
        }
      : null,
    sites: analysis.sites.map(({ notes, ...site }) => ({ ...site, ...(notes ? { notes: [...notes] } : {}) })),
    peakByCategory: categoriesJson(analysis.categories),
    otherMemory: analysis.otherMemory ? { ...analysis.otherMemory, process: analysis.otherMemory.process ?? null } : null,
    hostMemory: analysis.hostMemory ? hostMemoryJson(analysis.hostMemory) : null,
    capacity: analysis.capacity ?? null,
    capacityAtLeast: analysis.capacityAtLeast ?? null,
    capacityOrigin: analysis.capacityOrigin,
    onGivenGpu: analysis.onGivenGpu ? { ...analysis.onGivenGpu, peak: breakdownJson(analysis.onGivenGpu.peak) } : null,
    oversized: analysis.oversized
      ? { ...analysis.oversized, site: analysis.oversized.site ?? null, capacity: analysis.oversized.capacity ?? null }
      : null,
    whatIf: analysis.whatIf.map((row) => ({
      ...replayRowJson({
        allocator: row.allocator,
        backend: 'sim',
        result: row.unlimited,
        floor: summary.peakDemand,
        capacity: undefined,
        wallMs: row.wallMs,
      }),
      isRecorded: row.isRecorded,
      conf: row.conf ?? null,
      smallestGpu: row.smallestGpu ?? null,
      isSure: row.isSure ?? null,
      limited: row.limited ? { ooms: row.limited.ooms, retries: row.limited.retries, peakReserved: row.limited.peakReserved } : null,
    })),
    advice: analysis.advice.map((advice) => ({ line: adviceLine(advice), effect: adviceEffect(advice), savedBytes: advice.savedBytes })),
    liveAtSites: analysis.liveAtSites,
    leaks: leaksJson(analysis.leaks),
  };
}

function hostMemoryJson({ usedAtPeak, usedAtEnd, roundingAtEnd, ...held }: HostMemory): { [key: string]: Json } {
  return { ...held, usedAtPeak: usedAtPeak ?? null, usedAtEnd: usedAtEnd ?? null, roundingAtEnd: roundingAtEnd ?? null };
}

function categoriesJson({ event, live, bytes, ways }: CategoryBytes): { [key: string]: Json } {
  return { event, live, bytes: { ...bytes }, ways: { ...ways } };
}

function breakdownJson(breakdown: Breakdown): { [key: string]: Json } {
  return { ...breakdown };
}

/** `weir plan --json` for a list of buffers. */
export function offsetsJson({ buffers, plan }: OffsetsFacts, periodic = false): { [key: string]: Json } {
  const { lowerBound, footprint, ratio, wallMs, optimal, by } = plan;
  return { schema: SCHEMA, buffers, lowerBound, footprint, ratio, periodic, verified: true, wallMs, optimal, by };
}

/** `weir plan --json` for the step of a recording. */
export function stepPlanJson({ offsets, peak, total, smartPoolTotal }: StepFacts): { [key: string]: Json } {
  return { ...offsetsJson(offsets, true), peak, total, smartPoolTotal };
}

/** `weir plan --json` for a recording without a step. */
export function notPeriodicJson({ reason }: { readonly reason: string }): { [key: string]: Json } {
  return { schema: SCHEMA, buffers: 0, lowerBound: 0, footprint: 0, ratio: 0, periodic: false, verified: false, wallMs: 0, reason };
}

/** `weir plan --swap --json`. */
export function swapPlanJson({ plan }: SwapFacts): { [key: string]: Json } {
  const { peak, zeroStallLimit, reduction, limit, overhead, bytesMoved, verified, wallMs, footprint } = plan;
  const curve = plan.curve.map((point) => ({ ...point }));
  const bounds = { ...plan.bounds, decisive: { ...plan.bounds.decisive } };
  return { schema: SCHEMA, peak, zeroStallLimit, reduction, limit, overhead, bytesMoved, curve, verified, wallMs, footprint, bounds };
}

export function leaksJson(leaks: Leaks): Json {
  if (!('sites' in leaks)) return { steps: 0, by: null, reason: leaks.reason, sites: [] };
  return { steps: leaks.steps, by: leaks.by, reason: null, sites: leaks.sites.map(leakJson) };
}

export function leakJson({ label, frame, callers, bytesPerStep, first, last }: LeakingSite): Json {
  const line = { file: frame?.filename ?? null, line: frame?.line ?? null, function: frame?.name ?? null };
  return { label, ...line, callers: [...callers], bytesPerStep, first, last };
}
