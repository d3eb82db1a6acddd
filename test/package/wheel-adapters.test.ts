// Adapters that came with Weir: which one is taken, and everything for which one is not. A folder named torch stands for PyTorch.
// Where WEIR_TORCH_LIBRARIES names PyTorch's headers and libraries, real adapters are made, installed and used on the stand-in GPU.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  appendFileSync,
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { compilerOf, hasCompiler, run as runTool } from '../../scripts/native-rules.mjs';
import { interfaceOf, sourcesKey } from '../../scripts/wheel/manifest.mjs';
import { ABI_DIGEST } from '../../src/abi/engine.ts';
import { SUPPORTED_PYTORCH } from '../../src/abi/pytorch.ts';
import { ROOT } from '../support/command.ts';
import { buildWheel, Environment, whyNoPip } from '../support/wheel.ts';

const asked = spawnSync('python3', ['-c', 'import sys; print(sys.executable); sys.exit(sys.version_info < (3, 9))'], { encoding: 'utf8' });
const PYTHON = asked.stdout?.trim();
const reason = asked.status !== 0 ? 'no Python 3.9 or newer' : hasCompiler('c') ? undefined : 'no C compiler';
const { version } = JSON.parse(readFileSync(new URL('package.json', ROOT), 'utf8')) as { version: string };

const SUPPORTED: readonly string[] = SUPPORTED_PYTORCH;
const folder = mkdtempSync(join(tmpdir(), 'weir-adapters-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const TORCH = `
import os
class version: cuda = "13.0"
class _C: _GLIBCXX_USE_CXX11_ABI = os.environ.get("FAKE_ABI") != "0"
__version__ = os.environ.get("FAKE_VERSION", "2.11.1+cu130")
from weir_gpu import machine
machine.check_driver = lambda *_: None
`;
const HEADERS: Record<string, string> = {
  'c10/core/Allocator.h': '#pragma once\nstruct Allocator { virtual void* allocate(unsigned long) = 0; };\n',
  'c10/cuda/CUDACachingAllocator.h':
    '// A comment.\n#include <c10/core/Allocator.h>\nstruct CUDAAllocator : Allocator {\n  /* two\n lines */ virtual void init(int) = 0;\n};\n',
};

describe.skipIf(reason !== undefined)(`an adapter that came with Weir${reason ? ` (skipped: ${reason})` : ''}`, () => {
  let library: Buffer;
  beforeAll(() => {
    const path = join(folder, 'stand-in.so');
    runTool(compilerOf('c'), ['-shared', '-fPIC', join(ROOT.pathname, 'test/package/stand_in_adapter.c'), '-o', path]);
    library = readFileSync(path);
  });

  /** The parts of an installation, with a PyTorch beside them. */
  function installation(change: (manifest: Record<string, unknown>) => void = () => {}) {
    const here = mkdtempSync(join(folder, 'installed-'));
    const at = (...names: string[]) => join(here, ...names);
    for (const part of ['python', 'native']) cpSync(resolve('dist', part), at(part), { recursive: true });
    mkdirSync(at('fake/torch'), { recursive: true });
    writeFileSync(at('fake/torch/__init__.py'), TORCH);
    for (const [name, text] of Object.entries(HEADERS)) {
      mkdirSync(join(at('fake/torch/include', name), '..'), { recursive: true });
      writeFileSync(at('fake/torch/include', name), text);
    }
    mkdirSync(at('prebuilt/2.11-abi1'), { recursive: true });
    const file = '2.11-abi1/libweir.so';
    writeFileSync(at('prebuilt', file), library);
    const sha256 = createHash('sha256').update(library).digest('hex');
    const adapters = [{ pytorch: '2.11', abi: 1, file, sha256, ...interfaceOf(at('fake/torch/include')) }];
    const manifest = { version, digest: ABI_DIGEST, sources: sourcesKey(at('native')), adapters };
    change(manifest);
    writeFileSync(at('prebuilt/manifest.json'), JSON.stringify(manifest));
    return { at, library: at('prebuilt', file) };
  }

  function python(at: (...names: string[]) => string, script: string, variables: Record<string, string> = {}) {
    const env = {
      PATH: at('nowhere'),
      HOME: folder,
      PYTHONPATH: `${at('python')}:${at('fake')}`,
      PYTHONDONTWRITEBYTECODE: '1',
      ...variables,
    };
    const { status, stdout, stderr } = spawnSync(PYTHON, ['-c', script], { env, encoding: 'utf8' });
    return { status, stdout, stderr };
  }

  const FIND = `
import torch
from weir_gpu import prebuilt, settings
try: print(prebuilt.find(torch, settings.read()))
except prebuilt.Unfit as unfit: print("unfit:", unfit)`;

  it('is loaded where there is no compiler', () => {
    const { at, library: path } = installation();
    expect(python(at, FIND)).toEqual({ status: 0, stdout: `${path}\n`, stderr: '' });
    const activated = python(at, 'import torch; from weir_gpu import entry; entry.activate()', {
      WEIR_CHILD_ALLOCATOR: 'weir',
      WEIR_CHILD_NATIVE: at('native'),
    });
    expect(activated.stderr).toMatch(/^weir: the stand-in was loaded \([^\n]*\n$/);
  });

  it('is found through comments, white space and what wheels put around headers', () => {
    const { at, library: path } = installation();
    const header = at('fake/torch/include/c10/cuda/CUDACachingAllocator.h');
    const text = readFileSync(header, 'utf8').replace('A comment.', 'Another.').replaceAll('\n', '\r\n');
    const around = [
      '#if !defined(TORCH_STABLE_ONLY) && !defined(TORCH_TARGET_VERSION)',
      text,
      '#else',
      '#error "no"',
      '#endif  // end',
      '',
    ];
    writeFileSync(header, around.join('\n'));
    expect(python(at, FIND).stdout).toBe(`${path}\n`);
  });

  it.each([
    ['another version', { FAKE_VERSION: '2.10.0+cu128' }],
    ['a build before the release', { FAKE_VERSION: '2.11.0a0+git1234567' }],
    ['a build of others', { FAKE_VERSION: '2.11.0+nv26.3' }],
    ['other strings', { FAKE_ABI: '0' }],
    ['sources that the user names', { WEIR_NATIVE: resolve('dist/native') }],
  ])('is not for %s', (_, variables) => {
    expect(python(installation().at, FIND, variables)).toEqual({ status: 0, stdout: 'None\n', stderr: '' });
  });

  const damages: [string, (at: (...names: string[]) => string) => void, RegExp][] = [
    ['a changed source', (at) => appendFileSync(at('native/torch/adapter.h'), '\n'), /^it was made from other sources/],
    [
      'another interface',
      (at) => appendFileSync(at('fake/torch/include/c10/core/Allocator.h'), 'struct More {};\n'),
      /^the headers in \S*include are not those of PyTorch 2\.11$/m,
    ],
    [
      'a missing header',
      (at) => rmSync(at('fake/torch/include/c10/core/Allocator.h')),
      /^PyTorch's header c10\/core\/Allocator\.h is not in/,
    ],
    ['a damaged library', (at) => appendFileSync(at('prebuilt/2.11-abi1/libweir.so'), 'x'), /libweir\.so is damaged$/m],
    ['a missing library', (at) => rmSync(at('prebuilt/2.11-abi1/libweir.so')), /prebuilt is damaged \(FileNotFoundError/],
    ['a damaged manifest', (at) => writeFileSync(at('prebuilt/manifest.json'), '{"adapters": 7}'), /prebuilt is damaged \(TypeError/],
    [
      'a library that others may write',
      (at) => chmodSync(at('prebuilt/2.11-abi1/libweir.so'), 0o666),
      /^others may write to \S*libweir\.so$/m,
    ],
    ['a folder that others may write', (at) => chmodSync(at('prebuilt'), 0o777), /^others may write to \S*prebuilt$/m],
    [
      'a link',
      (at) => {
        rmSync(at('prebuilt/2.11-abi1/libweir.so'));
        symlinkSync(join(folder, 'stand-in.so'), at('prebuilt/2.11-abi1/libweir.so'));
      },
      /prebuilt is damaged \(OSError/,
    ],
  ];
  it.each(damages)('is not used with %s, which is said before it is compiled', (_, damage, sentence) => {
    const { at } = installation();
    damage(at);
    const found = python(at, FIND);
    expect(found.stdout.replace(/^unfit: /, '')).toMatch(sentence);
    const variables = { WEIR_CHILD_ALLOCATOR: 'weir', WEIR_CHILD_NATIVE: at('native') };
    const { stderr } = python(at, 'import torch; from weir_gpu import entry; entry.activate()', variables);
    const [why, compiler, ...more] = stderr.trim().split('\n');
    expect(why!.replace('weir: the adapter that came with Weir is not used, so one is compiled: ', '')).toMatch(sentence);
    expect(compiler).toMatch(/^weir: there is no C\+\+ compiler here/);
    expect(more).toEqual([]);
  });

  it('is not used by another version of Weir', () => {
    for (const change of [{ version: '0.0.9' }, { digest: 1 }, { sources: 'other' }]) {
      const { at } = installation((manifest) => Object.assign(manifest, change));
      expect(python(at, FIND).stdout).toMatch(/^unfit: it was made from other sources/);
    }
  });

  it('is not used if it cannot be loaded', () => {
    const other = Buffer.from('no library at all');
    const { at, library: path } = installation((manifest) => {
      const [adapter] = manifest['adapters'] as { sha256: string }[];
      adapter!.sha256 = createHash('sha256').update(other).digest('hex');
    });
    writeFileSync(path, other);
    const script = 'import torch; from weir_gpu import prebuilt, settings; print(prebuilt.loadable(torch, settings.read()))';
    const { stdout, stderr } = python(at, script);
    expect(stdout).toBe('None\n');
    expect(stderr).toContain(`weir: the adapter that came with Weir is not used, so one is compiled: ${path}: `);
    expect(python(at, script, { WEIR_CHILD_QUIET: '1' }).stderr).toBe('');
    expect(python(at, script, { LOCAL_RANK: '3' }).stderr).toBe('');
  });

  it('makes weir doctor ask for neither compiler nor headers', () => {
    const { at, library: path } = installation();
    const facts = (script = '') =>
      JSON.parse(python(at, `${script}\nfrom weir_gpu import doctor; import json; print(json.dumps(doctor.facts()))`).stdout);
    expect(facts()).toMatchObject({ adapter: path, adapterProblem: null, refusals: [] });
    appendFileSync(path, 'x');
    expect(facts()).toMatchObject({ adapter: null, adapterProblem: `${path} is damaged` });
    expect(facts().refusals.join()).toContain('there is no C++ compiler here');
  });
});

/** Folders with headers, CUDA's headers and libraries of a supported PyTorch, as for test/python/adapter.test.ts. */
const LIBRARIES = [...(process.env['WEIR_TORCH_LIBRARIES'] ?? '').split(':'), process.env['WEIR_TORCH_211'] ?? '']
  .filter((path) => existsSync(join(path, 'lib/libc10_cuda.so')))
  .map((path) => ({ path: resolve(path), pytorch: pytorchIn(path) }))
  .filter(({ pytorch }, index, all) => SUPPORTED.includes(pytorch) && all.findIndex((other) => other.pytorch === pytorch) === index);

function pytorchIn(path: string): string {
  const places = ['torch/headeronly/version.h', 'torch/csrc/api/include/torch/version.h'].map((name) => join(path, name));
  const text = places.filter((name) => existsSync(name)).map((name) => readFileSync(name, 'utf8'));
  const minor = /TORCH_VERSION_MINOR (\d+)/.exec(text.join('\n'))?.[1];
  return minor === undefined ? '2.11' : `2.${minor}`;
}

const noReal = whyNoPip() ?? (LIBRARIES.length > 0 && hasCompiler('cpp') ? undefined : 'WEIR_TORCH_LIBRARIES names no PyTorch');

describe.skipIf(noReal !== undefined)(`adapters in a wheel${noReal ? ` (skipped: ${noReal})` : ''}`, () => {
  let environment: Environment;
  let gpu: string;
  const source = (path: string) => join(ROOT.pathname, path);
  beforeAll(() => {
    const headers = join(folder, 'headers');
    mkdirSync(headers);
    for (const { path, pytorch } of LIBRARIES) symlinkSync(path, join(headers, pytorch));
    const wheel = buildWheel(join(folder, 'wheel'), '--headers', headers, '--cuda', join(LIBRARIES[0]!.path, 'cuda'));
    for (const { pytorch } of LIBRARIES) expect(wheel.said).toContain(`adapter for PyTorch ${pytorch} (C++ ABI 1): `);
    environment = new Environment(join(folder, 'environment'));
    environment.pip('install', '--no-deps', '--no-index', wheel.path);
    gpu = mkdtempSync(join(folder, 'gpu-'));
    const shared = (path: string, name: string, ...more: string[]) =>
      runTool(compilerOf('c'), ['-shared', '-fPIC', '-w', source(path), '-o', join(gpu, name), `-Wl,-soname,${name}`, ...more]);
    shared('test/python/adapter/fake_cudart.c', 'libcudart.so.13', `-Wl,--version-script=${source('test/python/adapter/fake_cudart.map')}`);
    shared('test/native/fake_cuda.c', 'libcuda.so.1');
  });

  it.each(LIBRARIES)('serve allocations of PyTorch $pytorch, on a stand-in GPU, without a compiler', ({ path, pytorch }) => {
    const program = ['-std=c++20', '-w', '-shared', '-fPIC', source('test/package/adapter_use.cpp'), '-o', join(gpu, 'use.so')];
    runTool(compilerOf('cpp'), [...program, '-isystem', path, '-isystem', join(path, 'cuda'), '-idirafter', source('native/torch/stubs')]);
    const torch = join(environment.packages, 'torch');
    rmSync(torch, { recursive: true, force: true });
    mkdirSync(torch);
    symlinkSync(path, join(torch, 'include'));
    const lines = [
      'import ctypes, os',
      'class version: cuda = "13.0"',
      'class _C: _GLIBCXX_USE_CXX11_ABI = True',
      `__version__ = "${pytorch}.0+cu130"`,
      `for name in ("${gpu}/libcudart.so.13", "${path}/lib/libc10.so", "${path}/lib/libc10_cuda.so"):`,
      '    ctypes._dlopen(name, os.RTLD_LAZY | os.RTLD_GLOBAL)',
      'from weir_gpu import entry, machine',
      'machine._GPU_SIGNS = ("/dev/null",)',
      'entry.activate()',
    ];
    writeFileSync(join(torch, '__init__.py'), `${lines.join('\n')}\n`);
    const job = `
import ctypes, torch, weir_gpu
from weir_gpu import adapter
print(adapter.library()._name)
use = ctypes.PyDLL("${gpu}/use.so")
print(use.use_allocator(ctypes.c_size_t(300 << 20)), weir_gpu.gauges()["allocated"], weir_gpu.check(3))`;
    const nodes = mkdtempSync(join(folder, 'path-'));
    symlinkSync(process.execPath, join(nodes, 'node'));
    const env = { PATH: nodes, HOME: folder, LD_LIBRARY_PATH: `${gpu}:${path}/lib` };
    const words = ['run', '--', environment.program('python'), '-c', job];
    const { status, stdout, stderr } = spawnSync(environment.program('weir'), words, { env, encoding: 'utf8' });
    const adapter = join(environment.packages, `weir_gpu/_js/dist/prebuilt/${pytorch}-abi1/libweir.so`);
    expect([stdout, stderr]).toEqual([`${adapter}\n1 ${300 * 2 ** 20} 0\n`, expect.stringContaining('peak live 300 MiB')]);
    expect(status).toBe(0);
  });
});
