// A recording on the disk that the page asks about. Two threads read it: one answers quick questions (zooming), the other
// compares allocators and plans.
import { Worker } from 'node:worker_threads';
import { InputError } from '../base/errors.ts';
import { dismiss } from '../base/thread.ts';
import type { Source } from '../server/app.ts';
import type { Told } from '../view/answering.ts';
import { isSlow, type ProgressNote, type Question } from '../view/protocol.ts';
import type { ViewTask } from './view-worker.ts';

interface Waiting {
  readonly method: string;
  resolve(bytes: Uint8Array<ArrayBuffer>): void;
  reject(error: Error): void;
}

export class ViewSource implements Source {
  readonly name: string;
  private viewer: Thread | undefined;
  private analyst: Thread | undefined;

  constructor(path: string) {
    this.name = path;
  }

  ask(question: Question): Promise<Uint8Array<ArrayBuffer>> {
    return this.threadFor(question.method).ask(question);
  }

  /** Lets the second thread read the file while the first one does. */
  prepare(): void {
    if (this.analyst) return;
    // Whoever asks gets the error, if the file has one.
    this.threadFor('analyze')
      .ask({ method: 'describe', gpu: 0 })
      .catch(() => {});
  }

  progress(method: string): ProgressNote | undefined {
    return (isSlow(method) ? this.analyst : this.viewer)?.progress(method);
  }

  /** Ends the threads; waiting questions stay unanswered. */
  close(): void {
    this.viewer?.close();
    this.analyst?.close();
  }

  private threadFor(method: string): Thread {
    if (isSlow(method)) {
      this.analyst ??= new Thread(this.name);
      return this.analyst;
    }
    this.viewer ??= new Thread(this.name);
    return this.viewer;
  }
}

class Thread {
  private readonly worker: Worker;
  private readonly waiting = new Map<number, Waiting>();
  private readonly notes = new Map<string, ProgressNote>();
  private nextId = 0;

  constructor(path: string) {
    this.worker = new Worker(new URL('./view-worker.js', import.meta.url), { workerData: { path } satisfies ViewTask });
    this.worker.on('message', (told: Told) => this.receive(told));
    this.worker.on('error', (error) => this.fail(error));
  }

  ask(question: Question): Promise<Uint8Array<ArrayBuffer>> {
    const id = this.nextId++;
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { method: question.method, resolve, reject });
      this.worker.postMessage({ id, question });
    });
  }

  progress(method: string): ProgressNote | undefined {
    return this.notes.get(method);
  }

  close(): void {
    dismiss(this.worker);
  }

  private receive(told: Told): void {
    const waiting = this.waiting.get(told.id);
    if (!waiting) return;
    if ('progress' in told) {
      const partial = told.progress.partial ?? this.notes.get(waiting.method)?.partial;
      this.notes.set(waiting.method, { ...told.progress, partial });
      return;
    }
    this.waiting.delete(told.id);
    this.notes.delete(waiting.method);
    if ('answer' in told) waiting.resolve(told.answer as Uint8Array<ArrayBuffer>);
    else waiting.reject(new InputError(told.problem));
  }

  /** The thread itself failed, usually because it ran out of memory. */
  private fail(error: unknown): void {
    const reason = error instanceof Error ? error.message : String(error);
    for (const { reject } of this.waiting.values()) reject(new InputError(`the recording could not be analysed: ${reason}`));
    this.waiting.clear();
  }
}
