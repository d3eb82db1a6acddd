// Analysis needs Node alone: no koffi, no /proc, no Linux. What needs Linux says so in one sentence.
import { type ChildProcess, spawn } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Outcome, outcomeOf } from '../support/command.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const HOOK = pathToFileURL(join(ROOT, 'build/test/support/elsewhere.js')).href;
const SAMPLE = join(ROOT, 'samples/resnet50-b100.native.pickle.gz');
const SMALL = join(ROOT, 'samples/exact/def.pkl.gz');
const PLAIN = join(ROOT, 'samples/exact/s1.pickle');

const folder = mkdtempSync(join(tmpdir(), 'weir-anywhere-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function start(parameters: readonly string[], platform: string, log = ''): ChildProcess {
  return spawn(process.execPath, parameters, {
    cwd: folder,
    env: {
      ...process.env,
      NO_COLOR: '1',
      NODE_OPTIONS: `--import ${HOOK}`,
      ELSEWHERE_PLATFORM: platform,
      ELSEWHERE_LOG: log,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
}

const weirAt = (root: string) => join(root, 'dist/cli/main.js');

/** Without koffi, a command ends by Node's own exit, where a compiler thread can find its isolate gone (src/cli/leave.ts). */
const NODE_CRASH = /node::NodePlatform::ForIsolate.*\n.*Assertion failed: \(data\.first\) != nullptr/;
const MOST_CRASHES = 2;

/** Runs the command again if Node crashed in its exit, as it can on a busy machine. */
async function weir(parameters: readonly string[], platform: string, log?: string): Promise<Outcome> {
  for (let crashes = 0; ; crashes++) {
    if (log !== undefined) rmSync(log, { force: true });
    const outcome = await outcomeOf(start([weirAt(ROOT), ...parameters], platform, log));
    if (crashes === MOST_CRASHES || !NODE_CRASH.test(outcome.stderr)) return outcome;
  }
}

/** The page and its script, from a server that is stopped afterwards. */
async function served(parameters: readonly string[], platform: string): Promise<{ page: string; stderr: string }> {
  const child = start([weirAt(ROOT), ...parameters], platform);
  try {
    const url = await new Promise<string>((resolve, reject) => {
      let text = '';
      child.stdout!.on('data', (chunk: Buffer) => {
        text += chunk.toString();
        const found = /Weir is at (\S+)/.exec(text)?.[1];
        if (found) resolve(found);
      });
      child.on('close', (code) => reject(new Error(`weir serve ended with ${code}: ${text}`)));
    });
    const stderr = new Promise<string>((resolve) => {
      let text = '';
      child.stderr!.on('data', (chunk: Buffer) => {
        text += chunk.toString();
        if (text.includes('Ctrl-C stops')) resolve(text);
      });
    });
    const first = await fetch(url, { redirect: 'manual' });
    const response = await fetch(new URL('/', url), { headers: { cookie: first.headers.get('set-cookie')?.split(';')[0] ?? '' } });
    return { page: await response.text(), stderr: await stderr };
  } finally {
    child.kill('SIGKILL');
  }
}

/** Every command that reads recordings, with what it must print. */
const COMMANDS: readonly (readonly [name: string, parameters: readonly string[], output: RegExp])[] = [
  ['--help', ['--help'], /Usage: weir/],
  ['--version', ['--version'], /^\d+\.\d+\.\d+\n/],
  ['analyze', ['analyze', SMALL], /What each allocator would have needed/],
  ['analyze --json', ['analyze', SMALL, '--json'], /^\{"schema":1/],
  ['analyze of ranks', ['analyze', SMALL, PLAIN], /The worst rank in full/],
  ['replay', ['replay', SMALL, '--allocator', 'pytorch,expandable,weir'], /expandable/],
  ['plan', ['plan', SAMPLE, '--threads', '2', '--budget', '1', '-f', '-o', 'step.plan'], /footprint|peak/i],
  ['verify', ['verify', 'step.plan', SAMPLE], /./],
  ['report', ['report', SMALL, '-f', '-o', 'report.html'], /^/],
  ['convert to .weir', ['convert', SMALL, 'sample.weir', '-f'], /^/],
  ['convert to .json.gz', ['convert', SMALL, 'sample.json.gz', '-f'], /^/],
  ['analyze what was converted', ['analyze', 'sample.weir'], /What each allocator would have needed/],
  ['doctor', ['doctor'], /analyze, serve, replay, plan and convert work here/],
];

// macOS differs from these two in nothing that the commands look at, but for what is below.
describe.each(['linux', 'win32'])('without koffi on %s', (platform) => {
  it.each(COMMANDS)('weir %s', async (_, parameters, output) => {
    const log = join(folder, `log-${platform}`);
    const { code, stdout, stderr } = await weir(parameters, platform, log);
    expect([code, stderr.includes('bug in weir')], stderr).toEqual([0, false]);
    expect(stdout).toMatch(output);
    // On Linux a command leaves by it, since Node's own exit can hang. Elsewhere nothing asks for it.
    const asked = existsSync(log) ? readFileSync(log, 'utf8') : '';
    expect(asked).toBe(platform === 'linux' ? 'koffi\n' : '');
  });

  it('weir serve', async () => {
    const { page, stderr } = await served(['serve', SMALL], platform);
    expect(page).toContain('<title>');
    expect(stderr).toContain('ssh -L');
  });

  it('the library', async () => {
    const script = join(folder, 'library.mjs');
    writeFileSync(
      script,
      `import { readFileSync } from 'node:fs';
       const { analyzeTrace, createPool, readRecording } = await import(${JSON.stringify(pathToFileURL(join(ROOT, 'dist/index.js')).href)});
       const analysis = analyzeTrace(readRecording(readFileSync(${JSON.stringify(PLAIN)})).traces[0]);
       const pool = createPool({ allocator: 'weir' });
       process.stdout.write(String(analysis.summary.allocs > 0 && pool !== undefined));`,
    );
    const { code, stdout, stderr } = await outcomeOf(start([script], platform));
    expect([code, stdout, stderr]).toEqual([0, 'true', '']);
  });
});

describe.each(['darwin', 'win32'])('what needs Linux, on %s', (platform) => {
  it.each([['run'], ['record']])('weir %s says so', async (command) => {
    const { code, stdout, stderr } = await weir([command, '--', process.execPath, '-e', 'console.log(1)'], platform);
    expect([code, stdout]).toEqual([125, '']);
    expect(stderr).toMatch(/^weir: weir \w+ needs Linux: .*\n$/);
  });

  it.each([['host'], ['cuda']])('weir replay --backend %s says so', async (backend) => {
    const { code, stderr } = await weir(['replay', SMALL, '--backend', backend], platform);
    expect([code, stderr]).toEqual([3, expect.stringMatching(/^weir: --backend \w+ needs Linux.*use --backend sim\n$/)]);
  });

  it('weir doctor says so', async () => {
    const { stdout } = await weir(['doctor', '--json'], platform);
    const { findings } = JSON.parse(stdout) as { findings: { name: string; ok: boolean; note: string }[] };
    expect(findings.find(({ name }) => name === 'weir run')).toMatchObject({ ok: false, note: expect.stringContaining('Linux') });
  });
});

describe('where koffi is not installed', () => {
  const root = join(folder, 'installed');
  beforeAll(() => {
    mkdirSync(root);
    for (const part of ['dist', 'package.json']) cpSync(join(ROOT, part), join(root, part), { recursive: true });
    for (const name of ['commander', 'hono', '@hono/node-server'])
      cpSync(join(ROOT, 'node_modules', name), join(root, 'node_modules', name), { recursive: true });
  });

  const run = (...parameters: string[]) =>
    outcomeOf(spawn(process.execPath, [weirAt(root), ...parameters], { cwd: folder, stdio: ['ignore', 'pipe', 'pipe'] }));

  it('recordings are analyzed', async () => {
    expect(() => createRequire(join(root, 'dist/index.js')).resolve('koffi')).toThrow();
    const { code, stdout } = await run('analyze', SMALL);
    expect(code).toBe(0);
    expect(stdout).toContain('What each allocator would have needed');
  });

  it('real memory is refused in one sentence', async () => {
    const { code, stderr } = await run('replay', SMALL, '--backend', 'cuda');
    expect([code, stderr]).toEqual([3, expect.stringMatching(/^weir: the koffi package does not load here .*use --backend sim\n$/)]);
  });
});
