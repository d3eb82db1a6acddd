// A recording on the disk that the page asks about. Two threads hold it: one answers quick questions (zooming), the other
// compares allocators and plans. The first one reads the file for both.
import { MessageChannel, type MessagePort, Worker } from 'node:worker_threads';
import { InputError } from '../base/errors.ts';
import { dismiss } from '../base/thread.ts';
import type { Source } from '../server/app.ts';
import type { Asked, Cancelled, Told } from '../view/answering.ts';
import { isSlow, type ProgressNote, type Question } from '../view/protocol.ts';
import type { ValueTask } from './value-runs.ts';
import type { ViewTask } from './view-worker.ts';

interface Waiting {
  readonly method: string;
  /** Ends the watch over the asker's signal. */
  done(): void;
  resolve(bytes: Uint8Array<ArrayBuffer>): void;
  reject(error: Error): void;
}

export class ViewSource implements Source {
  readonly name: string;
  private viewer: Thread | undefined;
  private analyst: Thread | undefined;
  /** Here the viewer hands the recording to the analyst; undefined once there is one. */
  private handover: MessagePort | undefined;

  private readonly pytorch: string | undefined;
  private readonly values: ValueTask | undefined;

  /** `pytorch` is the version that made the recording, if the user knows it. With `values`, the page asks about runs of other values. */
  constructor(path: string, pytorch?: string, values?: ValueTask) {
    this.name = path;
    this.pytorch = pytorch;
    this.values = values;
  }

  ask(question: Question, signal?: AbortSignal): Promise<Uint8Array<ArrayBuffer>> {
    return this.threadFor(question.method).ask(question, signal);
  }

  /** Starts both threads, and with them the reading of the file. */
  prepare(): void {
    this.threadFor('analyze');
  }

  progress(method: string): ProgressNote | undefined {
    return (isSlow(method) ? this.analyst : this.viewer)?.progress(method);
  }

  /** Whether a question waits for its answer. */
  get isBusy(): boolean {
    return Boolean(this.viewer?.isBusy || this.analyst?.isBusy);
  }

  /** Ends the threads; waiting questions stay unanswered. The next question starts new ones. */
  close(): void {
    this.viewer?.close();
    this.analyst?.close();
    this.viewer = undefined;
    this.analyst = undefined;
  }

  private threadFor(method: string): Thread {
    this.viewer = useful(this.viewer) ?? this.startViewer();
    if (!isSlow(method)) return this.viewer;
    this.analyst = useful(this.analyst) ?? this.startAnalyst();
    return this.analyst;
  }

  private startViewer(): Thread {
    const { name: path, pytorch, values } = this;
    // Each thread makes its own runs of other values.
    if (this.analyst || values) return new Thread({ path, pytorch, values });
    const { port1: giveTo, port2 } = new MessageChannel();
    this.handover = port2;
    return new Thread({ path, pytorch, giveTo });
  }

  private startAnalyst(): Thread {
    const { name: path, pytorch, values, handover: takeFrom } = this;
    this.handover = undefined;
    return new Thread({ path, pytorch, values, takeFrom });
  }
}

/** A thread that broke is replaced by a new one, which reads the file again. */
function useful(thread: Thread | undefined): Thread | undefined {
  return thread?.isBroken ? undefined : thread;
}

class Thread {
  isBroken = false;
  private readonly worker: Worker;
  private readonly waiting = new Map<number, Waiting>();
  /** By method: how far the latest question is. */
  private readonly notes = new Map<string, { readonly id: number; readonly note: ProgressNote }>();
  private nextId = 0;

  constructor(task: ViewTask) {
    const ports = [task.giveTo, task.takeFrom].filter((port) => port !== undefined);
    this.worker = new Worker(new URL('./view-worker.js', import.meta.url), { workerData: task, transferList: ports });
    this.worker.on('message', (told: Told) => this.receive(told));
    this.worker.on('error', (error) => this.fail(error));
  }

  ask(question: Question, signal?: AbortSignal): Promise<Uint8Array<ArrayBuffer>> {
    const id = this.nextId++;
    return new Promise((resolve, reject) => {
      const cancel = () => {
        this.forget(id);
        this.worker.postMessage({ cancel: id } satisfies Cancelled);
        reject(new InputError('the question was cancelled'));
      };
      const done = () => signal?.removeEventListener('abort', cancel);
      this.waiting.set(id, { method: question.method, resolve, reject, done });
      this.worker.postMessage({ id, question } satisfies Asked);
      if (signal?.aborted) cancel();
      else signal?.addEventListener('abort', cancel, { once: true });
    });
  }

  get isBusy(): boolean {
    return this.waiting.size > 0;
  }

  progress(method: string): ProgressNote | undefined {
    return this.notes.get(method)?.note;
  }

  close(): void {
    dismiss(this.worker);
  }

  private receive(told: Told): void {
    const waiting = this.waiting.get(told.id);
    if (!waiting) return;
    if ('progress' in told) {
      const before = this.notes.get(waiting.method);
      const partial = told.progress.partial ?? (before?.id === told.id ? before.note.partial : undefined);
      this.notes.set(waiting.method, { id: told.id, note: { ...told.progress, partial } });
      return;
    }
    this.forget(told.id);
    if ('answer' in told) waiting.resolve(told.answer as Uint8Array<ArrayBuffer>);
    else waiting.reject(new InputError(told.problem));
  }

  private forget(id: number): void {
    const waiting = this.waiting.get(id);
    if (!waiting) return;
    waiting.done();
    this.waiting.delete(id);
    if (this.notes.get(waiting.method)?.id === id) this.notes.delete(waiting.method);
  }

  /** The thread itself failed, usually because it ran out of memory. */
  private fail(error: unknown): void {
    this.isBroken = true;
    const reason = error instanceof Error ? error.message : String(error);
    for (const [id, { reject }] of [...this.waiting]) {
      this.forget(id);
      reject(new InputError(`the recording could not be analysed: ${reason}`));
    }
  }
}
