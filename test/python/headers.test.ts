// The adapter against the headers of several PyTorch versions, and against headers that were changed: a function of PyTorch's
// allocator that we do not know stops the build with one sentence. WEIR_TORCH_HEADERS names a folder as scripts/compile-adapters.mjs
// wants it; changes are also tried on the headers of WEIR_TORCH_211.
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { compileError, headerSets } from '../../scripts/compile-adapters.mjs';
import { GENERATED, hasCompiler, pytorchMinor } from '../../scripts/native-rules.mjs';
import { SUPPORTED_PYTORCH } from '../../src/abi/pytorch.ts';

const FOLDER = process.env['WEIR_TORCH_HEADERS'] ?? '';
const OF_211 = process.env['WEIR_TORCH_211'] ?? '';
const SETS = FOLDER === '' ? [] : headerSets(FOLDER);
const CUDA = FOLDER === '' ? join(resolve(OF_211), 'cuda') : join(resolve(FOLDER), 'cuda');
const missing = SUPPORTED_PYTORCH.filter((version) => !SETS.some((set) => set.version === version));
const notAll = SETS.length > 0 && missing.length > 0 ? ` (skipped: no headers of ${missing.join(', ')})` : '';

function whyNot(there: boolean): string {
  if (!there) return ' (skipped: WEIR_TORCH_HEADERS names no headers of PyTorch)';
  if (!existsSync(join(GENERATED, 'engine.c'))) return ' (skipped: the engine was not built)';
  return hasCompiler('cpp') ? '' : ' (skipped: no C++ compiler)';
}

const noSets = whyNot(SETS.length > 0);
describe.skipIf(noSets !== '')(`the adapter compiles${noSets}`, () => {
  test.each(SETS.map(({ version, headers }) => [version, headers]))('against PyTorch %s', (_, headers) => {
    expect(compileError(headers!, CUDA)).toBeUndefined();
  });

  test.skipIf(notAll !== '')(`against every version that is supported${notAll}`, () => {
    expect(SETS.map((set) => set.version)).toEqual(expect.arrayContaining([...SUPPORTED_PYTORCH]));
  });
});

/** Compiles one source, by the way of users, and prints the refusal: the adapter, or what is given. */
const BUILD = `
import os, sys, types
from weir_gpu import build, cache, refusal, settings
sources = build.find_sources(settings.read())
sources.files = [(path, sources.files[0][1]) for path in sys.argv[3:]] or sources.files[:1]
build.find_sources = lambda _: sources
torch = types.SimpleNamespace(__file__=sys.argv[1] + "/__init__.py", __version__=sys.argv[2], _C=None)
try:
    build.library(torch, settings.read())
    print("compiled")
except refusal.Refusal as error:
    print(error)
`;

const MAIN = 'c10/cuda/CUDACachingAllocator.h';
const NAME = /( *)virtual std::string name\(\) = 0;/;
type Replacement = readonly [file: string, from: RegExp | string, to: string];
type Change = readonly [what: string, file: string, from: RegExp | string, to: string, difference: string];
const CHANGES: readonly Change[] = [
  ['a new pure virtual function', MAIN, NAME, 'virtual void newlyAsked(int) = 0;\n$&', 'its function newlyAsked is new'],
  [
    'a new function with a default',
    MAIN,
    '  virtual void releasePool(',
    '  virtual void newlyTold(int) {}\n$&',
    'a function before releasePool is new, gone or in another place',
  ],
  ['a new function with a default at the end', MAIN, NAME, '$&\nvirtual void newlyTold(int) {}', 'a function at its end is new'],
  [
    'a new function with a default in the base of all allocators',
    'c10/core/Allocator.h',
    '  virtual void copy_data(',
    '  virtual bool newlyTold() { return false; }\n$&',
    'a function before copy_data is new, gone or in another place',
  ],
  [
    'a new function with a default in the base of all GPU allocators',
    'c10/core/CachingDeviceAllocator.h',
    '  virtual void resetPeakStats(',
    '  virtual bool newlyTold() { return false; }\n$&',
    'a function before resetPeakStats is new, gone or in another place',
  ],
  ['a parameter more', MAIN, 'enable(bool value)', 'enable(bool value, int device)', 'its function enable has changed'],
  ['another result', MAIN, 'virtual void cacheInfo(', 'virtual bool cacheInfo(', 'its function cacheInfo has changed'],
  ['a function that changes nothing any more', MAIN, 'isEnabled() const = 0', 'isEnabled() = 0', 'its function isEnabled has changed'],
  ['a function less', MAIN, /virtual bool isHistoryEnabled\(\)/, 'bool isHistoryEnabled()', 'its function isHistoryEnabled has changed'],
  [
    'another order',
    MAIN,
    /( *virtual void enable\(bool value\) = 0;\n)( *virtual bool isEnabled\(\) const = 0;\n)/,
    '$2$1',
    'a function before enable is new, gone or in another place',
  ],
];

const base = SETS.find((set) => set.version === '2.11')?.headers ?? (OF_211 === '' ? undefined : resolve(OF_211));
const newest = SETS.at(-1)?.headers;
const bases = [...new Set([base, newest])].filter((headers) => headers !== undefined);
const noBase = whyNot(bases.length > 0);
describe.skipIf(noBase !== '')(`PyTorch's headers, changed${noBase}`, () => {
  let folder: string;
  let part: string;
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'weir-changed-'));
    part = join(folder, 'part.cpp');
    const uses = 'weir::Interface* made(weir::CUDAAllocator* native) { return new weir::Interface(native); }';
    writeFileSync(part, `#include "torch/versions/interface.h"\nconst char* place() { return weir::interface_differs(); }\n${uses}\n`);
    mkdirSync(join(folder, 'cuda'));
    symlinkSync(CUDA, join(folder, 'cuda/include'));
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  /** What the build says of headers in which some text was changed. `sources` are compiled instead of the adapter, to save time. */
  function built(headers: string, version: string, changes: readonly Replacement[], sources: readonly string[] = []): string {
    const torch = mkdtempSync(join(folder, 'torch-'));
    const include = join(torch, 'include');
    mkdirSync(include);
    for (const name of ['c10', 'torch']) cpSync(join(headers, name), join(include, name), { recursive: true });
    for (const [file, from, to] of changes) {
      const text = readFileSync(join(include, file), 'utf8');
      const changed = text.replace(from, to);
      expect(changed).not.toBe(text);
      writeFileSync(join(include, file), changed);
    }
    // Linking needs PyTorch's libraries, which are not here: an empty one does.
    mkdirSync(join(torch, 'lib'));
    for (const name of ['c10', 'c10_cuda']) {
      spawnSync('cc', ['-shared', '-x', 'c', '/dev/null', '-o', join(torch, `lib/lib${name}.so`)]);
    }
    const rest = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^(WEIR|XDG)_/.test(name)));
    const env = { ...rest, PYTHONPATH: resolve('dist/python'), CUDA_HOME: join(folder, 'cuda'), WEIR_CACHE_DIR: join(torch, 'cache') };
    const result = spawnSync('python3', ['-c', BUILD, torch, version, ...sources], { env, encoding: 'utf8' });
    return result.stdout || result.stderr;
  }

  test.each(bases)('as they are, they compile: %s', (headers) => {
    expect(built(headers, `2.${pytorchMinor(headers)}.0`, [])).toBe('compiled\n');
  });

  test.each(CHANGES)('%s', (_, file, from, to, difference) => {
    for (const headers of bases) {
      const version = `2.${pytorchMinor(headers)}.0+changed`;
      const known = `${SUPPORTED_PYTORCH[0]} to ${SUPPORTED_PYTORCH.at(-1)}`;
      const told = built(headers, version, [[file, from, to]], headers === base ? [] : [part]);
      expect(told.split('; the compiler')[0]).toBe(
        `PyTorch ${version} has an allocator that this version of Weir does not know (${difference}); update Weir, or use PyTorch ${known} as released`,
      );
      expect(told.trimEnd().split('\n')).toHaveLength(1);
    }
  });

  test('a version of the future compiles if it has the same functions, and is refused by name if not', () => {
    const headers = newest ?? base!;
    const next = ['torch/headeronly/version.h', /TORCH_VERSION_MINOR \d+/, 'TORCH_VERSION_MINOR 99'] as const;
    const more = [MAIN, '  virtual void releasePool(', '  virtual void newlyTold(int) {}\n$&'] as const;
    if (pytorchMinor(headers) === Number(SUPPORTED_PYTORCH.at(-1)!.split('.')[1])) {
      expect(built(headers, '2.99.0', [next], [part])).toBe('compiled\n');
    }
    expect(built(headers, '2.99.0', [next, more], [part])).toMatch(
      /^PyTorch 2\.99\.0 has an allocator that this version of Weir does not know \(/,
    );
  });

  test('a version before the oldest is refused', () => {
    const old = ['torch/headeronly/version.h', /TORCH_VERSION_MINOR \d+/, 'TORCH_VERSION_MINOR 5'] as const;
    expect(built(base ?? newest!, '2.5.1', [old], [part])).toMatch(/^PyTorch 2\.5\.1 is older than any that this version of Weir knows/);
  });
});
