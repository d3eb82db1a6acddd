// Reads what `weir plan` and `weir verify` are given: a recording, a list of buffers, a text trace or accesses.
import { type PlanInput, planInputOf, readPlanText } from '../plan/files/plan-input.ts';
import { readRecording } from '../trace/detect.ts';
import { naming, pickGpus, readBytes, requireDemand } from './input.ts';
import type { Progress } from './progress.ts';

/** Formats that are text are told by their beginning; anything else is a recording. */
export async function loadPlanInput(path: string, swap: boolean, gpu: number | undefined, progress: Progress): Promise<PlanInput> {
  const bytes = await readBytes(path, progress);
  return naming(path, () => {
    const isBinary = bytes[0] === undefined || bytes[0] >= 0x80;
    const text = isBinary ? undefined : readPlanText(new TextDecoder().decode(bytes));
    if (text) return text;
    const recording = readRecording(bytes, { onProgress: (done) => progress.update(done, `reading ${path}`) });
    // The first GPU unless another is named: a plan is for one.
    const [trace] = pickGpus(recording, gpu ?? recording.traces[0]?.device, path);
    requireDemand([trace!], undefined, 'requests');
    return planInputOf(trace!, swap);
  });
}
