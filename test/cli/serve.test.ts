// `weir serve` and `weir report` as a user runs them: what they print, what they refuse, how they end.
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { MAIN, ROOT, weir } from '../support/command.ts';

const SAMPLE = 'samples/vgg16-b100.native.pickle.gz';
const folder = mkdtempSync(join(tmpdir(), 'weir-serve-'));
afterAll(() => rmSync(folder, { recursive: true }));

interface Running {
  readonly url: string;
  readonly child: ChildProcess;
  readonly stderr: () => string;
}

async function start(...parameters: string[]): Promise<Running> {
  const child = spawn(process.execPath, [MAIN, 'serve', ...parameters], { cwd: ROOT.pathname, stdio: ['ignore', 'pipe', 'pipe'] });
  let stderr = '';
  child.stderr!.on('data', (chunk: Buffer) => {
    stderr += chunk.toString();
  });
  const url = await new Promise<string>((resolve, reject) => {
    child.stdout!.on('data', (chunk: Buffer) => resolve(/http:\S+/.exec(chunk.toString())![0]));
    child.on('exit', () => reject(new Error(stderr)));
  });
  return { url, child, stderr: () => stderr };
}

function ended(child: ChildProcess): Promise<number | null> {
  return new Promise((resolve) => child.on('exit', (code) => resolve(code)));
}

describe('weir serve', () => {
  it('listens on this machine only, says how to reach it, and ends with Ctrl-C', async () => {
    const { url, child, stderr } = await start(SAMPLE);
    expect(url).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/$/);
    const port = new URL(url).port;
    await expect.poll(stderr).toContain(`ssh -L ${port}:127.0.0.1:${port} `);
    const page = await fetch(url);
    expect(await page.text()).toContain('<div id="app">');
    expect(await (await fetch(`${url}api/sources`)).json()).toMatchObject({ sources: [{ name: SAMPLE }] });
    // A question keeps a thread busy; Ctrl-C is heard all the same.
    const asked = fetch(`${url}api/sources/0/ask`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: '{"method":"analyze","gpu":0}',
    }).catch(() => undefined);
    await new Promise((resolve) => setTimeout(resolve, 300));
    const exit = ended(child);
    child.kill('SIGINT');
    expect(await exit).toBe(0);
    await asked;
  });

  it('says when a port is taken', async () => {
    const { url, child } = await start();
    const { port } = new URL(url);
    const { code, stderr } = await weir(['serve', '-p', port]);
    expect([code, stderr]).toEqual([2, `weir: port ${port} is taken; without -p, weir chooses a free one\n`]);
    const exit = ended(child);
    child.kill('SIGTERM');
    expect(await exit).toBe(0);
  });

  it.each([
    [['serve', 'nothing.pickle'], 3, 'nothing.pickle: there is no such file'],
    [['serve', 'samples'], 3, 'samples is a folder; name the snapshot file in it'],
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
    expect(html).not.toMatch(/(src|href)="(?!data:)/);
    const second = await weir(['report', SAMPLE, '-o', out]);
    expect([second.code, second.stderr]).toEqual([2, `weir: ${out} exists; -f overwrites it\n`]);
    expect((await weir(['report', SAMPLE, '-o', out, '-f', '-q'])).code).toBe(0);
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
