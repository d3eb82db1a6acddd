// How a process and the supervisor it has started end: killed, interrupted, forked, with closed output. On the stand-in GPU.
// Exit codes stay the program's, nothing is left in shared memory, and nobody waits for the other.
import { type ChildProcess, spawn } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { ownerOf } from '../../src/run/child/folder-owner.ts';
import { outcomeOf } from '../support/command.ts';
import { Standin, SUPERVISOR, whyNoStandin } from '../support/standin.ts';

const reason = whyNoStandin();
const TRAIN = 'import torch, standin_gpu; standin_gpu.train()';
const PEAK = /^weir: process \d+: peak live 42 MiB, peak reserved 44 MiB/m;

/** What a process prints first. */
function firstLine(child: ChildProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    let text = '';
    child.stdout!.on('data', (chunk) => {
      text += chunk;
      if (text.includes('\n')) resolve(text.split('\n')[0]!);
    });
    child.on('close', () => reject(new Error(`it printed no line: ${text}`)));
  });
}

describe.skipIf(reason !== undefined)(`the supervisor of a process without weir run${reason ? ` (skipped: ${reason})` : ''}`, () => {
  const standin = new Standin();
  const WEIR = { WEIR: '1' };
  /** stderr is a pipe that the supervisor has too, so that its end is seen. */
  const begin = (script: string, variables: Record<string, string> = WEIR) => {
    const child = standin.start(script, variables);
    return { child, first: firstLine(child), ended: outcomeOf(child) };
  };
  const GO_ON = `${TRAIN}\n${SUPERVISOR}\nimport time; time.sleep(60)`;

  test.each([
    ['sys.exit(3)', 'import sys; sys.exit(3)', 3],
    ['an exception', 'raise ValueError("own")', 1],
    ['os._exit(4)', 'import os; os._exit(4)', 4],
    ['its last line', '', 0],
  ])("%s: the exit code is the program's, and the summary comes", async (_, end, code) => {
    const result = await standin.python(`${TRAIN}\n${end}`, WEIR);
    expect(result.code).toBe(code);
    expect(result.stderr).toMatch(PEAK);
    expect(result.stderr.match(/peak live/g)).toHaveLength(1);
    expect(standin.left()).toEqual([]);
  });

  test('a process that is killed: the supervisor reads the rest, says it and removes the folder', async () => {
    const { child, first, ended } = begin(GO_ON);
    const supervisor = await first;
    // The supervisor may have a folder of its own already, for recordings.
    expect(standin.left().map((name) => ownerOf(name)?.pid)).toContain(child.pid);
    child.kill('SIGKILL');
    const result = await ended;
    expect(result.signal).toBe('SIGKILL');
    expect(result.stderr).toMatch(PEAK);
    expect(result.stderr).toMatch(/recorded \d+ events of one process/);
    await standin.gone(supervisor);
    expect(standin.left()).toEqual([]);
  });

  test('a supervisor that is killed: the program goes on, and removes the folder itself', async () => {
    const script = `${TRAIN}\n${SUPERVISOR}\nimport sys, weir_gpu; sys.stdin.readline()
standin_gpu.train(); print(weir_gpu.summary()); print(weir_gpu.gauges()["allocations"])`;
    const child = spawn('python3', ['-c', script], { cwd: standin.folder, env: standin.environment(WEIR) });
    const ended = outcomeOf(child);
    const supervisor = await firstLine(child);
    const pid = Number(supervisor.split(' ')[0]);
    process.kill(pid, 'SIGKILL');
    await standin.gone(supervisor);
    child.stdin.end('go on\n');
    const result = await ended;
    expect(result).toMatchObject({ code: 0, stderr: '' });
    expect(result.stdout).toMatch(/\nthere is no summary: the supervisor of this process has ended\n48\n$/);
    // The supervisor's own folder, if it had made one, stays until the next run removes it.
    expect(standin.left().filter((name) => !name.startsWith(`weir-run-${pid}-`))).toEqual([]);
  });

  test('a supervisor that hangs: the program ends all the same', async () => {
    const { child, first, ended } = begin(`${TRAIN}\n${SUPERVISOR}\nimport time; time.sleep(3)\nprint("done")`);
    const supervisor = await first;
    const pid = Number(supervisor.split(' ')[0]);
    process.kill(pid, 'SIGSTOP');
    expect(await new Promise((resolve) => child.on('exit', (code) => resolve(code)))).toBe(0);
    process.kill(pid, 'SIGCONT');
    expect((await ended).stdout).toMatch(/\ndone\n$/);
    await standin.gone(supervisor);
    expect(standin.left()).toEqual([]);
  });

  test('Ctrl-C reaches the program and not the supervisor', async () => {
    const script = `${TRAIN}\nimport time
try:
    ${SUPERVISOR}
    time.sleep(60)
except KeyboardInterrupt: standin_gpu.train(); print("interrupted"); raise SystemExit(7)`;
    const child = spawn('python3', ['-c', script], { cwd: standin.folder, env: standin.environment(WEIR), detached: true });
    const ended = outcomeOf(child);
    const supervisor = await firstLine(child);
    const [pid] = supervisor.split(' ');
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1').split(') ')[1]!.split(' ');
    // Another group, another session, and no child of the program.
    expect([stat[1], stat[2], stat[3]]).not.toContain(String(child.pid));
    process.kill(-child.pid!, 'SIGINT');
    const result = await ended;
    expect(result).toMatchObject({ code: 7, stdout: expect.stringMatching(/\ninterrupted\n$/) });
    expect(result.stderr).toMatch(PEAK);
    // Twice as many events as the training before the interrupt has.
    const events = Number(/recorded (\d+) events/.exec(result.stderr)![1]);
    expect(events).toBeGreaterThan(150);
  });

  test('a signal to all processes of a job: the supervisor stays until the program has ended', async () => {
    const script = `${TRAIN}\nimport signal, sys, time, weir_gpu
signal.signal(signal.SIGTERM, lambda *_: (standin_gpu.train(), sys.exit(5)))
weir_gpu.summary(what_if=False)  # It has begun if it answers.
${SUPERVISOR}
time.sleep(60)`;
    const { child, first, ended } = begin(script);
    const supervisor = await first;
    process.kill(Number(supervisor.split(' ')[0]), 'SIGTERM');
    await sleep(200);
    child.kill('SIGTERM');
    const result = await ended;
    expect(result.code).toBe(5);
    expect(Number(/recorded (\d+) events/.exec(result.stderr)![1])).toBeGreaterThan(150);
    await standin.gone(supervisor);
  });

  test('Ctrl-C while it is started: the next start of CUDA starts one', async () => {
    const script = `
import torch, standin_gpu, weir_gpu
from weir_gpu import enabling
supervisor = enabling._supervisor
start = supervisor._start
def interrupted(): raise KeyboardInterrupt
supervisor._start = interrupted
try: standin_gpu.start()
except KeyboardInterrupt: print("interrupted")
supervisor._start = start
standin_gpu.train()
print(weir_gpu.summary(what_if=False))`;
    const result = await standin.python(script, WEIR);
    expect(result).toMatchObject({ code: 0, stdout: expect.stringMatching(/^interrupted\nprocess \d+: peak live 42 MiB/) });
    expect(standin.left()).toEqual([]);
  });

  test.each([{}, { WEIR_QUIET: '1' }])('a process takes its ring away, since its end may be that of the container (%o)', async (more) => {
    const script = `
import atexit, os
atexit.register(lambda: print([name for name in os.listdir(supervisor.folder) if name.endswith(".ring")]))
import torch, standin_gpu
from weir_gpu import enabling
supervisor = enabling._supervisor
standin_gpu.train()`;
    expect(await standin.python(script, { ...WEIR, ...more })).toMatchObject({ code: 0, stdout: '[]\n' });
  });

  test('programs that wait for their children do not see it', async () => {
    const script = `${TRAIN}
import os, subprocess
child = subprocess.Popen(["true"])
print(os.wait()[0] == child.pid)
try: os.wait()
except ChildProcessError: print("no more")`;
    expect(await standin.python(script, WEIR)).toMatchObject({ code: 0, stdout: 'True\nno more\n' });
  });

  describe('fork', () => {
    test('of a process with a GPU: the child leaves the recording, the folder and the supervisor alone', async () => {
      const script = `
${TRAIN}
import os, sys, weir_gpu
child = os.fork()
if child == 0:
    weir_gpu.step()
    sys.exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
standin_gpu.train()
print(weir_gpu.summary(what_if=False))`;
      const result = await standin.python(script, WEIR);
      expect(result).toMatchObject({ code: 0 });
      expect(result.stdout).toMatch(/^3\nprocess \d+: peak live 42 MiB/);
      expect(result.stderr.match(/peak live/g)).toHaveLength(1);
      expect(standin.left()).toEqual([]);
    });

    test('before a GPU is used: each child has its own ring, and one supervisor reads all of them', async () => {
      // No child ends before all have trained: the supervisor ends with the child that started it.
      const script = `
import os, sys, torch, standin_gpu, weir_gpu
trained, told = os.pipe()
ends, all_trained = os.pipe()
children = []
for number in range(3):
    child = os.fork()
    if child == 0:
        os.close(all_trained)
        standin_gpu.train(steps=2 + number)
        from weir_gpu import enabling
        print(enabling._supervisor.owner == os.getpid(), flush=True)
        os.write(told, b"x")
        os.read(ends, 1)
        sys.exit(0)
    children.append(child)
for _ in children: os.read(trained, 1)
os.close(all_trained)
print([os.waitpid(child, 0)[1] for child in children])
print(weir_gpu.summary())`;
      const result = await standin.python(script, WEIR);
      expect(result.code).toBe(0);
      expect(result.stdout.match(/^True$/gm)).toHaveLength(1);
      expect(result.stdout.match(/^False$/gm)).toHaveLength(2);
      expect(result.stdout).toContain('[0, 0, 0]\n');
      expect(result.stderr).toMatch(/recorded \d+ events of 3 processes/);
      expect(standin.left()).toEqual([]);
    });

    // The supervisor of the first ends while the second begins, at one of these pauses.
    test.each([0, 0.05, 0.1, 0.15])('one after the other, %s s between them: each is recorded', async (gap) => {
      const script = `
import os, time, torch, standin_gpu, weir_gpu
for number in range(3):
    child = os.fork()
    if child == 0:
        standin_gpu.train(steps=2)
        found = weir_gpu.summary(what_if=False)
        print(os.getpid() in [one["pid"] for one in found.json["processes"]] if found.json else found, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    time.sleep(${gap})`;
      const result = await standin.python(script, WEIR);
      expect(result).toMatchObject({ code: 0, stdout: 'True\nTrue\nTrue\n' });
      expect(standin.left()).toEqual([]);
    });

    test('a fork that has begun and allocates only after the first has ended', async () => {
      const script = `
import os, time, torch, standin_gpu, weir_gpu
read, write = os.pipe()
first = os.fork()
if first == 0:
    standin_gpu.train(steps=2)
    weir_gpu.summary(what_if=False)
    os.write(write, b"x")
    time.sleep(0.5)
    os._exit(0)
os.read(read, 1)
second = os.fork()
if second == 0:
    standin_gpu.start()
    time.sleep(2)
    standin_gpu.train(steps=2)
    found = weir_gpu.summary(what_if=False)
    print(os.getpid() in [one["pid"] for one in found.json["processes"]] if found.json else found, flush=True)
    os._exit(0)
os.waitpid(first, 0); os.waitpid(second, 0)`;
      expect(await standin.python(script, WEIR)).toMatchObject({ code: 0, stdout: 'True\n' });
      expect(standin.left()).toEqual([]);
    });

    test('a daemon: no other supervisor removes its folder before its own has begun', async () => {
      const script = `
import os, time, torch, standin_gpu, weir_gpu
if os.fork() == 0:
    time.sleep(0.5)  # until the process that the folder is named after has ended
    from weir_gpu import enabling
    def other(*_):
        import subprocess, sys
        subprocess.run([sys.executable, "-c", "import torch, standin_gpu; standin_gpu.train()"], stderr=subprocess.DEVNULL)
    start, enabling._supervisor._start = enabling._supervisor._start, lambda: (other(), start())
    standin_gpu.train()
    print(str(weir_gpu.summary(what_if=False)).partition(":")[0] == f"process {os.getpid()}", flush=True)
os._exit(0)`;
      expect((await standin.python(script, WEIR)).stdout).toBe('True\n');
    });
  });

  test('a fork that outlives the one which started the supervisor is read to its end', async () => {
    const script = `
import os, sys, time, torch, standin_gpu
def child(work):
    number = os.fork()
    if number == 0:
        work()
        sys.exit(0)
    return number
def longer():
    standin_gpu.train()
    print("begun", flush=True)
    sys.stdin.readline()
    time.sleep(1)
    standin_gpu.train(steps=40)
first = child(lambda: (standin_gpu.train(), time.sleep(1)))
time.sleep(0.5)
second = child(longer)
os.waitpid(first, 0)
print("first has ended", flush=True)
os.waitpid(second, 0)`;
    const child = spawn('python3', ['-c', script], { cwd: standin.folder, env: standin.environment(WEIR) });
    const ended = outcomeOf(child);
    await new Promise<void>((resolve) => {
      let text = '';
      child.stdout.on('data', (chunk) => {
        text += chunk;
        if (text.includes('begun') && text.includes('ended')) resolve();
      });
    });
    child.stdin.end('go on\n');
    const result = await ended;
    expect(result.code).toBe(0);
    // The first has its summary as it ends. At the end of the second, there is one with all: 48 allocations and frees each, and 480 more.
    const events = Number([...result.stderr.matchAll(/recorded (\d+) events of 2 processes/g)].at(-1)![1]);
    expect(events).toBeGreaterThan(96 + 480);
    expect(standin.left()).toEqual([]);
  });

  test.each(['spawn', 'fork', 'forkserver'])('multiprocessing by %s', async (method) => {
    const program = join(standin.folder, `${method}.py`);
    writeFileSync(
      program,
      `
import multiprocessing, os
import weir_gpu
weir_gpu.enable(limit="400MiB")
def work(number):
    import torch, standin_gpu
    standin_gpu.train()
    return weir_gpu.gauges()["limit"] >> 20, os.getpid()
if __name__ == "__main__":
    with multiprocessing.get_context(${JSON.stringify(method)}).Pool(2) as pool:
        found = pool.map(work, range(4), chunksize=1)
    print({limit for limit, _ in found})
`,
    );
    const child = spawn('python3', [program], { cwd: standin.folder, env: standin.environment(), stdio: ['ignore', 'pipe', 'pipe'] });
    const result = await outcomeOf(child);
    expect(result).toMatchObject({ code: 0, stdout: '{400}\n' });
    expect(result.stderr).toMatch(/peak live/);
    expect(result.stderr).not.toContain('Traceback');
    await until(() => standin.left().length === 0);
  });

  test('closed output: the program ends as it would, and no file of it is written to', async () => {
    const script = `${TRAIN}\nimport os, sys; f = open("own.txt", "w"); print(f.fileno(), file=f, flush=True); sys.exit(9)`;
    const child = spawn('sh', ['-c', 'exec python3 -c "$0" >&- 2>&-', script], { cwd: standin.folder, env: standin.environment(WEIR) });
    expect((await outcomeOf(child)).code).toBe(9);
    await until(() => standin.left().length === 0);
    expect(readFileSync(join(standin.folder, 'own.txt'), 'utf8')).toMatch(/^\d+\n$/);
  });

  test('a full pipe, a reader that is gone: the program is not held up', async () => {
    const child = spawn('sh', ['-c', '{ python3 -c "$0"; echo $? >code; } 2>&1 | true; sleep 1; cat code', `${TRAIN}`], {
      cwd: standin.folder,
      env: standin.environment(WEIR),
    });
    expect((await outcomeOf(child)).stdout).toBe('0\n');
    await until(() => standin.left().length === 0);
  });

  test('ports that are taken: the program goes on without', async () => {
    const script = `${TRAIN}\nimport socket, sys\nprint("on")`;
    const server = createServer();
    await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
    const { port } = server.address() as { port: number };
    const result = await standin.python(script, { ...WEIR, WEIR_METRICS: String(port) });
    server.close();
    expect(result).toMatchObject({ code: 0, stdout: 'on\n' });
    expect(result.stderr).toMatch(
      /^weir: port \d+ on 127\.0\.0\.1 is taken; choose another one, or 0 for a free one \(the job goes on without\)$/m,
    );
    expect(result.stderr).toMatch(PEAK);
  });

  async function until(condition: () => boolean): Promise<void> {
    while (!condition()) await sleep(20);
  }
});
