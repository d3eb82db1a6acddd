// Reads the input of `weir plan` and `weir verify`: a recording, a list of buffers, a text trace or accesses.
import { looksLikeAutoSwap } from '../plan/files/autoswap-trace.ts';
import { looksLikeBufferCsv } from '../plan/files/buffer-csv.ts';
import { looksLikeMallocText } from '../plan/files/malloc-text.ts';
import { looksLikePlan, refusePlan } from '../plan/files/plan-bytes.ts';
import { type PlanInput, planInputOf, readPlanText } from '../plan/files/plan-input.ts';
import { readRecording } from '../trace/detect.ts';
import { naming, pickGpus, readInput, requireDemand } from './input.ts';
import type { Progress } from './progress.ts';

/** Text formats are recognised by their beginning; anything else is a recording. */
export async function loadPlanInput(
  path: string,
  wants: { readonly command: 'plan' | 'verify'; readonly swap: boolean; readonly gpu: number | undefined },
  progress: Progress,
): Promise<PlanInput> {
  const input = await readInput(path, progress, looksLikeText);
  return naming(path, () => {
    if (input instanceof Uint8Array) refusePlan(input, wants.command);
    const text = input instanceof Uint8Array ? readPlanText(new TextDecoder().decode(input)) : undefined;
    if (text) return text;
    const recording = input instanceof Uint8Array ? readRecording(input) : input;
    // A plan is for one GPU: the first one, unless --gpu names another.
    const [trace] = pickGpus(recording, wants.gpu ?? recording.traces[0]?.device, path);
    requireDemand([trace!], undefined, 'requests');
    return planInputOf(trace!, wants.swap);
  });
}

function looksLikeText(bytes: Uint8Array): boolean {
  if (bytes[0] === undefined || bytes[0] >= 0x80) return false;
  const start = new TextDecoder().decode(bytes);
  // Whether JSON is a list of accesses shows further on. A snapshot has other keys.
  const mayBeAccesses = /^\s*\{\s*"(workload|steps)"/.test(start);
  return mayBeAccesses || looksLikePlan(bytes) || looksLikeBufferCsv(start) || looksLikeAutoSwap(start) || looksLikeMallocText(start);
}
