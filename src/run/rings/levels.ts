// Memory that each process holds on each GPU now, for the metrics, the page and the summary.
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

/** Name of a process: its rank, or its pid if it has none. */
export function processName({ owner }: Pick<ProcessRecording, 'owner'>): string {
  return owner.rank >= 0 ? `rank ${owner.rank}` : `process ${owner.pid}`;
}

/** Name of a level: the process, and the GPU if the process uses several. */
export function levelName({ process, gpu }: Level): string {
  return process.gauges.size > 1 ? `${processName(process)}, GPU ${gpu}` : processName(process);
}
