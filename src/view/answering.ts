// The loop of a worker that holds one recording: takes questions, posts answers, progress and problems. The page's worker and
// the server's threads differ only in how they read the file and post.
import { InputError, UsageError } from '../base/errors.ts';
import type { Recording } from '../trace/trace.ts';
import type { Calls, Method, ProgressNote, Question } from './protocol.ts';
import { checkQuestion } from './questions.ts';
import { Session } from './session.ts';

export interface Asked {
  readonly id: number;
  readonly question: Question;
}

/** Nobody waits for the answer to this question any more. It gets none. */
export interface Cancelled {
  readonly cancel: number;
}

export type Told =
  | { readonly id: number; readonly answer: unknown }
  | { readonly id: number; readonly problem: string }
  | { readonly id: number; readonly progress: ProgressNote };

/** What answers questions: one recording, or runs of other values. Between two steps of an answer the caller may give up. */
export interface Answers {
  steps(question: Question, onProgress: (note: ProgressNote) => void): Generator<void, Calls[Method]['answer']>;
}

export type Load = (onProgress: (fraction: number, doing: string) => void) => Promise<Recording | Answers>;

/** Returns a message that has come while a step keeps the worker busy; undefined if there is none. */
export type Poll = () => Asked | Cancelled | undefined;

const PROGRESS_EVERY_MS = 80;

/** Thrown out of the work on a question that was cancelled. */
class Stop extends Error {}

/** Answers questions one after the other. Between two steps of an answer, and where it can poll also in them, it may be stopped. */
export class Answering {
  private readonly name: string;
  private readonly load: Load;
  private readonly post: (told: Told) => void;
  private readonly poll: Poll;
  private readonly waiting: Asked[] = [];
  private current: { readonly id: number; isCancelled: boolean } | undefined;
  private session: Promise<Answers> | undefined;
  private lastNote = 0;
  private lastPartial: unknown;

  /** A browser cannot poll: its workers see messages only between steps. */
  constructor(name: string, load: Load, post: (told: Told) => void, poll: Poll = () => undefined) {
    this.name = name;
    this.load = load;
    this.post = post;
    this.poll = poll;
  }

  receive(message: Asked | Cancelled): void {
    if ('cancel' in message) {
      const at = this.waiting.findIndex(({ id }) => id === message.cancel);
      if (at >= 0) this.waiting.splice(at, 1);
      else if (this.current?.id === message.cancel) this.current.isCancelled = true;
      return;
    }
    this.waiting.push(message);
    if (!this.current) void this.work();
  }

  private async work(): Promise<void> {
    for (let asked = this.waiting.shift(); asked; asked = this.waiting.shift()) {
      this.current = { id: asked.id, isCancelled: false };
      await this.answer(asked);
      this.current = undefined;
    }
  }

  private async answer({ id, question }: Asked): Promise<void> {
    const onProgress = (progress: ProgressNote) => {
      this.stopIfCancelled();
      this.note(id, progress);
    };
    try {
      const checked = checkQuestion(question);
      // Reading goes on if the question is cancelled: the next one needs the recording too.
      const session = await this.open();
      this.stopIfCancelled();
      const steps = session.steps(checked, onProgress);
      for (let step = steps.next(); ; step = steps.next()) {
        if (step.done) {
          this.post({ id, answer: step.value });
          return;
        }
        await messages();
        this.stopIfCancelled();
      }
    } catch (error) {
      if (!(error instanceof Stop)) this.post({ id, problem: wordsFor(error) });
    }
  }

  /** Reads the recording, unless that has begun. The first question does it at the latest. */
  open(): Promise<Answers> {
    this.session ??= this.read();
    // Whoever asks gets the error, if there is one.
    this.session.catch(() => {});
    return this.session;
  }

  private stopIfCancelled(): void {
    this.receiveAll();
    if (this.current?.isCancelled) throw new Stop();
  }

  private receiveAll(): void {
    for (let message = this.poll(); message; message = this.poll()) this.receive(message);
  }

  private async read(): Promise<Answers> {
    // A question that comes in while the reader is busy must find `session` set.
    await undefined;
    const loaded = await this.load((fraction, doing) => {
      this.receiveAll();
      if (this.current) this.note(this.current.id, { fraction, doing });
    });
    return 'traces' in loaded ? new Session(loaded, this.name) : loaded;
  }

  /** Loops report thousands of times a second; a page needs a few. */
  private note(id: number, progress: ProgressNote): void {
    const now = performance.now();
    if (now - this.lastNote < PROGRESS_EVERY_MS && progress.partial === this.lastPartial) return;
    this.lastNote = now;
    // A partial analysis is sent only once.
    const isNew = progress.partial !== this.lastPartial;
    this.lastPartial = progress.partial;
    this.post({ id, progress: isNew ? progress : { fraction: progress.fraction, doing: progress.doing } });
  }
}

/** Lets the messages in that have come. */
function messages(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 0));
}

/** What is wrong, for people. */
export function wordsFor(error: unknown): string {
  if (error instanceof InputError || error instanceof UsageError) return error.message;
  if (error instanceof RangeError && /allocation|length/i.test(error.message))
    return 'the recording needs more memory than there is here; `weir serve FILE` reads it outside the browser';
  const reason = error instanceof Error ? error.message : String(error);
  return `this is a defect in weir (${reason}); please report it, with the file if you can`;
}
