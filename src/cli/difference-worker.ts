// Worker thread that reads two recordings and says what the second holds beyond the first. It ends after one answer, so that
// the recordings take memory only as long as they are compared.
import { parentPort, workerData } from 'node:worker_threads';
import { InputError, UsageError } from '../base/errors.ts';
import type { AlignmentKind } from '../report/alignment.ts';
import { differenceView, traceOf } from '../view/job-protocol.ts';
import { encodeAnswer } from '../view/wire.ts';
import { loadRecording } from './input.ts';

interface DifferenceSide {
  readonly path: string;
  readonly name: string;
  readonly gpu: number;
}

export interface DifferenceTask {
  readonly a: DifferenceSide;
  readonly b: DifferenceSide;
  readonly by: AlignmentKind | undefined;
}

export type DifferenceAnswer = { readonly answer: Uint8Array<ArrayBuffer> } | { readonly problem: string };

const { a, b, by } = workerData as DifferenceTask;
const silent = { update: () => {}, clear: () => {} };
try {
  const first = await loadRecording(a.path, silent);
  const second = a.path === b.path ? first : await loadRecording(b.path, silent);
  const view = differenceView(
    { trace: traceOf(first, a.gpu, a.name), name: a.name },
    { trace: traceOf(second, b.gpu, b.name), name: b.name },
    by,
  );
  parentPort!.postMessage({ answer: encodeAnswer(view) } satisfies DifferenceAnswer);
} catch (error) {
  if (!(error instanceof InputError || error instanceof UsageError)) throw error;
  parentPort!.postMessage({ problem: error.message } satisfies DifferenceAnswer);
}
