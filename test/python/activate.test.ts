// The Python part without PyTorch and without a GPU: how it is loaded, what it refuses and how, and the cache of the compiled adapter.
// A folder named torch stands for PyTorch: it calls its entry points as PyTorch does.
import { spawn, spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

const PYTHON = 'python3';
const PACKAGE = resolve('dist/python');
const found = spawnSync(PYTHON, ['-c', 'import sys; sys.exit(sys.version_info < (3, 9))']);
const reason = found.status === 0 ? undefined : 'no Python 3.9 or newer';

/** As torch/__init__.py: whatever an entry point throws becomes an error of `import torch`. */
const FAKE_TORCH = `
import os
class version: cuda = os.environ.get("FAKE_CUDA") or None
class _C: _GLIBCXX_USE_CXX11_ABI = True
__version__ = os.environ.get("FAKE_VERSION", "2.11.0+cu130")
if os.environ.get("FAKE_BROKEN"): del version
from importlib.metadata import entry_points
for entry in entry_points(group="torch.backends"):
    entry.load()()
`;

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'weir-python-'));
  mkdirSync(join(folder, 'fake/torch'), { recursive: true });
  writeFileSync(join(folder, 'fake/torch/__init__.py'), FAKE_TORCH);
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function environmentOf(variables: Record<string, string>): NodeJS.ProcessEnv {
  const rest = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('WEIR_')));
  return { ...rest, PYTHONPATH: `${PACKAGE}:${join(folder, 'fake')}`, PYTHONDONTWRITEBYTECODE: '1', ...variables };
}

function python(script: string, variables: Record<string, string> = {}) {
  return spawnSync(PYTHON, ['-c', script], { env: environmentOf(variables), encoding: 'utf8' });
}

const IMPORT = 'import sys, torch; print("imported", "weir_gpu.build" in sys.modules)';

describe.skipIf(reason !== undefined)(`the Python side${reason ? ` (skipped: ${reason})` : ''}`, () => {
  test('is found by its folder alone', () => {
    const script =
      'from importlib.metadata import entry_points, version; print([e.value for e in entry_points(group="torch.backends")], version("weir-gpu"))';
    const { version } = JSON.parse(readFileSync('package.json', 'utf8'));
    expect(python(script).stdout).toBe(`['weir_gpu.entry:activate'] ${version}\n`);
    expect(python('import weir_gpu; print(weir_gpu.__version__)').stdout).toBe(`${version}\n`);
  });

  test('does nothing unless asked', () => {
    const result = python(IMPORT);
    expect(result).toMatchObject({ status: 0, stdout: 'imported False\n', stderr: '' });
    expect(python('import weir_gpu; weir_gpu.step(); print(weir_gpu.gauges(), weir_gpu.check())').stdout).toBe('None 0\n');
  });

  test('refuses where a process must not go on without it and half of it is missing', () => {
    const half = mkdtempSync(join(folder, 'half-'));
    cpSync(PACKAGE, half, { recursive: true });
    rmSync(join(half, 'weir_gpu/abi.py'));
    const PYTHONPATH = `${half}:${join(folder, 'fake')}`;
    const variables = { WEIR_CHILD_ALLOCATOR: 'weir', FAKE_CUDA: '13.0', PYTHONPATH };
    const told = expect.stringContaining('weir: its Python package cannot be loaded');
    expect(python(IMPORT, { ...variables, WEIR_CHILD_REQUIRED: '1' })).toMatchObject({ status: 125, stdout: '', stderr: told });
    expect(python(IMPORT, variables)).toMatchObject({ status: 0, stderr: told });
    rmSync(join(half, 'weir_gpu/variables.py'));
    expect(python(IMPORT, { PYTHONPATH })).toMatchObject({ status: 0, stderr: '' });
  });

  test('is not taken for a module of the program that has its name', () => {
    const program = mkdtempSync(join(folder, 'program-'));
    writeFileSync(join(program, 'weir.py'), 'mine = True\n');
    const script = 'import torch, weir; print(weir.mine)';
    const run = (variables: Record<string, string>) =>
      spawnSync(PYTHON, ['-c', script], { cwd: program, env: environmentOf(variables), encoding: 'utf8' });
    expect(run({})).toMatchObject({ status: 0, stdout: 'True\n', stderr: '' });
    const refused = run({ WEIR_CHILD_ALLOCATOR: 'swift', FAKE_CUDA: '13.0' });
    expect(refused).toMatchObject({ status: 0, stdout: 'True\n' });
    expect(refused.stderr).toMatch(/^weir: there is no allocator named 'swift'/);
    expect(run({ WEIR_CHILD_ALLOCATOR: 'swift', FAKE_CUDA: '13.0', WEIR_CHILD_REQUIRED: '1' })).toMatchObject({ status: 125, stdout: '' });
  });

  test.each(['', '1'])('says nothing where nobody listens, and ends all the same if it must (%s)', (required) => {
    const script = 'import sys; sys.stderr.close()\ntry:\n  import torch\nexcept BaseException: print("failed")\nprint("on")';
    const result = python(script, { WEIR_CHILD_ALLOCATOR: 'swift', FAKE_CUDA: '13.0', WEIR_CHILD_REQUIRED: required });
    expect(result).toMatchObject(required ? { status: 125, stdout: '' } : { status: 0, stdout: 'on\n' });
  });

  const refusals: [string, Record<string, string>, string, string][] = [
    ['PyTorch without CUDA', { WEIR_CHILD_ALLOCATOR: 'weir' }, 'no-cuda', 'PyTorch 2.11.0+cu130 was built without CUDA'],
    [
      'an untested PyTorch',
      { WEIR_CHILD_ALLOCATOR: 'weir', FAKE_CUDA: '13.0', FAKE_VERSION: '9.9.1' },
      'untested-torch',
      'PyTorch 9.9.1 has not been tested with this version of Weir (known: 2.6 to 2.14); --allow-untested tries it',
    ],
    [
      'an unknown allocator',
      { WEIR_CHILD_ALLOCATOR: 'swift', FAKE_CUDA: '13.0' },
      'allocator',
      "there is no allocator named 'swift'; there are weir, gmlake, pytorch, expandable",
    ],
    [
      'a tolerance that is none',
      { WEIR_CHILD_ALLOCATOR: 'weir', FAKE_CUDA: '13.0', WEIR_CHILD_SWAP: 'auto', WEIR_SWAP_TOLERANCE: 'banana' },
      'settings',
      "WEIR_SWAP_TOLERANCE must be a percentage, or any, not 'banana'",
    ],
    [
      'a limit that is no number',
      { WEIR_CHILD_ALLOCATOR: 'weir', FAKE_CUDA: '13.0', WEIR_CHILD_LIMIT: '40GiB' },
      'settings',
      "WEIR_CHILD_LIMIT must be a whole number, not '40GiB'",
    ],
    [
      'faults without a rate',
      { WEIR_CHILD_ALLOCATOR: 'weir', FAKE_CUDA: '13.0', WEIR_FAULTS: 'often' },
      'settings',
      "WEIR_FAULTS must be RATE:SEED, not 'often'",
    ],
    ['a defect', { WEIR_CHILD_ALLOCATOR: 'weir', FAKE_BROKEN: '1' }, 'error', 'Weir could not be put in place: AttributeError: '],
  ];

  test.each(refusals)('%s: says it and goes on', (_, variables, _reason, sentence) => {
    const result = python(IMPORT, variables);
    expect(result.status).toBe(0);
    expect(result.stdout).toMatch(/^imported/);
    expect(result.stderr).toContain(`weir: ${sentence}`);
    expect(result.stderr.trim().split('\n')).toHaveLength(1);
    expect(python(IMPORT, { ...variables, WEIR_CHILD_QUIET: '1' }).stderr).toBe('');
  });

  test.each(refusals)('%s: ends the process where Weir is required', (_, variables, code, sentence) => {
    const result = python(IMPORT, { ...variables, WEIR_CHILD_REQUIRED: '1' });
    expect(result).toMatchObject({ status: 125, stdout: '' });
    expect(result.stderr).toContain(`weir: ${sentence}`);

    const run = mkdtempSync(join(folder, 'run-'));
    const told = python(IMPORT, { ...variables, WEIR_CHILD_REQUIRED: '1', WEIR_CHILD_RUN_DIR: run });
    expect(told).toMatchObject({ status: 125, stdout: '', stderr: '' });
    const [file, ...more] = readdirSync(run);
    expect(more).toEqual([]);
    expect(file).toMatch(/^\d+\.refused\.json$/);
    const said = JSON.parse(readFileSync(join(run, file!), 'utf8'));
    expect(said).toMatchObject({ reason: code, message: expect.stringContaining(sentence), pid: Number.parseInt(file!, 10) });
  });

  test('no compiler, no headers, no GPU, an old driver: a sentence each', () => {
    const script = `
import os
from weir_gpu import machine
from weir_gpu.refusal import Refusal
from weir_gpu.settings import Settings
for call in (lambda: machine.compilers(Settings()), lambda: machine.cuda_headers("/nowhere/torch", Settings())):
    try: print(call())
    except Refusal as refusal: print(refusal.reason, "|", refusal)
machine._DRIVER_FOLDERS = (os.environ["DRIVER"],)
machine._OLDEST_DRIVER = {"13": 999}
for signs in (("/dev/nothing*",), ("/dev/null",)):
    machine._GPU_SIGNS = signs
    try: machine.check_driver("13.0", Settings())
    except Refusal as refusal: print(refusal.reason, "|", refusal)
`;
    const driver = mkdtempSync(join(folder, 'driver-'));
    writeFileSync(join(driver, 'libcuda.so.580.65.06'), '');
    spawnSync('ln', ['-s', 'libcuda.so.580.65.06', join(driver, 'libcuda.so.1')]);
    const empty = mkdtempSync(join(folder, 'empty-'));
    const interpreter = spawnSync(PYTHON, ['-c', 'import sys; print(sys.executable)'], { encoding: 'utf8' }).stdout.trim();
    const result = spawnSync(interpreter, ['-c', script], { env: environmentOf({ PATH: empty, DRIVER: driver }), encoding: 'utf8' });
    const lines = result.stdout.trim().split('\n');
    expect(lines[0]).toMatch(/^no-compiler \| there is no C\+\+ compiler here/);
    // A machine with a toolkit in its usual place has headers.
    expect(lines[1]).toMatch(/^no-cuda-headers \| CUDA's headers|include$/);
    expect(lines[2]).toBe('no-gpu | there is no NVIDIA GPU here (no /dev/nvidia*)');
    expect(lines[3]).toBe('driver | the NVIDIA driver 580.65 is too old for CUDA 13.0, which needs 999 or newer');
  });

  test('eight processes at once compile once', async () => {
    const cache = mkdtempSync(join(folder, 'cache-'));
    const script = `
import os
from weir_gpu import build, cache
from weir_gpu.settings import Settings
folder = cache.Folder(os.environ["CACHE"], ["torch-0", "key"])
slowly = ["sh", "-c", 'echo once >> "$CACHE/count"; sleep 0.5; printf made > libweir.so']
print(build.build(folder, [[["true"], ["true"]], [slowly]], "test", Settings(quiet=True)).path)
`;
    const outputs = await Promise.all(
      Array.from({ length: 8 }, async () => {
        const child = spawn(PYTHON, ['-c', script], { env: environmentOf({ CACHE: cache }) });
        let output = '';
        child.stdout.on('data', (chunk) => {
          output += chunk;
        });
        await new Promise((done) => child.on('close', done));
        return output.trim();
      }),
    );
    const target = join(cache, 'torch-0/key/libweir.so');
    expect(new Set(outputs)).toEqual(new Set([target]));
    expect(readFileSync(target, 'utf8')).toBe('made');
    expect(readFileSync(join(cache, 'count'), 'utf8')).toBe('once\n');
    expect(readdirSync(join(cache, 'torch-0/key')).sort()).toEqual(['libweir.so', 'lock']);
  });

  test('what cannot be loaded is made anew, by one of those that found it so', () => {
    const cache = mkdtempSync(join(folder, 'cache-'));
    const script = `
import os
from weir_gpu import build, cache
from weir_gpu.settings import Settings
folder = cache.Folder(os.environ["CACHE"], ["key"])
open(os.path.join(folder.path, "libweir.so"), "w").close()
spoiled = folder.library("libweir.so").identity
commands = [[["sh", "-c", 'echo again >> "$CACHE/count"; printf made > libweir.so']]]
for _ in range(2): print(build.build(folder, commands, "test", Settings(quiet=True), spoiled).path)
`;
    const target = join(cache, 'key/libweir.so');
    expect(python(script, { CACHE: cache })).toMatchObject({ status: 0, stdout: `${target}\n${target}\n` });
    expect(readFileSync(target, 'utf8')).toBe('made');
    expect(readFileSync(join(cache, 'count'), 'utf8')).toBe('again\n');
  });

  test('without a home the cache is a folder for temporary files', () => {
    const script =
      'import os; from weir_gpu import cache, settings; os.path.expanduser = lambda path: path; print(cache.find(settings.Settings(), []).path)';
    const run = mkdtempSync(join(folder, 'here-'));
    const result = spawnSync(PYTHON, ['-c', script], { cwd: run, env: environmentOf({ TMPDIR: run }), encoding: 'utf8' });
    expect(result.stdout).toMatch(new RegExp(`^${run}/weir-\\d+\n$`));
    expect(readdirSync(run)).toEqual([expect.stringMatching(/^weir-\d+$/)]);
  });

  test('a compiler that fails leaves its words, and nothing half made', () => {
    const cache = mkdtempSync(join(folder, 'cache-'));
    const script = `
import os
from weir_gpu import build, cache
from weir_gpu.refusal import Refusal
from weir_gpu.settings import Settings
try: build.build(cache.Folder(os.environ["CACHE"], ["key"]), [[["sh", "-c", "echo no such type; exit 3"]]], "test", Settings())
except Refusal as refusal: print(refusal.reason, "|", refusal)
`;
    const result = python(script, { CACHE: cache });
    const log = join(cache, 'key/build.log');
    expect(result.stdout).toBe(`compile | Weir's adapter could not be compiled (sh ended with 3); the compiler's words are in ${log}\n`);
    expect(readFileSync(log, 'utf8')).toContain('no such type');
    expect(existsSync(join(cache, 'key/libweir.so'))).toBe(false);
    expect(readdirSync(join(cache, 'key')).sort()).toEqual(['build.log', 'lock']);
  });

  test('what is compiled is named by all it is made from', () => {
    const native = mkdtempSync(join(folder, 'native-'));
    cpSync('native', native, { recursive: true });
    writeFileSync(join(native, 'engine.c'), '');
    const script =
      'from weir_gpu import build, settings; s = build.find_sources(settings.read()); print(build.key(s, ["a"]), build.key(s, ["b"]))';
    const keys = () => python(script, { WEIR_NATIVE: native }).stdout.trim().split(' ');
    const [first, other] = keys();
    expect(first).toMatch(/^[0-9a-f]{20}$/);
    expect(other).not.toBe(first);
    expect(keys()).toEqual([first, other]);
    writeFileSync(join(native, 'torch/adapter.h'), 'changed');
    expect(keys()[0]).not.toBe(first);
    rmSync(join(native, 'engine.c'));
    const gone = python('from weir_gpu import build, settings; build.find_sources(settings.read())', { WEIR_NATIVE: native });
    expect(gone.stderr).toContain(`Weir's own sources are not in ${native}`);
  });
});
