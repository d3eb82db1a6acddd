// Headers of PyTorch for the wheel's adapters: from an installed torch, from a clone; and what a compiled file may ask of old systems.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, describe, expect, it, test } from 'vitest';
import { compileParts, hasCompiler } from '../../scripts/native-rules.mjs';
import { linkForWheel } from '../../scripts/wheel/adapters.mjs';
import { checkBaseline } from '../../scripts/wheel/baseline.mjs';
import { ROOT } from '../support/command.ts';

const folder = mkdtempSync(join(tmpdir(), 'weir-headers-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function write(path: string, text: string): void {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, text);
}

function collect(...sources: string[]) {
  const words = ['scripts/gather-headers.mjs', '--out', join(folder, 'out'), ...sources];
  const { status, stdout, stderr } = spawnSync(process.execPath, words, { cwd: ROOT.pathname, encoding: 'utf8' });
  return { status, stdout, stderr };
}
const collected = (...names: string[]) => join(folder, 'out', ...names);
const HEADER = 'c10/cuda/CUDACachingAllocator.h';

describe('gather-headers', () => {
  it('takes the headers of an installed torch', () => {
    const torch = join(folder, 'torch');
    write(join(torch, 'version.py'), "__version__ = '2.14.1+cu130'\n");
    write(join(torch, 'include', HEADER), '// 2.14\n');
    write(join(torch, 'include/c10/cuda/kernel.cuh'), '');
    write(join(torch, 'include/torch/headeronly/version.h'), '// its own\n');
    expect(collect(torch)).toEqual({ status: 0, stdout: `PyTorch 2.14: ${collected('2.14')}\n`, stderr: '' });
    expect(readFileSync(collected('2.14', HEADER), 'utf8')).toBe('// 2.14\n');
    expect(readFileSync(collected('2.14/torch/headeronly/version.h'), 'utf8')).toBe('// its own\n');
    expect(readFileSync(collected('2.14/c10/cuda/impl/cuda_cmake_macros.h'), 'utf8')).toContain('#define C10_CUDA_BUILD_SHARED_LIBS\n');
    expect(existsSync(collected('2.14/c10/cuda/kernel.cuh'))).toBe(false);
  });

  const hasGit = spawnSync('git', ['--version']).status === 0;
  it.skipIf(!hasGit)(`takes the headers of a clone at a tag${hasGit ? '' : ' (skipped: no git)'}`, () => {
    const clone = join(folder, 'clone');
    const git = (...words: string[]) => spawnSync('git', ['-C', clone, '-c', 'user.name=a', '-c', 'user.email=a@b', ...words]).status;
    write(join(clone, HEADER), '// 2.6\n');
    write(join(clone, 'c10/cuda/file.cpp'), '');
    expect([git('init', '-q'), git('add', '-A'), git('commit', '-qm', 'all'), git('tag', 'v2.6.0')]).toEqual([0, 0, 0, 0]);
    expect(collect(`2.6=${clone}@v2.6.0`)).toMatchObject({ status: 0, stderr: '' });
    expect(readFileSync(collected('2.6', HEADER), 'utf8')).toBe('// 2.6\n');
    expect(existsSync(collected('2.6/c10/cuda/file.cpp'))).toBe(false);
    expect(readFileSync(collected('2.6/torch/headeronly/version.h'), 'utf8')).toContain('#define TORCH_VERSION_MINOR 6\n');
    expect(collect(`2.7=${clone}@v2.7.0`)).toMatchObject({ status: 1, stderr: expect.stringContaining('has no headers at v2.7.0') });
  });

  it('says what is no torch', () => {
    expect(collect(folder)).toMatchObject({ status: 1, stderr: expect.stringContaining(`${folder} is no installed torch`) });
    expect(collect()).toMatchObject({ status: 2, stderr: expect.stringMatching(/^usage: /) });
  });
});

describe('a compiled file of the wheel', () => {
  const asking = (...words: string[]) => Buffer.from(`\x7fELF\0${words.join('\0')}\0`, 'latin1');

  test.each(['GLIBC_2.28', 'GLIBC_2.2.5', 'GLIBCXX_3.4.24', 'CXXABI_1.3.11', 'GCC_3.4', 'cudaMalloc'])('may ask for %s', (word) => {
    expect(() => checkBaseline('file.so', asking('libc.so.6', word))).not.toThrow();
  });

  test.each(['GLIBC_2.29', 'GLIBC_3', 'GLIBCXX_3.4.25', 'CXXABI_1.3.12', 'cudaStreamGetCaptureInfo_v2'])('may not ask for %s', (word) => {
    expect(() => checkBaseline('file.so', asking('GLIBC_2.2.5', word))).toThrow(
      `file.so needs ${word}: more than manylinux_2_28_x86_64 promises`,
    );
  });

  // What is compiled without PyTorch's headers, so that a function of a newer system shows here and not when a wheel is made.
  const hasWheel = process.platform === 'linux' && process.arch === 'x64' && hasCompiler('cpp');
  it.skipIf(!hasWheel)(`asks for no more${hasWheel ? '' : ' (skipped: not Linux on x86_64, or no C++ compiler)'}`, () => {
    const objects = compileParts(['backend', 'runtime'], 'user', join(folder, 'objects'));
    expect(linkForWheel(objects, '-D_GLIBCXX_USE_CXX11_ABI=1', folder).length).toBeGreaterThan(10_000);
  });
});
