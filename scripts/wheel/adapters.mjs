// The adapters of a wheel: one per version of PyTorch, compiled against the headers of that version, and the manifest by which
// python/weir_gpu/prebuilt.py finds and checks them. PyTorch's own libraries are not needed.
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';
import { compileParts, compilerOf, hasCompiler, libraryParts, linksOf, run } from '../native-rules.mjs';
import { BaselineError, checkBaseline } from './baseline.mjs';

const WORK = 'build/wheel';
const LIBRARY = 'libweir.so';
/** Without testing/, as on a user's machine. */
const SOURCES = 'dist/native';

/** Headers that declare what adapter and PyTorch share: classes, tables of virtual functions, structs. Some versions lack some. */
const INTERFACE = [
  'c10/core/Allocator.h',
  'c10/core/AllocatorConfig.h',
  'c10/core/CachingDeviceAllocator.h',
  'c10/core/Stream.h',
  'c10/cuda/CUDAAllocatorConfig.h',
  'c10/cuda/CUDACachingAllocator.h',
  'c10/cuda/CUDAGraphsC10Utils.h',
  'c10/util/UniqueVoidPtr.h',
];

/** PyTorch 2.6 for CUDA 11.8 and 12.4 has the strings of GCC 4, for CUDA 12.6 those of today. Later versions all have the latter. */
const stringAbis = (/** @type {string} */ version) => (version === '2.6' ? [0, 1] : [1]);

/**
 * Compiles what can be compiled.
 * @param {{ headers: string, cuda: string, supported: readonly string[], version: string, digest: number }} options `headers` has a
 *   folder per version of PyTorch, `cuda` is the folder of cuda_runtime.h
 * @returns {{ files: Map<string, Buffer>, made: string[], leftOut: string[] }} files by their paths in `prebuilt`, and sentences
 */
export function compileAdapters({ headers, cuda, supported, version, digest }) {
  const files = new Map();
  const made = [];
  const leftOut = [];
  const adapters = [];
  const obstacle = whyNone(headers, cuda);
  if (obstacle) return { files, made, leftOut: [`no adapter is compiled: ${obstacle}`] };
  rmSync(WORK, { recursive: true, force: true });
  const common = compileParts(withoutTorch(), 'user', join(WORK, 'common'), ['-fno-ident']);
  const stubs = linksOf(LIBRARY).map(stub);
  for (const pytorch of [...new Set([...supported, ...versionsIn(headers)])].sort(byVersion)) {
    const include = resolve(headers, pytorch);
    if (!supported.includes(pytorch)) leftOut.push(`${pytorch}: Weir does not support this version (abi/pytorch.ts)`);
    else if (!existsSync(join(include, 'c10/cuda/CUDACachingAllocator.h'))) leftOut.push(`${pytorch}: its headers are not in ${include}`);
    else {
      for (const abi of stringAbis(pytorch)) {
        const name = `${pytorch}-abi${abi}`;
        try {
          const library = compile(join(WORK, name), include, resolve(cuda), abi, common, stubs);
          files.set(`${name}/${LIBRARY}`, library);
          const sha256 = createHash('sha256').update(library).digest('hex');
          adapters.push({ pytorch, abi, file: `${name}/${LIBRARY}`, sha256, ...interfaceOf(include) });
          made.push(`${name}: ${(library.length / 1024).toFixed(0)} KiB`);
        } catch (error) {
          if (error instanceof BaselineError) throw error;
          leftOut.push(`${name}: it does not compile: ${firstError(error)}`);
        }
      }
    }
  }
  const manifest = { version, digest, sources: sourcesKey(), adapters };
  if (adapters.length > 0) files.set('manifest.json', Buffer.from(`${JSON.stringify(manifest, undefined, 1)}\n`));
  return { files, made, leftOut };
}

/**
 * @param {string} headers
 * @param {string} cuda
 */
function whyNone(headers, cuda) {
  if (process.platform !== 'linux' || process.arch !== 'x64') return 'this is not Linux on x86_64';
  if (!existsSync(headers)) return `there is no folder ${headers}; node scripts/torch-headers.mjs makes it`;
  if (!existsSync(join(cuda, 'crt/host_config.h')))
    return `CUDA's headers (cuda_runtime.h, crt/host_config.h) are not in ${cuda}; --cuda names their folder`;
  return hasCompiler('c') && hasCompiler('cpp') ? undefined : 'there is no C and C++ compiler';
}

const withoutTorch = () => libraryParts(LIBRARY).filter((name) => name !== 'torch' && name !== 'testing');

/** @param {string} headers */
const versionsIn = (headers) => readdirSync(headers).filter((name) => /^\d+\.\d+$/.test(name));

/**
 * @param {string} a
 * @param {string} b
 */
const byVersion = (a, b) => a.localeCompare(b, 'en', { numeric: true });

/**
 * A library without functions, so that the adapter asks for PyTorch's library by its name. The loader finds the functions.
 * @param {string} link as `-lc10`
 */
function stub(link) {
  const name = `lib${link.slice(2)}.so`;
  mkdirSync(join(WORK, 'stubs'), { recursive: true });
  writeFileSync(join(WORK, 'stubs/empty.c'), '');
  run(compilerOf('c'), ['-shared', join(WORK, 'stubs/empty.c'), '-o', join(WORK, 'stubs', name), `-Wl,-soname,${name}`]);
  return join(WORK, 'stubs', name);
}

/**
 * @param {string} folder
 * @param {string} include
 * @param {string} cuda
 * @param {number} abi
 * @param {readonly string[]} common object files
 * @param {readonly string[]} stubs
 * @returns {Buffer}
 */
function compile(folder, include, cuda, abi, common, stubs) {
  // Messages of PyTorch's macros hold the path of their header, which must not tell of this machine.
  const anywhere = [`-ffile-prefix-map=${include}=torch/include`, `-ffile-prefix-map=${cuda}=cuda/include`, '-fno-ident'];
  const standard = [`-D_GLIBCXX_USE_CXX11_ABI=${abi}`];
  const objects = compileParts(['torch'], 'user', folder, [...standard, ...anywhere, '-isystem', include, '-isystem', cuda]);
  const baseline = join(folder, 'baseline.o');
  run(compilerOf('cpp'), ['-std=c++17', '-O2', '-fPIC', ...anywhere, ...standard, '-c', 'scripts/wheel/baseline.cpp', '-o', baseline]);
  const output = join(folder, LIBRARY);
  const inputs = [...objects, ...common, baseline, '-Wl,--no-as-needed', ...stubs, '-Wl,--as-needed'];
  run(compilerOf('cpp'), ['-shared', '-pthread', '-s', ...inputs, '-ldl', '-Wl,--build-id=none', '-o', output]);
  const library = readFileSync(output);
  checkBaseline(output, library);
  return library;
}

/**
 * Names of the headers of the interface that this version has, and a hash of what they declare.
 * @param {string} include
 */
function interfaceOf(include) {
  const headers = INTERFACE.filter((name) => existsSync(join(include, name)));
  const digest = createHash('sha256');
  for (const name of headers)
    digest
      .update(`${name}\0`)
      .update(declarations(readFileSync(join(include, name))))
      .update('\0');
  return { headers, interface: digest.digest('hex') };
}

/**
 * As prebuilt.declarations in Python: without comments, white space and what PyTorch puts around headers in a wheel.
 * @param {Buffer} bytes
 */
function declarations(bytes) {
  const text = bytes
    .toString('latin1')
    .replace(/^#if !defined\(TORCH_STABLE_ONLY\)[^\n]*|^#else[ \t\r\n]+#error[^\n]*[ \t\r\n]+#endif[^\n]*[ \t\r\n]*$(?![\s\S])/gm, '')
    .replace(/\/\/[^\n]*|\/\*[^*]*\*+(?:[^/*][^*]*\*+)*\//g, '');
  const words = text.split(/[ \t\n\r\v\f]+/).filter((word) => word !== '');
  return Buffer.from(words.join(' '), 'latin1');
}

/** As build.key in Python, of the sources that the wheel brings. */
function sourcesKey() {
  const digest = createHash('sha256');
  const walk = (/** @type {string} */ folder) => {
    const entries = readdirSync(folder, { withFileTypes: true }).sort((a, b) => (a.name < b.name ? -1 : 1));
    for (const entry of entries.filter((one) => one.isFile() && /\.(c|cpp|h|hpp|json)$/.test(one.name))) {
      const path = join(folder, entry.name);
      digest.update(`${relative(SOURCES, path)}\0`).update(createHash('sha256').update(readFileSync(path)).digest());
    }
    for (const entry of entries.filter((one) => one.isDirectory())) walk(join(folder, entry.name));
  };
  walk(SOURCES);
  return digest.digest('hex').slice(0, 20);
}

/** @param {unknown} error */
function firstError(error) {
  const text = error instanceof Error ? error.message : String(error);
  return text.split('\n').find((line) => /error:/.test(line)) ?? text.split('\n')[0];
}
