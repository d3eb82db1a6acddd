// Compares other allocators for a finished process, in a thread, so that Ctrl-C still works.
import { Worker } from 'node:worker_threads';
import { dismiss } from '../../base/thread.ts';

export interface WhatIfTask {
  readonly path: string;
  /** Read this many bytes of the file. */
  readonly bytes: number;
}

export interface WhatIfResult {
  readonly allocator: string;
  /** Without a memory limit. */
  readonly peakReserved: number;
  /** Modelled. */
  readonly driverUs: number;
  /** Requests that fail within the memory limit or the GPU; null: neither is known. */
  readonly ooms: number | null;
}

export interface GpuWhatIf {
  readonly gpu: number;
  /** Events replayed. */
  readonly events: number;
  readonly peakLive: number;
  readonly recordedPeakReserved: number | null;
  /** How far the model of PyTorch's allocator is from this run; null: the job ran on another allocator. */
  readonly replayError: { readonly compared: number; readonly differing: number } | null;
  readonly results: readonly WhatIfResult[];
}

export type WhatIfMessage =
  | { readonly fraction: number }
  | { readonly gpus: readonly GpuWhatIf[] }
  /** Why there is no answer. */
  | { readonly problem: string };

/** The answer, a sentence that says why there is none, or undefined if it was aborted. */
export async function runWhatIf(
  task: WhatIfTask,
  signal: AbortSignal,
  onProgress: (fraction: number) => void,
): Promise<readonly GpuWhatIf[] | string | undefined> {
  if (signal.aborted) return undefined;
  const worker = new Worker(new URL('./what-if-worker.js', import.meta.url), { workerData: task });
  let abort = () => {};
  try {
    return await new Promise((resolve, reject) => {
      abort = () => resolve(undefined);
      signal.addEventListener('abort', abort);
      worker.on('error', reject);
      worker.on('message', (message: WhatIfMessage) => {
        if ('fraction' in message) onProgress(message.fraction);
        else resolve('gpus' in message ? message.gpus : message.problem);
      });
      worker.on('exit', () => resolve('the thread that replayed it ended early'));
    });
  } catch (error) {
    // The rest of the summary must survive a thread that runs out of memory.
    return error instanceof Error ? error.message : String(error);
  } finally {
    // One signal serves the replays of all processes.
    signal.removeEventListener('abort', abort);
    dismiss(worker);
  }
}
