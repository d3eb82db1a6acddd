// Connections that answer the page's questions: workers for files in the browser, the server for its own files.
import type { Told } from '../../src/view/answering.ts';
import { type Calls, isSlow, type Method, type ProgressNote } from '../../src/view/protocol.ts';
import { decodeAnswer } from '../../src/view/wire.ts';
import type { Opened } from '../worker.ts';

export type OnProgress = (note: ProgressNote) => void;

export interface Connection {
  /** Where the recording is. */
  readonly origin: { readonly kind: 'server'; readonly id: number } | { readonly kind: 'here'; readonly opened: Opened };
  /** If the signal aborts, the work ends and the promise rejects with `Cancelled`. */
  ask<Name extends Method>(
    method: Name,
    gpu: number,
    ask: Calls[Name]['ask'],
    onProgress?: OnProgress,
    signal?: AbortSignal,
  ): Promise<Calls[Name]['answer']>;
  /** Prepares for an analysis. */
  prepare(): void;
  /** Gives memory back until the next question. */
  rest(): void;
}

/** An error whose message is for the user. */
export class Problem extends Error {}

/** The page itself cancelled the question. Nobody needs to be told. */
export class Cancelled extends Error {}

const POLL_EVERY_MS = 200;

export class ServerConnection implements Connection {
  readonly origin: Connection['origin'];
  private readonly url: string;

  private readonly name: string;

  constructor(id: number, name: string) {
    this.origin = { kind: 'server', id };
    this.url = `api/sources/${id}`;
    this.name = name;
  }

  async ask<Name extends Method>(
    method: Name,
    gpu: number,
    ask: Calls[Name]['ask'],
    onProgress?: OnProgress,
    signal?: AbortSignal,
  ): Promise<Calls[Name]['answer']> {
    let isOpen = true;
    // Notes that come after the answer are too late.
    const onNote = (note: ProgressNote) => {
      if (isOpen) onProgress?.(note);
    };
    const polling = onProgress ? setInterval(() => void this.poll(method, onNote), POLL_EVERY_MS) : undefined;
    try {
      const response = await fetch(`${this.url}/ask`, {
        method: 'POST',
        headers: { 'Content-Type': 'application/json' },
        body: JSON.stringify({ method, gpu, ...ask }),
        signal: signal ?? null,
      });
      if (!response.ok) throw new Problem(naming(this.name, await problemOf(response)));
      return decodeAnswer(await response.arrayBuffer()) as Calls[Name]['answer'];
    } catch (error) {
      if (signal?.aborted) throw new Cancelled();
      if (error instanceof Problem) throw error;
      throw new Problem('the server does not answer; start weir serve again');
    } finally {
      isOpen = false;
      clearInterval(polling);
    }
  }

  /** The server does both by itself. */
  prepare(): void {}

  rest(): void {}

  private async poll(method: string, onProgress: OnProgress): Promise<void> {
    try {
      const note = (await (await fetch(`${this.url}/progress/${method}`)).json()) as ProgressNote | null;
      if (note) onProgress(note);
    } catch {
      // The question itself reports the error.
    }
  }
}

/** A sentence about a recording, with its name. */
function naming(name: string, sentence: string): string {
  return sentence.includes(name) ? sentence : `${name}: ${sentence}`;
}

/** What the server says is wrong. */
export async function problemOf(response: Response): Promise<string> {
  try {
    return ((await response.json()) as { problem: string }).problem;
  } catch {
    return `the server answered with ${response.status}`;
  }
}

/** Two workers, as on the server: one for quick questions, one that compares allocators. */
export class WorkerConnection implements Connection {
  readonly origin: Connection['origin'];
  private readonly opened: Opened;
  private viewer: WorkerLine | undefined;
  private analyst: WorkerLine | undefined;

  constructor(opened: Opened) {
    this.origin = { kind: 'here', opened };
    this.opened = opened;
  }

  ask<Name extends Method>(
    method: Name,
    gpu: number,
    ask: Calls[Name]['ask'],
    onProgress?: OnProgress,
    signal?: AbortSignal,
  ): Promise<Calls[Name]['answer']> {
    return this.lineFor(method).ask({ method, gpu, ...ask }, onProgress, signal) as Promise<Calls[Name]['answer']>;
  }

  prepare(): void {
    this.lineFor('analyze')
      .ask({ method: 'describe', gpu: 0 })
      .catch(() => {});
  }

  rest(): void {
    if (this.viewer?.isBusy || this.analyst?.isBusy) return;
    this.viewer?.close();
    this.analyst?.close();
    this.viewer = undefined;
    this.analyst = undefined;
  }

  private lineFor(method: Method): WorkerLine {
    if (isSlow(method)) {
      this.analyst ??= new WorkerLine(this.opened);
      return this.analyst;
    }
    this.viewer ??= new WorkerLine(this.opened);
    return this.viewer;
  }
}

class WorkerLine {
  private readonly worker: Worker;
  private readonly waiting = new Map<
    number,
    { resolve(answer: unknown): void; reject(error: Error): void; onProgress: OnProgress | undefined }
  >();
  private nextId = 0;
  private readonly name: string;

  constructor(opened: Opened) {
    this.name = opened.name;
    this.worker = new Worker(workerUrl());
    this.worker.onmessage = ({ data }: MessageEvent<Told>) => this.receive(data);
    this.worker.onerror = (event) => this.fail(event.message || 'the browser refused to start a worker');
    this.worker.postMessage(opened);
  }

  ask(question: object, onProgress?: OnProgress, signal?: AbortSignal): Promise<unknown> {
    const id = this.nextId++;
    return new Promise((resolve, reject) => {
      if (signal?.aborted) throw new Cancelled();
      this.waiting.set(id, { resolve, reject, onProgress });
      this.worker.postMessage({ id, question });
      const cancel = () => {
        if (!this.waiting.delete(id)) return;
        this.worker.postMessage({ cancel: id });
        reject(new Cancelled());
      };
      signal?.addEventListener('abort', cancel, { once: true });
    });
  }

  /** Whether a question waits for its answer. */
  get isBusy(): boolean {
    return this.waiting.size > 0;
  }

  close(): void {
    this.worker.terminate();
    this.fail('the file was closed');
  }

  private receive(told: Told): void {
    const waiting = this.waiting.get(told.id);
    if (!waiting) return;
    if ('progress' in told) {
      waiting.onProgress?.(told.progress);
      return;
    }
    this.waiting.delete(told.id);
    if ('answer' in told) waiting.resolve(told.answer);
    else waiting.reject(new Problem(naming(this.name, told.problem)));
  }

  private fail(message: string): void {
    for (const { reject } of this.waiting.values()) reject(new Problem(naming(this.name, message)));
    this.waiting.clear();
  }
}

let ownWorkerUrl: string | undefined;

/** The worker's script: beside the page, or inside a page that is one file. */
export function workerUrl(): string {
  const inside = document.getElementById('weir-worker');
  if (!inside) return 'worker.js';
  ownWorkerUrl ??= URL.createObjectURL(new Blob([inside.textContent ?? ''], { type: 'text/javascript' }));
  return ownWorkerUrl;
}
