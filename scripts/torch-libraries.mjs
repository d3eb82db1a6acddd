// Makes libc10.so and libc10_cuda.so of a PyTorch from its sources, with headers beside them, as test/python/adapter.test.ts needs
// them: for versions whose packages are not to be had. No GPU, and of CUDA only its headers.
// usage: node scripts/torch-libraries.mjs VERSION=CLONE@TAG THIRD_PARTY CUDA OUT
// CLONE is a clone of PyTorch's repository. THIRD_PARTY holds fmt/ (as torch/include does), CUDA the folder of cuda_runtime.h and nvtx3/.
import { spawn, spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { compilerOf, pytorchStandard, run } from './native-rules.mjs';

const [source = '', thirdParty = '', cuda = '', out = ''] = process.argv.slice(2);
const [, version, clone, tag] = /^2\.(\d+)=(.+)@([^@]+)$/.exec(source) ?? [];
if (!version || !clone || !tag || !out) {
  console.error('usage: node scripts/torch-libraries.mjs VERSION=CLONE@TAG THIRD_PARTY CUDA OUT');
  process.exit(2);
}

/** @param {string} command @param {readonly string[]} words @param {string} [input] */
function output(command, words, input) {
  const result = spawnSync(command, words, { input, maxBuffer: 2 ** 30, encoding: 'buffer' });
  return result.status === 0 ? result.stdout : undefined;
}

const tree = resolve(out);
for (const folder of ['c10', 'torch/headeronly']) {
  const archive = output('git', ['-C', clone, 'archive', `${tag}:${folder}`]);
  if (!archive) continue; // versions before 2.8 have only the first
  mkdirSync(join(tree, folder), { recursive: true });
  spawnSync('tar', ['x', '-C', join(tree, folder)], { input: archive });
}
// What PyTorch's own build writes.
const written = {
  'c10/macros/cmake_macros.h': '#define C10_BUILD_SHARED_LIBS',
  'torch/headeronly/macros/cmake_macros.h': '#define C10_BUILD_SHARED_LIBS',
  'c10/cuda/impl/cuda_cmake_macros.h': '#define C10_CUDA_BUILD_SHARED_LIBS',
  'torch/headeronly/version.h': `#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR ${version}\n#define TORCH_VERSION "2.${version}.0"`,
};
for (const [path, text] of Object.entries(written)) {
  mkdirSync(join(tree, path, '..'), { recursive: true });
  writeFileSync(join(tree, path), `#pragma once\n${text}\n`);
}
const work = mkdtempSync(join(tmpdir(), 'weir-c10-'));
const stubs = resolve('native/torch/stubs');
mkdirSync(join(work, 'fmt'));
symlinkSync(resolve(thirdParty, 'fmt'), join(work, 'fmt/fmt'));
// The sources of some versions need a newer C++ than their headers.
const standard = Number(version) >= 11 ? '-std=c++20' : pytorchStandard(tree);
const folders = ['-I', tree, '-isystem', join(work, 'fmt'), '-isystem', resolve(cuda), '-idirafter', stubs];
const flags = [standard, '-O1', '-w', '-fPIC', '-DFMT_HEADER_ONLY=1', '-DC10_BUILD_MAIN_LIB', ...folders];
const files = readdirSync(join(tree, 'c10'), { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.cpp'));
// thread_pool needs cpuinfo, and the adapter no threads of PyTorch.
const core = files.filter((name) => /^(core|util|mobile)\//.test(name) && !/thread_pool/.test(name));
const gpu = files.filter((name) => /^cuda\/([^/]+|impl\/CUDAGuardImpl)\.cpp$/.test(name));
const waiting = [...core, ...gpu];
/** @type {string[]} */
const failed = [];
async function worker() {
  for (let name = waiting.shift(); name !== undefined; name = waiting.shift()) {
    const more = name.startsWith('cuda/') ? ['-DC10_CUDA_BUILD_MAIN_LIB'] : [];
    const words = [...flags, ...more, '-c', join(tree, 'c10', name), '-o', objectOf(name)];
    const code = await new Promise((done) => spawn(compilerOf('cpp'), words, { stdio: 'inherit' }).on('close', done));
    if (code !== 0) failed.push(name);
  }
}
/** @param {string} name */
function objectOf(name) {
  return join(work, `${name.replaceAll('/', '-')}.o`);
}
await Promise.all(Array.from({ length: availableParallelism() }, worker));
if (failed.length === 0) {
  mkdirSync(join(tree, 'lib'), { recursive: true });
  // Its version of the runtime's functions is that of the tests' stand-in.
  const cudart = join(work, 'libcudart.so.13');
  const sources = resolve('test/python/adapter');
  const named = ['-Wl,-soname,libcudart.so.13', `-Wl,--version-script=${join(sources, 'fake_cudart.map')}`];
  run(compilerOf('c'), ['-shared', '-fPIC', '-w', join(sources, 'fake_cudart.c'), '-o', cudart, ...named]);
  const library = (/** @type {string} */ name, /** @type {string[]} */ parts, /** @type {string[]} */ more) =>
    run(compilerOf('cpp'), ['-shared', `-Wl,-soname,${name}`, ...parts.map(objectOf), ...more, '-o', join(tree, 'lib', name)]);
  library('libc10.so', core, ['-pthread', '-ldl']);
  library('libc10_cuda.so', gpu, [`-L${join(tree, 'lib')}`, '-lc10', cudart, '-ldl']);
  for (const name of files) rmSync(join(tree, 'c10', name));
  cpSync(resolve(cuda), join(tree, 'cuda'), { recursive: true });
}
rmSync(work, { recursive: true, force: true });
for (const name of failed) console.error(`c10/${name} does not compile`);
process.exitCode = failed.length > 0 ? 1 : 0;
