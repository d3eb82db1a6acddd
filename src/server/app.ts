// The HTTP application behind `weir serve`, without its socket.
// It serves the page and answers the page's questions about the recordings it was given.
import { Hono } from 'hono';
import { streamSSE } from 'hono/streaming';
import type { ProgressNote, Question } from '../view/protocol.ts';
import type { Assets } from './assets.ts';
import { guard } from './guard.ts';
import type { LiveFeed } from './live-feed.ts';

/** A recording that the page can ask about. */
export interface Source {
  readonly name: string;
  /** Answers with bytes made by `encodeAnswer`. If it rejects, the error's message is for people. */
  ask(question: Question): Promise<Uint8Array<ArrayBuffer>>;
  /** The page has opened the recording. It will ask for an analysis soon, so start now. */
  prepare?(): void;
  /** Progress of the latest question with this method. */
  progress(method: string): ProgressNote | undefined;
}

export interface AppOptions {
  readonly assets: Assets;
  readonly sources: readonly Source[];
  /** A running job, or a recording played back as one. */
  readonly live?: LiveFeed | undefined;
}

/** A question takes a few hundred bytes. */
const MOST_QUESTION_BYTES = 64 * 1024;
const LOOK_EVERY_MS = 100;

export function createApp({ assets, sources, live }: AppOptions): Hono {
  const app = new Hono();
  app.use('*', guard);

  for (const [name, { type, bytes }] of Object.entries(assets)) {
    app.get(name === 'index.html' ? '/' : `/${name}`, (context) => context.body(bytes, 200, { 'Content-Type': type }));
  }

  app.get('/api/sources', (context) =>
    context.json({ sources: sources.map(({ name }, id) => ({ id, name })), live: live ? { ranks: live.ranks, speed: live.speed } : null }),
  );

  app.post('/api/sources/:id/ask', async (context) => {
    const source = sources[Number(context.req.param('id'))];
    if (!source) return context.json({ problem: 'there is no recording with this number; reload the page' }, 404);
    if (!context.req.header('content-type')?.startsWith('application/json'))
      return context.json({ problem: 'a question must be sent as application/json' }, 415);
    const question = parseQuestion(await context.req.text());
    if (!question) return context.json({ problem: 'the question is not JSON with a method; reload the page' }, 400);
    if (question.method === 'describe') source.prepare?.();
    try {
      return context.body(await source.ask(question), 200, { 'Content-Type': 'application/octet-stream' });
    } catch (error) {
      return context.json({ problem: error instanceof Error ? error.message : String(error) }, 422);
    }
  });

  app.get('/api/sources/:id/progress/:method', (context) => {
    const source = sources[Number(context.req.param('id'))];
    return context.json(source?.progress(context.req.param('method')) ?? null);
  });

  app.get('/api/live', (context) => {
    if (!live) return context.json({ problem: 'no job is running' }, 404);
    return streamSSE(context, async (stream) => {
      const stop = live.subscribe((sample) => void stream.writeSSE({ event: 'sample', data: JSON.stringify(sample) }));
      stream.onAbort(stop);
      while (!stream.aborted && !live.isOver) await stream.sleep(LOOK_EVERY_MS);
      if (!stream.aborted) await stream.writeSSE({ event: 'over', data: '{}' });
      stop();
    });
  });

  app.notFound((context) => context.text('not found: weir serves only its own page at /\n', 404));
  return app;
}

function parseQuestion(text: string): Question | undefined {
  if (text.length > MOST_QUESTION_BYTES) return undefined;
  try {
    const value: unknown = JSON.parse(text);
    const isQuestion = typeof value === 'object' && value !== null && 'method' in value && typeof value.method === 'string';
    return isQuestion ? (value as Question) : undefined;
  } catch {
    return undefined;
  }
}
