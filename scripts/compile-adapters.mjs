// Compiles the adapter against every PyTorch whose headers are in a folder, and prints a table: no PyTorch, CUDA or GPU is needed.
// usage: node scripts/compile-adapters.mjs FOLDER
// FOLDER holds one folder of headers for each version (c10/, torch/, as in torch/include), and CUDA's headers in cuda/.
import { existsSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { compileParts, pytorchMinor, pytorchStandard } from './native-rules.mjs';

/**
 * The header sets of a folder, oldest first: version, path.
 * @param {string} folder
 * @returns {{ version: string, headers: string }[]}
 */
export function headerSets(folder) {
  const sets = readdirSync(folder).map((name) => join(resolve(folder), name));
  return sets
    .filter((headers) => existsSync(join(headers, 'c10/cuda/CUDACachingAllocator.h')))
    .map((headers) => ({ version: `2.${pytorchMinor(headers)}`, headers }))
    .sort((a, b) => pytorchMinor(a.headers) - pytorchMinor(b.headers));
}

/**
 * Compiles the adapter, with optimization: only then every difference is found. Undefined, or what the compiler said.
 * @param {string} headers
 * @param {string} cuda
 * @param {readonly string[]} first folders to search before all others
 * @returns {string | undefined}
 */
export function compileError(headers, cuda, first = []) {
  const work = join(tmpdir(), `weir-headers-${process.pid}`);
  try {
    const folders = [...first, headers, cuda].flatMap((folder) => ['-isystem', folder]);
    compileParts(['torch'], 'test', work, [pytorchStandard(first[0] ?? headers), ...folders]);
    return undefined;
  } catch (error) {
    return /** @type {Error} */ (error).message;
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const folder = process.argv[2];
  if (!folder) {
    console.error('usage: node scripts/compile-adapters.mjs FOLDER');
    process.exit(2);
  }
  if (!existsSync(folder) || headerSets(folder).length === 0) {
    console.error(`there are no headers of PyTorch in ${folder}; node scripts/gather-headers.mjs collects some`);
    process.exit(2);
  }
  console.log('| PyTorch | C++ | compiles |\n|---|---|---|');
  for (const { version, headers } of headerSets(folder)) {
    const error = compileError(headers, join(folder, 'cuda'));
    const first = error === undefined ? 'yes' : `no: ${error.split('\n').find((line) => line.includes('error')) ?? error}`;
    console.log(`| ${version} | ${pytorchStandard(headers).replace('-std=', '')} | ${first} |`);
    if (error !== undefined) process.exitCode = 1;
  }
}
