// `weir run` over a job that starts programs with another Python: only the job's own processes must run on Weir.
// Folders named torch stand for PyTorch: they call their entry points as PyTorch does.
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { jobPython } from '../../src/run/child/job-python.ts';
import { RunFolder } from '../support/run-folder.ts';

const asked = spawnSync('python3', ['-c', 'import sys, venv; print(sys.executable); sys.exit(sys.version_info < (3, 9))'], {
  encoding: 'utf8',
});
const reason = asked.status === 0 ? '' : ' (skipped: no Python 3.9 or newer with venv)';
const run = new RunFolder();

let folder: string;
/** An environment with a PyTorch of this version and CUDA, or without PyTorch; returns the path of its Python. */
function environment(torch: string | undefined, cuda = 'None'): string {
  const path = mkdtempSync(join(folder, 'venv-'));
  expect(spawnSync(asked.stdout.trim(), ['-m', 'venv', '--without-pip', path]).status).toBe(0);
  const library = join(path, 'lib', readdirSync(join(path, 'lib')).find((name) => name.startsWith('python'))!, 'site-packages');
  if (torch !== undefined) {
    mkdirSync(join(library, 'torch'));
    const lines = [
      `class version: cuda = ${cuda}`,
      'class _C: _GLIBCXX_USE_CXX11_ABI = True',
      `__version__ = "${torch}"`,
      'from importlib.metadata import entry_points',
      'for entry in entry_points(group="torch.backends"): entry.load()()',
    ];
    writeFileSync(join(library, 'torch/__init__.py'), `${lines.join('\n')}\n`);
  }
  return join(path, 'bin/python');
}

let own: string;
let untested: string;
let withoutGpu: string;
let plain: string;
beforeAll(() => {
  if (reason !== '') return;
  folder = mkdtempSync(join(tmpdir(), 'weir-pythons-'));
  own = environment('2.11.0', '"13.0"');
  untested = environment('1.2.3', '"13.0"');
  withoutGpu = environment('2.11.0');
  plain = environment(undefined);
});
afterAll(() => rmSync(folder ?? '', { recursive: true, force: true }));

/** A program that starts this Python with these arguments, and goes on after it. */
const starting = (...words: string[]) => `import subprocess; print("ended with", subprocess.run(${JSON.stringify(words)}).returncode)`;
const IMPORT = 'import torch; print("on", flush=True)';

describe.skipIf(reason !== '')(`a job that starts another Python${reason}`, () => {
  it('is not disturbed, and told in one sentence, if its PyTorch cannot run on Weir', async () => {
    const { code, stdout, stderr } = await run.weir(['run', '--', own, '-c', starting(untested, '-c', IMPORT)]);
    expect([code, stdout]).toEqual([0, 'on\nended with 0\n']);
    expect(stderr.match(/another Python/g)).toHaveLength(1);
    expect(stderr).toContain(
      `weir: PyTorch 1.2.3 has not been tested with this version of Weir (known: 2.6 to 2.14); --allow-untested tries it (this process runs another Python than the job, ${resolve(untested, '../..')}, and goes on with PyTorch's own allocator)\n`,
    );
  });

  it('is not told of a Python that cannot use a GPU, or has no PyTorch', async () => {
    for (const [python, script] of [
      [withoutGpu, IMPORT],
      [plain, 'print("on", flush=True)'],
    ] as const) {
      const { code, stdout, stderr } = await run.weir(['run', '--', own, '-c', starting(python, '-c', script)]);
      expect([code, stdout, stderr.includes('another Python')]).toEqual([0, 'on\nended with 0\n', false]);
    }
  });

  it('is started by a script that names its Python', async () => {
    const script = join(run.path, 'launch');
    writeFileSync(script, `#!${own}\n${starting(withoutGpu, '-c', IMPORT)}\n`, { mode: 0o755 });
    expect(await run.weir(['run', '-q', '--', script])).toMatchObject({ code: 0, stdout: 'on\nended with 0\n' });
  });

  it('must run on Weir itself, and its own processes must', async () => {
    expect((await run.weir(['run', '-q', '--', own, '-c', IMPORT])).code).toBe(125);
    const again = await run.weir(['run', '-q', '--', own, '-c', starting(own, '-c', IMPORT)]);
    expect([again.code, again.stdout]).toEqual([125, 'ended with 125\n']);
    const method =
      'import multiprocessing as m\np = m.get_context("spawn").Process(target=__import__, args=("torch",))\nif __name__ == "__main__": p.start(); p.join(); print(p.exitcode)\n';
    writeFileSync(join(run.path, 'spawn.py'), method);
    expect(await run.weir(['run', '-q', '--', own, 'spawn.py'])).toMatchObject({ code: 125, stdout: '125\n' });
    expect((await run.weir(['run', '-q', '--', own, '-S', '-c', 'print("no site")'])).code).toBe(0);
  });

  it('must run on Weir in the Python that has PyTorch, if the first one only starts it', async () => {
    const { code, stdout } = await run.weir(['run', '-q', '--', plain, '-c', starting(untested, '-c', IMPORT)]);
    expect([code, stdout]).toEqual([125, 'ended with 125\n']);
  });

  it('tells by its first process on Weir what its Python is, if the command does not', async () => {
    const record =
      'from weir_gpu import job_python, settings; import sys, types; sys.modules["torch"] = types.SimpleNamespace(__version__="2.11.0"); job_python.record(settings.read())';
    const line = (first: string, second: string) =>
      run.weir(['run', '-q', '--', 'sh', '-c', '"$0" -c "$1"; "$2" -c "$3"', first, record, second, IMPORT]);
    expect(await line(own, untested)).toMatchObject({ code: 0, stdout: 'on\n' });
    // The first of them stays what it is.
    expect(
      await run.weir(['run', '-q', '--', 'sh', '-c', '"$0" -c "$1"; "$2" -c "$1"; "$0" -c "$3"', own, record, untested, IMPORT]),
    ).toMatchObject({ code: 125 });
    // The same Python with another PyTorch.
    const other = mkdtempSync(join(folder, 'other-'));
    mkdirSync(join(other, 'torch'));
    writeFileSync(
      join(other, 'torch/__init__.py'),
      '__version__ = "2.3.0"\nclass version: cuda = "13.0"\nfrom weir_gpu.entry import activate\nactivate()\n',
    );
    const script = `"$0" -c "$1"; PYTHONPATH=${other}:$PYTHONPATH "$0" -c "$2"`;
    expect(await run.weir(['run', '-q', '--', 'sh', '-c', script, own, record, IMPORT])).toMatchObject({ code: 0, stdout: 'on\n' });
    expect((await line(own, own)).code).toBe(125);
  });
});

describe.skipIf(reason !== '')(`the Python of a command${reason}`, () => {
  it('is what it calls its prefix', () => {
    const prefix = spawnSync(own, ['-c', 'import sys; print(sys.prefix)'], { encoding: 'utf8' }).stdout.trim();
    const path = { PATH: resolve(own, '..') };
    expect(jobPython([own], {})).toBe(prefix);
    expect(jobPython(['python3', 'x.py'], path)).toBe(prefix);
    const link = join(folder, 'python3.99');
    symlinkSync(own, link);
    expect(jobPython([link], {})).toBe(prefix);
    writeFileSync(join(folder, 'torchrun'), '#!/usr/bin/env python\n', { mode: 0o755 });
    expect(jobPython([join(folder, 'torchrun')], path)).toBe(prefix);
    const real = spawnSync(asked.stdout.trim(), ['-c', 'import sys; print(sys.prefix)'], { encoding: 'utf8' }).stdout.trim();
    expect(jobPython([asked.stdout.trim()], {})).toBe(real);
  });

  it('is not known of other programs, and of scripts that choose one', () => {
    writeFileSync(join(folder, 'python'), '#!/bin/sh\nexec something "$@"\n', { mode: 0o755 });
    writeFileSync(join(folder, 'job.sh'), '#!/bin/sh\npython train.py\n', { mode: 0o755 });
    for (const command of [['python'], ['job.sh'], ['nothing'], [''], []]) expect(jobPython(command, { PATH: folder })).toBe(undefined);
  });
});
