// The adapters of a wheel: one per version of PyTorch, compiled against the headers of that version, and the manifest by which
// python/weir_gpu/prebuilt.py finds and checks them. PyTorch's own libraries are not needed.
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { compileParts, compilerOf, hasCompiler, libraryParts, linksOf, pytorchStandard, run } from '../native-rules.mjs';
import { BaselineError, checkBaseline } from './baseline.mjs';
import { interfaceOf, sourcesKey } from './manifest.mjs';

const LIBRARY = 'libweir.so';
/** The sources that users get: without backends for tests, whose functions no wheel has. */
const SOURCES = 'dist/native';
const TREE = { native: SOURCES, generated: SOURCES };

/** PyTorch 2.6 for CUDA 11.8 and 12.4 has the strings of GCC 4, for CUDA 12.6 those of today. Later versions all have the latter. */
const stringAbis = (/** @type {string} */ version) => (version === '2.6' ? [0, 1] : [1]);

/** @typedef {{ headers: string, cuda: string, supported: readonly string[] }} Sources */

/**
 * Compiles what can be compiled.
 * @param {Sources} from `headers` has a folder per version of PyTorch, `cuda` is the folder of cuda_runtime.h
 * @param {{ version: string, digest: number }} weir
 * @returns {{ files: Map<string, Buffer>, made: string[], leftOut: string[] }} files by their paths in `prebuilt`, and sentences
 */
export function compileAdapters(from, weir) {
  const files = new Map();
  const { ready, leftOut } = candidates(from);
  if (ready.length === 0) return { files, made: [], leftOut };
  mkdirSync('build', { recursive: true });
  const work = mkdtempSync('build/wheel-');
  try {
    const common = [...compileParts(withoutTorch(), 'user', join(work, 'common'), ['-fno-ident'], TREE), ...stubs(work)];
    const adapters = [];
    const made = [];
    for (const { pytorch, include } of ready) {
      for (const abi of stringAbis(pytorch)) {
        const file = `${pytorch}-abi${abi}/${LIBRARY}`;
        try {
          const library = compile({ abi, include, cuda: resolve(from.cuda) }, common, join(work, `${pytorch}-abi${abi}`));
          files.set(file, library);
          adapters.push({ pytorch, abi, file, sha256: createHash('sha256').update(library).digest('hex'), ...interfaceOf(include) });
          made.push(`${pytorch} (C++ ABI ${abi}): ${(library.length / 1024).toFixed(0)} KiB`);
        } catch (error) {
          if (error instanceof BaselineError) throw error;
          leftOut.push(`PyTorch ${pytorch} (C++ ABI ${abi}): the adapter does not compile: ${firstError(error)}`);
        }
      }
    }
    const manifest = { ...weir, sources: sourcesKey(SOURCES), adapters };
    if (adapters.length > 0) files.set('manifest.json', Buffer.from(`${JSON.stringify(manifest, undefined, 1)}\n`));
    return { files, made, leftOut };
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

/**
 * The versions that have headers, and why others are left out.
 * @param {Sources} from
 */
function candidates({ headers, cuda, supported }) {
  const obstacle = whyNone(headers, cuda);
  if (obstacle) return { ready: [], leftOut: [`all adapters: ${obstacle}`] };
  const leftOut = [];
  const ready = [];
  const found = readdirSync(headers).filter((name) => /^\d+\.\d+$/.test(name));
  for (const pytorch of [...new Set([...supported, ...found])].sort((a, b) => a.localeCompare(b, 'en', { numeric: true }))) {
    const include = resolve(headers, pytorch);
    if (!supported.includes(pytorch)) leftOut.push(`PyTorch ${pytorch}: Weir does not support it (abi/pytorch.ts)`);
    else if (!found.includes(pytorch)) leftOut.push(`PyTorch ${pytorch}: its headers are not in ${headers}`);
    else ready.push({ pytorch, include });
  }
  return { ready, leftOut };
}

/**
 * @param {string} headers
 * @param {string} cuda
 */
function whyNone(headers, cuda) {
  if (process.platform !== 'linux' || process.arch !== 'x64') return 'this is not Linux on x86_64';
  if (!existsSync(headers)) return `there is no folder ${headers}; node scripts/gather-headers.mjs makes it`;
  if (!existsSync(join(cuda, 'crt/host_config.h')))
    return `CUDA's headers (cuda_runtime.h, crt/host_config.h) are not in ${cuda}; --cuda names their folder`;
  return hasCompiler('c') && hasCompiler('cpp') ? undefined : 'there is no C and C++ compiler';
}

const withoutTorch = () => libraryParts(LIBRARY).filter((name) => name !== 'torch');

/**
 * Libraries without functions, so that the adapter asks for PyTorch's libraries by their names. The loader finds the functions.
 * @param {string} work
 */
function stubs(work) {
  const empty = join(work, 'empty.c');
  writeFileSync(empty, '');
  return linksOf(LIBRARY).map((link) => {
    const name = `lib${link.slice(2)}.so`;
    run(compilerOf('c'), ['-shared', empty, '-o', join(work, name), `-Wl,-soname,${name}`]);
    return join(work, name);
  });
}

/**
 * @param {{ abi: number, include: string, cuda: string }} target
 * @param {readonly string[]} common object files and libraries
 * @param {string} folder
 * @returns {Buffer}
 */
function compile({ abi, include, cuda }, common, folder) {
  // Messages of PyTorch's macros hold the path of their header, which must not tell of this machine.
  const anywhere = [`-ffile-prefix-map=${include}=torch/include`, `-ffile-prefix-map=${cuda}=cuda/include`, '-fno-ident'];
  const strings = `-D_GLIBCXX_USE_CXX11_ABI=${abi}`;
  const headers = [pytorchStandard(include), strings, '-isystem', include, '-isystem', cuda];
  const objects = compileParts(['torch'], 'user', folder, [...headers, ...anywhere], TREE);
  return linkForWheel([...objects, '-Wl,--no-as-needed', ...common, '-Wl,--as-needed'], strings, folder);
}

/**
 * A library that asks for no more than the oldest system has, or an error.
 * @param {readonly string[]} inputs object files, libraries, options of the linker
 * @param {string} strings the definition that chooses the strings of C++
 * @param {string} folder
 * @returns {Buffer}
 */
export function linkForWheel(inputs, strings, folder) {
  const baseline = join(folder, 'baseline.o');
  run(compilerOf('cpp'), ['-std=c++17', '-O2', '-fPIC', '-fno-ident', strings, '-c', 'scripts/wheel/baseline.cpp', '-o', baseline]);
  const output = join(folder, LIBRARY);
  run(compilerOf('cpp'), ['-shared', '-pthread', '-s', baseline, ...inputs, '-ldl', '-Wl,--build-id=none', '-o', output]);
  const library = readFileSync(output);
  checkBaseline(output, library);
  return library;
}

/** @param {unknown} error */
function firstError(error) {
  const text = error instanceof Error ? error.message : String(error);
  return text.split('\n').find((line) => /error:/.test(line)) ?? text.split('\n')[0];
}
