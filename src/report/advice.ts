// What to do about it: one copyable line per suggestion, with the effect it had in replay.
import { formatBytes } from '../base/bytes.ts';
import type { TraceSummary } from '../trace/summary.ts';
import type { Warning } from '../trace/trace.ts';
import type { WhatIfRow } from './what-if.ts';

export interface Advice {
  /** A line to copy into a shell or a script. */
  readonly line: string;
  /** What it did in replay, or why it is worth doing. */
  readonly effect: string;
  /** Reserved bytes saved at the peak against the recorded allocator; 0 where that is not the point. */
  readonly savedBytes: number;
}

/** A saving below this share is not worth a setting. */
const WORTHWHILE = 0.03;
const MOST_SETTINGS = 2;

export interface AdviceContext {
  readonly summary: TraceSummary;
  readonly capacity: number | undefined;
  readonly capacityAtLeast?: number | undefined;
  readonly warnings: readonly Warning[];
  /** The recording's file, for lines that name it. */
  readonly source: string;
}

export function advise(rows: readonly WhatIfRow[], context: AdviceContext): Advice[] {
  const { summary, capacity, warnings, source } = context;
  const recorded = rows.find((row) => row.isRecorded);
  const advice: Advice[] = [];
  if (recorded) {
    const better = rows
      .filter((row) => !row.isRecorded && row.choice.conf !== undefined && isBetter(row, recorded))
      .sort((a, b) => rank(a) - rank(b) || needOf(a) - needOf(b))
      .slice(0, MOST_SETTINGS);
    for (const [index, row] of better.entries()) {
      const otherwise =
        index > 0 && better[0]!.choice.kind === 'expandable' ? 'where expandable segments cannot be used (CUDA IPC, WSL): ' : '';
      advice.push({
        line: `export PYTORCH_CUDA_ALLOC_CONF=${quoted(row.choice.conf ?? '')}`,
        effect: otherwise + effectOf(row, recorded, context),
        savedBytes: recorded.unlimited.peakReserved - row.unlimited.peakReserved,
      });
    }
  }
  const stitched = recorded && rows.find((row) => row.choice.kind === 'weir' && isBetter(row, recorded) && isBest(row, rows));
  if (recorded && stitched) {
    advice.push({
      line: 'weir run -- COMMAND  # the command that starts the job',
      effect: `stitching free pieces together would do best: ${effectOf(stitched, recorded, context)} (weir replay ${source} --allocator weir,expandable shows more)`,
      savedBytes: recorded.unlimited.peakReserved - stitched.unlimited.peakReserved,
    });
  }
  const codes = new Set(warnings.map((warning) => warning.code));
  if (codes.has('late-start') || codes.has('overflow') || codes.has('no-history') || codes.has('frees-skipped')) {
    advice.push({
      line: 'torch.cuda.memory._record_memory_history(max_entries=5_000_000)  # before the model is built',
      effect: 'a recording from the start needs no rebuilding of what lay there before',
      savedBytes: 0,
    });
  }
  if (capacity !== undefined && summary.peakDemand > capacity) {
    advice.push({
      line: 'model.gradient_checkpointing_enable()  # or a smaller batch',
      effect: `live memory alone comes to ${formatBytes(summary.peakDemand)}, more than ${formatBytes(capacity)}: no allocator can make that fit`,
      savedBytes: 0,
    });
  }
  return advice;
}

/** Fits where the recorded one does not, or needs markedly less. */
function isBetter(row: WhatIfRow, recorded: WhatIfRow): boolean {
  if (rank(row) < rank(recorded)) return true;
  if (rank(row) > rank(recorded) || row.unlimited.peakReserved > recorded.unlimited.peakReserved) return false;
  return (
    needOf(row) < needOf(recorded) * (1 - WORTHWHILE) || row.unlimited.peakReserved < recorded.unlimited.peakReserved * (1 - WORTHWHILE)
  );
}

/** Needs markedly less than every setting of PyTorch's. */
function isBest(row: WhatIfRow, rows: readonly WhatIfRow[]): boolean {
  return rows.every(
    (other) => other.choice.conf === undefined || row.unlimited.peakReserved < other.unlimited.peakReserved * (1 - WORTHWHILE),
  );
}

/** 0 when the run fits the GPU in question, or nobody knows its size; 1 when that depends on how large it is exactly. */
function rank(row: WhatIfRow): number {
  if (row.limited && row.limited.ooms > 0) return 2;
  return row.isSure === false ? 1 : 0;
}

function needOf(row: WhatIfRow): number {
  return row.smallestGpu ?? row.unlimited.peakReserved;
}

function effectOf(row: WhatIfRow, recorded: WhatIfRow, { capacity, capacityAtLeast }: AdviceContext): string {
  const before = recorded.unlimited.peakReserved;
  const after = row.unlimited.peakReserved;
  const change = Math.round((100 * (after - before)) / before);
  const peak = `peak reserved ${formatBytes(before)} -> ${formatBytes(after)} (${change > 0 ? '+' : ''}${change} %)`;
  if (capacity !== undefined && recorded.limited && row.limited && recorded.limited.ooms > 0 && row.limited.ooms === 0) {
    const where =
      row.isSure === false
        ? `may fit, if the job had nearly ${formatBytes(capacity)} and not only ${formatBytes(capacityAtLeast ?? 0)}`
        : `fits in ${formatBytes(capacityAtLeast ?? capacity)}`;
    return `${where}, where the recorded settings do not; ${peak} where memory is no limit`;
  }
  if (row.smallestGpu !== undefined && recorded.smallestGpu !== undefined && row.smallestGpu < recorded.smallestGpu) {
    return `${peak}; runs on ${formatBytes(row.smallestGpu)} instead of ${formatBytes(recorded.smallestGpu)}`;
  }
  return peak;
}

function quoted(conf: string): string {
  return /[[\]>]/.test(conf) ? `'${conf}'` : conf === '' ? "''" : conf;
}
