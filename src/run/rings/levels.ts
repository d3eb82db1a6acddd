// Which process uses which GPU, and what it holds there now: what the metrics, the page and the summary are made of.
import type { ProcessRecording } from './process-recording.ts';
import type { Gauges } from './ring-layout.ts';

export interface Level {
  readonly process: ProcessRecording;
  readonly gpu: number;
  readonly gauges: Gauges;
}

export function levelsOf(processes: readonly ProcessRecording[]): Level[] {
  return processes.flatMap((process) => [...process.gauges].map(([gpu, gauges]) => ({ process, gpu, gauges })));
}

/** What a process is called: by its rank, or by its number where it has none. */
export function processName({ owner }: ProcessRecording): string {
  return owner.rank >= 0 ? `rank ${owner.rank}` : `process ${owner.pid}`;
}

/** The same with the GPU, where the process uses several. */
export function levelName({ process, gpu }: Level): string {
  return process.gauges.size > 1 ? `${processName(process)}, GPU ${gpu}` : processName(process);
}
