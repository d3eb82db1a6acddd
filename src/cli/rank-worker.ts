// Worker thread that analyses one recording at a time for a comparison of ranks, with few allocators.
import { parentPort } from 'node:worker_threads';
import { InputError } from '../base/errors.ts';
import type { RankRow } from '../report/ranks.ts';
import { loadRecording } from './input.ts';
import { type RankAnswer, type RankTask, rankRowsOf } from './rank-rows.ts';

parentPort?.on('message', async (task: RankTask) => {
  const answer = (rows: readonly RankRow[], problem?: string) =>
    parentPort?.postMessage({ index: task.index, rows, problem } satisfies RankAnswer);
  try {
    answer(rankRowsOf(await loadRecording(task.file, { update: () => {}, clear: () => {} }), task));
  } catch (error) {
    if (error instanceof InputError) answer([], error.message);
    else throw error;
  }
});
