// Gives recordings to worker threads, one at a time each, and collects the answers in order.
// What can be read only once is analysed here, since the worst recording is needed again.
import { InputError } from '../base/errors.ts';
import { type RankRow, worstRank } from '../report/ranks.ts';
import type { Recording } from '../trace/trace.ts';
import { loadRecording } from './input.ts';
import { isReadOnce } from './input-pieces.ts';
import type { Progress } from './progress.ts';
import { type RankAnswer, type RankTask, rankRowsOf } from './rank-rows.ts';
import { runInWorkers } from './worker-pool.ts';

export interface RankResults {
  readonly answers: readonly RankAnswer[];
  /** The worst of the recordings that cannot be read again. */
  readonly kept: KeptRecording | undefined;
}

interface KeptRecording {
  readonly file: string;
  readonly recording: Recording;
  readonly rows: readonly RankRow[];
}

export async function analyzeRanks(tasks: readonly RankTask[], progress: Progress): Promise<RankResults> {
  const answers: RankAnswer[] = [];
  let kept: KeptRecording | undefined;
  const collect = (answer: RankAnswer) => {
    answers[answer.index] = answer;
    const done = Object.keys(answers).length;
    progress.update(done / tasks.length, `analysed ${done} of ${tasks.length} files`);
  };
  const once = tasks.filter((task) => isReadOnce(task.file));
  const inWorkers = runInWorkers(
    new URL('./rank-worker.js', import.meta.url),
    tasks.filter((task) => !once.includes(task)),
    collect,
  );
  const here = async () => {
    for (const task of once) {
      const { rows, problem, recording } = await analyzeHere(task, progress);
      collect({ index: task.index, rows, problem });
      if (recording && rows.length > 0 && rows.includes(worstRank([...(kept?.rows ?? []), ...rows])))
        kept = { file: task.file, recording, rows };
    }
  };
  await Promise.all([inWorkers, here()]);
  return { answers, kept };
}

async function analyzeHere(task: RankTask, progress: Progress): Promise<Omit<RankAnswer, 'index'> & { recording?: Recording }> {
  try {
    const recording = await loadRecording(task.file, progress);
    return { recording, rows: rankRowsOf(recording, task), problem: undefined };
  } catch (error) {
    if (error instanceof InputError) return { rows: [], problem: error.message };
    throw error;
  }
}
