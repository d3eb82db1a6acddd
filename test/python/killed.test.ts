// A Python with Weir's own recorder, killed at random moments, or `weir record` beside it: every event that was written is in the file, whole
// and with its call stack. WEIR_MOMENTS=100 kills so many of each.
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { ChildVariable } from '../../src/abi/environment.ts';
import { MIB } from '../../src/base/bytes.ts';
import { InputError } from '../../src/base/errors.ts';
import { EventKind, type Trace } from '../../src/trace/trace.ts';
import { readWeir } from '../../src/trace/weir/reader.ts';
import { MAIN, outcomeOf } from '../support/command.ts';
import { Standin, whyNoStandin } from '../support/standin.ts';

const reason = whyNoStandin();
const MOMENTS = Number(process.env['WEIR_MOMENTS'] ?? 4);
/** Sizes and callers that the program takes in turn, so that every event says which one it is. */
const SIZES = 997;
const CALLERS = 50;

/** Its process id and the number of requests served are in a file. New lines turn up all the time, so that stacks are written all the time. */
const PROGRAM = `import ctypes, mmap, os, struct, sys, time
import torch, standin_gpu
from weir_gpu import adapter
standin_gpu.start()
library = adapter.library()
library.standin_allocate.restype = ctypes.c_uint64
library.standin_allocate.argtypes = [ctypes.c_uint64]
library.standin_free.argtypes = [ctypes.c_uint64]
with open(sys.argv[1], "w+b") as file:
    file.write(struct.pack("<dd", 0, os.getpid()))
    file.flush()
    progress = mmap.mmap(file.fileno(), 8)
def take(number):
    return library.standin_allocate(512 * (1 + number % ${SIZES}))
def caller(index):
    scope = {"take": take}
    exec(compile("\\n" * index + f"def caller{index}(number): return take(number)", f"callers/{index}.py", "exec"), scope)
    return scope[f"caller{index}"]
callers = []
until = time.monotonic() + 120
number = 0
while time.monotonic() < until:
    if len(callers) < ${CALLERS} and number % 61 == 0: callers.append(caller(len(callers)))
    address = callers[number % len(callers)](number)
    assert address
    number += 1
    progress[:] = struct.pack("<d", number)
    library.standin_free(address)
    if number % 40 == 0: time.sleep(0.002)
`;

describe.skipIf(reason !== undefined)(`at ${MOMENTS} random moments${reason ? ` (skipped: ${reason})` : ''}`, () => {
  const standin = new Standin();

  /** Resolves once the job has taken memory, and some time after. */
  async function start(moment: number) {
    const folder = mkdtempSync(join(standin.folder, 'killed-'));
    const progress = join(folder, 'progress');
    mkdirSync(join(folder, 'out'));
    writeFileSync(join(folder, 'job.py'), PROGRAM);
    const command = [MAIN, 'record', '-q', '--no-what-if', '-o', 'out/x%q{NOTHING}.weir', '--', 'python3', 'job.py', progress];
    const child = spawn(process.execPath, command, { cwd: folder, env: standin.environment(), stdio: 'inherit' });
    const ended = new Promise<NodeJS.Signals | null>((resolve) => child.once('exit', (_, signal) => resolve(signal)));
    while (!existsSync(progress) || readFileSync(progress).length < 16) await sleep(1);
    const requests = () => readFileSync(progress).readDoubleLE();
    while (requests() === 0) await sleep(1);
    await sleep((moment * 7919) % 500);
    return { child, ended, pid: readFileSync(progress).readDoubleLE(8), file: join(folder, 'out/x.weir'), requests };
  }

  const each = async (kill: (moment: number) => Promise<void>) => {
    for (let moment = 0; moment < MOMENTS; moment += 2)
      await Promise.all([moment, moment + 1].filter((number) => number < MOMENTS).map(kill));
  };

  test('a job that is killed has every request in the file, with its stack', async () => {
    await each(async (moment) => {
      const { ended, pid, file, requests } = await start(moment);
      process.kill(pid, 'SIGKILL');
      expect(await ended).toBe('SIGKILL');
      const count = expectBeginning(readWeir(readFileSync(file)).traces[0]!);
      const done = requests();
      expect(count).toBeGreaterThanOrEqual(done);
      expect(count).toBeLessThanOrEqual(done + 1);
    });
    expect(standin.left()).toEqual([]);
  }, 600_000);

  test('weir record that is killed leaves what it had written, with its stacks, and the job goes on', async () => {
    await each(async (moment) => {
      const { child, ended, pid, file, requests } = await start(moment);
      while (recorded(file) === 0) await sleep(5);
      await sleep((moment * 31) % 90);
      const least = recorded(file);
      child.kill('SIGKILL');
      await ended;
      const after = requests();
      expect(recorded(file)).toBeGreaterThanOrEqual(least);
      while (requests() === after) await sleep(5);
      process.kill(pid, 'SIGKILL');
    });
  }, 600_000);
});

/** Children that end without closing their rings, then a parent that waits until these are gone; it says which are left. */
const FAMILY = `import os, signal, sys, time
import torch, standin_gpu
standin_gpu.start()
block = standin_gpu.Block(1 << 20)
def child(number):
    mine = standin_gpu.Block((2 + number) << 20)
    # Seen while it lives.
    while not os.path.exists(f"out/x.{os.getpid()}.weir"): time.sleep(0.005)
    mine.free()
    if number % 2: os.kill(os.getpid(), signal.SIGKILL)
    os._exit(0)
children = []
for number in range(6):
    pid = os.fork()
    if pid == 0: child(number)
    children.append(pid)
for pid in children: os.waitpid(pid, 0)
folder = os.environ["${ChildVariable.runDir}"]
rings = lambda: sorted(name for name in os.listdir(folder) if name.endswith(".ring"))
until = time.monotonic() + 60
while rings() != [f"{os.getpid()}.ring"] and time.monotonic() < until: time.sleep(0.02)
block.free()
print("left", *[name for name in rings() if name != f"{os.getpid()}.ring"])
`;

describe.skipIf(reason !== undefined)(`processes of a job${reason ? ` (skipped: ${reason})` : ''}`, () => {
  const standin = new Standin();

  test('that end without a word give up their shared memory at once, and are recorded whole', async () => {
    const folder = mkdtempSync(join(standin.folder, 'family-'));
    mkdirSync(join(folder, 'out'));
    writeFileSync(join(folder, 'job.py'), FAMILY);
    const command = [MAIN, 'record', '-q', '--no-what-if', '-o', 'out/x.weir', '--', 'python3', 'job.py'];
    const child = spawn(process.execPath, command, { cwd: folder, env: standin.environment(), stdio: ['ignore', 'pipe', 'inherit'] });
    expect(await outcomeOf(child)).toMatchObject({ code: 0, stdout: 'left\n' });
    const sizes = readdirSync(join(folder, 'out'))
      .filter((name) => name !== 'latest.weir')
      .map((name) => {
        const [trace] = readWeir(readFileSync(join(folder, 'out', name))).traces;
        const { events, allocations, warnings } = trace!;
        expect(warnings.map(({ code }) => code)).not.toContain('unfinished');
        expect(events.kind[events.count - 1]).toBe(EventKind.FreeCompleted);
        return allocations.requested[0]! / MIB;
      });
    expect(sizes.sort()).toEqual([1, 2, 3, 4, 5, 6, 7]);
  });
});

/** What the program does in turn. */
const TURN: readonly number[] = [EventKind.Alloc, EventKind.FreeRequested, EventKind.FreeCompleted];

/** The events of a file are the first of the program, none left out, and requests have the line that made them. Returns the requests. */
function expectBeginning({ events, symbols, warnings }: Trace): number {
  expect(warnings.filter(({ code }) => /lost|dropped/.test(code))).toEqual([]);
  let count = 0;
  let callers = 0;
  let turn = 0;
  for (let event = 0; event < events.count; event++) {
    if (!TURN.includes(events.kind[event]!)) continue;
    expect(events.kind[event]).toBe(TURN[turn++ % TURN.length]);
    if (events.kind[event] !== EventKind.Alloc) continue;
    if (callers < CALLERS && count % 61 === 0) callers++;
    const index = count % callers;
    const [inner, outer] = [...symbols.framesOf(events.stack[event]!)];
    expect([events.size[event], inner?.name, outer?.name, outer?.filename, outer?.line]).toEqual([
      512 * (1 + (count % SIZES)),
      'take',
      `caller${index}`,
      `callers/${index}.py`,
      index + 1,
    ]);
    count++;
  }
  return count;
}

function recorded(file: string): number {
  if (!existsSync(file)) return 0;
  try {
    const [trace] = readWeir(readFileSync(file)).traces;
    return trace ? expectBeginning(trace) : 0;
  } catch (error) {
    if (error instanceof InputError) return 0;
    throw error;
  }
}
