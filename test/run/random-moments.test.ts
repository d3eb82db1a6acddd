// The job or the recorder is killed at 100 random moments each: at most the last events are lost, and no file is torn.
// WEIR_MOMENTS=100 kills so many real jobs under `weir record`, and as many times `weir record` itself.
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, describe, expect, it } from 'vitest';
import { RingOffset } from '../../src/abi/ring.ts';
import { InputError } from '../../src/base/errors.ts';
import { isLiveAt } from '../../src/report/moment.ts';
import { EventKind, type Recording, type Trace } from '../../src/trace/trace.ts';
import { readWeir } from '../../src/trace/weir/reader.ts';
import { MAIN, outcomeOf, ROOT } from '../support/command.ts';
import { RunFolder } from '../support/run-folder.ts';
import { BASE, describeLive, MOST_UNSAID, newRing, RandomJob } from './random-job.ts';
import { supervisionOf } from './recorder-process.ts';
import type { Row } from './ring-writer.ts';

const MOMENTS = 100;
/** Real jobs under the real command take a second each. */
const REAL_MOMENTS = Number(process.env['WEIR_MOMENTS'] ?? 8);
const MIB = 2 ** 20;
const JOB = new URL('build/test/run/random-job.js', ROOT).pathname;
const root = mkdtempSync(join(tmpdir(), 'weir-moments-'));
afterAll(() => rmSync(root, { recursive: true }));

function foldersFor(name: string): { rings: string; out: string } {
  const folder = join(root, name);
  for (const part of ['rings', 'out']) mkdirSync(join(folder, part), { recursive: true });
  return { rings: join(folder, 'rings'), out: join(folder, 'out') };
}

/** The events of a file are the first that the job wrote. Returns how many. */
function expectBeginning({ events }: Trace, rows: readonly Row[]): number {
  expect(events.count).toBeLessThanOrEqual(rows.length);
  for (let event = 0; event < events.count; event++) {
    const { kind, address, size } = rows[event]!;
    expect([events.kind[event], events.address[event], events.size[event]]).toEqual([kind, address, size]);
  }
  return events.count;
}

/** Files about failures are whole and right. Returns the numbers of the failures. */
function expectWholeFailures(out: string, job: RandomJob): number[] {
  const names = readdirSync(out).filter((name) => name.startsWith('oom.'));
  return names.map((name) => {
    const [trace] = readWeir(readFileSync(join(out, name))).traces;
    expect(trace!.warnings).toEqual([]);
    const event = trace!.events.kind.subarray(0, trace!.events.count).lastIndexOf(EventKind.Oom);
    const number = trace!.events.size[event]! / 512;
    const { allocations } = trace!;
    const live = new Map<number, number>();
    for (let index = 0; index < allocations.count; index++)
      if (isLiveAt(trace!, index, event)) live.set(allocations.address[index]!, allocations.requested[index]!);
    expect(describeLive(live)).toBe(job.liveAtFailure[number - 1]);
    return number;
  });
}

describe(`at ${MOMENTS} random moments`, () => {
  it('a job that is killed loses only what it did not finish writing', async () => {
    for (let moment = 0; moment < MOMENTS; moment++) {
      const { rings, out } = foldersFor(`job-${moment}`);
      const job = new RandomJob(moment);
      const ring = newRing(rings, 4711);
      const count = 1 + job.random(400);
      for (let row = 0; row < count; row++) ring.put(job.next());
      ring.putHalf({ kind: EventKind.Alloc, address: BASE, size: MIB });
      const supervision = supervisionOf(rings, out);
      await supervision.finish();
      const { traces } = readWeir(readFileSync(join(out, 'x.weir')));
      expect(expectBeginning(traces[0]!, job.rows)).toBe(count);
      const failures = job.liveAtFailure.length;
      expect(expectWholeFailures(out, job).sort((a, b) => a - b)).toEqual(failures === 0 ? [] : failures === 1 ? [1] : [1, failures]);
    }
  });

  it('a recorder that is killed leaves files that can be read, without more than the last events lost', async () => {
    const kill = async (moment: number) => {
      const { rings, out } = foldersFor(`recorder-${moment}`);
      const job = new RandomJob(moment + 1000);
      const ring = newRing(rings, 4711);
      const child = spawn(process.execPath, [new URL('build/test/run/recorder-process.js', ROOT).pathname, rings, out]);
      await new Promise((resolve) => child.stdout.once('data', resolve));
      const ended = new Promise((resolve) => child.once('exit', resolve));
      const until = performance.now() + job.random(300);
      /** Numbers of rows that the recorder had taken: those before the last but one are in the file. */
      const heads = [0, 0];
      while (performance.now() < until) {
        for (let row = job.random(200); row > 0; row--) ring.put(job.next());
        const head = readHead(ring.path);
        if (head > heads.at(-1)!) heads.push(head);
        await sleep(job.random(8));
      }
      child.kill('SIGKILL');
      await ended;
      expect(ring.dropped).toBe(0);
      const recording = readIfThere(join(out, 'x.weir'));
      const written = recording ? expectBeginning(recording.traces[0]!, job.rows) : 0;
      expect(written).toBeGreaterThanOrEqual(heads.at(-2)!);
      expectWholeFailures(out, job);
    };
    for (let moment = 0; moment < MOMENTS; moment += 4) await Promise.all([0, 1, 2, 3].map((more) => kill(moment + more)));
  }, 300_000);
});

describe(`weir record, at ${REAL_MOMENTS} random moments`, () => {
  const run = new RunFolder();

  /** Starts a job under the command. Resolves when the job has written rows. */
  const start = async (moment: number) => {
    const [folder, progress] = [join(run.path, String(moment)), join(run.path, `${moment}.progress`)];
    mkdirSync(folder);
    const child = spawn(
      process.execPath,
      [MAIN, 'record', '-q', '-o', 'x%q{NOTHING}.weir', '--', process.execPath, JOB, String(moment), progress],
      { cwd: folder, env: run.environment },
    );
    const ended = outcomeOf(child);
    const said = await new Promise<string>((resolve) => child.stdout.once('data', (chunk) => resolve(String(chunk))));
    const pid = Number(/pid (\d+)/.exec(said)![1]);
    while (!existsSync(progress) || readFileSync(progress).length < 8) await sleep(1);
    await sleep((moment * 7919) % 400);
    return { child, ended, pid, folder, rowsSaid: () => readFileSync(progress).readDoubleLE() };
  };

  /** The same job again, as far as the recording goes, and the failures in the files. */
  const check = (moment: number, folder: string): number => {
    const job = new RandomJob(moment);
    const recording = readIfThere(join(folder, 'x.weir'));
    const count = recording?.traces[0]?.events.count ?? 0;
    // A file about a failure may be ahead of the recording by what is written at a time.
    while (job.rows.length < count + (1 << 14)) job.next();
    if (recording) expectBeginning(recording.traces[0]!, job.rows);
    expectWholeFailures(folder, job);
    return count;
  };

  const each = async (kill: (moment: number) => Promise<void>) => {
    for (let moment = 0; moment < REAL_MOMENTS; moment += 2)
      await Promise.all([moment, moment + 1].filter((number) => number < REAL_MOMENTS).map(kill));
  };

  it('has every event of a job that is killed, up to the last', async () => {
    await each(async (moment) => {
      const { ended, pid, folder, rowsSaid } = await start(moment);
      process.kill(pid, 'SIGKILL');
      expect((await ended).signal).toBe('SIGKILL');
      const count = check(moment, folder);
      expect(count).toBeGreaterThanOrEqual(rowsSaid());
      expect(count).toBeLessThanOrEqual(rowsSaid() + MOST_UNSAID);
    });
  }, 600_000);

  it('that is killed loses only the events since it last looked, and the job goes on', async () => {
    await each(async (moment) => {
      const { child, pid, folder, rowsSaid } = await start(moment);
      const before = rowsSaid();
      const recorded = () => readIfThere(join(folder, 'x.weir'))?.traces[0]?.events.count ?? 0;
      while (recorded() < before) await sleep(10);
      // Its output stays open: the job has it too.
      const exited = new Promise((resolve) => child.once('exit', resolve));
      await sleep((moment * 31) % 80);
      const least = recorded();
      child.kill('SIGKILL');
      await exited;
      const after = rowsSaid();
      expect(check(moment, folder)).toBeGreaterThanOrEqual(least);
      while (rowsSaid() === after) await sleep(5);
      process.kill(pid, 'SIGKILL');
    });
  }, 600_000);
});

function readHead(path: string): number {
  return Number(readFileSync(path).readBigUInt64LE(RingOffset.head));
}

/** Undefined if the recorder was killed before anything was in the file. */
function readIfThere(path: string): Recording | undefined {
  if (!existsSync(path)) return undefined;
  try {
    return readWeir(readFileSync(path));
  } catch (error) {
    if (error instanceof InputError) return undefined;
    throw error;
  }
}
