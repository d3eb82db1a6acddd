// `weir run` and `weir record` as a user runs them, over a job that needs no GPU: what is the command's stays the command's.
import { type ChildProcess, spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, readlinkSync, rmSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ChildVariable } from '../../src/abi/environment.ts';
import { withSwallowedPython } from '../../src/cli/run-options.ts';
import { MAIN, ROOT } from '../support/command.ts';
import { job, RunFolder } from '../support/run-folder.ts';

const run = new RunFolder();

describe('weir run', () => {
  it('says at the end what the job took and what others would have needed, on stderr alone', async () => {
    const { code, stdout, stderr } = await run.weir(['run', ...job('train=5', 'close')]);
    expect(code).toBe(0);
    expect(stdout.split('\n')).toHaveLength(6);
    expect(stdout).not.toContain('weir');
    expect(stderr).toMatch(/^weir: running on weir \(extends PYTHONPATH for the command\)\n/);
    expect(stderr).toMatch(/weir: process \d+: peak live 5\d MiB, peak reserved \d+ MiB \(overhead 1\.\d+\)\n/);
    expect(stderr).toContain('driver time 5.0 ms in 12 calls, 3 stream waits, 2 borrows, 1 stitch');
    expect(stderr).toMatch(/pytorch would have needed [\d.]+ MiB \([+-][\d.]+ %\)/);
    expect(stderr).toMatch(/expandable would have needed [\d.]+ MiB/);
    expect(stderr).toContain('none lost');
    expect(stderr.split('\n').every((line) => line === '' || line.startsWith('weir: '))).toBe(true);
    expect([run.traces(), readdirSync(run.temporary)]).toEqual([[], []]);
  });

  it('recommends --check once, if Weir was not run on a GPU with this PyTorch', async () => {
    const advice = /weir: Weir on PyTorch 2\.13: .*\. Compare your results once: weir run --check\.\n/;
    const untried = { FAKE_TORCH: '2.13.0+cu130' };
    const { stderr } = await run.weir(['run', ...job('train=2', 'close')], untried);
    expect(stderr).toMatch(advice);
    expect(stderr.match(/--check/g)).toHaveLength(1);
    for (const parameters of [
      ['run', '-q'],
      ['run', '--check'],
      ['run', '--allocator', 'pytorch'],
      ['record', '-o', 'x.weir'],
    ])
      expect((await run.weir([...parameters, ...job('train=2', 'close')], untried)).stderr).not.toMatch(advice);
    expect((await run.weir(['run', ...job('train=2', 'close')])).stderr).not.toContain('--check');
    rmSync(run.path, { recursive: true });
    mkdirSync(run.path);
  });

  it('passes input and output through byte by byte', async () => {
    const bytes = Buffer.from(Array.from({ length: 100_000 }, (_, index) => (index * 7919) % 256));
    const { code, bytes: out } = await run.weir(['run', '-q', '--', 'cat'], {}, bytes);
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
    const outcome = await run.weir(parameters);
    expect([outcome.code, outcome.stderr]).toEqual([code, expect.any(String)]);
    expect(readdirSync(run.temporary)).toEqual([]);
  });

  it('says what is not executable', async () => {
    writeFileSync(join(run.path, 'script'), 'echo never');
    chmodSync(join(run.path, 'script'), 0o644);
    const outcome = await run.weir(['run', './script']);
    expect([outcome.code, outcome.stderr]).toEqual([126, expect.stringContaining('weir: ./script: cannot be executed')]);
  });

  it.each(['SIGKILL', 'SIGSEGV', 'SIGTERM', 'SIGABRT'] as const)(
    'dies by %s as the command does, and keeps what it recorded',
    async (signal) => {
      const { code, signal: died, stderr } = await run.weir(['run', '--record', 'run.weir', ...job('train=3', 'half', `die=${signal}`)]);
      expect([code, died]).toEqual([null, signal]);
      expect(stderr).toContain('next: weir analyze run.');
      expect(stderr).toContain(`weir: the command was ended by ${signal}\n`);
      expect(run.traces()).toHaveLength(1);
      const analysis = spawnSync(process.execPath, [MAIN, 'analyze', '--json', run.traces()[0]!], { cwd: run.path, encoding: 'utf8' });
      expect(JSON.parse(analysis.stdout)).toMatchObject({ warnings: [], trace: { allocs: 24, recordedAllocator: 'weir' } });
      expect(readdirSync(run.temporary)).toEqual([]);
    },
  );

  it('keeps one file per rank, and shows them together', async () => {
    const { code, stderr } = await run.weir([
      'run',
      '--record',
      'run.weir',
      '--json-file',
      'summary.json',
      ...job('fork=3', 'train=2', 'close'),
    ]);
    expect(code).toBe(0);
    expect(
      run
        .traces()
        .map((name) => name.replace(/\.\d+\.weir$/, ''))
        .sort(),
    ).toEqual([0, 1, 2].map((rank) => `run.${hostname()}.r${rank}`));
    expect(readlinkSync(join(run.path, 'latest.weir'))).toContain('.r0.');
    for (const rank of [0, 1, 2]) expect(stderr).toContain(`weir: rank ${rank}: peak live`);
    const { processes } = run.readJson('summary.json');
    expect(processes.map((process: { rank: number }) => process.rank).sort()).toEqual([0, 1, 2]);
    const analysis = spawnSync(process.execPath, [MAIN, 'analyze', ...run.traces()], { cwd: run.path, encoding: 'utf8' });
    expect([analysis.status, analysis.stderr]).toEqual([0, '']);
    expect(analysis.stdout).toContain('3 ranks');
    expect(analysis.stdout).toContain('weir (as recorded)');
  });

  it('names files as told, and never writes over one', async () => {
    await run.weir(['run', '--record', 'x.%q{JOB_ID}.%r.%h.weir', ...job('train=1', 'close')], { JOB_ID: '12/3' });
    const name = `x.12_3.0.${hostname()}.weir`;
    expect(run.traces()).toEqual([name]);
    const before = readFileSync(join(run.path, name));
    await run.weir(['run', '--record', 'x.%q{JOB_ID}.%r.%h.weir', ...job('train=2', 'close')], { JOB_ID: '12/3' });
    expect(run.traces()).toHaveLength(2);
    expect(readFileSync(join(run.path, name)).equals(before)).toBe(true);
    await run.weir(['run', '-f', '--record', 'x.%q{JOB_ID}.%r.%h.weir', ...job('train=2', 'close')], { JOB_ID: '12/3' });
    expect(run.traces()).toHaveLength(2);
    expect(readFileSync(join(run.path, name)).equals(before)).toBe(false);
  });

  it('extends the environment and keeps what the user has set', async () => {
    const given = {
      PYTHONPATH: '/mine:/yours',
      PYTORCH_CUDA_ALLOC_CONF: 'max_split_size_mb:128',
      LD_PRELOAD: '',
      CUDA_VISIBLE_DEVICES: '3',
    };
    const { stdout } = await run.weir(['run', '--allocator', 'expandable', '--limit', '40GiB', '-q', ...job('env')], given);
    const seen = JSON.parse(stdout);
    expect(seen.PYTHONPATH).toBe(`${new URL('dist/python', ROOT).pathname}:/mine:/yours`);
    expect(seen).toMatchObject({
      PYTORCH_CUDA_ALLOC_CONF: 'max_split_size_mb:128,expandable_segments:True',
      PYTORCH_ALLOC_CONF: 'max_split_size_mb:128,expandable_segments:True',
      CUDA_VISIBLE_DEVICES: '3',
      [ChildVariable.allocator]: 'expandable',
      [ChildVariable.limit]: String(40 * 2 ** 30),
      [ChildVariable.required]: '1',
      [ChildVariable.native]: new URL('dist/native', ROOT).pathname,
      [ChildVariable.ringRows]: '262144',
      [ChildVariable.lend]: '1',
      [ChildVariable.quiet]: '1',
    });
    const plain = JSON.parse((await run.weir(['run', '-q', ...job('env')])).stdout);
    expect(plain.PYTHONPATH).toBe(process.env['PYTHONPATH'] ? expect.any(String) : new URL('dist/python', ROOT).pathname);
    expect(plain.PYTORCH_CUDA_ALLOC_CONF).toBe(process.env['PYTORCH_CUDA_ALLOC_CONF']);
  });

  it('tells processes which call stacks to record', async () => {
    const stacks = async (words: string[], env: Record<string, string> = {}) =>
      JSON.parse((await run.weir([...words, '-q', ...job('env')], env)).stdout)[ChildVariable.stacks];
    expect(await stacks(['run'])).toBe('python:1048576');
    expect(await stacks(['record'])).toBe('python');
    expect(await stacks(['run', '--stacks=large:4KiB'])).toBe('python:4096');
    expect(await stacks(['run', '--stacks'])).toBe('python');
    expect(await stacks(['record', '--stacks', 'all'])).toBe('all');
    expect(await stacks(['record', '--stacks=off'])).toBeUndefined();
    expect(await stacks(['run'], { WEIR_STACKS: 'all' })).toBe('all');
    expect(await stacks(['run', '--stacks=off'], { WEIR_STACKS: 'all' })).toBeUndefined();
    const wrong = await run.weir(['run', '--stacks', 'torchrun', 'train.py']);
    expect(wrong.stderr).toContain("'torchrun' is none of off, large, large:SIZE, python and all");
    expect(wrong.code).toBe(2);
  });

  it('does not take the command for a value of --stacks', () => {
    const words = (...typed: string[]) =>
      withSwallowedPython(typed.slice(typed.indexOf('python') + 1), ['node', 'weir', 'record', ...typed]);
    expect(words('--stacks', 'python', 'train.py')).toEqual(['python', 'train.py']);
    expect(words('--stacks', 'python', '-m', 'train')).toEqual(['python', '-m', 'train']);
    expect(words('--stacks', 'python', 'torchrun', 'train.py')).toEqual(['torchrun', 'train.py']);
    expect(words('--stacks=python', 'train.py')).toEqual(['--stacks=python', 'train.py']);
  });

  it('takes options from the environment, and the command line before it', async () => {
    const env = { WEIR_ALLOCATOR: 'gmlake', WEIR_LIMIT: '1GiB', WEIR_QUIET: '1', WEIR_JSON_FILE: 'here.json', WEIR_LEND: '0' };
    const { stdout, stderr } = await run.weir(['run', '--limit', '2GiB', ...job('env')], env);
    expect(JSON.parse(stdout)).toMatchObject({
      [ChildVariable.allocator]: 'gmlake',
      [ChildVariable.limit]: String(2 * 2 ** 30),
      [ChildVariable.lend]: '0',
    });
    expect(stderr).toMatch(/^weir: no process of the command loaded Weir/);
    expect(run.readJson('here.json')).toMatchObject({ schema: 1, allocator: 'gmlake', processes: [] });
    const wrong = await run.weir(['run', ...job('env')], { WEIR_QUIET: 'perhaps' });
    expect([wrong.code, wrong.stderr]).toEqual([2, 'weir: WEIR_QUIET=perhaps: it is 1 or 0\n']);
  });

  it.each([
    ['-q', '1'],
    ['--json', '1'],
    ['--verbose', '0'],
  ])('tells the processes whether to be quiet: %s', async (flag, quiet) => {
    expect(JSON.parse((await run.weir(['run', flag, ...job('env')])).stdout)).toMatchObject({ [ChildVariable.quiet]: quiet });
  });

  it('leaves options after the command to the command, with -- and without', async () => {
    expect((await run.weir(['run', '-q', 'echo', '--limit', '-q', '--', 'x'])).stdout).toBe('--limit -q -- x\n');
    expect((await run.weir(['run', '-q', '--', 'echo', '--limit', '-q', '--', 'x'])).stdout).toBe('--limit -q -- x\n');
  });

  it('runs inside itself, and takes nothing of the outer run for an option', async () => {
    const inner = [process.execPath, MAIN, 'run', '-q', '--json-file', 'inner.json', ...job('train=1', 'close', 'exit=3')];
    const { code, stderr } = await run.weir(['run', '--limit', '1GiB', '--', ...inner]);
    expect([code, stderr]).toEqual([3, expect.stringContaining('no process of the command loaded Weir')]);
    expect(run.readJson('inner.json')).toMatchObject({ exitCode: 3, limit: null, processes: [{ gpus: [{ limit: null }] }] });
    expect((await run.weir(['run', '-q', '--', ...inner])).code).toBe(3);
  });

  it('does not start where PyTorch was told to load nothing', async () => {
    const { code, stdout, stderr } = await run.weir(['run', ...job('say=41')], { TORCH_DEVICE_BACKEND_AUTOLOAD: '0' });
    expect([code, stdout]).toEqual([125, '']);
    expect(stderr).toContain('TORCH_DEVICE_BACKEND_AUTOLOAD=0 is set');
  });

  it('says why a process refused, once, and ends with 125', async () => {
    const { code, stderr } = await run.weir(['run', ...job('fork=3', 'refuse')]);
    expect(code).toBe(125);
    expect(stderr.match(/has not been tested with this version of Weir/g)).toHaveLength(1);
    expect(readdirSync(run.temporary)).toEqual([]);
  });

  it('says that PyTorch is not installed, if that is why no process loaded it', async () => {
    // A Python that finds no module, and one that finds every module.
    const python = (name: string, code: number) => {
      const path = join(run.path, name, 'python3');
      mkdirSync(join(run.path, name), { recursive: true });
      writeFileSync(path, `#!/bin/sh\ncase "$*" in *find_spec*) exit ${code};; esac\nexit 0\n`, { mode: 0o755 });
      return path;
    };
    const without = await run.weir(['run', python('without', 9), 'train.py']);
    expect([without.code, without.stderr]).toEqual([
      0,
      expect.stringMatching(/^weir: PyTorch is not installed in .*without\/python3, so/m),
    ]);
    const shell = await run.weir(['run', 'sh', '-c', `exec ${python('without', 9)} train.py`]);
    expect(shell.stderr).toContain('PyTorch is not installed in');
    const having = await run.weir(['run', python('with', 0), 'train.py']);
    expect(having.stderr).toContain('no process of the command loaded Weir, so there is nothing to report');
    expect(having.stderr).not.toContain('not installed');
  });

  it('says when no process loaded it, and keeps the exit code', async () => {
    const { code, stderr } = await run.weir(['run', ...job('exit=4')]);
    expect(code).toBe(4);
    expect(stderr).toContain('no process of the command loaded Weir');
    expect(stderr).toContain('-I, -E or -S');
    const idle = await run.weir(['run', '--record', 'x.weir', ...job('idle', 'exit=4')]);
    expect([idle.code, idle.stderr, run.traces()]).toEqual([4, expect.stringContaining('no process of the command used a GPU'), []]);
  });

  it('counts events that were lost', async () => {
    const { stderr } = await run.weir(['run', '--json-file', 'summary.json', ...job('flood=60000')]);
    expect(stderr).toMatch(/of 60,000 events were not recorded, in [\d,]+ gaps/);
    const { recorder } = run.readJson('summary.json');
    expect(recorder.dropped).toBeGreaterThan(0);
    expect(recorder.events + recorder.dropped).toBe(60000);
  });

  it('writes the summary as JSON, to a file or as all it says', async () => {
    const { stderr, stdout } = await run.weir(['run', '--json', '--limit', '512MiB', ...job('train=4', 'oom', 'close')]);
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
    const { stderr } = await run.weir(['run', '--what-if-events', '100', ...job('train=20', 'close')]);
    expect(stderr).toMatch(/\(replayed only the first 100 of 4\d\d events; --what-if-events N replays more\)/);
    const kept = await run.weir([
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
    const { code, stderr } = await run.weir(['run', '-f', '--record', '/dev/full%q{NOTHING}', ...job('train=30', 'close', 'exit=5')]);
    expect(code).toBe(5);
    expect(stderr.match(/the disk is full/g)).toHaveLength(1);
    expect(stderr).toContain('the job goes on');
    // What the file lacks is not called recorded.
    expect(stderr).toMatch(/weir: process \d+: the recording ends after 0 of 731 events\n/);
    expect(stderr).toMatch(/weir: recorded 0 of 731 events of one process in [^,]*, outside of the job\n/);
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
    const child = run.start(['run', '-q', ...job('train=1', 'signals')]);
    const end = ended(child);
    await ready(child, /ready/);
    for (const signal of ['SIGUSR1', 'SIGUSR2', 'SIGHUP', 'SIGQUIT'] as const) {
      const heard = ready(child, new RegExp(signal));
      child.kill(signal);
      await heard;
    }
    child.kill('SIGTERM');
    expect(await end).toEqual([3, null]);
    expect(readdirSync(run.temporary)).toEqual([]);
  });

  it.each(['SIGINT', 'SIGTERM'] as const)('%s while weir starts ends it, and no command is left running', async (signal) => {
    for (let turn = 0; turn < 3; turn++) {
      const child = run.start(['run', '-q', '--', 'sleep', '20']);
      const end = ended(child);
      await expect.poll(() => readdirSync(run.temporary).length, { timeout: 20_000, interval: 1 }).toBeGreaterThan(0);
      child.kill(signal);
      expect(await end).toEqual([null, signal]);
      expect(readdirSync(run.temporary)).toEqual([]);
    }
  });

  it('a second Ctrl-C soon after the first is meant more seriously', async () => {
    const child = run.start(['run', ...job('signals')]);
    const end = ended(child);
    await ready(child, /ready/);
    child.kill('SIGINT');
    await new Promise((resolve) => setTimeout(resolve, 200));
    child.kill('SIGINT');
    expect(await end).toEqual([3, null]);
  });

  it('leave the command running when weir itself is killed', async () => {
    const child = run.start(['run', '-q', ...job('train=1', 'sleep=1500', 'write=survived.json')]);
    const end = ended(child);
    await ready(child, /pid \d+/);
    child.kill('SIGKILL');
    child.stdout!.destroy();
    await end;
    await expect.poll(() => existsSync(join(run.path, 'survived.json')), { timeout: 10_000 }).toBe(true);
    for (const name of readdirSync(run.temporary)) rmSync(join(run.temporary, name), { recursive: true });
  });
});

describe('the what-if', () => {
  it('is ended by Ctrl-C, and the command keeps its exit code', async () => {
    const child = run.start(['run', '-v', ...job('train=1500', 'close', 'exit=7')]);
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
    expect(readdirSync(run.temporary)).toEqual([]);
  });

  it('can be left out', async () => {
    const { stderr } = await run.weir(['run', '--no-what-if', ...job('train=2', 'close')]);
    expect(stderr).toContain('peak live');
    expect(stderr).not.toContain('would have needed');
  });
});
