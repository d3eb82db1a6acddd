// The way of a recording from the thread that reads the file to the thread beside it. Both hold its columns together.
import type { MessagePort } from 'node:worker_threads';
import { type PackedRecording, packRecording, unpackRecording } from '../trace/handover.ts';
import type { Recording } from '../trace/trace.ts';

type OnProgress = (fraction: number, doing: string) => void;

type Message =
  | { readonly recording: PackedRecording }
  | { readonly fraction: number; readonly doing: string }
  /** The file could not be read. */
  | { readonly failed: true };

const PROGRESS_EVERY_MS = 80;

/** Reads a recording for both threads. */
export async function readForBoth(
  port: MessagePort,
  read: (onProgress: OnProgress) => Promise<Recording>,
  onProgress: OnProgress,
): Promise<Recording> {
  const send = (message: Message) => port.postMessage(message);
  let last = 0;
  try {
    const recording = await read((fraction, doing) => {
      onProgress(fraction, doing);
      const now = performance.now();
      if (now - last < PROGRESS_EVERY_MS) return;
      last = now;
      send({ fraction, doing });
    });
    send({ recording: packRecording(recording) });
    return recording;
  } catch (error) {
    send({ failed: true });
    throw error;
  }
}

/** The recording that the other thread reads; undefined if it failed or ended, so that this thread must find out itself. */
export function receiveRecording(port: MessagePort, onProgress: OnProgress): Promise<Recording | undefined> {
  return new Promise((resolve) => {
    port.on('message', (message: Message) => {
      if ('fraction' in message) onProgress(message.fraction, message.doing);
      else resolve('recording' in message ? unpackRecording(message.recording) : undefined);
    });
    port.on('close', () => resolve(undefined));
  }).finally(() => port.close()) as Promise<Recording | undefined>;
}
