// `weir doctor` with several kinds of Python on the PATH: one with a PyTorch, one without, an old one, none. It always answers.
import { spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

const COMMAND = resolve('dist/cli/main.js');
const asked = spawnSync('python3', ['-c', 'import sys; print(sys.executable); sys.exit(sys.version_info < (3, 8))'], { encoding: 'utf8' });
const reason = asked.status === 0 ? '' : ' (skipped: no Python 3.8 or newer)';
const interpreter = asked.stdout?.trim();

interface Finding {
  readonly name: string;
  readonly ok: boolean;
  readonly found: string;
  readonly note: string;
}

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'weir-doctor-'));
  mkdirSync(join(folder, 'fake/torch'), { recursive: true });
  const torch = 'class version: cuda = "13.0"\n__version__ = "9.9.1"\nprint("words on stdout")\n';
  writeFileSync(join(folder, 'fake/torch/__init__.py'), torch);
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** A folder with a python3 of this kind and nothing else, as the whole PATH. */
function pathWith(script: string | undefined): string {
  const path = mkdtempSync(join(folder, 'path-'));
  if (script === undefined) return path;
  writeFileSync(join(path, 'python3'), `#!/bin/sh\n${script}\n`);
  chmodSync(join(path, 'python3'), 0o755);
  return path;
}

function doctor(path: string, variables: Record<string, string> = {}, cwd = folder): Record<string, Finding> {
  const env = { PATH: path, HOME: folder, PYTHONDONTWRITEBYTECODE: '1', ...variables };
  const { status, stdout, stderr } = spawnSync(process.execPath, [COMMAND, 'doctor', '--json'], { cwd, env, encoding: 'utf8' });
  expect([status, stderr]).toEqual([0, '']);
  const { schema, findings } = JSON.parse(stdout) as { schema: number; findings: Finding[] };
  expect(schema).toBe(1);
  return Object.fromEntries(findings.map((finding) => [finding.name, finding]));
}

describe.skipIf(reason !== '')(`weir doctor${reason}`, () => {
  const real = `exec ${interpreter} "$@"`;

  test('without Python', () => {
    const found = doctor(pathWith(undefined));
    expect(found['Python']).toMatchObject({ ok: false, found: 'no python3 that answers' });
    expect(found['PyTorch']).toMatchObject({ ok: false, found: 'python3 here cannot import torch' });
    expect(found['weir run']).toMatchObject({
      ok: false,
      found: 'would refuse',
      note: 'there is no PyTorch in the Python that is found here',
    });
  });

  test('with a Python that fails', () => {
    expect(doctor(pathWith('echo "{"; exit 1'))['Python']).toMatchObject({ ok: false });
  });

  test('with a Python that has no PyTorch', () => {
    const found = doctor(pathWith(`exec ${interpreter} -S "$@"`));
    expect(found['Python']).toMatchObject({ ok: true, found: expect.stringMatching(/^3\.\d+\.\d+/) });
    expect(found['PyTorch']).toMatchObject({ ok: false });
    expect(found['CUDA headers']).toMatchObject({ ok: false });
  });

  test('with a PyTorch, in the sentences of a job, whatever modules the current folder has', () => {
    const here = mkdtempSync(join(folder, 'here-'));
    const isSafe = spawnSync('python3', ['-c', 'import sys; sys.exit(sys.version_info < (3, 11))']).status === 0;
    if (isSafe) writeFileSync(join(here, 'weir.py'), 'raise SystemExit("not ours")\n');
    const found = doctor(pathWith(real), { PYTHONPATH: join(folder, 'fake'), LD_LIBRARY_PATH: '/nowhere' }, here);
    expect(found['PyTorch']).toMatchObject({ ok: true, found: '9.9.1, CUDA 13.0' });
    expect(found['weir run']?.note).toContain('PyTorch 9.9.1 has not been tested with this version of Weir (known: ');
    expect(found['weir run']?.note).toContain('there is no C++ compiler here');
  });

  test.each([
    ['2.11.3', 'Weir on PyTorch 2.11: run on a GPU.'],
    ['2.14.1+cu130', 'Weir on PyTorch 2.14: run on a GPU.'],
    ['2.6.0', /^Weir on PyTorch 2\.6: .+\. Compare your results once: weir run --check\.$/],
    ['9.9.1', 'Weir does not know PyTorch 9.9. Compare your results once: weir run --check.'],
  ])('says how far Weir was tested with PyTorch %s', (version, note) => {
    const modules = mkdtempSync(join(folder, 'modules-'));
    mkdirSync(join(modules, 'torch'));
    writeFileSync(join(modules, 'torch/__init__.py'), `class version: cuda = "13.0"\n__version__ = "${version}"\n`);
    const found = doctor(pathWith(real), { PYTHONPATH: modules });
    expect(found['PyTorch']?.note).toEqual(typeof note === 'string' ? note : expect.stringMatching(note));
  });

  const old = spawnSync('python3.8', ['-c', 'import sys; print(sys.executable)'], { encoding: 'utf8' });
  test.skipIf(old.status !== 0)(`with Python 3.8${old.status === 0 ? '' : ' (skipped: there is no python3.8)'}`, () => {
    const found = doctor(pathWith(`exec ${old.stdout.trim()} "$@"`), { PYTHONPATH: join(folder, 'fake') });
    expect(found['Python']).toMatchObject({ ok: true, found: expect.stringMatching(/^3\.8\./) });
    expect(found['weir run']?.note).toContain('PyTorch 9.9.1 has not been tested');
  });
});
