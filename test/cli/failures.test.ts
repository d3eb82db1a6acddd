// Out-of-memory errors under `weir run`, `weir record` and `weir supervise`, over a job that needs no GPU: the file, the lines, the summary.
import { spawn, spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ChildVariable } from '../../src/abi/environment.ts';
import { MAIN, outcomeOf, ROOT } from '../support/command.ts';
import { job, RunFolder } from '../support/run-folder.ts';

const run = new RunFolder();
const files = (folder = run.path) =>
  readdirSync(folder)
    .filter((name) => name.startsWith('oom.'))
    .sort();
const startOf = (pid: number) => readFileSync(`/proc/${pid}/stat`, 'latin1').split(') ')[1]!.split(' ')[19]!;
const analyze = (name: string) => {
  const { stdout, status, stderr } = spawnSync(process.execPath, [MAIN, 'analyze', '--json', name], { cwd: run.path, encoding: 'utf8' });
  expect([status, stderr]).toEqual([0, '']);
  return JSON.parse(stdout);
};

describe('an out-of-memory error', () => {
  it.each([['run'], ['record']])(
    'under weir %s leaves a file and prints who held the memory, even if the script goes on',
    async (command) => {
      const { code, stderr } = await run.weir([
        command,
        '--json-file',
        'summary.json',
        ...job('train=2', 'hold=30', 'oom', 'train=1', 'close'),
      ]);
      expect(code).toBe(0);
      const [name] = files();
      expect(files()).toEqual([expect.stringMatching(/^oom\.\d+\.weir$/)]);
      const pid = name!.split('.')[1];
      expect(stderr).toContain(`weir: out of memory: process ${pid}, GPU 0: a request for 900 MiB failed\n`);
      expect(stderr).toContain('weir:   in use: 300 MiB, ');
      expect(stderr).toMatch(/weir: {3}to make it fit: \d+ MiB less\. /);
      expect(stderr).toContain(`weir:   next: weir analyze ${name}\n`);
      expect(stderr).toContain(`out of memory: 1 request failed; the first: ${name}\n`);
      const { warnings, oom, trace } = analyze(name!);
      expect([oom, trace]).toMatchObject([{ asked: 900 * 2 ** 20, deviceFree: 5 * 2 ** 20 }, { ooms: 1 }]);
      // The job writes the same events on every allocator, and PyTorch's has segments.
      if (command === 'run') expect(warnings).toEqual([]);
      const { processes, firstFailure } = run.readJson('summary.json');
      expect(processes[0].failures).toMatchObject({ count: 1, gpu: 0, asked: 900 * 2 ** 20, files: [name], problem: null });
      expect(firstFailure).toMatchObject({ pid: Number(pid), rank: null, count: 1 });
    },
  );

  it('opens in weir serve and weir convert', async () => {
    await run.weir(['run', '-q', ...job('hold=30', 'oom', 'close')]);
    const [name] = files();
    for (const target of ['x.weir', 'x.json']) {
      const { status, stderr } = spawnSync(process.execPath, [MAIN, 'convert', name!, target], { cwd: run.path, encoding: 'utf8' });
      expect([status, stderr]).toEqual([0, expect.stringContaining(`wrote ${target}`)]);
      expect(analyze(target).oom).toMatchObject({ asked: 900 * 2 ** 20 });
    }
    const page = spawn(process.execPath, [MAIN, 'serve', name!, '--port', '0'], { cwd: run.path });
    try {
      const text = await new Promise<string>((resolve) => page.stdout.on('data', (chunk) => resolve(String(chunk))));
      const url = new URL(/http:\S+/.exec(text)![0]);
      const headers = { authorization: `Bearer ${url.searchParams.get('token')}`, 'Content-Type': 'application/json' };
      const ask = (body: string) => fetch(new URL('/api/sources/0/ask', url), { method: 'POST', headers, body });
      const answer = await (await ask('{"method":"analyze","gpu":0}')).text();
      expect(answer).toContain(String(900 * 2 ** 20));
    } finally {
      page.kill();
    }
  });

  it('is in the first and the last file only, however many there are', async () => {
    const { stderr } = await run.weir(['run', ...job('hold=3', 'ooms=50', 'close')]);
    const [first, last] = files().sort((a, b) => a.length - b.length);
    expect(files()).toHaveLength(2);
    expect(last).toBe(first!.replace('.weir', '.last.weir'));
    expect([analyze(first!).oom.asked, analyze(last!).oom.asked]).toEqual([101 * 2 ** 20, 150 * 2 ** 20]);
    expect(stderr).toContain(`out of memory: 50 requests failed; the first: ${first}, the last: ${last}\n`);
    expect(stderr.match(/weir: out of memory: process/g)).toHaveLength(1);
  });

  it('of several ranks: the first to fail is named, with a file for each', async () => {
    const { stderr } = await run.weir(['run', '--json-file', 'summary.json', ...job('fork=3', 'hold=3', 'oom', 'close')]);
    expect(files().map((name) => name.split('.')[1])).toEqual(['0', '1', '2']);
    const { firstFailure, processes } = run.readJson('summary.json');
    const times = processes.map((process: { failures: { timeUs: number } }) => process.failures.timeUs);
    expect(firstFailure.timeUs).toBe(Math.min(...times));
    expect(stderr).toContain(`weir: rank ${firstFailure.rank} failed first, `);
    const told = [...stderr.matchAll(/^weir: out of memory: rank (\d) \(process \d+\)/gm)].map((match) => Number(match[1]));
    expect(told).toHaveLength(3);
    expect(told[0]).toBe(firstFailure.rank);
    expect(stderr.match(/to make it fit/g)).toHaveLength(1);
  });

  it('goes beside the recording, to --oom-dir, or nowhere', async () => {
    mkdirSync(join(run.path, 'runs'));
    mkdirSync(join(run.path, 'other'));
    await run.weir(['record', '-o', 'runs/x.weir', ...job('hold=3', 'oom', 'close')]);
    expect([files(), files(join(run.path, 'runs')).length]).toEqual([[], 1]);
    await run.weir(['record', '-o', 'runs/x.weir', '--oom-dir', 'other', ...job('hold=3', 'oom', 'close')]);
    expect(files(join(run.path, 'other'))).toHaveLength(1);
    const { stderr } = await run.weir(['run', ...job('hold=3', 'oom', 'close')], { WEIR_OOM_DIR: 'none' });
    expect([files(), stderr]).toEqual([[], expect.stringContaining('to make it fit')]);
  });

  it.skipIf(process.platform === 'win32')('is refused before the job starts if --oom-dir is no folder to write to', async () => {
    writeFileSync(join(run.path, 'file'), 'mine');
    const refused = async (folder: string) => {
      const { code, stdout, stderr } = await run.weir(['run', '--oom-dir', folder, ...job('say-pid')]);
      expect([code, stdout]).toEqual([2, '']);
      return stderr;
    };
    expect(await refused('nowhere')).toBe('weir: --oom-dir nowhere: no such folder; create it first\n');
    expect(await refused('file')).toBe('weir: --oom-dir file: is no folder; name one\n');
    expect(await refused('/dev/null')).toBe('weir: --oom-dir /dev/null: is no folder; name one\n');
    expect(readFileSync(join(run.path, 'file'), 'utf8')).toBe('mine');
    if (process.getuid?.() === 0) return;
    mkdirSync(join(run.path, 'locked'), { mode: 0o555 });
    expect(await refused('locked')).toBe('weir: --oom-dir locked: you may not write there; choose another place\n');
  });

  it('with --quiet is one line', async () => {
    const { stderr } = await run.weir(['run', '-q', ...job('hold=3', 'oom', 'close')]);
    expect(stderr).toMatch(/^weir: out of memory: process \d+, GPU 0: a request for 900 MiB failed\n$/);
    expect(files()).toHaveLength(1);
  });

  it('in a folder that cannot be written says so once, and prints the lines', async () => {
    // Root may write everywhere but there.
    const isRoot = process.getuid?.() === 0;
    if (!isRoot) chmodSync(run.path, 0o555);
    const where = isRoot ? ['--oom-dir', '/proc'] : [];
    const { code, stderr } = await run.weir(['run', ...where, ...job('hold=30', 'ooms=3', 'close', 'exit=4')]);
    chmodSync(run.path, 0o755);
    expect(code).toBe(4);
    expect(stderr.match(/the out-of-memory error of process \d+ is not in \S*oom\.\d+\.weir: /g)).toHaveLength(1);
    expect(stderr).toContain('to make it fit');
    expect(stderr).not.toContain('next: weir analyze');
  });

  it('on a full disk leaves nothing behind', async () => {
    const module = new URL('dist/run/failures/whole-file.js', ROOT).href;
    const script = `import { writeWhole } from ${JSON.stringify(module)}; console.log(writeWhole('oom.1.weir', Buffer.alloc(5000)));`;
    writeFileSync(join(run.path, 'write.mjs'), script);
    // Files above 1 KiB cannot be written.
    const words = ['-c', 'ulimit -f 1; exec "$@"', 'sh', process.execPath, 'write.mjs'];
    const { stdout, status } = spawnSync('/bin/sh', words, { cwd: run.path, encoding: 'utf8' });
    expect([status, stdout, readdirSync(run.path)]).toEqual([0, expect.stringContaining('too large'), ['write.mjs']]);
  });

  it('in a folder that is gone when the request fails: one sentence, and the job goes on', async () => {
    mkdirSync(join(run.path, 'gone'));
    const child = run.start(['run', '--oom-dir', 'gone', ...job('say-pid', 'hold=3', 'pause=500', 'ooms=3', 'train=1', 'close')]);
    const ended = outcomeOf(child);
    await new Promise((resolve) => child.stdout!.once('data', resolve));
    rmdirSync(join(run.path, 'gone'));
    const { code, stderr } = await ended;
    expect(code).toBe(0);
    expect(stderr.match(/^weir: .* is not in gone\/oom\.\d+\.weir: its folder does not exist\. The job goes on$/gm)).toHaveLength(1);
    expect(stderr).toContain('to make it fit');
  });

  it('says once, for all ranks, that memory of others is unknown', async () => {
    const { stderr } = await run.weir(['run', ...job('fork=3', 'hold=3', 'close')]);
    expect(stderr.match(/memory that is not PyTorch's: unknown/g)).toHaveLength(1);
  });

  it.each([
    ['is killed', 'die=SIGKILL', { signal: 'SIGKILL' }],
    ['ends without a word', 'exit=3', { code: 3 }],
  ])('of a job that %s right after it is in the file', async (_, end, outcome) => {
    expect(await run.weir(['run', ...job('hold=3', 'oom', end)])).toMatchObject(outcome);
    expect(analyze(files()[0]!).oom).toMatchObject({ asked: 900 * 2 ** 20 });
  });

  it('says that it is incomplete if events were lost', async () => {
    const { stderr } = await run.weir(['run', ...job('flood=200000', 'pause=300', 'oom', 'close')]);
    expect(stderr).toMatch(/events were not recorded/);
    expect(analyze(files()[0]!).warnings).toMatchObject([{ code: 'dropped-events', message: expect.stringContaining('is incomplete') }]);
  });

  it('never writes over a file of another run', async () => {
    const child = run.start(['run', ...job('say-pid', 'hold=3', 'pause=300', 'oom', 'close')]);
    const ended = outcomeOf(child);
    const pid = await new Promise<string>((resolve) => child.stdout!.on('data', (chunk) => resolve(/pid (\d+)/.exec(String(chunk))![1]!)));
    writeFileSync(join(run.path, `oom.${pid}.weir`), 'mine');
    await ended;
    expect(readFileSync(join(run.path, `oom.${pid}.weir`), 'utf8')).toBe('mine');
    expect(files()).toHaveLength(2);
  });
});

describe.skipIf(!existsSync('/proc/self/stat'))('weir supervise', () => {
  it('leaves the same file and lines, where the process was', async () => {
    const folder = mkdtempSync(join(run.temporary, 'weir-run-'));
    const [, , ...words] = job('say-pid', 'hold=30', 'pause=500', 'oom', 'pause=200', 'close');
    const child = spawn(process.execPath, words, {
      cwd: run.path,
      env: { ...run.environment, [ChildVariable.runDir]: folder, [ChildVariable.allocator]: 'weir' },
    });
    await new Promise((resolve) => child.stdout.once('data', resolve));
    const supervisor = run.start(['supervise', '--folder', folder, '--pid', String(child.pid), '--started', startOf(child.pid!)]);
    const { code, stderr } = await outcomeOf(supervisor);
    expect([code, files()]).toEqual([0, [`oom.${child.pid}.weir`]]);
    expect(stderr).toContain(`weir:   next: weir analyze oom.${child.pid}.weir\n`);
  });
});
