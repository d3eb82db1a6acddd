// A training job without PyTorch and without a GPU: writes a ring as the real one does, and ends in every way a job can end.
// Called by the tests as a program: node build/test/run/fake-job.js WORD...; each word is one thing it does, in order.
import { spawn } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { ChildVariable } from '../../src/abi/environment.ts';
import { EXCHANGE_FILES, type SwapPlan, type SwapReport } from '../../src/abi/exchange.ts';
import { Format } from '../../src/abi/formats.ts';
import { EventKind } from '../../src/trace/trace.ts';
import { stack } from '../plan/swap-stack.ts';
import { RingWriter } from './ring-writer.ts';

const MIB = 1024 * 1024;
const folder = process.env[ChildVariable.runDir] ?? '';
const rank = process.env['RANK'] === undefined ? -1 : Number(process.env['RANK']);
const allocator = process.env[ChildVariable.allocator] ?? '';
let ring: RingWriter | undefined;

/** Waits without letting go: what happens next must not depend on who else runs. */
const pause = (ms: number) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);

function openRing(capacity: number): RingWriter {
  const opened = new RingWriter(folder, {
    rank,
    capacity,
    allocator: allocator || 'weir',
    torch: process.env['FAKE_TORCH'] ?? '2.11.0+cu130',
  });
  opened.gauges(0, { total: Number(process.env['FAKE_TOTAL'] ?? 1024 * MIB), limit: Number(process.env[ChildVariable.limit] ?? 0) });
  opened.stream(0, 0, 0);
  opened.stream(0, 1, 0x5500_0000_1000);
  opened.pool(0, 0, [0, 0]);
  return opened;
}

/** Steps of a model: requests of growing sizes that fragment PyTorch's memory, all freed at the end of each step. */
function train(steps: number): void {
  ring ??= openRing(1 << 14);
  let reserved = 0;
  let peak = 0;
  for (let step = 0; step < steps; step++) {
    const blocks: [number, number][] = [];
    let live = 0;
    for (let index = 0; index < 8; index++) {
      const size = (2 + ((step * 7 + index * 3) % 9)) * MIB + 100;
      const address = 0x7f00_0000_0000 + index * 64 * MIB;
      live += Math.ceil(size / 512) * 512;
      peak = Math.max(peak, live);
      if (live > reserved) {
        reserved = Math.ceil(live / (2 * MIB)) * 2 * MIB;
        ring.put({ kind: EventKind.Reserved, size: reserved });
      }
      ring.put({ kind: EventKind.Alloc, address, size, stream: index % 2 });
      blocks.push([address, size]);
      ring.gauges(0, { live, allocated: live, peak_live: peak, peak_allocated: peak, reserved, peak_reserved: reserved, allocations: 8 });
    }
    for (const [address, size] of blocks) {
      ring.put({ kind: EventKind.FreeRequested, address, size });
      ring.put({ kind: EventKind.FreeCompleted, address, size });
    }
    const noise =
      Number(process.env['FAKE_NOISE'] ?? 0) * Math.random() + (allocator === 'weir' ? Number(process.env['FAKE_ERROR'] ?? 0) : 0);
    writeSync(1, `step ${step} loss ${(2 / (step + 1) + noise).toFixed(9)} took ${Math.random()} s\n`);
  }
  ring.gauges(0, { live: 0, allocated: 0, driver_ns: 5_000_000, driver_calls: 12, waits: 3, borrows: 2, stitches: 1, frees: 8 });
}

async function fork(count: number, words: readonly string[]): Promise<void> {
  await Promise.all(
    Array.from({ length: count }, (_, index) => {
      const child = spawn(process.execPath, [process.argv[1]!, ...words], {
        stdio: ['ignore', 'inherit', 'inherit'],
        env: { ...process.env, RANK: String(index) },
      });
      return new Promise((resolve) => child.on('exit', resolve));
    }),
  );
}

for (const [position, word] of process.argv.slice(2).entries()) {
  const [what, value = ''] = word.split('=') as [string, string?];
  if (what === 'idle') new RingWriter(folder, { rank, allocator });
  else if (what === 'train') train(Number(value));
  else if (what === 'close') ring?.close();
  else if (what === 'exit') process.exit(Number(value));
  else if (what === 'die') {
    process.kill(process.pid, value);
    pause(5000);
  } else if (what === 'half') ring?.putHalf({ kind: EventKind.Alloc, address: 0x7fff_0000_0000, size: 777 });
  else if (what === 'pause') pause(Number(value));
  else if (what === 'flood') {
    ring ??= openRing(1024);
    for (let row = 0; row < Number(value); row++) ring.put({ kind: EventKind.Alloc, address: 0x7f00_0000_0000 + row * 512, size: 512 });
  } else if (what === 'oom') {
    ring?.put({ kind: EventKind.Oom, address: 5 * MIB, size: 900 * MIB });
    ring?.gauges(0, { ooms: 1 });
  } else if (what === 'hold') {
    // Blocks of 10 MiB that stay.
    ring ??= openRing(1 << 14);
    const count = Number(value);
    for (let index = 0; index < count; index++)
      ring.put({ kind: EventKind.Alloc, address: 0x7e00_0000_0000 + index * 16 * MIB, size: 10 * MIB });
    ring.put({ kind: EventKind.Reserved, size: count * 10 * MIB });
    ring.gauges(0, { live: count * 10 * MIB, reserved: count * 10 * MIB });
  } else if (what === 'ooms') {
    // As a script that tries batch sizes and catches each error.
    for (let index = 1; index <= Number(value); index++) {
      ring?.put({ kind: EventKind.Oom, address: 5 * MIB, size: (100 + index) * MIB });
      ring?.gauges(0, { ooms: index });
      pause(1);
    }
  } else if (what === 'operator') ring?.put({ kind: EventKind.Operator, size: 5, detail: ring.string('aten::add') });
  else if (what === 'say-pid') writeSync(1, `pid ${process.pid}\n`);
  else if (what === 'settings') ring?.put({ kind: EventKind.Settings, detail: ring.string(value) });
  else if (what === 'refuse') {
    const message = 'PyTorch 2.3.0 has not been tested with this version of Weir';
    writeFileSync(join(folder, `${process.pid}${EXCHANGE_FILES.Refusal}`), JSON.stringify({ reason: 'untested-torch', message }));
    process.exit(125);
  } else if (what === 'say') process.stdout.write(Buffer.from(value, 'hex'));
  else if (what === 'cat') process.stdout.write(readFileSync(0));
  else if (what === 'env') process.stdout.write(`${JSON.stringify(process.env)}\n`);
  else if (what === 'write')
    writeFileSync(value, JSON.stringify({ loss: 0.25 + (allocator === 'weir' ? Number(process.env['FAKE_ERROR'] ?? 0) : 0) }));
  else if (what === 'swap') {
    // Asks for a plan as the swapping hooks do, waits for it, and reports as they do when the process ends.
    const profile = stack(Number(value), 2000, 64 * MIB, 8 * MIB);
    writeFileSync(
      join(folder, `${process.pid}${EXCHANGE_FILES.SwapProfile}`),
      JSON.stringify({ version: Format.exchange.version, pid: process.pid, ...profile }),
    );
    const plan = join(folder, `${process.pid}${EXCHANGE_FILES.SwapPlan}`);
    for (let waited = 0; waited < 200 && !existsSync(plan); waited++) pause(100);
    const { moves, expected } = JSON.parse(readFileSync(plan, 'utf8')) as SwapPlan;
    writeSync(1, `${moves.length} moves\n`);
    const report: SwapReport = {
      version: Format.exchange.version,
      pid: process.pid,
      phase: 'following',
      stopped: null,
      steps: 9,
      plans: 1,
      expected,
      peakAllocated: expected.peak,
      peakReserved: expected.peak,
      hostBytes: 0,
      hostPinned: 0,
      bytesOut: 3 * MIB,
      bytesIn: 3 * MIB,
      stalls: 0,
      stallUs: 0,
      misses: 1,
      offPlan: 0,
      kept: 0,
      stepsPlanned: 5,
      stepsOff: 0,
      adjusted: 0,
      lateOut: 0,
      parametersOut: 2 * MIB,
      gradientsOut: MIB,
      checked: 0,
      reliefs: 0,
      relievedBytes: 0,
      stepsStreamed: 2,
    };
    writeFileSync(join(folder, `${process.pid}${EXCHANGE_FILES.SwapReport}`), JSON.stringify(report));
  } else if (what === 'fork') {
    await fork(Number(value), process.argv.slice(3 + position));
    break;
  } else if (what === 'signals') {
    // Says each signal it gets, and goes on until SIGTERM.
    for (const signal of ['SIGINT', 'SIGHUP', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2', 'SIGTERM'] as const)
      process.on(signal, () => {
        writeSync(1, `${signal}\n`);
        if (signal === 'SIGTERM') process.exit(3);
      });
    writeSync(1, 'ready\n');
    await new Promise((resolve) => setTimeout(resolve, 20_000));
  } else if (what === 'sleep') {
    writeSync(1, `pid ${process.pid}\n`);
    await new Promise((resolve) => setTimeout(resolve, Number(value)));
  } else throw new Error(`unknown: ${word}`);
}
