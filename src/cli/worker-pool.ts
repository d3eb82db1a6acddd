// Gives tasks to worker threads, one at a time each, as many threads as there are cores.
import { availableParallelism } from 'node:os';
import { Worker } from 'node:worker_threads';
import { dismiss } from '../base/thread.ts';

/** Resolves when every task has its answer. Rejects if a thread itself fails, or the signal aborts. */
export async function runInWorkers<Task, Answer>(
  script: URL,
  tasks: readonly Task[],
  collect: (answer: Answer) => void,
  signal?: AbortSignal,
): Promise<void> {
  let next = 0;
  const workers = Array.from({ length: Math.min(tasks.length, availableParallelism()) }, () => new Worker(script));
  try {
    await Promise.all(
      workers.map(
        (worker) =>
          new Promise<void>((resolve, reject) => {
            const hand = () => {
              const task = tasks[next++];
              if (task !== undefined) worker.postMessage(task);
              else resolve();
            };
            worker.on('message', (answer: Answer) => {
              collect(answer);
              hand();
            });
            worker.on('error', reject);
            signal?.addEventListener('abort', () => reject(signal.reason), { once: true });
            hand();
          }),
      ),
    );
  } finally {
    for (const worker of workers) dismiss(worker);
  }
}
