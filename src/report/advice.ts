// What to do about a run, as facts: one suggestion each, with the effect it had in replay.
import type { TraceSummary } from '../trace/summary.ts';
import type { Warning } from '../trace/trace.ts';
import type { WhatIfRow } from './what-if.ts';

export type Advice = SettingAdvice | EngineAdvice | RecordEarlierAdvice | LessDemandAdvice;

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
const MOST_SETTINGS = 2;
/** Warnings about missing events, which a recording from the start would have. */
const INCOMPLETE: readonly Warning['code'][] = ['late-start', 'overflow', 'no-history', 'frees-skipped'];

export interface AdviceContext {
  readonly summary: TraceSummary;
  readonly capacity: number | undefined;
  readonly capacityAtLeast?: number | undefined;
  readonly warnings: readonly Warning[];
  /** The recording's file, for commands that name it. */
  readonly source: string;
}

export function advise(rows: readonly WhatIfRow[], context: AdviceContext): Advice[] {
  const recorded = rows.find((row) => row.isRecorded);
  return [...(recorded ? allocatorAdvice(rows, recorded, context) : []), ...otherAdvice(context)];
}

function allocatorAdvice(rows: readonly WhatIfRow[], recorded: WhatIfRow, context: AdviceContext): Advice[] {
  const savedBytes = (row: WhatIfRow) => recorded.unlimited.peakReserved - row.unlimited.peakReserved;
  const better = rows
    .filter((row) => !row.isRecorded && row.conf !== undefined && isBetter(row, recorded))
    .sort((a, b) => rank(a) - rank(b) || needOf(a) - needOf(b))
    .slice(0, MOST_SETTINGS);
  const advice: Advice[] = better.map((row, index) => ({
    kind: 'setting',
    conf: row.conf!,
    isFallback: index > 0 && better[0]!.kind === 'expandable',
    effect: effectOf(row, recorded, context),
    savedBytes: savedBytes(row),
  }));
  const engine = rows.find((row) => row.kind === 'weir' && isBetter(row, recorded) && isBest(row, rows));
  if (engine)
    advice.push({
      kind: 'engine',
      source: context.source,
      effect: effectOf(engine, recorded, context),
      savedBytes: savedBytes(engine),
    });
  return advice;
}

function otherAdvice({ summary: { peakDemand }, capacity, warnings }: AdviceContext): Advice[] {
  const advice: Advice[] = [];
  if (warnings.some(({ code }) => INCOMPLETE.includes(code))) advice.push({ kind: 'record-earlier', savedBytes: 0 });
  if (capacity !== undefined && peakDemand > capacity) advice.push({ kind: 'less-demand', peakDemand, capacity, savedBytes: 0 });
  return advice;
}

/** Fits and the recorded one does not, or needs markedly less. */
function isBetter(row: WhatIfRow, recorded: WhatIfRow): boolean {
  if (rank(row) < rank(recorded)) return true;
  if (rank(row) > rank(recorded) || row.unlimited.peakReserved > recorded.unlimited.peakReserved) return false;
  return (
    needOf(row) < needOf(recorded) * (1 - WORTHWHILE) || row.unlimited.peakReserved < recorded.unlimited.peakReserved * (1 - WORTHWHILE)
  );
}

/** Needs markedly less than every setting of PyTorch's allocator. */
function isBest(row: WhatIfRow, rows: readonly WhatIfRow[]): boolean {
  return rows.every((other) => other.conf === undefined || row.unlimited.peakReserved < other.unlimited.peakReserved * (1 - WORTHWHILE));
}

/** 0: the run fits, or the GPU's size is unknown. 1: it may fit. 2: it does not fit. */
function rank(row: WhatIfRow): number {
  if (row.limited && row.limited.ooms > 0) return 2;
  return row.isSure === false ? 1 : 0;
}

function needOf(row: WhatIfRow): number {
  return row.smallestGpu ?? row.unlimited.peakReserved;
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
