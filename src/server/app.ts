// The HTTP application behind `weir serve`, without its socket.
// It serves the page and answers the page's questions about the recordings it was given.
import { type Context, Hono } from 'hono';
import { bodyLimit } from 'hono/body-limit';
import { streamSSE } from 'hono/streaming';
import { UsageError } from '../base/errors.ts';
import { checkDifference, type DifferenceAsk, type RankNote } from '../view/job-protocol.ts';
import type { ProgressNote, Question } from '../view/protocol.ts';
import { checkQuestion } from '../view/questions.ts';
import type { Access } from './access.ts';
import type { Assets } from './assets.ts';
import { guard } from './guard.ts';
import type { LiveFeed } from './live-feed.ts';

/** A recording that the page can ask about. */
export interface Source {
  readonly name: string;
  /**
   * Answers with bytes made by `encodeAnswer`. If it rejects, the error's message is for people.
   * If the signal aborts, it stops working on the answer and rejects at once.
   */
  ask(question: Question, signal?: AbortSignal): Promise<Uint8Array<ArrayBuffer>>;
  /** The page has opened the recording. It will ask for an analysis soon, so start now. */
  prepare?(): void;
  /** Progress of the latest question with this method. */
  progress(method: string): ProgressNote | undefined;
}

/** The recordings together, for the overview of a job. */
export interface Job {
  /** Whether every recording has been summarised. */
  readonly isOver: boolean;
  /** Sends what is known of each recording at once, then each new note. Returns a function that ends the subscription. */
  subscribe(listener: (note: RankNote) => void): () => void;
  /** Answers with bytes made by `encodeAnswer`. */
  compare(ask: DifferenceAsk, signal?: AbortSignal): Promise<Uint8Array<ArrayBuffer>>;
}

export interface AppOptions {
  readonly assets: Assets;
  readonly sources: readonly Source[];
  /** Undefined: there are no recordings yet. */
  readonly job?: Job | undefined;
  /** A running job, or a recording played back as one. */
  readonly live?: LiveFeed | undefined;
  readonly access: Access;
}

/** A question takes a few hundred bytes. */
const MOST_QUESTION_BYTES = 64 * 1024;
/** Questions that wait, are being answered, or whose answers are on their way. A browser asks six at a time. */
export const MOST_QUESTIONS = 32;
/** Pages that follow a job live at the same time. */
export const MOST_FOLLOWERS = 32;
const LOOK_EVERY_MS = 100;

export function createApp({ assets, sources, job, live, access }: AppOptions): Hono {
  const app = new Hono();
  app.use('*', guard);

  const { 'index.html': page, ...free } = assets;
  // These are the same in every copy of Weir, so they need no token.
  for (const [name, { type, bytes }] of Object.entries(free)) {
    app.get(`/${name}`, (context) => context.body(bytes, 200, { 'Content-Type': type }));
  }
  app.use('*', access.check);
  app.get('/', (context) => context.body(page.bytes, 200, { 'Content-Type': page.type }));

  app.get('/api/sources', (context) =>
    context.json({ sources: sources.map(({ name }, id) => ({ id, name })), live: live ? { ranks: live.ranks, speed: live.speed } : null }),
  );

  const questions = new Turns(MOST_QUESTIONS);
  app.post('/api/sources/:id/ask', bodyLimit({ maxSize: MOST_QUESTION_BYTES, onError: tooLarge }), async (context) => {
    const source = sources[Number(context.req.param('id'))];
    if (!source) return context.json({ problem: 'there is no recording with this number; reload the page' }, 404);
    const question = await questionIn(context, checkQuestion);
    if (question instanceof Response) return question;
    if (question.method === 'describe') source.prepare?.();
    return questions.answer(context, (signal) => source.ask(question, signal));
  });

  app.post('/api/difference', bodyLimit({ maxSize: MOST_QUESTION_BYTES, onError: tooLarge }), async (context) => {
    if (!job) return context.json({ problem: 'there are no recordings to compare' }, 404);
    const ask = await questionIn(context, (value) => checkDifference(value, sources.length));
    if (ask instanceof Response) return ask;
    return questions.answer(context, (signal) => job.compare(ask, signal));
  });

  app.get('/api/sources/:id/progress/:method', (context) => {
    const source = sources[Number(context.req.param('id'))];
    return context.json(source?.progress(context.req.param('method')) ?? null);
  });

  let followers = 0;
  /** Sends events until `isOver`, to so many pages at a time. */
  const follow = (
    context: Context,
    subscribe: (send: (event: string, value: unknown) => void) => () => void,
    isOver: () => boolean,
    last: () => unknown,
  ) => {
    if (followers >= MOST_FOLLOWERS) return busy(context, `${followers} pages follow this job already; close one of them`);
    followers++;
    return streamSSE(context, async (stream) => {
      const send = (event: string, value: unknown) => void stream.writeSSE({ event, data: JSON.stringify(value) });
      const stop = subscribe(send);
      stream.onAbort(stop);
      try {
        while (!stream.aborted && !isOver()) await stream.sleep(LOOK_EVERY_MS);
        if (!stream.aborted) await stream.writeSSE({ event: 'over', data: JSON.stringify(last() ?? {}) });
      } finally {
        stop();
        followers--;
      }
    });
  };

  app.get('/api/live', (context) => {
    if (!live) return context.json({ problem: 'no job is running' }, 404);
    return follow(
      context,
      (send) => live.subscribe((sample) => send('sample', sample)),
      () => live.over !== undefined,
      () => live.over,
    );
  });

  // The server chooses which one: a page cannot ask for any other file.
  app.get('/api/live/recording', (context) => {
    if (!live?.recording || !live.over?.opens) return context.json({ problem: 'the job has left no recording here' }, 404);
    const { content, sent } = live.recording();
    if (!onClose(context, sent)) sent();
    return context.body(content, 200, { 'Content-Type': 'application/octet-stream' });
  });

  app.get('/api/ranks', (context) => {
    if (!job) return context.json({ problem: 'there are no recordings' }, 404);
    return follow(
      context,
      (send) => job.subscribe((note) => send('rank', note)),
      () => job.isOver,
      () => ({}),
    );
  });

  app.notFound((context) => context.text('not found: weir serves only its own page at /\n', 404));
  app.onError((error, context) => {
    // A client that goes away while it sends is no defect.
    if ((error as NodeJS.ErrnoException).code === 'ECONNRESET') return context.json({ problem: 'the request broke off' }, 400);
    return context.json({ problem: `this is a defect in weir (${error.message}); please report it` }, 500);
  });
  return app;
}

/** Calls back when the client has the answer or is gone. An answer that nobody reads takes memory until then. */
function onClose(context: Context, listener: () => void): boolean {
  const { outgoing } = (context.env ?? {}) as { outgoing?: { closed: boolean; once(event: 'close', listener: () => void): unknown } };
  if (!outgoing || outgoing.closed) return false;
  outgoing.once('close', listener);
  return true;
}

/** The rest of the body is not read. */
function tooLarge(context: Context): Response {
  return context.json({ problem: `a question has at most ${MOST_QUESTION_BYTES} bytes` }, 413, { Connection: 'close' });
}

function busy(context: Context, problem: string): Response {
  return context.json({ problem }, 503, { 'Retry-After': '1' });
}

/** Questions that are being answered, or whose answers are on their way. */
class Turns {
  private readonly most: number;
  private taken = 0;

  constructor(most: number) {
    this.most = most;
  }

  async answer(context: Context, work: (signal: AbortSignal) => Promise<Uint8Array<ArrayBuffer>>): Promise<Response> {
    if (this.taken >= this.most) return busy(context, `weir is busy with ${this.taken} questions; ask again when they are answered`);
    this.taken++;
    const isClosing = onClose(context, () => this.taken--);
    try {
      return context.body(await work(context.req.raw.signal), 200, { 'Content-Type': 'application/octet-stream' });
    } catch (error) {
      return context.json({ problem: error instanceof Error ? error.message : String(error) }, 422);
    } finally {
      if (!isClosing) this.taken--;
    }
  }
}

/** The question in the body, or the answer that says what is wrong with it. */
async function questionIn<Asked>(context: Context, check: (value: unknown) => Asked): Promise<Asked | Response> {
  if (!context.req.header('content-type')?.startsWith('application/json'))
    return context.json({ problem: 'a question must be sent as application/json' }, 415);
  try {
    return check(JSON.parse(await context.req.text()));
  } catch (error) {
    if (error instanceof SyntaxError) return context.json({ problem: 'the question is not JSON; reload the page' }, 400);
    if (error instanceof UsageError) return context.json({ problem: error.message }, 400);
    throw error;
  }
}
