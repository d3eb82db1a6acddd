// Host memory for swapping: what control groups leave of it, and how the processes of a run divide it. Needs Python alone.
import { spawn, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

const found = spawnSync('python3', ['-c', 'import sys; sys.exit(sys.version_info < (3, 9))']);
const reason = found.status === 0 ? '' : ' (skipped: no Python 3.9 or newer)';
const env = { ...process.env, PYTHONPATH: resolve('dist/python'), PYTHONDONTWRITEBYTECODE: '1' };
const GIB = 1024 ** 3;

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'weir-host-'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function ask(script: string) {
  const run = spawnSync('python3', ['-c', script], { env, encoding: 'utf8' });
  expect(run.stderr).toBe('');
  return JSON.parse(run.stdout);
}

/** What is available under a root folder with these files. */
function available(files: Record<string, string | number>): number | null {
  const root = mkdtempSync(join(folder, 'root-'));
  for (const [name, content] of Object.entries(files)) {
    mkdirSync(dirname(join(root, name)), { recursive: true });
    writeFileSync(join(root, name), `${content}\n`);
  }
  return ask(`import json; from weir_gpu.swap import cgroups; print(json.dumps(cgroups.available(${JSON.stringify(root)})))`);
}

const machine = (bytes: number) => ({ 'proc/meminfo': `MemTotal: 999999999 kB\nMemAvailable: ${bytes / 1024} kB` });
/** A group of version 2: a limit, what it uses, and how much of that is cached files. */
const group = (path: string, limit: number | 'max', used: number, cached = 0) => ({
  [`${path}/memory.max`]: limit,
  [`${path}/memory.current`]: used,
  [`${path}/memory.stat`]: `anon ${used - cached}\ninactive_file ${cached}`,
});
const mounted = (rootOfMount: string) => `36 25 0:31 ${rootOfMount} /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw`;

describe.skipIf(reason !== '')(`available host memory${reason}`, () => {
  test('is what the machine says where no group has a limit', () => {
    expect(available(machine(64 * GIB))).toBe(64 * GIB);
    const files = { 'proc/self/cgroup': '0::/a', 'proc/self/mountinfo': mounted('/'), ...group('sys/fs/cgroup/a', 'max', GIB) };
    expect(available({ ...machine(64 * GIB), ...files })).toBe(64 * GIB);
    expect(available({})).toBe(null);
  });

  test('is the least of all groups from the own one up to the mount', () => {
    const job = 'sys/fs/cgroup/system.slice/slurmstepd.scope/job_42';
    const files = {
      ...machine(512 * GIB),
      'proc/self/cgroup': '0::/system.slice/slurmstepd.scope/job_42/step_0/user/task_0',
      'proc/self/mountinfo': `22 1 8:1 / / rw - ext4 /dev/sda rw\n${mounted('/')}`,
      ...group(`${job}/step_0/user/task_0`, 'max', 2 * GIB),
      ...group(`${job}/step_0`, 200 * GIB, 10 * GIB),
      ...group(job, 100 * GIB, 20 * GIB),
    };
    expect(available(files)).toBe(80 * GIB);
    expect(available({ ...files, [`${job}/step_0/user/memory.max`]: 8 * GIB, [`${job}/step_0/user/memory.current`]: GIB })).toBe(7 * GIB);
    expect(available({ ...files, [`${job}/memory.high`]: 50 * GIB })).toBe(30 * GIB);
  });

  test('counts cached files, which the kernel drops first', () => {
    const files = { 'proc/self/cgroup': '0::/', 'proc/self/mountinfo': mounted('/'), ...machine(512 * GIB) };
    expect(available({ ...files, ...group('sys/fs/cgroup', 10 * GIB, 9 * GIB, 6 * GIB) })).toBe(7 * GIB);
    expect(available({ ...files, ...group('sys/fs/cgroup', 10 * GIB, 11 * GIB) })).toBe(0);
  });

  test('is found in a container that sees only its part of the tree', () => {
    const files = { ...machine(512 * GIB), ...group('sys/fs/cgroup', 10 * GIB, GIB) };
    const seen = (path: string, root: string) =>
      available({ ...files, 'proc/self/cgroup': `0::${path}`, 'proc/self/mountinfo': mounted(root) });
    expect(seen('/docker/abc', '/docker/abc')).toBe(9 * GIB);
    expect(seen('/../other', '/')).toBe(9 * GIB);
    expect(seen('/gone', '/')).toBe(9 * GIB);
  });

  test('is found in groups of version 1, mounted anywhere', () => {
    const files = {
      ...machine(512 * GIB),
      'proc/self/cgroup': '9:cpu:/elsewhere\n4:memory:/slurm/uid_0/job_7\n0::/',
      'proc/self/mountinfo':
        '30 25 0:26 / /cgroup\\040v1/memory rw - cgroup cgroup rw,memory\n31 25 0:27 / /cgroup/cpu rw - cgroup cgroup rw,cpu',
      'cgroup v1/memory/slurm/uid_0/job_7/memory.limit_in_bytes': 64 * GIB,
      'cgroup v1/memory/slurm/uid_0/job_7/memory.usage_in_bytes': 10 * GIB,
      'cgroup v1/memory/slurm/uid_0/job_7/memory.stat': `inactive_file 0\nhierarchical_memory_limit ${64 * GIB}\ntotal_inactive_file ${2 * GIB}`,
      'cgroup v1/memory/memory.limit_in_bytes': '9223372036854771712',
      'cgroup v1/memory/memory.usage_in_bytes': 300 * GIB,
    };
    expect(available(files)).toBe(56 * GIB);
    const above = { 'cgroup v1/memory/slurm/memory.limit_in_bytes': 40 * GIB, 'cgroup v1/memory/slurm/memory.usage_in_bytes': 35 * GIB };
    expect(available({ ...files, ...above })).toBe(5 * GIB);
    const hidden = `hierarchical_memory_limit ${16 * GIB}`;
    expect(available({ ...files, 'cgroup v1/memory/slurm/uid_0/job_7/memory.stat': hidden })).toBe(6 * GIB);
  });
});

/** A process with a budget that does what each line on its input says, and answers with the result. */
class Claimant {
  private readonly child;
  private readonly answers: AsyncIterator<string>;

  constructor(run: string, given: number | undefined, ranks: number | undefined, left = 1000) {
    const script = `
import json, sys
from weir_gpu.swap.budget import SharedBudget
budget = SharedBudget(${JSON.stringify(run)}, ${given ?? 'None'}, ${ranks ?? 'None'}, available=lambda: ${left})
for line in sys.stdin: print(json.dumps(eval(line)), flush=True)
`;
    this.child = spawn('python3', ['-c', script], { env, stdio: ['pipe', 'pipe', 'inherit'] });
    this.answers = createInterface(this.child.stdout)[Symbol.asyncIterator]();
  }

  async ask(expression: string): Promise<number | null> {
    this.child.stdin.write(`budget.${expression}\n`);
    return JSON.parse((await this.answers.next()).value);
  }

  async kill(): Promise<void> {
    if (this.child.signalCode !== null) return;
    const end = new Promise((done) => this.child.on('close', done));
    this.child.kill('SIGKILL');
    await end;
  }
}

describe.skipIf(reason !== '')(`the budget of a run${reason}`, () => {
  async function among(count: number, given: number | undefined, ranks: number | undefined, act: (all: Claimant[]) => Promise<void>) {
    const run = mkdtempSync(join(folder, 'run-'));
    const all = Array.from({ length: count }, () => new Claimant(run, given, ranks));
    try {
      await act(all);
    } finally {
      await Promise.all(all.map((one) => one.kill()));
    }
  }

  test('of ranks that a launcher counts is one share each, from the first on', () =>
    among(8, 800, 8, async (all) => {
      expect(await all[0]!.ask('limit()')).toBe(100);
      expect(await all[0]!.ask('claim(900)')).toBe(100);
      expect(await all[0]!.ask('claim(1)')).toBe(0);
      expect(await Promise.all(all.slice(1).map((one) => one.ask('claim(900)')))).toEqual(Array(7).fill(100));
    }));

  test('is half of what was available at the start, for all together', () =>
    among(8, undefined, undefined, async (all) => {
      await Promise.all(all.map((one) => one.ask('join()')));
      const granted = await Promise.all(all.map(async (one) => Number(await one.ask('claim(300)')) + Number(await one.ask('claim(300)'))));
      expect(granted).toEqual(Array(8).fill(62));
    }));

  test('is never exceeded by processes that claim all at once without a count', () =>
    among(6, 600, undefined, async (all) => {
      const granted = await Promise.all(
        all.map(async (one) => {
          let sum = 0;
          for (let turn = 0; turn < 20; turn++) sum += Number(await one.ask('claim(17)'));
          return sum;
        }),
      );
      expect(granted.reduce((sum, bytes) => sum + bytes, 0)).toBeLessThanOrEqual(600);
    }));

  test('leaves some for a process that comes later', () =>
    among(2, 800, undefined, async ([first, second]) => {
      expect(await first!.ask('claim(800)')).toBe(700);
      expect(await second!.ask('claim(800)')).toBe(100);
      // Half each, once the first has given up what it had.
      expect(await first!.ask('release(700)')).toBe(null);
      expect(await first!.ask('claim(800)')).toBe(400);
      expect(await second!.ask('limit()')).toBe(400);
    }));

  test('is free again when its process is dead', () =>
    among(2, 800, 1, async ([first, second]) => {
      expect(await first!.ask('claim(800)')).toBe(700);
      expect(await second!.ask('claim(200)')).toBe(100);
      await first!.kill();
      expect(await second!.ask('claim(800)')).toBe(600);
    }));

  test('does not count memory that was taken by others since', async () => {
    const run = mkdtempSync(join(folder, 'run-'));
    const early = new Claimant(run, undefined, 2, 1000);
    const late = new Claimant(run, undefined, 2, 40);
    expect(await early.ask('claim(100)')).toBe(100);
    expect(await late.ask('limit()')).toBe(250);
    expect(await late.ask('claim(100)')).toBe(20);
    await Promise.all([early.kill(), late.kill()]);
  });

  test('grants nothing, and does not wait for ever, where the folder is gone or its lock is held', async () => {
    const run = mkdtempSync(join(folder, 'run-'));
    const one = new Claimant(run, 800, 1);
    expect(await one.ask('claim(10)')).toBe(10);
    const holder = spawn('python3', [
      '-c',
      `import fcntl, sys, time; f = open("${run}/host-memory.lock"); fcntl.flock(f, fcntl.LOCK_EX); print(1, flush=True); time.sleep(60)`,
    ]);
    await new Promise((done) => holder.stdout.once('data', done));
    expect(await one.ask('claim(10)')).toBe(0);
    expect(await one.ask('release(10)')).toBe(null);
    holder.kill('SIGKILL');
    await new Promise((done) => holder.on('close', done));
    // What could not be released then is now.
    expect(await one.ask('claim(5)')).toBe(5);
    expect(Object.values(JSON.parse(readFileSync(join(run, 'host-memory.json'), 'utf8')).claims)).toEqual([5]);
    rmSync(run, { recursive: true });
    expect(await one.ask('claim(5)')).toBe(0);
    await one.kill();
  });

  test('is not touched by a fork that drops what its parent pinned', () => {
    const run = mkdtempSync(join(folder, 'run-'));
    const script = `
import json, os
from weir_gpu.swap.budget import SharedBudget
budget = SharedBudget(${JSON.stringify(run)}, 800, 2)
budget.claim(100)
if os.fork() == 0:
    budget.release(100)
    os._exit(0)
os.wait()
with open(${JSON.stringify(join(run, 'host-memory.json'))}) as file: print(json.dumps(list(json.load(file)["claims"].values())))
if os.fork() == 0:
    print(json.dumps(budget.claim(400)), flush=True)
    os._exit(0)
os.wait()`;
    const { stdout } = spawnSync('python3', ['-u', '-c', script], { env, encoding: 'utf8' });
    expect(stdout).toBe('[100]\n400\n');
  });

  test('of a process without a run is its share', () => {
    const script = (ranks: string) =>
      `import json; from weir_gpu.swap import budget; b = budget.of(None, 800, ${ranks}); print(json.dumps([b.limit(), b.claim(900)]))`;
    expect(ask(script('None'))).toEqual([800, 800]);
    expect(ask(script('8'))).toEqual([100, 100]);
  });

  test('holds what a slab pins, until the slab and its slots are gone', () => {
    const run = mkdtempSync(join(folder, 'run-'));
    const script = `
import json
from weir_gpu.swap.budget import SharedBudget
from weir_gpu.swap.host import HostSlab
def held():
    with open(${JSON.stringify(join(run, 'host-memory.json'))}) as file: return sum(json.load(file)["claims"].values())
said = []
budget = SharedBudget(${JSON.stringify(run)}, 1 << 29, 2)
class Chunk:
    def __init__(self, size): self.bytes = bytearray(size)
    def pin(self, at, length): pass
class Memory:
    host_memory = Chunk
slab = HostSlab(Memory, budget, lambda *words: said.append(words))
seen = [held()]
slot = slab.take(10000)
seen += [held(), slab.capacity]
seen += [slab.take(1 << 28) is None]
slab = HostSlab(Memory, budget, print)
seen += [held()]
slot.release()
seen += [held()]
def fails(size): raise MemoryError("none")
Memory.host_memory = fails
slab = HostSlab(Memory, budget, lambda *words: None)
seen += [slab.take(4096) is None, held()]
print(json.dumps([seen, said]))`;
    const [seen, said] = ask(script);
    expect(seen).toEqual([0, 1 << 26, 1 << 26, true, 1 << 26, 0, true, 0]);
    expect(said).toEqual([['host', `all ${1 << 26} bytes of host memory for swapping are used; less is swapped`]]);
  });
});
