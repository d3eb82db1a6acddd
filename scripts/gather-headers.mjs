// Collects PyTorch's C++ headers, one folder per minor version, for `npm run build:wheel`:
//   node scripts/gather-headers.mjs [--out build/headers] SOURCE...
// SOURCE is VERSION=CLONE@TAG (a clone of PyTorch's repository, as 2.11=../pytorch@v2.11.0), or the folder of an installed torch.
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { parseArgs } from 'node:util';

/** What the adapter includes of PyTorch lies in these folders. Older versions have only the first. */
const FOLDERS = ['c10', 'torch/headeronly'];

/**
 * Headers that PyTorch's build writes. The adapter needs them to know the version, and that PyTorch's libraries are shared.
 * @param {string} version
 * @returns {Record<string, readonly string[]>}
 */
function generated(version) {
  const [major, minor] = version.split('.');
  return {
    'c10/macros/cmake_macros.h': ['C10_BUILD_SHARED_LIBS'],
    'c10/cuda/impl/cuda_cmake_macros.h': ['C10_CUDA_BUILD_SHARED_LIBS'],
    'torch/headeronly/macros/cmake_macros.h': ['C10_BUILD_SHARED_LIBS'],
    'torch/headeronly/version.h': [`TORCH_VERSION_MAJOR ${major}`, `TORCH_VERSION_MINOR ${minor}`, 'TORCH_VERSION_PATCH 0'],
  };
}

const { values, positionals } = parseArgs({ options: { out: { type: 'string', default: 'build/headers' } }, allowPositionals: true });
if (positionals.length === 0) {
  console.error('usage: node scripts/gather-headers.mjs [--out FOLDER] VERSION=CLONE@TAG|TORCH_FOLDER...');
  process.exit(2);
}
try {
  for (const source of positionals) collect(source);
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
}

/** @param {string} source */
function collect(source) {
  const [, version, clone, tag] = /^(\d+\.\d+)=(.+)@([^@]+)$/.exec(source) ?? [];
  const name = version ?? installedVersion(source);
  const target = join(values.out, name);
  rmSync(target, { recursive: true, force: true });
  mkdirSync(target, { recursive: true });
  if (version === undefined) fromInstalled(source, target);
  else fromClone(clone, tag, target);
  for (const [path, macros] of Object.entries(generated(name))) {
    const file = join(target, path);
    if (existsSync(file)) continue;
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, ['#pragma once', ...macros.map((macro) => `#define ${macro}`), ''].join('\n'));
  }
  if (!existsSync(join(target, 'c10/cuda/CUDACachingAllocator.h'))) throw new Error(`${source} has no c10/cuda/CUDACachingAllocator.h`);
  console.log(`PyTorch ${name}: ${target}`);
}

/** @param {string} folder */
function installedVersion(folder) {
  const file = join(folder, 'version.py');
  const version = existsSync(file) && /__version__ = '(\d+\.\d+)/.exec(readFileSync(file, 'utf8'))?.[1];
  if (!version) throw new Error(`${folder} is no installed torch (version.py says no version), and not VERSION=CLONE@TAG`);
  return version;
}

/**
 * @param {string} folder
 * @param {string} target
 */
function fromInstalled(folder, target) {
  const filter = (/** @type {string} */ path) => statSync(path).isDirectory() || path.endsWith('.h');
  for (const part of FOLDERS) {
    const from = join(folder, 'include', part);
    if (existsSync(from)) cpSync(from, join(target, part), { recursive: true, filter });
  }
}

/**
 * @param {string} clone
 * @param {string} tag
 * @param {string} target
 */
function fromClone(clone, tag, target) {
  const git = (/** @type {string[]} */ ...words) => spawnSync('git', ['-C', clone, ...words], { maxBuffer: 2 ** 30 });
  const known = FOLDERS.filter((part) => git('cat-file', '-e', `${tag}:${part}`).status === 0);
  const { status, stdout, stderr } = git('archive', tag, ...known);
  if (known.length === 0 || status !== 0) throw new Error(`${clone} has no headers at ${tag}: ${String(stderr).trim() || 'no folder c10'}`);
  const unpacked = spawnSync('tar', ['x', '-C', resolve(target), '--wildcards', '*.h'], { input: stdout, encoding: 'utf8' });
  if (unpacked.status !== 0) throw new Error(`tar failed: ${unpacked.stderr}`);
}
