// The difference of two recordings: the server compares its own, a worker of the page those that only the browser has.
import type { Told } from '../../src/view/answering.ts';
import type { DifferenceAsk, DifferenceView } from '../../src/view/job-protocol.ts';
import { decodeAnswer } from '../../src/view/wire.ts';
import type { Comparison } from '../worker.ts';
import { Cancelled, type Connection, Problem, problemOf, workerUrl } from './connection.ts';

export interface ComparedSide {
  readonly connection: Connection;
  readonly gpu: number;
}

export async function compare(a: ComparedSide, b: ComparedSide, by: DifferenceAsk['by'], signal: AbortSignal): Promise<DifferenceView> {
  const [first, second] = [a.connection.origin, b.connection.origin];
  if (first.kind === 'server' && second.kind === 'server')
    return askServer({ a: { source: first.id, gpu: a.gpu }, b: { source: second.id, gpu: b.gpu }, by }, signal);
  if (first.kind === 'here' && second.kind === 'here')
    return askWorker({ a: { ...first.opened, gpu: a.gpu }, b: { ...second.opened, gpu: b.gpu }, by }, signal);
  throw new Problem('one of the two is a file of the server, the other one of this browser; drop both here, or serve both');
}

async function askServer(ask: DifferenceAsk, signal: AbortSignal): Promise<DifferenceView> {
  try {
    const response = await fetch('api/difference', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify(ask),
      signal,
    });
    if (!response.ok) throw new Problem(await problemOf(response));
    return decodeAnswer(await response.arrayBuffer()) as DifferenceView;
  } catch (error) {
    if (signal.aborted) throw new Cancelled();
    throw error instanceof Problem ? error : new Problem('the server does not answer; start weir serve again');
  }
}

/** The worker ends after its answer, and with it the memory of both recordings. */
function askWorker(comparison: Comparison, signal: AbortSignal): Promise<DifferenceView> {
  return new Promise((resolve, reject) => {
    const worker = new Worker(workerUrl());
    const end = (settle: () => void) => {
      worker.terminate();
      settle();
    };
    signal.addEventListener('abort', () => end(() => reject(new Cancelled())), { once: true });
    worker.onerror = (event) => end(() => reject(new Problem(event.message || 'the browser refused to start a worker')));
    worker.onmessage = ({ data }: MessageEvent<Told>) =>
      end(() => {
        if ('answer' in data) resolve(data.answer as DifferenceView);
        else reject(new Problem('problem' in data ? data.problem : 'the comparison broke off'));
      });
    worker.postMessage(comparison);
  });
}
