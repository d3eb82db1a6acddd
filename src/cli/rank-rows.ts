// One file of a comparison of ranks: what it takes, and its rows. Worker threads and the main thread share it.
import { chooseAllocators } from '../allocator/registry.ts';
import { analyzeTrace } from '../report/analysis.ts';
import { type RankRow, rankRow } from '../report/ranks.ts';
import { parseRule } from '../report/rules.ts';
import type { Recording } from '../trace/trace.ts';
import { pickGpus } from './input.ts';
import { withVersion } from './pytorch-version.ts';

export interface RankTask {
  readonly index: number;
  readonly file: string;
  readonly gpu: number | undefined;
  readonly capacity: number | undefined;
  /** The PyTorch that made the recordings, if the user knows it. */
  readonly pytorch: string | undefined;
  readonly rules: readonly string[];
}

export interface RankAnswer {
  readonly index: number;
  readonly rows: readonly RankRow[];
  /** Why the file cannot be used. */
  readonly problem: string | undefined;
}

/** Analyses the GPUs of a recording with few allocators. */
export function rankRowsOf(recording: Recording, task: RankTask): RankRow[] {
  const rules = task.rules.map(parseRule);
  return withVersion(pickGpus(recording, task.gpu, task.file), task.pytorch).map((trace) =>
    rankRow(
      analyzeTrace(trace, {
        capacity: task.capacity,
        allocators: chooseAllocators('expandable'),
        findSmallest: false,
        findRecordedSmallest: rules.some((rule) => rule.needsSmallest),
      }),
      task.file,
      rules,
      trace,
    ),
  );
}
