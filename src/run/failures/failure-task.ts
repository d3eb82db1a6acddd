// Explains a failure in a thread of its own: replaying what other settings would have done must not keep rings from being emptied.
import { Worker } from 'node:worker_threads';
import { dismiss } from '../../base/thread.ts';
import type { FailureFacts } from '../../report/failure.ts';

export interface FailureTask {
  /** The file about the failure. */
  readonly bytes: Uint8Array;
  readonly gpu: number;
}

export type FailureMessage = { readonly facts: FailureFacts } | { readonly problem: string };

/** The facts, or a sentence that says why there are none. */
export async function explainInThread(task: FailureTask): Promise<FailureFacts | string> {
  const worker = new Worker(new URL('./failure-worker.js', import.meta.url), { workerData: task });
  try {
    return await new Promise((resolve, reject) => {
      worker.on('error', reject);
      worker.on('message', (message: FailureMessage) => resolve('facts' in message ? message.facts : message.problem));
      worker.on('exit', () => resolve('the thread that looked at it ended early'));
    });
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  } finally {
    dismiss(worker);
  }
}
