// Worker thread that holds one recording and answers the page's questions about it.
import { parentPort, workerData } from 'node:worker_threads';
import { Answering, type Asked } from '../view/answering.ts';
import { encodeAnswer } from '../view/wire.ts';
import { loadRecording } from './input.ts';

export interface ViewTask {
  readonly path: string;
}

const { path } = workerData as ViewTask;

const answering = new Answering(
  path,
  (onProgress) => loadRecording(path, { update: onProgress, clear: () => {} }),
  (told) => {
    if (!('answer' in told)) {
      parentPort?.postMessage(told);
      return;
    }
    const bytes = encodeAnswer(told.answer);
    parentPort?.postMessage({ id: told.id, answer: bytes }, [bytes.buffer]);
  },
);

parentPort?.on('message', (asked: Asked) => void answering.receive(asked));
