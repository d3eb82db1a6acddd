// Worker thread that analyses one recording at a time for a comparison of ranks, with few allocators.
import { parentPort } from 'node:worker_threads';
import { chooseAllocators } from '../allocator/registry.ts';
import { InputError } from '../base/errors.ts';
import { analyzeTrace } from '../report/analysis.ts';
import { type RankRow, rankRow } from '../report/ranks.ts';
import { parseRule } from '../report/rules.ts';
import { loadRecording, pickGpus } from './input.ts';

export interface RankTask {
  readonly index: number;
  readonly file: string;
  readonly gpu: number | undefined;
  readonly capacity: number | undefined;
  readonly rules: readonly string[];
}

export interface RankAnswer {
  readonly index: number;
  readonly rows: readonly RankRow[];
  /** Why the file cannot be used. */
  readonly problem: string | undefined;
}

parentPort?.on('message', async (task: RankTask) => {
  const answer = (rows: readonly RankRow[], problem?: string) =>
    parentPort?.postMessage({ index: task.index, rows, problem } satisfies RankAnswer);
  try {
    const rules = task.rules.map(parseRule);
    const recording = await loadRecording(task.file, { update: () => {}, clear: () => {} });
    const rows = pickGpus(recording, task.gpu, task.file).map((trace) =>
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
    answer(rows);
  } catch (error) {
    if (error instanceof InputError) answer([], error.message);
    else throw error;
  }
});
