// `weir run` and `weir record` as a user runs them, over a job that needs no GPU: what is the command's stays the command's.
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { MAIN, type Outcome, ROOT } from '../support/command.ts';

const JOB = new URL('build/test/run/fake-job.js', ROOT).pathname;
const root = mkdtempSync(join(tmpdir(), 'weir-run-test-'));
/** Run folders and temporary recordings of these tests alone, so that what is left behind can be seen. */
const temporary = join(root, 'tmp');
let folder: string;
let count = 0;
beforeAll(() => mkdirSync(temporary));
beforeEach(() => {
  folder = join(root, String(count++));
  mkdirSync(folder);
});
afterAll(() => rmSync(root, { recursive: true }));

const baseEnvironment = { ...process.env, NO_COLOR: '1', XDG_RUNTIME_DIR: temporary, TMPDIR: temporary };

function start(parameters: readonly string[], env: Record<string, string> = {}): ChildProcess {
  return spawn(process.execPath, [MAIN, ...parameters], {
    cwd: folder,
    env: { ...baseEnvironment, ...env },
    stdio: ['pipe', 'pipe', 'pipe'],
  });
}

async function weir(
  parameters: readonly string[],
  env: Record<string, string> = {},
  input?: Uint8Array,
): Promise<Outcome & { bytes: Buffer }> {
  const child = start(parameters, env);
  const out: Buffer[] = [];
  let stderr = '';
  child.stdout!.on('data', (chunk: Buffer) => out.push(chunk));
  child.stderr!.on('data', (chunk: Buffer) => {
    stderr += chunk.toString();
  });
  child.stdin!.on('error', () => {});
  child.stdin!.end(input);
  return new Promise((resolve) =>
    child.on('close', (code, signal) => {
      const bytes = Buffer.concat(out);
      resolve({ code, signal, stdout: bytes.toString(), stderr, bytes });
    }),
  );
}

const job = (...words: string[]) => ['--', process.execPath, JOB, ...words];
const traces = () => readdirSync(folder).filter((name) => name.endsWith('.weir') && name !== 'latest.weir');
const readJson = (name: string) => JSON.parse(readFileSync(join(folder, name), 'utf8'));

describe('weir run', () => {
  it('says at the end what the job took and what others would have needed, on stderr alone', async () => {
    const { code, stdout, stderr } = await weir(['run', ...job('train=5', 'close')]);
    expect(code).toBe(0);
    expect(stdout.split('\n')).toHaveLength(6);
    expect(stdout).not.toContain('weir');
    expect(stderr).toMatch(/^weir: running on weir \(extends PYTHONPATH for the command\)\n/);
    expect(stderr).toMatch(/weir: process \d+: peak live 5\d MiB, peak reserved \d+ MiB \(1\.\d+ x\)\n/);
    expect(stderr).toContain('driver time 5.0 ms in 12 calls, 3 stream waits, 2 borrows, 1 stitch');
    expect(stderr).toMatch(/pytorch would have needed [\d.]+ MiB \([+-][\d.]+ %\)/);
    expect(stderr).toMatch(/expandable would have needed [\d.]+ MiB/);
    expect(stderr).toContain('none lost');
    expect(stderr.split('\n').every((line) => line === '' || line.startsWith('weir: '))).toBe(true);
    expect([traces(), readdirSync(temporary)]).toEqual([[], []]);
  });

  it('passes input and output through byte by byte', async () => {
    const bytes = Buffer.from(Array.from({ length: 100_000 }, (_, index) => (index * 7919) % 256));
    const { code, bytes: out } = await weir(['run', '-q', '--', 'cat'], {}, bytes);
    expect(code).toBe(0);
    expect(out.equals(bytes)).toBe(true);
  });

  it.each([
    [['run', ...job('train=1', 'exit=7')], 7],
    [['run', ...job('exit=0')], 0],
    [['run', ...job('train=1', 'close', 'exit=255')], 255],
    [['run', '--', './nothing-of-that-name'], 127],
    [['run', 'nothing-of-that-name-in-path'], 127],
    [['run', '--', '/tmp'], 126],
    [['run'], 2],
    [['run', '--record', 'no/such/folder/x.weir', 'true'], 125],
    [['run', '--limit', 'much', 'true'], 2],
    [['run', '--limit', '4KiB', 'true'], 2],
    [['run', '--allocator', 'magic', 'true'], 2],
    [['run', '--check-lines', 'x', 'true'], 2],
    [['run', '--record', 'x%z.weir', 'true'], 2],
    [['run', '--ring-rows', '1000', 'true'], 2],
    [['run', '-q', '-v', 'true'], 2],
    [['record', '--allocator', 'weir', 'true'], 2],
  ])('ends %j with %d', async (parameters, code) => {
    const outcome = await weir(parameters);
    expect([outcome.code, outcome.stderr]).toEqual([code, expect.any(String)]);
    expect(readdirSync(temporary)).toEqual([]);
  });

  it('says what is not executable', async () => {
    writeFileSync(join(folder, 'script'), 'echo never');
    chmodSync(join(folder, 'script'), 0o644);
    const outcome = await weir(['run', './script']);
    expect([outcome.code, outcome.stderr]).toEqual([126, expect.stringContaining('weir: ./script: it cannot be run')]);
  });

  it.each(['SIGKILL', 'SIGSEGV', 'SIGTERM', 'SIGABRT'] as const)(
    'dies by %s as the command does, and keeps what it recorded',
    async (signal) => {
      const { code, signal: died, stderr } = await weir(['run', '--record', 'run.weir', ...job('train=3', 'half', `die=${signal}`)]);
      expect([code, died]).toEqual([null, signal]);
      expect(stderr).toContain('next: weir analyze run.');
      expect(stderr).toContain(`weir: the command was ended by ${signal}\n`);
      expect(traces()).toHaveLength(1);
      const analysis = spawnSync(process.execPath, [MAIN, 'analyze', '--json', traces()[0]!], { cwd: folder, encoding: 'utf8' });
      expect(JSON.parse(analysis.stdout)).toMatchObject({ warnings: [], trace: { allocs: 24, recordedAllocator: 'weir' } });
      expect(readdirSync(temporary)).toEqual([]);
    },
  );

  it('keeps one file per rank, and shows them together', async () => {
    const { code, stderr } = await weir([
      'run',
      '--record',
      'run.weir',
      '--json-file',
      'summary.json',
      ...job('fork=3', 'train=2', 'close'),
    ]);
    expect(code).toBe(0);
    expect(
      traces()
        .map((name) => name.replace(/\.\d+\.weir$/, ''))
        .sort(),
    ).toEqual([0, 1, 2].map((rank) => `run.${hostname()}.r${rank}`));
    expect(readlinkSync(join(folder, 'latest.weir'))).toContain('.r0.');
    for (const rank of [0, 1, 2]) expect(stderr).toContain(`weir: rank ${rank}: peak live`);
    const { processes } = readJson('summary.json');
    expect(processes.map((process: { rank: number }) => process.rank).sort()).toEqual([0, 1, 2]);
    const analysis = spawnSync(process.execPath, [MAIN, 'analyze', ...traces()], { cwd: folder, encoding: 'utf8' });
    expect([analysis.status, analysis.stderr]).toEqual([0, '']);
    expect(analysis.stdout).toContain('3 ranks');
    expect(analysis.stdout).toContain('weir (as recorded)');
  });

  it('names files as told, and never writes over one', async () => {
    await weir(['run', '--record', 'x.%q{JOB_ID}.%r.%h.weir', ...job('train=1', 'close')], { JOB_ID: '12/3' });
    const name = `x.12_3.0.${hostname()}.weir`;
    expect(traces()).toEqual([name]);
    const before = readFileSync(join(folder, name));
    await weir(['run', '--record', 'x.%q{JOB_ID}.%r.%h.weir', ...job('train=2', 'close')], { JOB_ID: '12/3' });
    expect(traces()).toHaveLength(2);
    expect(readFileSync(join(folder, name)).equals(before)).toBe(true);
    await weir(['run', '-f', '--record', 'x.%q{JOB_ID}.%r.%h.weir', ...job('train=2', 'close')], { JOB_ID: '12/3' });
    expect(traces()).toHaveLength(2);
    expect(readFileSync(join(folder, name)).equals(before)).toBe(false);
  });

  it('extends the environment and keeps what the user has set', async () => {
    const given = {
      PYTHONPATH: '/mine:/yours',
      PYTORCH_CUDA_ALLOC_CONF: 'max_split_size_mb:128',
      LD_PRELOAD: '',
      CUDA_VISIBLE_DEVICES: '3',
    };
    const { stdout } = await weir(['run', '--allocator', 'expandable', '--limit', '40GiB', '-q', ...job('env')], given);
    const seen = JSON.parse(stdout);
    expect(seen.PYTHONPATH).toBe(`${new URL('dist/python', ROOT).pathname}:/mine:/yours`);
    expect(seen).toMatchObject({
      PYTORCH_CUDA_ALLOC_CONF: 'max_split_size_mb:128,expandable_segments:True',
      PYTORCH_ALLOC_CONF: 'max_split_size_mb:128,expandable_segments:True',
      CUDA_VISIBLE_DEVICES: '3',
      WEIR_ALLOCATOR: 'expandable',
      WEIR_LIMIT: String(40 * 2 ** 30),
      WEIR_REQUIRED: '1',
      WEIR_NATIVE: new URL('dist/native', ROOT).pathname,
      WEIR_RING_ROWS: '262144',
      WEIR_LEND: '1',
      WEIR_QUIET: '1',
    });
    const plain = JSON.parse((await weir(['run', '-q', ...job('env')])).stdout);
    expect(plain.PYTHONPATH).toBe(process.env['PYTHONPATH'] ? expect.any(String) : new URL('dist/python', ROOT).pathname);
    expect(plain.PYTORCH_CUDA_ALLOC_CONF).toBe(process.env['PYTORCH_CUDA_ALLOC_CONF']);
  });

  it('takes options from the environment, and the command line before it', async () => {
    const env = { WEIR_ALLOCATOR: 'gmlake', WEIR_LIMIT: '1GiB', WEIR_QUIET: '1', WEIR_JSON_FILE: 'here.json', WEIR_LEND: '0' };
    const { stdout, stderr } = await weir(['run', '--limit', '2GiB', ...job('env')], env);
    expect(JSON.parse(stdout)).toMatchObject({ WEIR_ALLOCATOR: 'gmlake', WEIR_LIMIT: String(2 * 2 ** 30), WEIR_LEND: '0' });
    expect(stderr).toMatch(/^weir: no process of the command loaded Weir/);
    expect(readJson('here.json')).toMatchObject({ schema: 1, allocator: 'gmlake', processes: [] });
    const wrong = await weir(['run', ...job('env')], { WEIR_QUIET: 'perhaps' });
    expect([wrong.code, wrong.stderr]).toEqual([2, 'weir: WEIR_QUIET=perhaps: it is 1 or 0\n']);
  });

  it('leaves options after the command to the command, with -- and without', async () => {
    expect((await weir(['run', '-q', 'echo', '--limit', '-q', '--', 'x'])).stdout).toBe('--limit -q -- x\n');
    expect((await weir(['run', '-q', '--', 'echo', '--limit', '-q', '--', 'x'])).stdout).toBe('--limit -q -- x\n');
  });

  it('runs inside itself', async () => {
    const inner = [process.execPath, MAIN, 'run', '-q', '--json-file', 'inner.json', ...job('train=1', 'close', 'exit=3')];
    const { code, stderr } = await weir(['run', '--limit', '1GiB', '--', ...inner]);
    expect([code, stderr]).toEqual([3, expect.stringContaining('no process of the command loaded Weir')]);
    expect(readJson('inner.json')).toMatchObject({ exitCode: 3, limit: 2 ** 30, processes: [{ gpus: [{ limit: 2 ** 30 }] }] });
    expect((await weir(['run', '-q', '--', ...inner])).code).toBe(3);
  });

  it('does not start where PyTorch was told to load nothing', async () => {
    const { code, stdout, stderr } = await weir(['run', ...job('say=41')], { TORCH_DEVICE_BACKEND_AUTOLOAD: '0' });
    expect([code, stdout]).toEqual([125, '']);
    expect(stderr).toContain('TORCH_DEVICE_BACKEND_AUTOLOAD=0 is set');
  });

  it('says why a process refused, once, and ends with 125', async () => {
    const { code, stderr } = await weir(['run', ...job('fork=3', 'refuse')]);
    expect(code).toBe(125);
    expect(stderr.match(/has not been tested with this version of Weir/g)).toHaveLength(1);
    expect(readdirSync(temporary)).toEqual([]);
  });

  it('says when no process loaded it, and keeps the exit code', async () => {
    const { code, stderr } = await weir(['run', ...job('exit=4')]);
    expect(code).toBe(4);
    expect(stderr).toContain('no process of the command loaded Weir');
    expect(stderr).toContain('-I, -E or -S');
    const idle = await weir(['run', '--record', 'x.weir', ...job('idle', 'exit=4')]);
    expect([idle.code, idle.stderr, traces()]).toEqual([4, expect.stringContaining('no process of the command used a GPU'), []]);
  });

  it('counts events that were lost', async () => {
    const { stderr } = await weir(['run', '--json-file', 'summary.json', ...job('flood=60000')]);
    expect(stderr).toMatch(/of 60,000 events were not recorded, in [\d,]+ gaps/);
    const { recorder } = readJson('summary.json');
    expect(recorder.dropped).toBeGreaterThan(0);
    expect(recorder.events + recorder.dropped).toBe(60000);
  });

  it('writes the summary as JSON, to a file or as all it says', async () => {
    const { stderr, stdout } = await weir(['run', '--json', '--limit', '512MiB', ...job('train=4', 'oom', 'close')]);
    expect(stdout).not.toContain('schema');
    const summary = JSON.parse(stderr);
    expect(summary).toMatchObject({ schema: 1, allocator: 'weir', exitCode: 0, signal: null, limit: 2 ** 29, refusals: [] });
    expect(summary.processes[0]).toMatchObject({
      rank: null,
      torch: '2.11.0+cu130',
      dropped: 0,
      damage: null,
      trace: null,
      gpus: [{ gpu: 0, deviceBytes: 2 ** 30, limit: 2 ** 29, ooms: 1, waits: 3, driver: { timeUs: 5000, calls: 12, failures: 0 } }],
    });
    const [gpu] = summary.processes[0].gpus;
    expect(gpu.whatIf.results.map((row: { allocator: string }) => row.allocator)).toEqual(['pytorch', 'expandable']);
    // 900 MiB were asked for within 512 MiB: nobody serves that.
    for (const row of gpu.whatIf.results) expect(row).toMatchObject({ ooms: 1, peakReserved: expect.any(Number) });
  });

  it('looks at the first events only where there are many', async () => {
    const { stderr } = await weir(['run', '--what-if-events', '100', ...job('train=20', 'close')]);
    expect(stderr).toMatch(/\(replayed: the first 100 of 4\d\d events; --what-if-events N looks at more\)/);
    const kept = await weir([
      'run',
      '--record',
      'all.weir',
      '--what-if-events',
      '100',
      '--json',
      ...job('train=20', 'pause=300', 'train=20', 'close'),
    ]);
    const [process] = JSON.parse(kept.stderr).processes;
    expect(process.gpus[0].whatIf.events).toBeLessThan(process.events);
  });

  it('says once that the disk is full, and leaves the command alone', async () => {
    const { code, stderr } = await weir(['run', '-f', '--record', '/dev/full%q{NOTHING}', ...job('train=30', 'close', 'exit=5')]);
    expect(code).toBe(5);
    expect(stderr.match(/the disk is full/g)).toHaveLength(1);
    expect(stderr).toContain('the job goes on');
  });
});

describe('signals', () => {
  const ready = (child: ChildProcess, words: RegExp) =>
    new Promise<string>((resolve) => {
      let seen = '';
      child.stdout!.on('data', (chunk: Buffer) => {
        seen += chunk.toString();
        if (words.test(seen)) resolve(seen);
      });
    });
  const ended = (child: ChildProcess) =>
    new Promise<[number | null, string | null]>((resolve) => child.on('close', (code, signal) => resolve([code, signal])));

  it('go to the command, which alone decides what they mean', async () => {
    const child = start(['run', '-q', ...job('train=1', 'signals')]);
    const end = ended(child);
    await ready(child, /ready/);
    for (const signal of ['SIGUSR1', 'SIGUSR2', 'SIGHUP', 'SIGQUIT'] as const) {
      const heard = ready(child, new RegExp(signal));
      child.kill(signal);
      await heard;
    }
    child.kill('SIGTERM');
    expect(await end).toEqual([3, null]);
    expect(readdirSync(temporary)).toEqual([]);
  });

  it('a second Ctrl-C soon after the first is meant more seriously', async () => {
    const child = start(['run', ...job('signals')]);
    const end = ended(child);
    await ready(child, /ready/);
    child.kill('SIGINT');
    await new Promise((resolve) => setTimeout(resolve, 200));
    child.kill('SIGINT');
    expect(await end).toEqual([3, null]);
  });

  it('leave the command running when weir itself is killed', async () => {
    const child = start(['run', '-q', ...job('train=1', 'sleep=1500', 'write=survived.json')]);
    const end = ended(child);
    await ready(child, /pid \d+/);
    child.kill('SIGKILL');
    child.stdout!.destroy();
    await end;
    await expect.poll(() => existsSync(join(folder, 'survived.json')), { timeout: 10_000 }).toBe(true);
    for (const name of readdirSync(temporary)) rmSync(join(temporary, name), { recursive: true });
  });
});

describe('the what-if', () => {
  it('is ended by Ctrl-C, and the command keeps its exit code', async () => {
    const child = start(['run', '-v', ...job('train=1500', 'close', 'exit=7')]);
    let stderr = '';
    child.stdout!.resume();
    child.stderr!.on('data', (chunk: Buffer) => {
      stderr += chunk.toString();
      if (chunk.toString().includes('replaying what')) child.kill('SIGINT');
    });
    expect(await new Promise((resolve) => child.on('close', (code) => resolve(code)))).toBe(7);
    expect(stderr).toContain('the replay on other allocators was skipped');
    expect(stderr).toContain('peak live');
    expect(stderr).not.toContain('would have needed');
    expect(readdirSync(temporary)).toEqual([]);
  });

  it('can be left out', async () => {
    const { stderr } = await weir(['run', '--no-what-if', ...job('train=2', 'close')]);
    expect(stderr).toContain('peak live');
    expect(stderr).not.toContain('would have needed');
  });
});

describe('--metrics', () => {
  it('serves the figures of every rank while the job runs', async () => {
    const child = start(['run', '--metrics', '0', ...job('fork=2', 'train=3', 'sleep=3000')]);
    let stderr = '';
    child.stderr!.on('data', (chunk: Buffer) => {
      stderr += chunk.toString();
    });
    await expect.poll(() => /http:\S+metrics/.exec(stderr)?.[0], { timeout: 10_000 }).toBeDefined();
    const url = /http:\S+metrics/.exec(stderr)![0];
    const read = async () => (await fetch(url)).text();
    await expect
      .poll(read, { timeout: 10_000 })
      .toMatch(/weir_driver_seconds_total\{rank="1",pid="\d+",allocator="weir",device="0"\} 0.005\n/);
    const page = await read();
    const names = new Set<string>();
    for (const line of page.trim().split('\n')) {
      const help = /^# (HELP|TYPE) (weir_\w+) (.+)$/.exec(line);
      if (help) {
        names.add(help[2]!);
        if (help[1] === 'TYPE') expect(['gauge', 'counter']).toContain(help[3]);
        continue;
      }
      const sample = /^(weir_\w+)\{rank="[01]",pid="\d+",allocator="weir"(,device="0")?\} [\d.e+-]+$/.exec(line);
      expect([line, sample !== null]).toEqual([line, true]);
      expect(names.has(sample![1]!)).toBe(true);
      if (sample![1]!.endsWith('_total')) expect(page).toContain(`# TYPE ${sample![1]} counter`);
    }
    for (const name of [
      'live_bytes',
      'reserved_bytes',
      'allocated_bytes',
      'reserved_bytes_peak',
      'allocations_total',
      'ooms_total',
      'stream_waits_total',
      'dropped_events_total',
    ])
      expect([name, names.has(`weir_${name}`)]).toEqual([name, true]);
    expect((await fetch(url.replace('metrics', 'else'))).status).toBe(404);
    child.kill('SIGTERM');
    await new Promise((resolve) => child.on('close', resolve));
  });

  it('a port that is taken ends the run before it begins', async () => {
    const server = createServer().listen(0, '127.0.0.1');
    await new Promise((resolve) => server.on('listening', resolve));
    const { port } = server.address() as AddressInfo;
    for (const option of ['--metrics', '--serve-port']) {
      const { code, stdout, stderr } = await weir(['run', '--serve', option, String(port), ...job('say=41')]);
      expect([code, stdout]).toEqual([125, '']);
      expect(stderr).toContain(`port ${port} on 127.0.0.1 is taken`);
    }
    server.close();
  });
});

describe('--serve', () => {
  it('shows the ranks of the job while it runs', async () => {
    const child = start(['run', '--serve', ...job('fork=2', 'train=3', 'sleep=2500')]);
    let stderr = '';
    child.stderr!.on('data', (chunk: Buffer) => {
      stderr += chunk.toString();
    });
    await expect.poll(() => /http:\S+/.exec(stderr)?.[0], { timeout: 10_000 }).toBeDefined();
    const url = /http:\S+/.exec(stderr)![0];
    expect(await (await fetch(url)).text()).toContain('<div id="app">');
    const stream = await (await fetch(`${url}api/live`)).text();
    const samples = [...stream.matchAll(/event: sample\ndata: (.*)/g)].map((match) => JSON.parse(match[1]!));
    expect(new Set(samples.map((sample) => sample.name))).toEqual(new Set(['rank 0', 'rank 1']));
    expect(Math.max(...samples.map((sample) => sample.highReserved))).toBeGreaterThan(40 * 2 ** 20);
    expect(samples.filter((sample) => sample.isOver)).toHaveLength(2);
    expect(stream).toContain('event: over');
    await new Promise((resolve) => child.on('close', resolve));
  });
});

describe('--check', () => {
  it('finds that losses are identical, and shows the output once', async () => {
    const { code, stdout, stderr } = await weir(['run', '--check', ...job('train=5', 'close')]);
    expect([code, stdout.match(/loss/g)!.length]).toEqual([0, 5]);
    expect(stderr).toContain("weir: check: identical: 5 numbers on weir and on PyTorch's allocator\n");
  });

  it('finds differences beyond those of PyTorch with itself', async () => {
    const { code, stderr } = await weir(['run', '--check', ...job('train=5', 'close')], { FAKE_ERROR: '0.001' });
    expect(code).toBe(1);
    expect(stderr).toMatch(/check: 5 numbers: weir differs by up to 0\.00\d+ of a number while PyTorch does not differ from itself/);
    const noisy = await weir(['run', '--check', ...job('train=5', 'close')], { FAKE_ERROR: '0.0001', FAKE_NOISE: '0.5' });
    expect(noisy.stderr).toMatch(/weir differs by up to \S+ of a number while PyTorch differs from itself by up to/);
  });

  it('compares other lines, or a file', async () => {
    const lines = await weir(['run', '--check', '--check-lines', 'step (\\d+)', ...job('train=5', 'close')], { FAKE_ERROR: '1' });
    expect([lines.code, lines.stderr]).toEqual([0, expect.stringContaining('identical: 5 numbers')]);
    const none = await weir(['run', '--check', '--check-lines', 'accuracy', ...job('train=5', 'close')]);
    expect([none.code, none.stderr]).toEqual([1, expect.stringContaining('nothing was compared: no line of the output matches')]);
    const same = await weir(['run', '--check', '--check-output', 'out.json', ...job('train=1', 'write=out.json', 'close')]);
    expect([same.code, same.stderr]).toEqual([0, expect.stringContaining('identical: out.json')]);
    const differs = await weir(['run', '--check', '--check-output', 'out.json', ...job('train=1', 'write=out.json', 'close')], {
      FAKE_ERROR: '0.25',
    });
    expect([differs.code, differs.stderr]).toEqual([1, expect.stringContaining('out.json: weir differs by up to 0.50 of a number')]);
    expect(readJson('out.json')).toEqual({ loss: 0.5 });
  });

  it('ends with the code of a command that fails', async () => {
    const { code, stderr } = await weir(['run', '--check', ...job('exit=9')]);
    expect([code, stderr]).toEqual([9, expect.stringContaining("the command failed on PyTorch's own allocator")]);
  });
});

describe('weir run --swap', () => {
  it('plans for the process that asks, and tells what came of it', async () => {
    const ended = await weir([
      'run',
      '--swap',
      'auto',
      '--swap-host',
      '1GiB',
      '--json-file',
      'run.json',
      ...job('train=3', 'swap=12', 'close'),
    ]);
    expect(ended.stderr).toContain('swapping what costs no time');
    expect(ended.stderr).toMatch(/process \d+: planned: 0\.8 -> 0\.\d GiB, 0 stalls expected, .* \(\d+ moves a step\)/);
    expect(ended.stderr).toMatch(/ {2}swapped: expected peak .+, measured .+ allocated\n/);
    expect(ended.stderr).toContain('3 MiB out, 3 MiB back in 5 planned steps; no stall, one miss');
    expect(ended.stdout).toMatch(/\d+ moves\n/);
    const json = JSON.parse(readFileSync(join(folder, 'run.json'), 'utf8'));
    expect(json.processes[0].swap).toMatchObject({ steps: 9, misses: 1 });
    expect(ended.code).toBe(0);
  });

  it('tells processes how far to go, and refuses what makes no sense', async () => {
    const { stdout } = await weir(['run', '--swap', '2GiB', ...job('env')]);
    expect(JSON.parse(stdout)).toMatchObject({ WEIR_SWAP: String(2 * 2 ** 30) });
    expect(await weir(['run', '--swap', '1KiB', '--', 'true'])).toMatchObject({ code: 2, stderr: expect.stringContaining('--swap') });
    expect(await weir(['run', '--swap-host', '1GiB', '--', 'true'])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('add --swap'),
    });
    expect(await weir(['run', '--swap', 'much', '--', 'true'])).toMatchObject({ code: 2 });
  });
});

describe('weir record', () => {
  it("keeps a recording under PyTorch's own allocator, named after the script", async () => {
    const { code, stderr } = await weir([
      'record',
      '--',
      'sh',
      '-c',
      'exec "$@"',
      'train.py',
      ...job('train=3', 'close', 'exit=6').slice(1),
    ]);
    expect(code).toBe(6);
    expect(stderr).toContain('recording to train.*.weir, on pytorch');
    expect(stderr).toMatch(/weir would have needed/);
    expect(traces()).toEqual([expect.stringMatching(/^train\.\d+\.weir$/)]);
    const replayed = spawnSync(process.execPath, [MAIN, 'replay', '--json', traces()[0]!], { cwd: folder, encoding: 'utf8' });
    expect(JSON.parse(replayed.stdout)).toMatchObject({ trace: { allocs: 24 } });
  });
});
