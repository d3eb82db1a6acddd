// What other allocators would have needed for what a process did: replayed in a thread, so that Ctrl-C is heard.
import { Worker } from 'node:worker_threads';
import { dismiss } from '../../base/thread.ts';

export interface WhatIfTask {
  readonly path: string;
  /** How much of the file to look at. */
  readonly bytes: number;
}

export interface WhatIfResult {
  readonly allocator: string;
  /** Where memory is no limit. */
  readonly peakReserved: number;
  /** Modelled. */
  readonly driverUs: number;
  /** Requests that would have failed within the limit, or the GPU; null where neither is known. */
  readonly ooms: number | null;
}

export interface GpuWhatIf {
  readonly gpu: number;
  /** Events replayed. */
  readonly events: number;
  readonly peakLive: number;
  readonly recordedPeakReserved: number | null;
  /** The model of PyTorch's allocator against this very run; null where another ran. */
  readonly replayError: { readonly compared: number; readonly differing: number } | null;
  readonly results: readonly WhatIfResult[];
}

export type WhatIfMessage =
  | { readonly fraction: number }
  | { readonly gpus: readonly GpuWhatIf[] }
  /** Why there is no answer. */
  | { readonly problem: string };

/** Rejects only if the thread breaks; an aborted one gives undefined. */
export async function runWhatIf(
  task: WhatIfTask,
  signal: AbortSignal,
  onProgress: (fraction: number) => void,
): Promise<readonly GpuWhatIf[] | string | undefined> {
  if (signal.aborted) return undefined;
  const worker = new Worker(new URL('./what-if-worker.js', import.meta.url), { workerData: task });
  try {
    return await new Promise((resolve, reject) => {
      signal.addEventListener('abort', () => resolve(undefined), { once: true });
      worker.on('error', reject);
      worker.on('message', (message: WhatIfMessage) => {
        if ('fraction' in message) onProgress(message.fraction);
        else resolve('gpus' in message ? message.gpus : message.problem);
      });
      worker.on('exit', () => resolve('the thread that replayed it ended early'));
    });
  } catch (error) {
    // A thread that runs out of memory must not take the summary with it.
    return error instanceof Error ? error.message : String(error);
  } finally {
    dismiss(worker);
  }
}
