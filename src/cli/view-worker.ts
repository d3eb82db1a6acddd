// Worker thread that holds one recording and answers the page's questions about it.
import { parentPort, receiveMessageOnPort, workerData } from 'node:worker_threads';
import { Answering, type Asked, type Cancelled } from '../view/answering.ts';
import { encodeAnswer } from '../view/wire.ts';
import { loadRecording } from './input.ts';
import { recordingWithVersion } from './pytorch-version.ts';

export interface ViewTask {
  readonly path: string;
  /** The PyTorch that made the recording, if the user knows it. */
  readonly pytorch: string | undefined;
}

const { path, pytorch } = workerData as ViewTask;
const port = parentPort!;

const answering = new Answering(
  path,
  async (onProgress) => recordingWithVersion(await loadRecording(path, { update: onProgress, clear: () => {} }), pytorch),
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
