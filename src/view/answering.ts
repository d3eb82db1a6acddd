// The loop of a worker that holds one recording: takes questions, posts answers, progress and problems. The page's worker and
// the server's threads differ only in how they read the file and post.
import { InputError, UsageError } from '../base/errors.ts';
import type { Recording } from '../trace/trace.ts';
import type { ProgressNote, Question } from './protocol.ts';
import { Session } from './session.ts';

export interface Asked {
  readonly id: number;
  readonly question: Question;
}

export type Told =
  | { readonly id: number; readonly answer: unknown }
  | { readonly id: number; readonly problem: string }
  | { readonly id: number; readonly progress: ProgressNote };

export type Load = (onProgress: (fraction: number, doing: string) => void) => Promise<Recording>;

const PROGRESS_EVERY_MS = 80;

export class Answering {
  private readonly name: string;
  private readonly load: Load;
  private readonly post: (told: Told) => void;
  private session: Promise<Session> | undefined;
  private lastNote = 0;
  private lastPartial: unknown;

  constructor(name: string, load: Load, post: (told: Told) => void) {
    this.name = name;
    this.load = load;
    this.post = post;
  }

  async receive({ id, question }: Asked): Promise<void> {
    const note = (progress: ProgressNote) => this.note(id, progress);
    try {
      this.session ??= this.open(note);
      const session = await this.session;
      this.post({ id, answer: session.answer(question, note) });
    } catch (error) {
      this.post({ id, problem: wordsFor(error) });
    }
  }

  private async open(note: (progress: ProgressNote) => void): Promise<Session> {
    return new Session(await this.load((fraction, doing) => note({ fraction, doing })), this.name);
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

function wordsFor(error: unknown): string {
  if (error instanceof InputError || error instanceof UsageError) return error.message;
  if (error instanceof RangeError && /allocation|length/i.test(error.message))
    return 'the recording needs more memory than there is here; `weir serve FILE` reads it outside the browser';
  const reason = error instanceof Error ? error.message : String(error);
  return `this is a defect in weir (${reason}); please report it, with the file if you can`;
}
