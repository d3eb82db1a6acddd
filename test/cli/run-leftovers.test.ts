// Folders of runs that were killed: the next run removes them, unless a process of the job still lives.
import { spawn, spawnSync } from 'node:child_process';
import { chmodSync, chownSync, existsSync, mkdirSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import { MAIN } from '../support/command.ts';
import { job, RunFolder } from '../support/run-folder.ts';

const run = new RunFolder();
const noProc = existsSync('/proc/self/ns/pid') ? '' : ' (skipped: no /proc)';
const noRoot = process.getuid?.() === 0 ? '' : ' (skipped: only root can make files of another user)';
const left = () => readdirSync(run.temporary).filter((name) => name.startsWith('weir-run-'));
const next = () => run.weir(['run', '-q', '--', 'true']);
const doctor = () => {
  const { stdout } = spawnSync(process.execPath, [MAIN, 'doctor', '--json'], { env: { ...run.environment, PATH: '' }, encoding: 'utf8' });
  const { findings } = JSON.parse(stdout) as { findings: { name: string; found: string; note: string }[] };
  const finding = findings.find(({ name }) => name === 'leftovers');
  // Others may have left some in /dev/shm.
  return finding?.note.includes(run.temporary) ? finding.found : undefined;
};

/** Kills `weir run` as it runs this job, when its folders are there and the job has started; returns the job's process. */
async function killed(...words: string[]): Promise<number> {
  const child = run.start(['run', ...job(...words)]);
  child.stderr!.resume();
  const pid = await new Promise<number>((resolve) =>
    child.stdout!.on('data', (chunk) => {
      const found = /pid (\d+)/.exec(String(chunk))?.[1];
      if (found !== undefined) resolve(Number(found));
    }),
  );
  const end = new Promise((resolve) => child.on('exit', resolve));
  child.kill('SIGKILL');
  await end;
  return pid;
}

async function ended(pid: number): Promise<void> {
  while (existsSync(`/proc/${pid}`)) {
    if (/^State:\s+Z/m.test(spawnSync('cat', [`/proc/${pid}/status`], { encoding: 'utf8' }).stdout)) return;
    await sleep(20);
  }
}

describe.skipIf(noProc !== '')(`folders of a killed run${noProc}`, () => {
  afterEach(() => {
    for (const name of readdirSync(run.temporary)) rmSync(join(run.temporary, name), { recursive: true });
  });

  it('go at the next start, once the job is over', async () => {
    const pid = await killed('train=1', 'sleep=30000');
    // One for rings, one for recordings that nobody keeps.
    expect(left()).toHaveLength(2);
    await next();
    // The job lives, and may still be told to use its folder. What only the supervisor used is gone.
    const [rings, ...more] = left();
    expect(more).toEqual([]);
    expect(readdirSync(join(run.temporary, rings!))).toContain(`${pid}.ring`);
    expect(doctor()).toBe(undefined);
    process.kill(pid, 'SIGKILL');
    await ended(pid);
    expect(doctor()).toMatch(/^\d+ folders? of killed runs, [\d.]+ \w+$/);
    await next();
    expect([left(), doctor()]).toEqual([[], undefined]);
  });

  it('stay while their supervisor lives', async () => {
    const child = run.start(['run', ...job('sleep=30000')]);
    const end = new Promise((resolve) => child.on('close', resolve));
    child.stderr!.resume();
    await new Promise((resolve) => child.stdout!.once('data', resolve));
    const before = left();
    await next();
    expect(left()).toEqual(before);
    expect(before).toHaveLength(2);
    child.kill('SIGTERM');
    await end;
    expect(left()).toEqual([]);
  });

  it.skipIf(spawnSync('python3', ['--version']).status !== 0)('stay while a process has a ring open that no variable names', async () => {
    await ended(await killed('train=1', 'sleep=1'));
    const rings = left().find((name) => readdirSync(join(run.temporary, name)).some((file) => file.endsWith('.ring')))!;
    const script =
      'import mmap, os, time; f = open(f"{os.getpid()}.ring", "w+b"); f.truncate(4096); m = mmap.mmap(f.fileno(), 4096); print(1, flush=True); time.sleep(60)';
    const holder = spawn('python3', ['-c', script], { cwd: join(run.temporary, rings), env: { PATH: process.env['PATH'] } });
    await new Promise((resolve) => holder.stdout.once('data', resolve));
    await next();
    expect(left()).toEqual([rings]);
    holder.kill('SIGKILL');
    await new Promise((resolve) => holder.on('close', resolve));
    await next();
    expect(left()).toEqual([]);
  });

  it('stay if they could be of others', async () => {
    const pid = await killed('sleep=1');
    await ended(pid);
    const [name] = left();
    const make = (other: string, mode = 0o700) => {
      mkdirSync(join(run.temporary, other), { mode });
      chmodSync(join(run.temporary, other), mode);
      writeFileSync(join(run.temporary, other, 'precious'), '');
    };
    const foreign = name!.replace(/-[0-9a-f]{8}-(\w{6})$/, '-00000000-$1');
    const later = name!.replace(/^weir-run-\d+-(\d+)/, (all, start) => all.replace(`-${start}`, `-${Number(start) + 1}`));
    make('weir-run-abcdef');
    make(foreign);
    make(name!.replace(/\w{6}$/, 'open00'), 0o755);
    make(later.replace(/\w{6}$/, 'later0'));
    renameSync(join(run.temporary, name!), join(run.temporary, name!.replace(/\w{6}$/, 'moved0')));
    await next();
    expect(left().sort()).toEqual(['weir-run-abcdef', foreign, name!.replace(/\w{6}$/, 'open00')].sort());
  });

  it.skipIf(noRoot !== '')(`stay if they are of another user${noRoot}`, async () => {
    await ended(await killed('sleep=1'));
    for (const name of left()) chownSync(join(run.temporary, name), 12345, 12345);
    const before = left();
    await next();
    expect(left()).toEqual(before);
  });
});
