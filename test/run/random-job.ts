// A job of random steps with failures in between, for tests that kill it or its recorder at any moment.
// Called as a program, it runs until it is killed: node build/test/run/random-job.js SEED PROGRESS
import { openSync, writeSync } from 'node:fs';
import { ChildVariable } from '../../src/abi/environment.ts';
import { EventKind } from '../../src/trace/trace.ts';
import { RingWriter, type Row } from './ring-writer.ts';

const MIB = 2 ** 20;
export const BASE = 0x7f00_0000_0000;
/** Rows that the program writes at most before it says so. */
export const MOST_UNSAID = 60;

/** The rows of a job, and what is live at each failure. */
export class RandomJob {
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

export const describeLive = (live: ReadonlyMap<number, number>): string => [...live].sort((a, b) => a[0] - b[0]).join(' ');

export function newRing(folder: string, pid: number): RingWriter {
  const ring = new RingWriter(folder, { pid, capacity: 1 << 14 });
  ring.gauges(0, { total: 2 ** 30 });
  ring.stream(0, 0, 0);
  ring.pool(0, 0, [0, 0]);
  return ring;
}

if (process.argv[1]?.endsWith('random-job.js')) {
  const [seed, progress] = process.argv.slice(2);
  const job = new RandomJob(Number(seed));
  const said = openSync(progress!, 'w');
  const ring = newRing(process.env[ChildVariable.runDir]!, process.pid);
  const until = performance.now() + 60_000;
  writeSync(1, `pid ${process.pid}\n`);
  for (let left = MOST_UNSAID; performance.now() < until; left--) {
    ring.put(job.next());
    if (left > 1) continue;
    const count = new Float64Array([job.rows.length]);
    writeSync(said, new Uint8Array(count.buffer), 0, 8, 0);
    left = MOST_UNSAID;
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 4);
  }
}
