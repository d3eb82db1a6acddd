// Worker thread that plans swaps for the processes of a run. A plan takes seconds, and rings must be read meanwhile.
import { parentPort, workerData } from 'node:worker_threads';
import { watchSwapProfiles } from './swap-watch.ts';

/** A plan in words, or why there is none for a profile. */
export type SwapAnswer =
  | { readonly kind: 'planned'; readonly pid: number; readonly words: string; readonly moves: number }
  | { readonly kind: 'declined'; readonly pid: number; readonly reason: string };

const { directory } = workerData as { directory: string };
const stop = watchSwapProfiles(directory, {
  onPlan: (pid, plan, words) => parentPort?.postMessage({ kind: 'planned', pid, words, moves: plan.moves.length } satisfies SwapAnswer),
  onError: (pid, error) =>
    parentPort?.postMessage({
      kind: 'declined',
      pid,
      reason: error instanceof Error ? error.message : String(error),
    } satisfies SwapAnswer),
});
parentPort?.on('message', stop);
