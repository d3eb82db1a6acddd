// `weir serve` and `weir report` as a user runs them: what they print, what they refuse, how they end.
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { decodeAnswer } from '../../src/view/wire.ts';
import { MAIN, ROOT, weir } from '../support/command.ts';

const SAMPLE = 'samples/vgg16-b100.native.pickle.gz';
/** Its analysis takes seconds. */
const OOM_SAMPLE = 'samples/gpt2xl-oom.pickle.gz';
const WAIT = { timeout: 20_000 };
const folder = mkdtempSync(join(tmpdir(), 'weir-serve-'));
afterAll(() => rmSync(folder, { recursive: true }));

interface Running {
  readonly url: string;
  /** As a script does it: with the token in a header. */
  fetch(path: string, init?: RequestInit): Promise<Response>;
  readonly child: ChildProcess;
  readonly stderr: () => string;
}

async function start(parameter?: string, environment: NodeJS.ProcessEnv = {}, options: readonly string[] = []): Promise<Running> {
  const child = spawn(process.execPath, [MAIN, 'serve', ...(parameter ? [parameter] : []), ...options], {
    cwd: ROOT.pathname,
    env: { ...process.env, ...environment },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let stderr = '';
  child.stderr!.on('data', (chunk: Buffer) => {
    stderr += chunk.toString();
  });
  const url = await new Promise<string>((resolve, reject) => {
    child.stdout!.on('data', (chunk: Buffer) => resolve(/http:\S+/.exec(chunk.toString())![0]));
    child.on('exit', () => reject(new Error(stderr)));
  });
  const authorization = `Bearer ${new URL(url).searchParams.get('token')}`;
  return {
    url,
    fetch: (path, init) => fetch(new URL(path, url), { ...init, headers: { ...init?.headers, authorization } }),
    child,
    stderr: () => stderr,
  };
}

function post(body: string): RequestInit {
  return { method: 'POST', headers: { 'Content-Type': 'application/json' }, body };
}

function ended(child: ChildProcess): Promise<number | null> {
  return new Promise((resolve) => child.on('exit', (code) => resolve(code)));
}

function stop(child: ChildProcess): Promise<number | null> {
  const exit = ended(child);
  child.kill('SIGTERM');
  return exit;
}

describe('weir serve', () => {
  it('listens on this machine only, says how to reach it, and ends with Ctrl-C', async () => {
    const { url, fetch, child, stderr } = await start(SAMPLE);
    expect(url).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/\?token=[0-9a-f]{32}$/);
    const port = new URL(url).port;
    await expect.poll(stderr).toContain(`ssh -L ${port}:127.0.0.1:${port} `);
    expect(await (await fetch('/')).text()).toContain('<div id="app">');
    expect(await (await fetch('/api/sources')).json()).toMatchObject({ sources: [{ name: SAMPLE }] });
    // A question keeps a thread busy; Ctrl-C is heard all the same.
    const asked = fetch('/api/sources/0/ask', post('{"method":"analyze","gpu":0}')).catch(() => undefined);
    await new Promise((resolve) => setTimeout(resolve, 300));
    const exit = ended(child);
    child.kill('SIGINT');
    expect(await exit).toBe(0);
    await asked;
  });

  it('takes the version of PyTorch that made the recording', async () => {
    const { fetch, child } = await start('samples/exact/frac.pkl.gz', {}, ['--pytorch', '2.13']);
    const answer = await fetch('/api/sources/0/ask', post('{"method":"analyze","gpu":0}'));
    expect(decodeAnswer(await answer.arrayBuffer())).toMatchObject({
      analysis: { replayError: { pytorch: { versions: '2.13 and later' } } },
    });
    await stop(child);
  });

  it('tells other users of the machine nothing, and two servers have two tokens', async () => {
    const [one, two] = await Promise.all([start(SAMPLE), start(SAMPLE)]);
    expect(new URL(one.url).search).not.toBe(new URL(two.url).search);
    const elsewhere = new URL(two.url).searchParams.get('token');
    for (const path of ['/', '/api/sources', '/api/live', `/?token=${elsewhere}`, `/api/sources?token=${elsewhere}`]) {
      const response = await fetch(new URL(path, one.url));
      expect(response.status).toBe(401);
      expect(await response.text()).toContain('open the URL that weir printed in the terminal');
    }
    const visit = await fetch(one.url, { redirect: 'manual' });
    expect(visit.status).toBe(303);
    const cookie = visit.headers.get('set-cookie')!.split(';')[0]!;
    expect(cookie).toContain(`weir-${new URL(one.url).port}=`);
    expect(await (await fetch(new URL('/', one.url), { headers: { cookie } })).text()).toContain('<div id="app">');
    await Promise.all([one, two].map(({ child }) => stop(child)));
  });

  it('refuses what would take all memory, stops when nobody waits, and answers the next', async () => {
    const { fetch, child } = await start(OOM_SAMPLE);
    const timeline = { method: 'timeline', gpu: 0, run: 'recorded', axis: 'event', from: 0, to: 1000 };
    const refused = await fetch('/api/sources/0/ask', post(JSON.stringify({ ...timeline, columns: 1e9 })));
    expect([refused.status, await refused.json()]).toEqual([400, { problem: 'columns is a whole number from 1 to 16384, not 1000000000' }]);
    expect((await fetch('/api/sources/0/ask', post(JSON.stringify({ ...timeline, columns: 500 })))).status).toBe(200);

    const controller = new AbortController();
    const analysis = fetch('/api/sources/0/ask', { ...post('{"method":"analyze","gpu":0}'), signal: controller.signal });
    const progress = async () => (await fetch('/api/sources/0/progress/analyze')).json();
    await expect.poll(progress, WAIT).not.toBeNull();
    controller.abort();
    await expect(analysis).rejects.toThrow();
    await expect.poll(progress, WAIT).toBeNull();
    expect((await fetch('/api/sources/0/ask', post('{"method":"plan","gpu":0}'))).status).toBe(200);
    await stop(child);
  });

  it('opens the page with a token that other users can read but not use again', async () => {
    // In place of a browser: writes down its command line.
    const bin = mkdtempSync(join(folder, 'bin-'));
    const opened = join(bin, 'opened');
    writeFileSync(join(bin, 'xdg-open'), `#!/bin/sh\nprintf %s "$1" > ${opened}.part && mv ${opened}.part ${opened}\n`, { mode: 0o755 });
    const { url, child } = await start('--open', { PATH: `${bin}:${process.env['PATH']}` });
    await expect.poll(() => existsSync(opened), WAIT).toBe(true);
    const given = readFileSync(opened, 'utf8');
    expect(given).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/\?token=[0-9a-f]{32}$/);
    expect(given).not.toBe(url);
    expect((await fetch(given, { redirect: 'manual' })).status).toBe(303);
    expect((await fetch(given, { redirect: 'manual' })).status).toBe(401);
    await stop(child);
  });

  it('says when a port is taken', async () => {
    const { url, child } = await start();
    const { port } = new URL(url);
    const { code, stderr } = await weir(['serve', '-p', port]);
    expect([code, stderr]).toEqual([2, `weir: port ${port} is taken; without -p, weir chooses a free one\n`]);
    expect(await stop(child)).toBe(0);
  });

  it.each([
    [['serve', 'nothing.pickle'], 3, 'nothing.pickle: there is no such file'],
    [['serve', 'docs'], 3, 'docs has no recordings'],
    [['serve', '-'], 2, 'weir serve reads files, not standard input'],
    [['serve', '--live'], 2, '--live needs a recording to play; name one'],
    [['serve', '-p', 'http'], 2, 'a port is a number from 0 to 65535'],
    [['serve', SAMPLE, '--live', '--speed', '0'], 2, 'the speed is a number above 0'],
  ])('refuses %j', async (parameters, code, words) => {
    const outcome = await weir(parameters);
    expect(outcome.code).toBe(code);
    expect(outcome.stderr).toContain(words);
  });
});

describe('weir report', () => {
  it('writes one file and does not overwrite it unasked', async () => {
    const out = join(folder, 'report.html');
    const first = await weir(['report', SAMPLE, '-o', out, '--json']);
    expect(first.code).toBe(0);
    expect(JSON.parse(first.stdout)).toMatchObject({ schema: 1, from: SAMPLE, to: out, gpus: 1 });
    const html = readFileSync(out, 'utf8');
    expect(html).toContain('Content-Security-Policy');
    // The page's own script can write such a page too, so it holds these words.
    expect(html.replaceAll(/<script[^>]*>[\s\S]*?<\/script>/g, '')).not.toMatch(/(src|href)="(?!data:)/);
    const second = await weir(['report', SAMPLE, '-o', out]);
    expect([second.code, second.stderr]).toEqual([2, `weir: ${out} exists; -f overwrites it\n`]);
    expect((await weir(['report', SAMPLE, '-o', out, '-f', '-q'])).code).toBe(0);
  });

  it('takes the version of PyTorch that made the recording', async () => {
    const out = join(folder, 'version.html');
    expect((await weir(['report', 'samples/exact/frac.pkl.gz', '-o', out, '--pytorch', '2.13', '-q'])).code).toBe(0);
    const html = readFileSync(out, 'utf8');
    expect(html).toContain('2.13 and later');
    expect(html).not.toContain('"versions":"2.4 to 2.11"');
  });

  it('leaves nothing behind when the recording is unusable', async () => {
    const out = join(folder, 'never.html');
    const { code, stderr } = await weir(['report', 'package.json', '-o', out]);
    expect(code).toBe(3);
    expect(stderr).toContain('package.json: ');
    expect(existsSync(out)).toBe(false);
  });

  it('needs a name for what comes from standard input', async () => {
    const { code, stderr } = await weir(['report', '-']);
    expect([code, stderr]).toEqual([2, 'weir: standard input has no name; name the file to write with -o\n']);
  });
});
