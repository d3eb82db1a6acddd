// The oldest system that a wheel is for, and what compiled files may ask of it. Its name is in the wheel's tag.
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

/** koffi's binary asks for glibc 2.25; this is the next name that installers know. PyTorch's own wheels have the same. */
export const PLATFORM = 'manylinux_2_28_x86_64';

/** The newest versions of symbols there: glibc 2.28 and the libstdc++ of GCC 8. */
const NEWEST = { GLIBC: [2, 28], GLIBCXX: [3, 4, 24], CXXABI: [1, 3, 11], GCC: [8] };

/** Functions of the CUDA runtime with the same parameters in CUDA 11 to 13. An adapter is compiled once for all of them. */
const CUDA = new Set([
  'cudaDeviceSynchronize',
  'cudaEventCreateWithFlags',
  'cudaEventDestroy',
  'cudaEventQuery',
  'cudaEventRecord',
  'cudaEventSynchronize',
  'cudaFree',
  'cudaGetDevice',
  'cudaGetErrorString',
  'cudaGetLastError',
  'cudaMalloc',
  'cudaMemGetInfo',
  'cudaMemcpy',
  'cudaMemcpyAsync',
  'cudaMemcpyPeerAsync',
  'cudaSetDevice',
  'cudaStreamIsCapturing',
  'cudaStreamQuery',
  'cudaStreamSynchronize',
  'cudaStreamWaitEvent',
]);

/**
 * Throws if a compiled file asks for more than the platform of the wheel has. Names of symbols and versions are strings in it.
 * @param {string} path
 * @param {Buffer} bytes
 */
export function checkBaseline(path, bytes = readFileSync(path)) {
  const words = new Set(bytes.toString('latin1').match(/(?<=\0)(?:(?:GLIBC|GLIBCXX|CXXABI|GCC)_\d+(?:\.\d+)*|cuda[A-Z]\w*)(?=\0)/g));
  const much = [...words].filter((word) => (word.startsWith('cuda') ? !CUDA.has(word) : isNewer(word)));
  if (much.length === 0) return;
  const what = much.map((word) => [word, ...symbolsOf(path, word)].join(' ')).join(', ');
  throw new BaselineError(`${path} needs ${what}: more than ${PLATFORM} promises; scripts/wheel/baseline.cpp is the place for it`);
}

/**
 * Functions that a file wants in this version, if there is a tool that tells.
 * @param {string} path
 * @param {string} version
 * @returns {string[]}
 */
function symbolsOf(path, version) {
  const { stdout } = spawnSync('nm', ['-D', '--with-symbol-versions', path], { encoding: 'utf8' });
  const found = (stdout ?? '').split('\n').filter((line) => line.endsWith(`@${version}`));
  return found.length === 0 ? [] : [`(${found.map((line) => line.trim().split(/[ @]+/)[1]).join(', ')})`];
}

/** A wheel with such a file would be wrong, so none is made. */
export class BaselineError extends Error {}

/** @param {string} word as `GLIBC_2.34` */
function isNewer(word) {
  const [family = '', version = ''] = word.split('_');
  const newest = NEWEST[/** @type {keyof typeof NEWEST} */ (family)];
  const numbers = version.split('.').map(Number);
  for (let i = 0; i < Math.max(numbers.length, newest.length); i++) {
    const difference = (numbers[i] ?? 0) - (newest[i] ?? 0);
    if (difference !== 0) return difference > 0;
  }
  return false;
}
