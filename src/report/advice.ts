// What to do about a run, as facts: one suggestion each, with the effect it had in replay.
import { searchStep } from '../replay/what-if.ts';
import type { TraceSummary } from '../trace/summary.ts';
import type { Warning } from '../trace/trace.ts';
import type { OversizedRequest } from './oversized.ts';
import type { WhatIfRow } from './what-if.ts';

export type Advice = SettingAdvice | EngineAdvice | RecordEarlierAdvice | LessDemandAdvice | OversizedAdvice;

interface AdviceBase {
  /** Reserved bytes saved at the peak against the recorded allocator; 0 if the suggestion is about something else. */
  readonly savedBytes: number;
}

/** Set this in PYTORCH_CUDA_ALLOC_CONF. */
export interface SettingAdvice extends AdviceBase {
  readonly kind: 'setting';
  readonly conf: string;
  /** For jobs that cannot use the expandable segments suggested before. */
  readonly isFallback: boolean;
  readonly effect: Effect;
}

/** Run the job on Weir's allocator. */
export interface EngineAdvice extends AdviceBase {
  readonly kind: 'engine';
  readonly effect: Effect;
  /** The recording's file, to replay it. */
  readonly source: string;
}

/** Record again, from the start: this recording lacks events. */
export interface RecordEarlierAdvice extends AdviceBase {
  readonly kind: 'record-earlier';
}

/** Make the job smaller: live memory alone does not fit. */
export interface LessDemandAdvice extends AdviceBase {
  readonly kind: 'less-demand';
  readonly peakDemand: number;
  readonly capacity: number;
}

/** Look at one request: it is out of proportion. */
export interface OversizedAdvice extends AdviceBase {
  readonly kind: 'oversized';
  readonly request: OversizedRequest;
}

/** An allocator against the recorded one, in replay. */
export interface Effect {
  /** Peak reserved without a limit. */
  readonly peak: { readonly before: number; readonly after: number };
  /** The run fits the GPU in question, or may fit, and did not with the recorded allocator. */
  readonly fit: { readonly isSure: boolean; readonly capacity: number; readonly capacityAtLeast: number | undefined } | undefined;
  /** Smallest GPU; only if it shrinks. */
  readonly smallestGpu: { readonly before: number; readonly after: number } | undefined;
}

/** A saving below this share is not worth a setting. */
export const WORTHWHILE = 0.03;
/** Warnings about missing events, which a recording from the start would have. */
const INCOMPLETE: readonly Warning['code'][] = ['late-start', 'overflow', 'no-history', 'frees-skipped'];

export interface AdviceContext {
  readonly summary: TraceSummary;
  readonly capacity: number | undefined;
  readonly capacityAtLeast?: number | undefined;
  readonly oversized?: OversizedRequest | undefined;
  readonly warnings: readonly Warning[];
  /** The recording's file, for commands that name it. */
  readonly source: string;
}

/** What no allocator can change comes first, then settings and Weir, then how to record more. */
export function advise(rows: readonly WhatIfRow[], context: AdviceContext): Advice[] {
  const recorded = rows.find((row) => row.isRecorded);
  return [...demandAdvice(context), ...(recorded ? allocatorAdvice(rows, recorded, context) : []), ...recordingAdvice(context)];
}

function allocatorAdvice(rows: readonly WhatIfRow[], recorded: WhatIfRow, context: AdviceContext): Advice[] {
  const savedBytes = (row: WhatIfRow) => recorded.unlimited.peakReserved - row.unlimited.peakReserved;
  const settings = rows.filter((row) => !row.isRecorded && row.conf !== undefined);
  const advised = best(settings.filter((row) => isBetter(row, recorded)));
  // A second setting is for jobs that cannot use the first. A larger peak is a risk that such a job need not take.
  const fallbacks = settings.filter((row) => row !== advised && isBetter(row, recorded) && savedBytes(row) >= 0);
  const fallback = advised && best(fallbacks);
  const advice: Advice[] = [advised, fallback]
    .filter((row) => row !== undefined)
    .map((row) => ({
      kind: 'setting',
      conf: row.conf!,
      isFallback: row === fallback && advised!.kind === 'expandable',
      effect: effectOf(row, recorded, context),
      savedBytes: savedBytes(row),
    }));
  const engine = rows.find((row) => row.kind === 'weir' && !row.isRecorded && isBetter(row, recorded));
  if (engine && settings.every((row) => isBetter(engine, row)))
    advice.push({
      kind: 'engine',
      source: context.source,
      effect: effectOf(engine, recorded, context),
      savedBytes: savedBytes(engine),
    });
  return advice;
}

/** What only the program can change. */
function demandAdvice({ summary, capacity, oversized }: AdviceContext): Advice[] {
  const advice: Advice[] = [];
  if (oversized) advice.push({ kind: 'oversized', request: oversized, savedBytes: 0 });
  // Beside a request that is out of proportion, the rest of the demand is what counts.
  const peakDemand = oversized ? summary.peakLive : summary.peakDemand;
  if (capacity !== undefined && peakDemand > capacity) advice.push({ kind: 'less-demand', peakDemand, capacity, savedBytes: 0 });
  return advice;
}

function recordingAdvice({ warnings }: AdviceContext): Advice[] {
  return warnings.some(({ code }) => INCOMPLETE.includes(code)) ? [{ kind: 'record-earlier', savedBytes: 0 }] : [];
}

/**
 * Whether one allocator is worth changing to from another. What counts is first whether the run fits, then the least
 * memory it runs on, then the peak. A row that is worse in one of them is advised only if it fits and the other does not.
 */
function isBetter(row: WhatIfRow, other: WhatIfRow): boolean {
  const need = compareNeed(row, other);
  if (rank(row) > rank(other) || need > 0) return false;
  if (rank(row) < rank(other)) return true;
  const { peakReserved } = row.unlimited;
  if (peakReserved > other.unlimited.peakReserved) return false;
  if (need < 0 && row.smallestGpu! < other.smallestGpu! * (1 - WORTHWHILE)) return true;
  return peakReserved < other.unlimited.peakReserved * (1 - WORTHWHILE);
}

/** The best of some rows by the same measures; undefined: there are none. */
function best(rows: readonly WhatIfRow[]): WhatIfRow | undefined {
  const leastRank = Math.min(...rows.map(rank));
  const fitting = rows.filter((row) => rank(row) === leastRank);
  const leastNeed = fitting.reduce<WhatIfRow | undefined>((least, row) => (least && needOf(least) <= needOf(row) ? least : row), undefined);
  const leanest = fitting.filter((row) => compareNeed(row, leastNeed!) === 0);
  return leanest.reduce<WhatIfRow | undefined>(
    (least, row) => (least && least.unlimited.peakReserved <= row.unlimited.peakReserved ? least : row),
    undefined,
  );
}

/** 0: the run fits, or the GPU's size is unknown. 1: it may fit. 2: it does not fit. */
function rank(row: WhatIfRow): number {
  if (row.limited && row.limited.ooms > 0) return 2;
  return row.isSure === false ? 1 : 0;
}

function needOf(row: WhatIfRow): number {
  return row.smallestGpu ?? row.unlimited.peakReserved;
}

/** Below 0: the first runs on less memory. 0: the difference is within the precision of the search, or it was not searched for. */
function compareNeed(row: WhatIfRow, other: WhatIfRow): number {
  if (row.smallestGpu === undefined || other.smallestGpu === undefined) return 0;
  const precision = Math.max(searchStep(row.unlimited.peakReserved), searchStep(other.unlimited.peakReserved));
  const difference = row.smallestGpu - other.smallestGpu;
  return Math.abs(difference) <= precision ? 0 : difference;
}

function effectOf(row: WhatIfRow, recorded: WhatIfRow, { capacity, capacityAtLeast }: AdviceContext): Effect {
  const peak = { before: recorded.unlimited.peakReserved, after: row.unlimited.peakReserved };
  const nowFits = capacity !== undefined && recorded.limited && row.limited && recorded.limited.ooms > 0 && row.limited.ooms === 0;
  const shrinks = row.smallestGpu !== undefined && recorded.smallestGpu !== undefined && row.smallestGpu < recorded.smallestGpu;
  return {
    peak,
    fit: nowFits ? { isSure: row.isSure !== false, capacity, capacityAtLeast } : undefined,
    smallestGpu: shrinks ? { before: recorded.smallestGpu, after: row.smallestGpu } : undefined,
  };
}
