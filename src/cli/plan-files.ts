// Reads the input of `weir plan` and `weir verify`: a recording, a list of buffers, a text trace or accesses.

import { refusePlan } from '../plan/files/plan-bytes.ts';
import { type PlanInput, planInputOf, readPlanText } from '../plan/files/plan-input.ts';
import { readRecording } from '../trace/detect.ts';
import { naming, pickGpus, readBytes, requireDemand } from './input.ts';
import type { Progress } from './progress.ts';

/** Text formats are recognised by their beginning; anything else is a recording. */
export async function loadPlanInput(
  path: string,
  wants: { readonly command: 'plan' | 'verify'; readonly swap: boolean; readonly gpu: number | undefined },
  progress: Progress,
): Promise<PlanInput> {
  const bytes = await readBytes(path, progress);
  return naming(path, () => {
    refusePlan(bytes, wants.command);
    const isBinary = bytes[0] === undefined || bytes[0] >= 0x80;
    const text = isBinary ? undefined : readPlanText(new TextDecoder().decode(bytes));
    if (text) return text;
    const recording = readRecording(bytes, { onProgress: (done) => progress.update(done, `reading ${path}`) });
    // A plan is for one GPU: the first one, unless --gpu names another.
    const [trace] = pickGpus(recording, wants.gpu ?? recording.traces[0]?.device, path);
    requireDemand([trace!], undefined, 'requests');
    return planInputOf(trace!, wants.swap);
  });
}
