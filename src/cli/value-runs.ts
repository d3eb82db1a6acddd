// The runs that `weir fit --serve` shows other values of: written by the command, read by the threads of the page.
import { join } from 'node:path';
import type { Point } from '../fit/monomials.ts';
import type { FitRun } from '../fit/sequence.ts';
import { writeWeir } from '../trace/weir/writer.ts';
import { ValueSession } from '../view/value-session.ts';
import { loadRecording } from './input.ts';
import { openOutput } from './output.ts';

interface StoredRun {
  readonly file: string;
  readonly values: Point;
}

/** Everything that a thread needs. */
export interface ValueTask {
  readonly runs: readonly StoredRun[];
  readonly names: readonly string[];
  readonly gpuBytes: number;
  readonly multiple: number;
  /** As the command line writes them. */
  readonly allocators: string;
}

export function writeRuns(folder: string, runs: readonly FitRun[]): StoredRun[] {
  return runs.map(({ trace, values }) => {
    const file = join(folder, `${values.join('x')}.weir`);
    const output = openOutput(file, false);
    writeWeir({ format: 'weir', traces: [trace] }, (chunk) => output.write(chunk));
    output.finish();
    return { file, values };
  });
}

export async function loadValues(
  name: string,
  { runs, names, gpuBytes, multiple, allocators }: ValueTask,
  onProgress: (fraction: number, doing: string) => void,
): Promise<ValueSession> {
  const loaded: FitRun[] = [];
  for (const [index, { file, values }] of runs.entries()) {
    const update = (fraction: number, doing: string) => onProgress((index + fraction) / runs.length, doing);
    const { traces } = await loadRecording(file, { update, clear: () => {} });
    loaded.push({ trace: traces[0]!, values });
  }
  onProgress(1, 'comparing the runs');
  return new ValueSession({ runs: loaded, names, gpuBytes, multiple }, name, allocators);
}
