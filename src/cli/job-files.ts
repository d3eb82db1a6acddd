// The recordings of a job on the disk, as the page asks about them together: summaries from a pool of threads, and differences.
import { Worker } from 'node:worker_threads';
import { InputError } from '../base/errors.ts';
import { dismiss } from '../base/thread.ts';
import type { Job } from '../server/app.ts';
import type { DifferenceAsk, RankNote } from '../view/job-protocol.ts';
import type { DifferenceAnswer, DifferenceTask } from './difference-worker.ts';
import type { SummaryTask } from './summary-worker.ts';
import { runInWorkers } from './worker-pool.ts';

export interface JobFile {
  readonly path: string;
  readonly name: string;
  /** Why it cannot be read, if that is known before reading. */
  readonly problem?: string | undefined;
}

export class JobFiles implements Job {
  isOver = false;
  private readonly files: readonly JobFile[];
  private readonly notes: RankNote[] = [];
  private readonly listeners = new Set<(note: RankNote) => void>();
  private readonly stop = new AbortController();
  private hasStarted = false;
  /** Differences are made one after the other: each takes the memory of two recordings. */
  private queue: Promise<unknown> = Promise.resolve();

  constructor(files: readonly JobFile[]) {
    this.files = files;
  }

  /** The first subscriber starts the work. */
  subscribe(listener: (note: RankNote) => void): () => void {
    for (const note of this.notes) listener(note);
    this.listeners.add(listener);
    if (!this.hasStarted) void this.summarise();
    return () => this.listeners.delete(listener);
  }

  compare({ a, b, by }: DifferenceAsk, signal?: AbortSignal): Promise<Uint8Array<ArrayBuffer>> {
    const sideOf = ({ source, gpu }: DifferenceAsk['a']) => ({ path: this.files[source]!.path, name: this.files[source]!.name, gpu });
    const task: DifferenceTask = { a: sideOf(a), b: sideOf(b), by };
    const turn = this.queue.then(() => difference(task, signal));
    this.queue = turn.catch(() => {});
    return turn;
  }

  close(): void {
    this.stop.abort(new Error('the server ends'));
  }

  private async summarise(): Promise<void> {
    this.hasStarted = true;
    const tell = (note: RankNote) => {
      this.notes.push(note);
      for (const listener of this.listeners) listener(note);
    };
    const tasks: SummaryTask[] = [];
    for (const [source, { path, problem }] of this.files.entries()) {
      if (problem !== undefined) tell({ source, problem });
      else tasks.push({ source, path });
    }
    try {
      await runInWorkers<SummaryTask, RankNote>(new URL('./summary-worker.js', import.meta.url), tasks, tell, this.stop.signal);
    } catch (error) {
      const told = new Set(this.notes.map(({ source }) => source));
      const reason = error instanceof Error ? error.message : String(error);
      for (const { source, path } of tasks)
        if (!told.has(source)) tell({ source, problem: `${path}: it could not be summarised: ${reason}` });
    }
    this.isOver = true;
  }
}

function difference(task: DifferenceTask, signal?: AbortSignal): Promise<Uint8Array<ArrayBuffer>> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) {
      reject(new InputError('the question was cancelled'));
      return;
    }
    const worker = new Worker(new URL('./difference-worker.js', import.meta.url), { workerData: task });
    const finish = (settle: () => void) => {
      signal?.removeEventListener('abort', cancel);
      dismiss(worker);
      settle();
    };
    const cancel = () => finish(() => reject(new InputError('the question was cancelled')));
    worker.on('message', (told: DifferenceAnswer) =>
      finish(() => ('answer' in told ? resolve(told.answer) : reject(new InputError(told.problem)))),
    );
    worker.on('error', (error) => {
      const reason = error instanceof Error ? error.message : String(error);
      finish(() => reject(new InputError(`${task.a.name} and ${task.b.name} could not be compared: ${reason}`)));
    });
    signal?.addEventListener('abort', cancel, { once: true });
  });
}
