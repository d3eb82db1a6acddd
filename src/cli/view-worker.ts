// Worker thread that holds one recording and answers the page's questions about it.
import { type MessagePort, parentPort, receiveMessageOnPort, workerData } from 'node:worker_threads';
import { sharedMemory } from '../base/columns.ts';
import type { Recording } from '../trace/trace.ts';
import { Answering, type Answers, type Asked, type Cancelled } from '../view/answering.ts';
import { encodeAnswer } from '../view/wire.ts';
import { loadRecording } from './input.ts';
import { recordingWithVersion } from './pytorch-version.ts';
import { loadValues, type ValueTask } from './value-runs.ts';
import { readForBoth, receiveRecording } from './view-handover.ts';

export interface ViewTask {
  readonly path: string;
  /** The PyTorch that made the recording, if the user knows it. */
  readonly pytorch: string | undefined;
  /** The file is one of several runs: the page asks about runs of other values. */
  readonly values?: ValueTask | undefined;
  /** Another thread gets the recording from this one here. */
  readonly giveTo?: MessagePort | undefined;
  /** Another thread reads the file and hands the recording over here. */
  readonly takeFrom?: MessagePort | undefined;
}

type OnProgress = (fraction: number, doing: string) => void;

const { path, pytorch, values, giveTo, takeFrom } = workerData as ViewTask;
const port = parentPort!;

const answering = new Answering(
  path,
  load,
  (told) => {
    if (!('answer' in told)) {
      port.postMessage(told);
      return;
    }
    const bytes = encodeAnswer(told.answer);
    port.postMessage({ id: told.id, answer: bytes }, [bytes.buffer]);
  },
  () => receiveMessageOnPort(port)?.message as Asked | Cancelled | undefined,
);

port.on('message', (message: Asked | Cancelled) => answering.receive(message));
answering.open();

async function load(onProgress: OnProgress): Promise<Recording | Answers> {
  if (values) return loadValues(path, values, onProgress);
  if (giveTo) return readForBoth(giveTo, read, onProgress);
  return (takeFrom && (await receiveRecording(takeFrom, onProgress))) ?? read(onProgress);
}

async function read(onProgress: OnProgress): Promise<Recording> {
  const progress = { update: onProgress, clear: () => {} };
  return recordingWithVersion(await loadRecording(path, progress, giveTo && sharedMemory), pytorch);
}
