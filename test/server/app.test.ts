// The server without a socket: whom it answers, what it serves, and how it refuses.
import { describe, expect, it } from 'vitest';
import { Access } from '../../src/server/access.ts';
import { createApp, type Job, MOST_FOLLOWERS, MOST_QUESTIONS, type Source } from '../../src/server/app.ts';
import type { Assets } from '../../src/server/assets.ts';
import { type LiveFeed, Playback } from '../../src/server/live-feed.ts';
import type { RankNote } from '../../src/view/job-protocol.ts';
import type { JobOver, LiveSample } from '../../src/view/live-sample.ts';
import { decodeAnswer, encodeAnswer } from '../../src/view/wire.ts';

const asset = (type: string, text: string) => ({ type, bytes: new TextEncoder().encode(text) });
const assets: Assets = {
  'index.html': asset('text/html; charset=utf-8', '<!doctype html>page'),
  'app.js': asset('text/javascript; charset=utf-8', 'script'),
  'app.css': asset('text/css; charset=utf-8', 'style'),
  'worker.js': asset('text/javascript; charset=utf-8', 'worker'),
  'icon.svg': asset('image/svg+xml', '<svg/>'),
  'example.pickle.gz': asset('application/octet-stream', 'example'),
};

const access = new Access();
const authorization = `Bearer ${access.token}`;

const source: Source = {
  name: 'run.pickle',
  ask: async (question) => {
    if (question.method === 'describe') return encodeAnswer({ name: 'run.pickle', values: Float64Array.of(1, 2) });
    throw new Error('the file is empty');
  },
  progress: () => ({ fraction: 0.5, doing: 'reading' }),
};

const app = createApp({ assets, sources: [source], access });
const HOST = '127.0.0.1:4000';

function get(path: string, headers: Record<string, string> = {}): Promise<Response> {
  return Promise.resolve(app.request(path, { headers: { host: HOST, authorization, ...headers } }));
}

function post(path: string, body: string, headers: Record<string, string> = {}): Promise<Response> {
  return Promise.resolve(
    app.request(path, { method: 'POST', body, headers: { host: HOST, authorization, 'content-type': 'application/json', ...headers } }),
  );
}

describe('whom the server answers', () => {
  it.each(['127.0.0.1:4000', 'localhost:1234', 'localhost', '[::1]:9'])('its own page, as %s', async (host) => {
    expect((await get('/', { host })).status).toBe(200);
  });

  it.each(['evil.example', 'evil.example:4000', '127.0.0.1.evil.example', '10.0.0.5:4000', '', 'localhost.evil.example:4000'])(
    "not a name that merely points here ('%s')",
    async (host) => {
      const response = await get('/', { host });
      expect(response.status).toBe(403);
      expect(await response.text()).toContain('weir answers only at 127.0.0.1 or localhost');
    },
  );

  it.each(['http://evil.example', 'http://localhost:3000', 'https://127.0.0.1:4000', 'null'])('not a page from %s', async (origin) => {
    expect((await get('/api/sources', { origin })).status).toBe(403);
    expect((await post('/api/sources/0/ask', '{"method":"describe","gpu":0}', { origin })).status).toBe(403);
  });

  it('not a request that the browser calls cross-site', async () => {
    expect((await get('/api/sources', { 'sec-fetch-site': 'cross-site' })).status).toBe(403);
    expect((await get('/api/sources', { 'sec-fetch-site': 'same-site' })).status).toBe(403);
    expect((await get('/api/sources', { 'sec-fetch-site': 'same-origin', origin: `http://${HOST}` })).status).toBe(200);
  });
});

describe('what the server serves', () => {
  it('its page, with a policy that lets nothing in from elsewhere', async () => {
    const response = await get('/');
    expect(await response.text()).toContain('page');
    const policy = response.headers.get('content-security-policy')!;
    expect(policy).toContain("default-src 'none'");
    expect(policy).not.toContain('unsafe-inline');
    expect(policy).not.toMatch(/https?:/);
    expect(response.headers.get('x-content-type-options')).toBe('nosniff');
  });

  it.each(['/app.js', '/app.css', '/worker.js', '/icon.svg', '/example.pickle.gz'])('%s', async (path) => {
    expect((await get(path)).status).toBe(200);
  });

  it.each([
    '/package.json',
    '/../package.json',
    '/..%2f..%2fetc/passwd',
    '/etc/passwd',
    '/api',
    '/api/sources/0',
    '/run.pickle',
    '/index.html/../app.js.map',
  ])('not %s', async (path) => {
    expect((await get(path)).status).toBe(404);
  });

  it('the names of its recordings', async () => {
    expect(await (await get('/api/sources')).json()).toEqual({ sources: [{ id: 0, name: 'run.pickle' }], live: null });
  });
});

describe('questions', () => {
  it('are answered in bytes', async () => {
    const response = await post('/api/sources/0/ask', '{"method":"describe","gpu":0}');
    expect(response.status).toBe(200);
    expect(decodeAnswer(await response.arrayBuffer())).toEqual({ name: 'run.pickle', values: Float64Array.of(1, 2) });
  });

  it('that fail are answered in words', async () => {
    const response = await post('/api/sources/0/ask', '{"method":"run","gpu":0,"run":"recorded"}');
    expect(response.status).toBe(422);
    expect(await response.json()).toEqual({ problem: 'the file is empty' });
  });

  it.each([
    ['nonsense', 400],
    ['[]', 400],
    ['{"gpu":0}', 400],
    ['{"method":"toString","gpu":0}', 400],
    [`{"method":"${'x'.repeat(70_000)}"}`, 413],
  ])('that are none are refused', async (body, status) => {
    expect((await post('/api/sources/0/ask', body)).status).toBe(status);
  });

  it('that ask for more than a screen needs are refused before anybody works on them', async () => {
    const question = { method: 'timeline', gpu: 0, run: 'recorded', axis: 'time', from: 0, to: 1, columns: 1e9 };
    const response = await post('/api/sources/0/ask', JSON.stringify(question));
    expect(response.status).toBe(400);
    expect(await response.json()).toEqual({ problem: 'columns is a whole number from 1 to 16384, not 1000000000' });
  });

  it('in a form that another page could send are refused', async () => {
    expect((await post('/api/sources/0/ask', '{"method":"describe"}', { 'content-type': 'text/plain' })).status).toBe(415);
  });

  it.each(['1', '-1', 'x', '0.5', '__proto__'])('about recording %s are refused', async (id) => {
    expect((await post(`/api/sources/${id}/ask`, '{"method":"describe","gpu":0}')).status).toBe(404);
  });

  it('tell how far they are', async () => {
    expect(await (await get('/api/sources/0/progress/describe')).json()).toEqual({ fraction: 0.5, doing: 'reading' });
    expect(await (await get('/api/sources/9/progress/describe')).json()).toBeNull();
  });
});

describe('many questions at once', () => {
  it('are answered up to a limit; the rest is told to come again', async () => {
    const answers: (() => void)[] = [];
    const slow: Source = {
      name: 'slow',
      ask: () => new Promise((resolve) => answers.push(() => resolve(encodeAnswer({})))),
      progress: () => undefined,
    };
    const busyApp = createApp({ assets, sources: [slow], access });
    const ask = () =>
      busyApp.request('/api/sources/0/ask', {
        method: 'POST',
        body: '{"method":"plan","gpu":0}',
        headers: { host: HOST, authorization, 'content-type': 'application/json' },
      });
    const asked = Array.from({ length: MOST_QUESTIONS }, ask);
    await expect.poll(() => answers.length).toBe(MOST_QUESTIONS);
    const refused = await ask();
    expect(refused.status).toBe(503);
    expect(await refused.json()).toEqual({ problem: `weir is busy with ${MOST_QUESTIONS} questions; ask again when they are answered` });
    for (const answer of answers) answer();
    for (const response of asked) expect((await response).status).toBe(200);
    const next = ask();
    await expect.poll(() => answers.length).toBe(MOST_QUESTIONS + 1);
    answers.at(-1)!();
    expect((await next).status).toBe(200);
  });
});

describe('live playback', () => {
  it('is followed by so many pages and no more', async () => {
    const live: LiveFeed = { ranks: [], speed: 1, over: undefined, subscribe: () => () => {} };
    const liveApp = createApp({ assets, sources: [], live, access });
    const follow = () => liveApp.request('/api/live', { headers: { host: HOST, authorization } });
    const followers = await Promise.all(Array.from({ length: MOST_FOLLOWERS }, follow));
    const refused = await follow();
    expect([refused.status, await refused.json()]).toEqual([503, { problem: '32 pages follow this job already; close one of them' }]);
    await followers[0]!.body!.cancel();
    await expect.poll(async () => (await follow()).status).toBe(200);
    Object.assign(live, { over: {} });
  });

  it('is not there unless asked for', async () => {
    expect((await get('/api/live')).status).toBe(404);
  });

  it('sends every rank from beginning to end', async () => {
    const rank = (name: string, durationUs: number) => ({
      name,
      startUs: 0,
      durationUs,
      limit: 2 ** 20,
      origin: { source: name === 'a' ? 0 : 1, gpu: 0 },
      events: 100,
      oomTimesUs: [durationUs],
      levels: async (_from: number, to: number, parts: number) =>
        Array.from({ length: parts }, () => ({ allocated: to, reserved: to, live: to, highLive: to, highReserved: to })),
    });
    const live = new Playback([rank('a', 300_000), rank('b', 200_000)], 2);
    const response = await createApp({ assets, sources: [], live, access }).request('/api/live', {
      headers: { host: HOST, authorization },
    });
    expect(response.headers.get('content-type')).toContain('text/event-stream');
    const text = await response.text();
    const samples = [...text.matchAll(/event: sample\ndata: (.*)/g)].map((match) => JSON.parse(match[1]!) as LiveSample);
    for (const [index, durationUs] of [300_000, 200_000].entries()) {
      const own = samples.filter((sample) => sample.rank === index);
      expect(own.at(-1)).toMatchObject({ timeUs: durationUs, event: 100, ooms: 1, limit: 2 ** 20, state: 'ended' });
      expect(own.map((sample) => sample.timeUs)).toEqual([...own.map((sample) => sample.timeUs)].sort((a, b) => a - b));
    }
    // The rank that failed first is the one to open.
    const over = JSON.parse(/event: over\ndata: (.*)/.exec(text)![1]!) as JobOver;
    expect(over).toMatchObject({ end: { kind: 'played' }, opens: { rank: 1, source: 1, gpu: 0 } });
  });
});

describe('several recordings', () => {
  const notes: RankNote[] = [
    { source: 0, ranks: [] },
    { source: 1, problem: 'b: the file is empty' },
  ];
  const asked: unknown[] = [];
  const job: Job = {
    isOver: true,
    subscribe: (listener) => {
      for (const note of notes) listener(note);
      return () => {};
    },
    compare: async (ask) => {
      asked.push(ask);
      return encodeAnswer({ same: true });
    },
  };
  const source = (name: string) => ({ name, ask: async () => encodeAnswer(null), progress: () => undefined });
  const jobApp = createApp({ assets, sources: [source('a'), source('b')], job, access });
  const post = (body: unknown, type = 'application/json') =>
    jobApp.request('/api/difference', {
      method: 'POST',
      headers: { host: HOST, authorization, 'content-type': type },
      body: JSON.stringify(body),
    });

  it('are summarised one by one, until all are', async () => {
    const text = await (await jobApp.request('/api/ranks', { headers: { host: HOST, authorization } })).text();
    expect([...text.matchAll(/event: rank\ndata: (.*)/g)].map((match) => JSON.parse(match[1]!))).toEqual(notes);
    expect(text).toContain('event: over');
    expect((await jobApp.request('/api/ranks', { headers: { host: HOST } })).status).toBe(401);
  });

  it('are compared by their numbers, never by a path', async () => {
    const good = { a: { source: 0, gpu: 0 }, b: { source: 1, gpu: 0 } };
    expect((await post(good)).status).toBe(200);
    expect(asked).toEqual([{ ...good, by: undefined }]);
    for (const bad of [{ ...good, a: { source: 2, gpu: 0 } }, { ...good, b: { source: '/etc/passwd', gpu: 0 } }, {}, null, 'x'])
      expect((await post(bad)).status).toBe(400);
    expect((await post(good, 'text/plain')).status).toBe(415);
    expect(asked).toHaveLength(1);
  });

  it('are not there without files, and no recording is sent unless the job has ended', async () => {
    expect((await get('/api/ranks')).status).toBe(404);
    const live: LiveFeed = {
      ranks: [],
      speed: 1,
      over: undefined,
      subscribe: () => () => {},
      recording: () => {
        throw new Error('too early');
      },
    };
    const response = await createApp({ assets, sources: [], live, access }).request('/api/live/recording', {
      headers: { host: HOST, authorization },
    });
    expect(response.status).toBe(404);
  });
});
