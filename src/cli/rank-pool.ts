// Gives recordings to worker threads, one at a time each, and collects the answers in order.
import { availableParallelism } from 'node:os';
import { Worker } from 'node:worker_threads';
import { dismiss } from '../base/thread.ts';
import type { Progress } from './progress.ts';
import type { RankAnswer, RankTask } from './rank-worker.ts';

export async function analyzeRanks(tasks: readonly RankTask[], progress: Progress): Promise<RankAnswer[]> {
  const answers: RankAnswer[] = [];
  let next = 0;
  let done = 0;
  const workers = Array.from(
    { length: Math.min(tasks.length, availableParallelism()) },
    () => new Worker(new URL('./rank-worker.js', import.meta.url)),
  );
  try {
    await Promise.all(
      workers.map(
        (worker) =>
          new Promise<void>((resolve, reject) => {
            const hand = () => {
              const task = tasks[next++];
              if (task) worker.postMessage(task);
              else resolve();
            };
            worker.on('message', (answer: RankAnswer) => {
              answers[answer.index] = answer;
              progress.update(++done / tasks.length, `analysed ${done} of ${tasks.length} files`);
              hand();
            });
            worker.on('error', reject);
            hand();
          }),
      ),
    );
  } finally {
    for (const worker of workers) dismiss(worker);
  }
  return answers;
}
