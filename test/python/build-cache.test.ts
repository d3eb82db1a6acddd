// The cache of the compiled adapter where others may write: nothing of theirs is loaded, and no folder of theirs is changed.
import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';

const found = spawnSync('python3', ['-c', 'import sys; sys.exit(sys.version_info < (3, 9))']);
const reason = found.status === 0 ? '' : ' (skipped: no Python 3.9 or newer)';
const noRoot = process.getuid?.() === 0 ? '' : ' (skipped: only root can make files of another user)';
const noCompiler = spawnSync('cc', ['--version']).status === 0 ? '' : ' (skipped: no C compiler)';
const OTHER = 12345;

let folder: string;
let home: string;
let temporary: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'weir-cache-'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));
beforeEach(() => {
  home = mkdtempSync(join(folder, 'home-'));
  temporary = mkdtempSync(join(folder, 'tmp-'));
});

function python(script: string, variables: Record<string, string> = {}) {
  const rest = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^(WEIR|XDG)_|LOCAL/.test(name)));
  const env = { ...rest, PYTHONPATH: resolve('dist/python'), PYTHONDONTWRITEBYTECODE: '1', HOME: home, TMPDIR: temporary, ...variables };
  return spawnSync('python3', ['-c', script], { env, encoding: 'utf8' });
}

/** Looks for the adapter as `import torch` does, and says the path of what would be loaded. What is not there is "compiled". */
const LOOK = `
import os, sys, types
from weir_gpu import build, settings
torch = types.SimpleNamespace(__file__="/torch/__init__.py", __version__="2.11.0", _C=None)
def compiled(folder, *_): return types.SimpleNamespace(path="compiled in " + os.path.dirname(os.path.dirname(folder.path)))
build._compiled = compiled
print(build.library(torch, settings.read()).path)
`;
const look = (cache: string, more: Record<string, string> = {}) => python(LOOK, { WEIR_CACHE_DIR: cache, ...more });

let known: string | undefined;
/** The folder in which the adapter is looked for, below the root. */
function key(): string {
  if (known !== undefined) return known;
  const own = join(mkdtempSync(join(folder, 'own-')), 'cache');
  expect(look(own).stdout).toBe(`compiled in ${own}\n`);
  known = join('pytorch-2.11.0', readdirSync(join(own, 'pytorch-2.11.0'))[0]!);
  return known;
}

/** A cache with a library where it is looked for. */
function planted(): { cache: string; library: string } {
  const cache = mkdtempSync(join(folder, 'cache-'));
  const library = join(cache, key(), 'libweir.so');
  mkdirSync(dirname(library), { recursive: true, mode: 0o700 });
  writeFileSync(library, 'planted', { mode: 0o600 });
  return { cache, library };
}

const mode = (path: string) => (statSync(path).mode & 0o7777).toString(8);

describe.skipIf(reason !== '')(`the cache of the compiled adapter${reason}`, () => {
  test('is read where it is ours alone', () => {
    const { cache, library } = planted();
    expect(look(cache)).toMatchObject({ stdout: `${library}\n`, stderr: '' });
    const link = join(folder, 'link-to-it');
    symlinkSync(cache, link);
    expect(look(link)).toMatchObject({ stdout: `${library}\n`, stderr: '' });
  });

  test.each([0o770, 0o2775, 0o777, 0o1777])('keeps its mode and is not used if others may write there', (bits) => {
    const { cache } = planted();
    chmodSync(cache, bits);
    const result = look(cache);
    expect(result.stdout).toBe(`compiled in ${home}/.cache/weir\n`);
    expect(result.stderr).toMatch(
      new RegExp(
        `^weir: the compiled adapter is kept in ${home}/.cache/weir/pytorch-2.11.0/\\w+, because others may write to ${cache} ` +
          `\\(chmod go-w ${cache} forbids it\\); set WEIR_CACHE_DIR to a folder that only you can write\n$`,
      ),
    );
    expect(mode(cache)).toBe(bits.toString(8));
    expect(mode(join(home, '.cache/weir'))).toBe('700');
    expect(look(cache, { LOCAL_RANK: '3' }).stderr).toBe('');
    expect(look(cache, { WEIR_CHILD_QUIET: '1' }).stderr).toBe('');
  });

  test('is used below a folder for everybody', () => {
    const everybody = mkdtempSync(join(folder, 'everybody-'));
    chmodSync(everybody, 0o1777);
    expect(look(join(everybody, 'mine'))).toMatchObject({ stdout: `compiled in ${everybody}/mine\n`, stderr: '' });
    expect([mode(everybody), mode(join(everybody, 'mine'))]).toEqual(['1777', '700']);
  });

  test('has no links and no folders for others below its root', () => {
    const link = planted();
    rmSync(join(link.cache, 'pytorch-2.11.0'), { recursive: true });
    symlinkSync(join(planted().cache, 'pytorch-2.11.0'), join(link.cache, 'pytorch-2.11.0'));
    expect(look(link.cache)).toMatchObject({
      stdout: `compiled in ${home}/.cache/weir\n`,
      stderr: expect.stringContaining(`because ${link.cache}/pytorch-2.11.0 is a link; set`),
    });
    const open = planted();
    chmodSync(dirname(open.library), 0o770);
    expect(look(open.cache).stdout).toBe(`compiled in ${home}/.cache/weir\n`);
  });

  test('is compiled anew if the file is a link, or others may write it', () => {
    const link = planted();
    rmSync(link.library);
    symlinkSync(planted().library, link.library);
    expect(look(link.cache)).toMatchObject({ stdout: `compiled in ${link.cache}\n`, stderr: '' });
    const open = planted();
    chmodSync(open.library, 0o660);
    expect(look(open.cache)).toMatchObject({ stdout: `compiled in ${open.cache}\n`, stderr: '' });
  });

  test('is a fresh folder if neither the home nor the folder for temporary files will do', () => {
    writeFileSync(join(home, '.cache'), 'no folder');
    symlinkSync(planted().cache, join(temporary, `weir-${process.getuid!()}`));
    const result = look('/proc/nothing');
    expect(result.stdout).toMatch(new RegExp(`^compiled in ${temporary}/weir-\\w{8}\n$`));
    expect(result.stderr).toContain('because /proc/nothing cannot be used (');
    // It goes with the process.
    expect(readdirSync(temporary)).toEqual([`weir-${process.getuid!()}`]);
  });

  describe.skipIf(noRoot !== '')(`with files of another user${noRoot}`, () => {
    test.each(['the root', 'a folder', 'the folder of the file'])('%s', (which) => {
      const { cache, library } = planted();
      const path = { 'the root': cache, 'a folder': join(cache, 'pytorch-2.11.0') }[which] ?? dirname(library);
      chownSync(path, OTHER, OTHER);
      expect(look(cache)).toMatchObject({
        stdout: `compiled in ${home}/.cache/weir\n`,
        stderr: expect.stringContaining(`because ${path} belongs to another user (uid ${OTHER}); set WEIR_CACHE_DIR`),
      });
    });

    test('the file alone', () => {
      const { cache, library } = planted();
      chownSync(library, OTHER, OTHER);
      expect(look(cache)).toMatchObject({ stdout: `compiled in ${cache}\n`, stderr: '' });
    });

    test('the folder for temporary files', () => {
      const name = `weir-${process.getuid!()}`;
      mkdirSync(join(temporary, name), { mode: 0o755 });
      chownSync(join(temporary, name), OTHER, OTHER);
      writeFileSync(join(home, '.cache'), 'no folder');
      expect(look('').stdout).toMatch(new RegExp(`^compiled in ${temporary}/weir-\\w{8}\n$`));
      expect(statSync(join(temporary, name)).uid).toBe(OTHER);
    });
  });

  test('a folder that others may rename, unless it lies in a sticky one', () => {
    const shared = mkdtempSync(join(folder, 'shared-'));
    chmodSync(shared, 0o775);
    const cache = join(shared, 'cache');
    const refused = look(cache);
    expect(refused.stdout).toBe(`compiled in ${join(home, '.cache', 'weir')}\n`);
    expect(refused.stderr).toContain(`others may rename ${cache}, because they may write to ${shared}`);
    chmodSync(shared, 0o1777);
    expect(look(cache)).toMatchObject({ stdout: `compiled in ${cache}\n`, stderr: '' });
  });

  test.skipIf(noCompiler !== '')(`compiles in the folder that was checked, even if it is exchanged then${noCompiler}`, () => {
    const cache = mkdtempSync(join(folder, 'cache-'));
    const script = `
import ctypes, os
from weir_gpu import build, cache, settings
os.umask(0o002)
folder = cache.Folder(os.environ["CACHE"], ["key"])
def compile_answer(number): return [["sh", "-c", f"echo 'int answer(void) {{ return {number}; }}' | cc -shared -fPIC -x c - -o libweir.so"]]
library = build.build(folder, [compile_answer(1)], "test", settings.Settings(quiet=True))
print(oct(os.stat(library.path).st_mode & 0o777), ctypes.CDLL(library.path).answer())
exchange = [["sh", "-c", f"mv {folder.path} {folder.path}-mine; mkdir -m 777 {folder.path}"]]
commands = [exchange, compile_answer(3)]
build.build(folder, commands, "test", settings.Settings(quiet=True), folder.library("libweir.so").identity)
print(os.listdir(folder.path), sorted(os.listdir(folder.path + "-mine")))
`;
    const result = python(script, { CACHE: cache });
    expect([result.stdout, result.stderr]).toEqual(["0o700 1\n[] ['libweir.so', 'lock']\n", '']);
    expect(existsSync(join(cache, 'key'))).toBe(true);
  });
});
