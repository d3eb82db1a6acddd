// What identifies a compiled adapter: the sources it was made from and PyTorch's interface it was made for.
// python/weir_gpu/prebuilt.py computes the same on the user's machine, and uses an adapter only if both are equal.
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';

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

/**
 * Names of the headers of the interface that this version has, and a hash of what they declare.
 * @param {string} include
 */
export function interfaceOf(include) {
  const headers = INTERFACE.filter((name) => existsSync(join(include, name)));
  const digest = createHash('sha256');
  for (const name of headers) {
    digest
      .update(`${name}\0`)
      .update(declarations(readFileSync(join(include, name))))
      .update('\0');
  }
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

/**
 * As build.key in Python, of a folder of native sources as users get it.
 * @param {string} native
 */
export function sourcesKey(native) {
  const digest = createHash('sha256');
  const walk = (/** @type {string} */ folder) => {
    const entries = readdirSync(folder, { withFileTypes: true }).sort((a, b) => (a.name < b.name ? -1 : 1));
    for (const entry of entries.filter((one) => one.isFile() && /\.(c|cpp|h|hpp|json)$/.test(one.name))) {
      const path = join(folder, entry.name);
      digest.update(`${relative(native, path)}\0`).update(createHash('sha256').update(readFileSync(path)).digest());
    }
    for (const entry of entries.filter((one) => one.isDirectory())) walk(join(folder, entry.name));
  };
  walk(native);
  return digest.digest('hex').slice(0, 20);
}
