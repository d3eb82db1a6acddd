// Worker thread that converts one recording, so that the main thread can handle Ctrl-C.
import { parentPort, workerData } from 'node:worker_threads';
import { InputError } from '../base/errors.ts';
import { writeSnapshotJson } from '../trace/snapshot-json.ts';
import { writeWeir } from '../trace/weir/writer.ts';
import { loadRecording } from './input.ts';
import { openOutput } from './output.ts';

export interface ConvertTask {
  readonly from: string;
  /** The file that it will be. */
  readonly to: string;
  /** The file to write; the main thread renames it at the end. */
  readonly temporary: string;
  readonly format: 'weir' | 'json';
  readonly gzip: boolean;
  readonly version: string;
}

export type ConvertMessage =
  | { readonly kind: 'progress'; readonly fraction: number; readonly doing: string }
  | { readonly kind: 'done'; readonly gpus: number; readonly events: number; readonly eventsLeftOut: number; readonly bytes: number }
  | { readonly kind: 'problem'; readonly message: string };

const task = workerData as ConvertTask;
const send = (message: ConvertMessage) => parentPort?.postMessage(message);

try {
  const recording = await loadRecording(task.from, {
    update: (fraction, doing) => send({ kind: 'progress', fraction: fraction / 2, doing }),
    clear: () => {},
  });
  send({ kind: 'progress', fraction: 0.5, doing: 'writing' });
  const output = openOutput(task.temporary, task.gzip);
  let eventsLeftOut = 0;
  if (task.format === 'weir') writeWeir(recording, (chunk) => output.write(chunk), { tool: 'weir', version: task.version });
  else eventsLeftOut = writeSnapshotJson(recording, (text) => output.write(Buffer.from(text)));
  const bytes = output.finish();
  const events = recording.traces.reduce((sum, trace) => sum + trace.events.count, 0);
  send({ kind: 'done', gpus: recording.traces.length, events, eventsLeftOut, bytes });
} catch (error) {
  const expected = error instanceof InputError || (error instanceof Error && 'syscall' in error);
  if (!expected) throw error;
  send({ kind: 'problem', message: error.message });
}
