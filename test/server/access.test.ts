// The token of the server: who gets in without it, how it becomes a cookie, and how it leaves the address bar.
import { describe, expect, it } from 'vitest';
import { Access, REFUSAL } from '../../src/server/access.ts';
import { createApp } from '../../src/server/app.ts';
import type { Assets } from '../../src/server/assets.ts';

const asset = { type: 'text/plain', bytes: new TextEncoder().encode('page') };
const assets: Assets = {
  'index.html': asset,
  'app.js': asset,
  'app.css': asset,
  'worker.js': asset,
  'icon.svg': asset,
  'example.pickle.gz': asset,
};

function start() {
  const access = new Access();
  const app = createApp({ assets, sources: [], access });
  const get = (path: string, headers: Record<string, string> = {}) =>
    Promise.resolve(app.request(path, { headers: { host: '127.0.0.1:4000', ...headers } }));
  return { access, get };
}

/** The cookie of a response as a browser sends it back. */
const cookieOf = (response: Response) => response.headers.get('set-cookie')!.split(';')[0]!;

describe('without the token', () => {
  const { access, get } = start();
  const wrong = access.token.replace(/./g, (digit) => (digit === '0' ? '1' : '0'));

  it.each<[string, Record<string, string>]>([
    ['/api/sources', {}],
    ['/api/live', {}],
    ['/api/sources/0/progress/analyze', {}],
    ['/api/nothing', {}],
    [`/api/sources?token=${wrong}`, {}],
    ['/api/sources?token=', {}],
    ['/api/sources', { authorization: `Bearer ${wrong}` }],
    ['/api/sources', { authorization: 'Bearer' }],
    ['/api/sources', { cookie: `weir-4000=${wrong}` }],
    ['/api/sources', { cookie: 'weir-4000=' }],
  ])('%s %j tells nothing', async (path, headers) => {
    const response = await get(path, headers);
    expect(response.status).toBe(401);
    expect(await response.json()).toEqual({ problem: REFUSAL });
  });

  it.each(['/', `/?token=${wrong}`, '/?token=', '/package.json'])('%s says in one sentence what to do', async (path) => {
    const response = await get(path);
    expect(response.status).toBe(401);
    expect(await response.text()).toBe('this page needs a token; open the URL that weir printed in the terminal\n');
    expect(response.headers.get('set-cookie')).toBeNull();
  });

  it('questions are refused before they are read', async () => {
    const app = createApp({ assets, sources: [], access });
    const body = new ReadableStream({
      pull: () => {
        throw new Error('the body was read');
      },
    });
    const request = new Request('http://127.0.0.1:4000/api/sources/0/ask', { method: 'POST', body, duplex: 'half' } as RequestInit);
    request.headers.set('host', '127.0.0.1:4000');
    expect((await app.request(request)).status).toBe(401);
  });

  it('the parts of the page that hold no recording are served', async () => {
    expect((await get('/app.js')).status).toBe(200);
    expect((await get('/example.pickle.gz')).status).toBe(200);
  });
});

describe('with the token', () => {
  it('the address becomes a cookie and loses the token', async () => {
    const { access, get } = start();
    const first = await get(`/?token=${access.token}`);
    expect([first.status, first.headers.get('location')]).toEqual([303, './']);
    const attributes = first.headers.get('set-cookie')!.split('; ');
    expect(attributes[0]).toBe(`weir-4000=${access.token}`);
    expect(attributes.slice(1).sort()).toEqual(['HttpOnly', 'Path=/', 'SameSite=Strict']);
    expect(first.headers.get('cache-control')).toBe('no-store');
    const page = await get('/', { cookie: cookieOf(first) });
    expect([page.status, await page.text()]).toEqual([200, 'page']);
    expect((await get('/api/sources', { cookie: cookieOf(first) })).status).toBe(200);
    expect((await get('/api/sources', { cookie: `other=1; ${cookieOf(first)}` })).status).toBe(200);
  });

  it('scripts get in by a header or a parameter, and get no cookie', async () => {
    const { access, get } = start();
    for (const response of [
      await get('/api/sources', { authorization: `Bearer ${access.token}` }),
      await get(`/api/sources?token=${access.token}`),
    ]) {
      expect([response.status, response.headers.get('set-cookie')]).toEqual([200, null]);
    }
  });

  it('servers on two ports of a host keep their cookies apart', async () => {
    const [one, two] = [start(), start()];
    expect(one.access.token).not.toBe(two.access.token);
    const cookies = [
      cookieOf(await one.get(`/?token=${one.access.token}`, { host: '127.0.0.1:4000' })),
      cookieOf(await two.get(`/?token=${two.access.token}`, { host: '127.0.0.1:4001' })),
    ];
    // A browser keeps one value for each name, and sends all of them to every port.
    const jar = [...new Map(cookies.map((cookie) => [cookie.split('=')[0], cookie])).values()].join('; ');
    expect((await one.get('/api/sources', { host: '127.0.0.1:4000', cookie: jar })).status).toBe(200);
    expect((await two.get('/api/sources', { host: '127.0.0.1:4001', cookie: jar })).status).toBe(200);
  });

  it('a page from elsewhere is refused all the same', async () => {
    const { access, get } = start();
    const cookie = `weir-4000=${access.token}`;
    expect((await get('/api/sources', { cookie, origin: 'http://evil.example' })).status).toBe(403);
    expect((await get('/api/sources', { cookie, host: 'evil.example' })).status).toBe(403);
  });
});

describe('what --open puts on a command line', () => {
  it('works once, and only for the page', async () => {
    const { access, get } = start();
    const ticket = access.issueTicket();
    expect(ticket).not.toBe(access.token);
    expect((await get(`/api/sources?token=${ticket}`)).status).toBe(401);
    const first = await get(`/?token=${ticket}`);
    expect([first.status, cookieOf(first)]).toEqual([303, `weir-4000=${access.token}`]);
    expect((await get(`/?token=${ticket}`)).status).toBe(401);
    // The browser that has the cookie may load the address again.
    expect((await get(`/?token=${ticket}`, { cookie: cookieOf(first) })).status).toBe(303);
  });
});
