// Weir without `weir run`: weir_gpu.enable() and WEIR=1 in real processes, on the stand-in GPU. Where it refuses, what it says,
// and that nothing happens unless it is asked for. supervisor.test.ts has the ends of processes.

import { spawn, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { readWeir } from '../../src/trace/weir/reader.ts';
import { MAIN, outcomeOf } from '../support/command.ts';
import { Standin, SUPERVISOR, whyNoStandin } from '../support/standin.ts';

const reason = whyNoStandin();
const PEAK = /^process \d+: peak live 42 MiB, peak reserved 44 MiB \(overhead 1\.048\)$/m;
const IN_PLACE = 'from weir_gpu import adapter; print("in place", adapter.library() is not None)';

describe.skipIf(reason !== undefined)(`without a wrapper${reason ? ` (skipped: ${reason})` : ''}`, () => {
  const standin = new Standin();

  /** A folder with links to these programs, as the whole PATH. */
  function pathOf(...programs: string[]): string {
    const folder = mkdtempSync(join(standin.folder, 'path-'));
    for (const name of programs) {
      const found = spawnSync('sh', ['-c', `python3 -c 'import shutil, sys; print(shutil.which(sys.argv[1]))' ${name}`], {
        encoding: 'utf8',
      });
      symlinkSync(found.stdout.trim(), join(folder, name));
    }
    return folder;
  }
  const interpreter = spawnSync('python3', ['-c', 'import sys; print(sys.executable)'], { encoding: 'utf8' }).stdout.trim();
  const run = (script: string, env: NodeJS.ProcessEnv) =>
    outcomeOf(spawn(interpreter, ['-c', script], { cwd: standin.folder, env, stdio: ['ignore', 'pipe', 'pipe'] }));

  describe('not asked for', () => {
    test('nothing of it is there: no module, hook, thread, signal handler or file', async () => {
      const script = `
import atexit, gc, signal, sys, threading
callbacks = atexit._ncallbacks()
before = [signal.getsignal(number) for number in range(1, 32)]
hooks = (list(sys.meta_path), list(sys.path_hooks), sys.excepthook, sys.gettrace(), list(gc.callbacks))
import torch
assert [signal.getsignal(number) for number in range(1, 32)] == before
assert hooks == (list(sys.meta_path), list(sys.path_hooks), sys.excepthook, sys.gettrace(), list(gc.callbacks))
print(threading.active_count(), len(torch.cuda._queued_calls), sorted(name for name in sys.modules if name.startswith("weir_gpu")))
print(atexit._ncallbacks() - callbacks)
import weir_gpu
print(weir_gpu.summary())
`;
      const result = await standin.python(script, { WEIR_STANDIN_LIBRARY: '', WEIR_LIMIT: '1GiB', WEIR_SWAP: 'auto' });
      expect(result.stderr).toBe('');
      expect(result.stdout.split('\n')).toEqual([
        "1 0 ['weir_gpu', 'weir_gpu.entry', 'weir_gpu.variables']",
        '0',
        'Weir is not in place in this process, so there is nothing to report',
        '',
      ]);
    });

    test.each(['0', 'off', 'False'])('WEIR=%s is a no', async (WEIR) => {
      expect(await standin.python(`import torch; ${IN_PLACE}`, { WEIR })).toMatchObject({ stdout: 'in place False\n', stderr: '' });
    });
  });

  describe('weir_gpu.enable()', () => {
    test.each([
      ['before', 'weir_gpu.enable(limit="400MiB"); import sys; print("torch" in sys.modules)\nimport torch'],
      ['after', 'import torch; weir_gpu.enable(limit="400MiB"); print("torch" in sys.modules)'],
    ])('%s import torch', async (when, lines) => {
      const script = `
import sys, weir_gpu
${lines}
${IN_PLACE}
import standin_gpu
print(weir_gpu.summary())
standin_gpu.train()
summary = weir_gpu.summary()
print(summary, "|", repr(summary) == str(summary) == summary.text)
print(summary.json["processes"][0]["gpus"][0]["peakLive"], summary.json["limit"], summary.json["exitCode"])
try: standin_gpu.Block(500 << 20)
except MemoryError as error: print(error)
`;
      const result = await standin.python(script);
      expect(result.stdout.split('\n')[0]).toBe(when === 'before' ? 'False' : 'True');
      expect(result.stdout).toContain('in place True\nthis process has not used a GPU yet, so there is nothing to report\n');
      expect(result.stdout).toMatch(PEAK);
      expect(result.stdout).toMatch(/^ {2}pytorch would have needed 52 MiB \(\+18\.2 %\)$/m);
      expect(result.stdout).toContain(', none lost | True\n44043264 419430400 None\nno 524288000 bytes on the stand-in GPU\n');
      // At its end, the process has its summary on stderr, without the replay.
      expect(result.stderr).toMatch(
        /^weir: out of memory: process (\d+), GPU 0: a request for 500 MiB failed\n(weir: {3}.*\n){4}weir: {3}next: weir analyze oom\.\1\.weir\nweir: process \1: peak live 42 MiB/,
      );
      expect(result.stderr).toContain('weir:   to make it fit: 100 MiB less. One of: a limit of 500 MiB or more; ');
      expect(result.stderr).toMatch(/weir: {3}out of memory: 1 request failed within the limit of 400 MiB; the first: oom\.\d+\.weir\n/);
      expect(result.stderr).not.toContain('would have needed');
      expect([result.code, standin.left()]).toEqual([0, []]);
    });

    test('where PyTorch loads no extensions, it imports PyTorch itself', async () => {
      const script = `import weir_gpu; weir_gpu.enable(); import sys; print("torch" in sys.modules); ${IN_PLACE}`;
      const result = await standin.python(script, { TORCH_DEVICE_BACKEND_AUTOLOAD: '0' });
      expect(result).toMatchObject({ code: 0, stdout: 'True\nin place True\n', stderr: '' });
      // So do those before 2.5, whatever the variable says.
      const old = mkdtempSync(join(standin.folder, 'old-'));
      mkdirSync(join(old, 'torch-2.4.1.dist-info'));
      writeFileSync(join(old, 'torch-2.4.1.dist-info/METADATA'), 'Metadata-Version: 2.1\nName: torch\nVersion: 2.4.1\n');
      const env = standin.environment({ FAKE_VERSION: '2.4.1' });
      const told = await run(
        `import weir_gpu
try: weir_gpu.enable()
except weir_gpu.Error as error: print(error)`,
        { ...env, PYTHONPATH: `${old}:${env['PYTHONPATH']}` },
      );
      expect(told.stdout).toMatch(/^PyTorch 2\.4\.1 has not been tested with this version of Weir/);
    });

    test('quiet=True prints nothing', async () => {
      const result = await standin.python(
        'import weir_gpu; weir_gpu.enable(quiet=True); import torch, standin_gpu; standin_gpu.train(); print(weir_gpu.summary(what_if=False))',
      );
      expect(result.stdout).toMatch(PEAK);
      expect(result).toMatchObject({ code: 0, stderr: '' });
    });

    test('a second call with the same options changes nothing, and one with others is an error', async () => {
      const script = `
import weir_gpu
weir_gpu.enable(limit="1GiB")
weir_gpu.enable(limit="400MiB", swap=False)
import torch
weir_gpu.enable(limit="400 MiB")
weir_gpu.enable(limit=400 << 20)
try: weir_gpu.enable(limit="1GiB", lend=False)
except weir_gpu.Error as error: print(error)
import standin_gpu
standin_gpu.train()
weir_gpu.enable(limit="400MiB")
print(weir_gpu.gauges()["limit"])
`;
      const sentence =
        'Weir is already in place in this process, with another value of limit, lend; to change it, start the program anew (in a notebook: restart the kernel)';
      expect(await standin.python(script)).toMatchObject({ code: 0, stdout: `${sentence}\n419430400\n` });
    });

    test('options of the program count before variables', async () => {
      const script = `import weir_gpu; weir_gpu.enable(limit="400MiB"); import torch
from weir_gpu import enabling; print(enabling._in_place.limit >> 20, enabling._in_place.lend, enabling._in_place.swap)`;
      const variables = { WEIR: '1', WEIR_LIMIT: '1GiB', WEIR_LEND: '0', WEIR_QUIET: '1' };
      expect(await standin.python(script, variables)).toMatchObject({ code: 0, stdout: '400 False None\n', stderr: '' });
    });

    test.each([
      ['swap=False', { WEIR_SWAP: 'auto', WEIR_SWAP_HOST: '1GiB' }],
      ['allocator="pytorch"', { WEIR_PLAN: '1' }],
    ])('%s: variables do not forbid it', async (options, variables) => {
      const script = `import weir_gpu; weir_gpu.enable(${options}); import torch
from weir_gpu import enabling; print(enabling._in_place.swap_host, enabling._in_place.plan)`;
      expect(await standin.python(script, { ...variables } as Record<string, string>)).toMatchObject({ code: 0, stdout: 'None False\n' });
    });

    test('summary(timeout=None) waits as long as it takes', async () => {
      const script =
        'import weir_gpu; weir_gpu.enable(quiet=True); import torch, standin_gpu; standin_gpu.train()\nprint(weir_gpu.summary(timeout=None))';
      expect(await standin.python(script)).toMatchObject({ code: 0, stdout: expect.stringMatching(PEAK) });
    });

    const refusals: [string, string, Record<string, string>, string][] = [
      ['CUDA in use', 'import torch, standin_gpu; standin_gpu.start()', {}, 'CUDA is already in use in this process, and memory cannot'],
      ['a fork of a process with CUDA', 'import torch', { FAKE_BAD_FORK: '1' }, 'this process was forked from one that uses CUDA'],
      ['PyTorch without CUDA', 'import torch', { FAKE_CUDA: '' }, 'PyTorch 2.11.0+cu130 was built without CUDA'],
      ['an untested PyTorch', 'import torch', { FAKE_VERSION: '9.9.1' }, 'PyTorch 9.9.1 has not been tested with this version of Weir'],
    ];
    test.each(refusals)('%s: a sentence', async (_, first, variables, sentence) => {
      const script = (more: string) => `
import weir_gpu
${first}
try: weir_gpu.enable(${more}); print("on")
except weir_gpu.Error as error: print(error)
${IN_PLACE}`;
      const refused = await standin.python(script(''), variables);
      expect(refused).toMatchObject({ code: 0, stderr: '', stdout: expect.stringMatching(/^[^\n]+\nin place False\n$/) });
      expect(refused.stdout).toContain(sentence);
      const told = await standin.python(script('required=False'), variables);
      expect(told).toMatchObject({ code: 0, stdout: 'on\nin place False\n' });
      expect(told.stderr).toMatch(/^weir: [^\n]+ \(the program goes on with PyTorch's own allocator\)\n$/);
      expect(told.stderr).toContain(sentence);
    });

    test('an untested PyTorch: says how to try it in this form', async () => {
      const script = `import weir_gpu, torch
try: weir_gpu.enable()
except weir_gpu.Error as error: print(error)`;
      const { stdout } = await standin.python(script, { FAKE_VERSION: '9.9.1' });
      expect(stdout).toContain('allow_untested=True tries it');
      const { stderr } = await standin.python('import torch', { WEIR: '1', FAKE_VERSION: '9.9.1' });
      expect(stderr).toContain('WEIR_ALLOW_UNTESTED=1 tries it');
    });

    test('what only shows at import torch is an error there, with the sentence', async () => {
      const script = `
import weir_gpu
weir_gpu.enable()
try: import torch
except RuntimeError as error: print(type(error.__cause__).__name__, error.__cause__)`;
      const { stdout } = await standin.python(script, { FAKE_CUDA: '' });
      expect(stdout).toBe('Error PyTorch 2.11.0+cu130 was built without CUDA\n');
      const loose = await standin.python('import weir_gpu; weir_gpu.enable(required=False); import torch; print("on")', { FAKE_CUDA: '' });
      expect(loose).toMatchObject({ code: 0, stdout: 'on\n' });
      expect(loose.stderr).toMatch(/^weir: PyTorch 2\.11\.0\+cu130 was built without CUDA \(the program goes on/);
    });

    test('no PyTorch at all: says so at once', async () => {
      const script = `import weir_gpu
try: weir_gpu.enable()
except weir_gpu.Error as error: print(error)`;
      const empty = mkdtempSync(join(standin.folder, 'empty-'));
      const { stdout } = await outcomeOf(
        spawn('python3', ['-S', '-c', `import sys; sys.path = [p for p in sys.path if "-packages" not in p]\n${script}`], {
          env: standin.environment({ WEIR_STANDIN_LIBRARY: '' }, empty),
        }),
      );
      expect(stdout).toMatch(/^PyTorch is not installed in \S+; install it, or activate the environment that has it\n$/);
    });

    test.each([
      ['limit="40 apples"', "limit='40 apples': '40 apples' is not a size; write it like 24GiB, 512MiB or 80GB"],
      ['limit="1KiB"', 'a limit of 1024 bytes is too small for any process; write it like 40GiB'],
      ['limit=True', "limit=True: 'True' is not a size; write it like 24GiB, 512MiB or 80GB"],
      ['swap="often"', "swap='often': 'often' is neither a size like 24GiB nor auto"],
      ['swap="1MiB"', 'the size to swap down to is too small for any job; write a size like 24GiB, or auto'],
      ['swap_host="4GiB"', 'swap_host limits the host memory of swap; add swap'],
      ['allocator="swift"', "allocator='swift': there is no allocator named 'swift'; there are weir, gmlake, pytorch, expandable"],
      ['plan=True, allocator="gmlake"', 'plan works only with the allocator weir, not with gmlake'],
      ['plan="maybe"', "plan='maybe': it is 1 or 0"],
      ['ring_rows=1000', "ring_rows=1000: '1000' is not a power of two from 1024 to 16777216"],
      ['metrics=70000', 'metrics=70000: a port is a number from 0 to 65535'],
      ['record="/nowhere/x.weir"', "record='/nowhere/x.weir': /nowhere: no such folder; create it first"],
      ['record="%z.weir"', "record='%z.weir': %z is not a placeholder; use %p, %h, %r or %q{VARIABLE}"],
      ['quiet=True, verbose=True', 'quiet and verbose contradict each other; choose one'],
    ])('%s', async (options, sentence) => {
      const script = `import weir_gpu
try: weir_gpu.enable(${options})
except weir_gpu.Error as error: print(error)`;
      expect(await standin.python(script)).toMatchObject({ code: 0, stdout: `${sentence}\n`, stderr: '' });
    });
  });

  describe('WEIR=1', () => {
    const TRAIN = 'import torch, standin_gpu; standin_gpu.train(); print("trained")';

    test('the environment alone puts it in place, with its options', async () => {
      const result = await standin.python(`${TRAIN}; import weir_gpu; print(weir_gpu.gauges()["limit"]); ${SUPERVISOR}`, {
        WEIR: '1',
        WEIR_LIMIT: '400MiB',
        WEIR_RECORD: `${standin.folder}/`,
        WEIR_JSON_FILE: join(standin.folder, 'run.json'),
      });
      expect(result).toMatchObject({ code: 0, stdout: expect.stringMatching(/^trained\n419430400\n\d+ \d+\n$/) });
      expect(result.stderr).toMatch(/^weir: process \d+: peak live 42 MiB/);
      expect(result.stderr).toMatch(/weir: next: weir analyze \S+\/-c\.\d+\.weir\n/);
      // The supervisor writes both once the process has ended.
      await standin.gone(result.stdout.split('\n')[2]!);
      const trace = readdirSync(standin.folder).find((name) => /^-c\.\d+\.weir$/.test(name))!;
      expect(readWeir(readFileSync(join(standin.folder, trace))).traces[0]!.events.count).toBeGreaterThan(48);
      const json = JSON.parse(readFileSync(join(standin.folder, 'run.json'), 'utf8'));
      expect(json).toMatchObject({ schema: 1, allocator: 'weir', limit: 400 * 2 ** 20 });
      expect(json.command.slice(1)).toEqual(['-c', expect.stringContaining('standin_gpu')]);
      expect(json.processes[0].gpus[0].whatIf.results[0]).toMatchObject({ allocator: 'pytorch', peakReserved: 52 * 2 ** 20 });
    });

    test.each<[string, Record<string, string>, string]>([
      ['no CUDA', { FAKE_CUDA: '' }, 'PyTorch 2.11.0+cu130 was built without CUDA'],
      ['a wrong option', { WEIR_LIMIT: 'x' }, "WEIR_LIMIT=x: 'x' is not a size; write it like 24GiB, 512MiB or 80GB"],
      ['a wrong word', { WEIR: 'perhaps' }, 'WEIR=perhaps: it is 1 or 0'],
    ])('%s: says it and goes on, or ends where it is required', async (_, variables, sentence) => {
      const all = { WEIR: '1', ...variables };
      const told = await standin.python(TRAIN, all);
      expect(told).toMatchObject({ code: 0, stdout: 'trained\n' });
      expect(told.stderr).toBe(`weir: ${sentence} (the program goes on with PyTorch's own allocator)\n`);
      const ended = await standin.python(TRAIN, { ...all, WEIR_REQUIRED: '1' });
      expect(ended).toMatchObject({ code: 125, stdout: '', stderr: `weir: ${sentence}\n` });
    });

    test('a PyTorch in which swapping cannot begin keeps its own allocator', async () => {
      const told = await standin.python(`import torch\n${IN_PLACE}`, { WEIR: '1', WEIR_SWAP: 'auto' });
      expect(told).toMatchObject({ code: 0, stdout: 'in place False\n' });
      expect(told.stderr).toMatch(
        /^weir: Weir could not be put in place: \w+Error: .* \(the program goes on with PyTorch's own allocator\)\n$/,
      );
      expect(standin.left()).toEqual([]);
    });

    test('a process that never uses a GPU starts nothing and leaves nothing', async () => {
      const folder = mkdtempSync(join(standin.folder, 'path-'));
      standin.countingNode(folder);
      const env = { WEIR: '1', PATH: `${folder}:${process.env['PATH']}` };
      const script = `
import multiprocessing, os, threading, torch
${IN_PLACE}
import weir_gpu
print(weir_gpu.summary(), threading.active_count())
`;
      const idle = await standin.python(script, env);
      expect(idle).toMatchObject({ code: 0, stderr: '' });
      expect(idle.stdout).toBe('in place True\nthis process has not used a GPU yet, so there is nothing to report 1\n');
      expect(readdirSync(folder)).toEqual(['node']);
      expect(standin.left()).toEqual([]);
      await standin.python(TRAIN, env);
      expect(readFileSync(join(folder, 'log'), 'utf8')).toBe('started\n');
    });
  });

  describe('without Node', () => {
    const train = 'import torch, standin_gpu; standin_gpu.train(); print(weir_gpu.summary()); print(weir_gpu.gauges()["peak_live"])';

    test('the allocator works, and one sentence says what is missing', async () => {
      const env = standin.environment({ PATH: pathOf('sh') });
      const result = await run(`import weir_gpu; weir_gpu.enable(); ${train}`, env);
      expect(result).toMatchObject({ code: 0 });
      expect(result.stdout).toMatch(/^there is no summary: there is no Node [^\n]+\n44043264\n$/);
      expect(result.stderr).toMatch(
        /^weir: there will be no summary and no recording, and the program goes on: there is no Node [^\n]+\n$/,
      );
      expect(standin.left()).toEqual([]);
    });

    test.each(['swap="auto"', 'record="x.weir"', 'plan=True'])('%s is an error', async (options) => {
      const env = standin.environment({ PATH: pathOf('sh') });
      const script = `import torch, weir_gpu
try: weir_gpu.enable(${options})
except weir_gpu.Error as error: print(error)
${IN_PLACE}`;
      const { stdout, stderr } = await run(script, env);
      expect(stdout).toMatch(/^(swap|record|plan) needs the command weir, and there is no Node [^\n]+\nin place False\n$/);
      expect(stderr).toBe('');
    });
  });

  describe('inside weir run', () => {
    const script = `
import weir_gpu
weir_gpu.enable(limit="300MiB")
weir_gpu.enable(limit="200MiB")
import torch, standin_gpu
standin_gpu.train()
print(weir_gpu.summary())
print(weir_gpu.gauges()["limit"] >> 20)
`;
    test('the run outside counts, and summary() is what it prints so far', async () => {
      const words = ['run', '--limit', '400MiB', '--', 'python3', '-c', script];
      const env = standin.environment({ WEIR: '1', WEIR_STANDIN_LIBRARY: standin.library });
      const result = await outcomeOf(spawn(process.execPath, [MAIN, ...words], { env, stdio: ['ignore', 'pipe', 'pipe'] }));
      expect(result.code).toBe(0);
      expect(result.stdout).toMatch(PEAK);
      expect(result.stdout).toMatch(/^ {2}pytorch would have needed 52 MiB \(\+18\.2 %\)$/m);
      expect(result.stdout).toMatch(/\n400\n$/);
      const notes = result.stderr.match(/^weir: weir run is around this process, and its options count; [^\n]+$/gm);
      expect(notes).toHaveLength(1);
      expect(standin.left()).toEqual([]);
    });

    test('the runs that --check compares with stay plain', async () => {
      const job =
        'import torch, standin_gpu; from weir_gpu import adapter; standin_gpu.train(); print("loss", int(adapter.library() is not None))';
      const words = ['run', '--check', '--', 'python3', '-c', job];
      const env = standin.environment({ WEIR: '1' });
      const result = await outcomeOf(spawn(process.execPath, [MAIN, ...words], { env, stdio: ['ignore', 'pipe', 'pipe'] }));
      // On Weir it is in place, and in the runs around that it must not be.
      expect([result.code, result.stderr]).toEqual([1, expect.stringMatching(/check: .*differ/)]);
    });
  });

  test('the folder for host memory is private, and the same for all processes of a job', async () => {
    const script = `
import os
from weir_gpu import folders, settings
print(folders.host_memory_folder(settings.read(), 1 << 30))
print(folders.host_memory_folder(settings.read(), None))
`;
    const [one, two] = await Promise.all([standin.python(script, { SLURM_JOB_ID: '7' }), standin.python(script, { SLURM_JOB_ID: '7' })]);
    expect(one.stdout).toBe(two.stdout);
    const [given, measured] = one.stdout.trim().split('\n');
    expect(given).not.toBe(measured);
    const other = await standin.python(script, { SLURM_JOB_ID: '8' });
    expect(other.stdout).not.toContain(given);
    // One that others can write to is not used.
    const open = await standin.python(`import os; os.chmod(${JSON.stringify(given)}, 0o777)\n${script}`, { SLURM_JOB_ID: '7' });
    expect(open.stdout.split('\n')[0]).toBe('None');
  });

  test('ranks that have no supervisor in common divide the host memory', async () => {
    const script = `
import sys, time
from weir_gpu import folders, settings
from weir_gpu.swap import Options, budget
import os
here = settings.read()
shared = budget.of(folders.host_memory_folder(here, 1 << 30), 1 << 30, here.local_ranks)
shared.join()
print(shared.claim(1 << 30), flush=True)
sys.stdin.readline()
print(shared.limit(), flush=True)
`;
    const begin = (env: Record<string, string>) => spawn('python3', ['-c', script], { env: standin.environment(env) });
    const said = (child: ReturnType<typeof begin>) =>
      new Promise<string>((resolve) => child.stdout.once('data', (chunk) => resolve(String(chunk).trim())));
    // A launcher says how many there are.
    const ranks = [begin({ LOCAL_WORLD_SIZE: '2' }), begin({ LOCAL_WORLD_SIZE: '2' })];
    expect(await Promise.all(ranks.map(said))).toEqual([String(2 ** 29), String(2 ** 29)]);
    // Nobody says: the first leaves some, and the second gets no more than that.
    for (const rank of ranks) rank.kill();
    await Promise.all(ranks.map((rank) => new Promise((done) => rank.on('close', done))));
    const first = begin({});
    expect(await said(first)).toBe(String(2 ** 30 - 2 ** 27));
    const second = begin({});
    expect(await said(second)).toBe(String(2 ** 27));
    for (const child of [first, second]) child.kill();
  });
});
