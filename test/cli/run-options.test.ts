// What `weir run` and `weir record` do beside running a job: watching, checking, swapping, recording, as a user asks for it.
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ChildVariable } from '../../src/abi/environment.ts';
import { MAIN } from '../support/command.ts';
import { job, RunFolder } from '../support/run-folder.ts';

const run = new RunFolder();

describe('--metrics', () => {
  it('serves the figures of every rank while the job runs', async () => {
    const child = run.start(['run', '--metrics', '0', ...job('fork=2', 'train=3', 'sleep=3000')]);
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
      const { code, stdout, stderr } = await run.weir(['run', '--serve', option, String(port), ...job('say=41')]);
      expect([code, stdout]).toEqual([125, '']);
      expect(stderr).toContain(`port ${port} on 127.0.0.1 is taken`);
    }
    server.close();
  });
});

describe('--serve', () => {
  it('shows the ranks of the job while it runs', async () => {
    const child = run.start(['run', '--serve', ...job('fork=2', 'train=3', 'sleep=2500')]);
    let stderr = '';
    child.stderr!.on('data', (chunk: Buffer) => {
      stderr += chunk.toString();
    });
    await expect.poll(() => /http:\S+/.exec(stderr)?.[0], { timeout: 10_000 }).toBeDefined();
    const url = /http:\S+/.exec(stderr)![0];
    const headers = { authorization: `Bearer ${new URL(url).searchParams.get('token')}` };
    expect((await fetch(new URL('/api/live', url))).status).toBe(401);
    expect(await (await fetch(new URL('/', url), { headers })).text()).toContain('<div id="app">');
    const stream = await (await fetch(new URL('/api/live', url), { headers })).text();
    const samples = [...stream.matchAll(/event: sample\ndata: (.*)/g)].map((match) => JSON.parse(match[1]!));
    expect(new Set(samples.map((sample) => sample.name))).toEqual(new Set(['rank 0', 'rank 1']));
    expect(Math.max(...samples.map((sample) => sample.highReserved))).toBeGreaterThan(40 * 2 ** 20);
    expect(samples.filter((sample) => sample.state !== 'running')).toHaveLength(2);
    expect(stream).toContain('event: over');
    await new Promise((resolve) => child.on('close', resolve));
  });

  it('prints its URL even with -q, and is refused where the URL would be hidden', async () => {
    const quiet = await run.weir(['run', '-q', '--serve', ...job('say=41')]);
    expect(quiet.stderr).toMatch(/^weir: live page: http:\/\/127\.0\.0\.1:\d+\/\?token=[0-9a-f]{32}$/m);
    const json = await run.weir(['run', '--json', '--serve', ...job('say=41')]);
    expect([json.code, json.stderr]).toEqual([2, expect.stringContaining('--json hides the URL that --serve prints')]);
  });
});

describe('--check', () => {
  it('finds that losses are identical, and shows the output once', async () => {
    const { code, stdout, stderr } = await run.weir(['run', '--check', ...job('train=5', 'close')]);
    expect([code, stdout.match(/loss/g)!.length]).toEqual([0, 5]);
    expect(stderr).toContain("weir: check: identical: 5 numbers on weir and on PyTorch's allocator\n");
  });

  it('finds differences beyond those of PyTorch with itself', async () => {
    const { code, stderr } = await run.weir(['run', '--check', ...job('train=5', 'close')], { FAKE_ERROR: '0.001' });
    expect(code).toBe(1);
    expect(stderr).toMatch(/check: 5 numbers: weir differs by up to 0\.00\d+ \(relative\); two runs on PyTorch's allocator are identical/);
    const noisy = await run.weir(['run', '--check', ...job('train=5', 'close')], { FAKE_ERROR: '0.0001', FAKE_NOISE: '0.5' });
    expect(noisy.stderr).toMatch(/weir differs by up to \S+ \(relative\); two runs on PyTorch's allocator differ by up to/);
  });

  it('compares other lines, or a file', async () => {
    const lines = await run.weir(['run', '--check', '--check-lines', 'step (\\d+)', ...job('train=5', 'close')], { FAKE_ERROR: '1' });
    expect([lines.code, lines.stderr]).toEqual([0, expect.stringContaining('identical: 5 numbers')]);
    const none = await run.weir(['run', '--check', '--check-lines', 'accuracy', ...job('train=5', 'close')]);
    expect([none.code, none.stderr]).toEqual([1, expect.stringContaining('nothing was compared: no line of the output matches')]);
    const same = await run.weir(['run', '--check', '--check-output', 'out.json', ...job('train=1', 'write=out.json', 'close')]);
    expect([same.code, same.stderr]).toEqual([0, expect.stringContaining('identical: out.json')]);
    const differs = await run.weir(['run', '--check', '--check-output', 'out.json', ...job('train=1', 'write=out.json', 'close')], {
      FAKE_ERROR: '0.25',
    });
    expect([differs.code, differs.stderr]).toEqual([1, expect.stringContaining('out.json: weir differs by up to 0.50 (relative)')]);
    expect(run.readJson('out.json')).toEqual({ loss: 0.5 });
  });

  it('ends with the code of a command that fails', async () => {
    const { code, stderr } = await run.weir(['run', '--check', ...job('exit=9')]);
    expect([code, stderr]).toEqual([9, expect.stringContaining("the command failed on PyTorch's own allocator")]);
  });
});

describe('weir run --swap', () => {
  it('plans for the process that asks, and tells what came of it', async () => {
    const ended = await run.weir([
      'run',
      '--swap',
      'auto',
      '--swap-host',
      '1GiB',
      '--json-file',
      'run.json',
      ...job('train=3', 'swap=12', 'close'),
    ]);
    expect(ended.stderr).toContain('swapping what costs hardly any time');
    expect(ended.stderr).toMatch(/process \d+: swap plan: peak 0\.8 -> 0\.\d GiB, 0 stalls expected, .* \(\d+ tensors\)/);
    expect(ended.stderr).toMatch(/ {2}swapped: expected peak .+, measured .+ allocated\n/);
    expect(ended.stderr).toMatch(/ {2}least peak without waiting on this link: .+; of .+ live then, .+ are idle for long enough/);
    expect(ended.stderr).toContain('swapped out 3 MiB, swapped in 3 MiB in 5 planned steps; no stalls, 1 miss');
    expect(ended.stderr).toContain('of that, parameters: 2 MiB, gradients: 1 MiB');
    expect(ended.stderr).toContain('optimizer state did not fit: it passed through in chunks in 2 steps');
    expect(ended.stdout).toMatch(/\d+ moves\n/);
    const json = JSON.parse(readFileSync(join(run.path, 'run.json'), 'utf8'));
    expect(json.processes[0].swap).toMatchObject({ steps: 9, misses: 1 });
    expect(ended.code).toBe(0);
  });

  it('tells processes how far to go, and refuses what makes no sense', async () => {
    const { stdout } = await run.weir(['run', '--swap', '2GiB', ...job('env')]);
    expect(JSON.parse(stdout)).toMatchObject({ [ChildVariable.swap]: String(2 * 2 ** 30) });
    expect(await run.weir(['run', '--swap', '1KiB', '--', 'true'])).toMatchObject({ code: 2, stderr: expect.stringContaining('--swap') });
    expect(await run.weir(['run', '--swap-host', '1GiB', '--', 'true'])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('add --swap'),
    });
    expect(await run.weir(['run', '--swap', 'much', '--', 'true'])).toMatchObject({ code: 2 });
  });
});

describe('weir record', () => {
  it('says that no accesses were recorded, if no step was seen', async () => {
    const words = /weir: no accesses were recorded: .* call weir_gpu\.step\(\) after each step\n/;
    expect((await run.weir(['record', '--accesses', ...job('train=2', 'close')])).stderr).toMatch(words);
    expect((await run.weir(['record', '--accesses', ...job('train=2', 'operator', 'close')])).stderr).not.toMatch(words);
    expect((await run.weir(['record', ...job('train=2', 'close')])).stderr).not.toMatch(words);
  });

  it('asks for accesses of some steps', async () => {
    const steps = async (options: string[], environment: Record<string, string> = {}) => {
      const { stdout } = await run.weir(['record', ...options, ...job('env')], environment);
      return JSON.parse(stdout)[ChildVariable.accesses];
    };
    expect(await steps(['--accesses'])).toBe('3');
    expect(await steps(['--accesses=7'])).toBe('7');
    expect(await steps([])).toBeUndefined();
    expect(await steps([], { WEIR_ACCESSES: '5' })).toBe('5');
    for (const wrong of ['0', 'all', '1001'])
      expect(await run.weir(['record', `--accesses=${wrong}`, '--', 'true'])).toMatchObject({
        code: 2,
        stderr: expect.stringContaining('is not a number of steps'),
      });
  });

  it("keeps a recording under PyTorch's own allocator, named after the script", async () => {
    const { code, stderr } = await run.weir([
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
    expect(run.traces()).toEqual([expect.stringMatching(/^train\.\d+\.weir$/)]);
    const replayed = spawnSync(process.execPath, [MAIN, 'replay', '--json', run.traces()[0]!], { cwd: run.path, encoding: 'utf8' });
    expect(JSON.parse(replayed.stdout)).toMatchObject({ trace: { allocs: 24 } });
  });
});
