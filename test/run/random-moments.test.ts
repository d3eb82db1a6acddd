// The job or the recorder is killed at 100 random moments each: at most the last events are lost, and no file is torn.
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
import { ROOT } from '../support/command.ts';
import { supervisionOf } from './recorder-process.ts';
import { RingWriter, type Row } from './ring-writer.ts';

const MOMENTS = 100;
const MIB = 2 ** 20;
const BASE = 0x7f00_0000_0000;
const root = mkdtempSync(join(tmpdir(), 'weir-moments-'));
afterAll(() => rmSync(root, { recursive: true }));

/** A job of random steps with failures in between, and what is live at each failure. */
class RandomJob {
  readonly rows: Row[] = [];
  readonly liveAtFailure: string[] = [];
  private readonly live = new Map<number, number>();
  private seed: number;

  constructor(seed: number) {
    this.seed = seed;
  }

  /** As good as random, and the same for the same seed. */
  random(below: number): number {
    this.seed = (Math.imul(this.seed, 1664525) + 1013904223) >>> 0;
    return Math.floor((this.seed / 2 ** 32) * below);
  }

  next(): Row {
    const address = BASE + this.random(60) * MIB;
    const size = this.live.get(address);
    const row: Row = (() => {
      if (this.random(40) === 0) {
        this.liveAtFailure.push(describeLive(this.live));
        // The size numbers the failures.
        return { kind: EventKind.Oom, address: 77, size: 512 * this.liveAtFailure.length };
      }
      if (size === undefined) {
        this.live.set(address, 512 * (1 + this.random(1000)));
        return { kind: EventKind.Alloc, address, size: this.live.get(address)! };
      }
      this.live.delete(address);
      return { kind: EventKind.FreeCompleted, address, size };
    })();
    this.rows.push(row);
    return row;
  }
}

const describeLive = (live: ReadonlyMap<number, number>) => [...live].sort((a, b) => a[0] - b[0]).join(' ');

function newRing(folder: string): RingWriter {
  const ring = new RingWriter(folder, { pid: 4711, capacity: 1 << 14 });
  ring.gauges(0, { total: 2 ** 30 });
  ring.stream(0, 0, 0);
  ring.pool(0, 0, [0, 0]);
  return ring;
}

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
      const ring = newRing(rings);
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
      const ring = newRing(rings);
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
