// Explains failures in a thread of its own: replaying what other settings would have done must not keep rings from being emptied.
// A damaged ring or a large table may make it long, so it has a limit. What is known until then is told.
import { Worker } from 'node:worker_threads';
import { dismiss } from '../../base/thread.ts';
import type { FailureFacts } from '../../report/failure.ts';

export interface FailureTask {
  /** The file about the failure. */
  readonly bytes: Uint8Array;
  readonly gpu: number;
  /** Whether other settings are tried. */
  readonly replays: boolean;
}

/** Of one task, by its place in the list: the facts so far, or why there are none or no more. */
export type FailureMessage =
  | { readonly task: number; readonly facts: FailureFacts }
  | { readonly task: number; readonly problem: string }
  | 'done';

export interface Explanation {
  readonly facts?: FailureFacts | undefined;
  /** Why something is missing. */
  readonly problem?: string | undefined;
}

export interface ExplanationLimits {
  readonly mostMs: number;
  /** Cuts the explanation off. Its reason says how: `by a signal`. */
  readonly signal?: AbortSignal | undefined;
  /** Other than the usual thread, for tests. */
  readonly script?: URL | undefined;
}

/** One explanation for each task. Always comes to an end. */
export async function explainInThread(tasks: readonly FailureTask[], limits: ExplanationLimits): Promise<Explanation[]> {
  const found: Explanation[] = tasks.map(() => ({}));
  const { mostMs, signal } = limits;
  if (signal?.aborted) return found.map(() => ({ problem: cut(String(signal.reason)) }));
  let worker: Worker;
  try {
    worker = new Worker(limits.script ?? new URL('./failure-worker.js', import.meta.url), { workerData: tasks });
  } catch (error) {
    return found.map(() => ({ problem: reasonOf(error) }));
  }
  let timer: NodeJS.Timeout | undefined;
  let stop = () => {};
  const problem = await new Promise<string | undefined>((resolve) => {
    timer = setTimeout(() => resolve(cut(`after ${Math.ceil(mostMs / 1000)} s`)), mostMs);
    stop = () => resolve(cut(String(signal?.reason)));
    signal?.addEventListener('abort', stop);
    worker.on('error', (error) => resolve(reasonOf(error)));
    worker.on('exit', () => resolve('the thread that looked at it ended early'));
    worker.on('message', (message: FailureMessage) => {
      if (message === 'done') resolve(undefined);
      else found[message.task] = { ...found[message.task], ...message };
    });
  });
  clearTimeout(timer);
  signal?.removeEventListener('abort', stop);
  dismiss(worker);
  return problem === undefined ? found : found.map((each) => ({ problem, ...each }));
}

function cut(how: string): string {
  return `the explanation was cut ${how}`;
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
