// What lies in the wheel: the Python package, and inside it the JavaScript with the packages it needs (weir_gpu/_js).
// Called from the repository's root, after `npm run build`.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';

export const PACKAGE = 'weir_gpu';
/** python/weir_gpu/parts.py looks here. The folder has the layout of the npm package. */
export const JAVASCRIPT = `${PACKAGE}/_js`;

/** Only editors and other programs need these. */
const FOR_DEVELOPERS = /\.(map|d\.[cm]?ts|tsbuildinfo)$|__pycache__/;
/** Documentation, other module systems and sources of packages; their licenses stay. */
const UNUSED = [
  /\.(md|cc|hh|h|inc|def|asm|S)$|CMakeLists/,
  /^hono\/dist\/(cjs|types)\//,
  /^koffi\/(vendor|doc|cnoke|lib\/native)/,
  /^@koromix\/[^/]+\/musl_/,
];
/** Recordings for tests, and pictures. The npm package has them. */
const LARGE = /^(samples\/exact|docs\/images)\//;

/**
 * Every file of the wheel but its metadata and the adapters, by its path in the wheel.
 * @param {{ platform: string, architecture: string }} target as Node names them
 * @returns {Map<string, Buffer>}
 */
export function contents(target) {
  const found = new Map();
  const add = (/** @type {string} */ name, /** @type {string} */ path) => found.set(name, readFileSync(path));
  for (const path of filesIn(`dist/python/${PACKAGE}`)) add(relative('dist/python', path), path);
  for (const folder of ['dist', 'docs', 'samples']) {
    for (const path of filesIn(folder)) if (!LARGE.test(path)) add(`${JAVASCRIPT}/${path}`, path);
  }
  for (const path of ['package.json', 'README.md', 'CHANGELOG.md', 'LICENSE', 'NOTICE']) add(`${JAVASCRIPT}/${path}`, path);
  for (const folder of packages(target)) {
    for (const path of filesIn(folder)) {
      const name = relative('node_modules', path);
      if (!UNUSED.some((pattern) => pattern.test(name))) add(`${JAVASCRIPT}/${path}`, path);
    }
  }
  return found;
}

/**
 * Folders of the packages that the lockfile names for users.
 * @param {{ platform: string, architecture: string }} target
 * @returns {string[]}
 */
function packages({ platform, architecture }) {
  const lock = JSON.parse(readFileSync('package-lock.json', 'utf8'));
  const wanted = Object.entries(lock.packages).filter(
    ([path, { dev, os, cpu }]) =>
      path !== '' && !dev && (os ?? [platform]).includes(platform) && (cpu ?? [architecture]).includes(architecture),
  );
  return wanted.map(([path]) => {
    if (!existsSync(path))
      throw new Error(`${path} is missing: a wheel for ${platform} ${architecture} is built on such a machine, after npm ci`);
    return path;
  });
}

/**
 * Files in a folder and below it.
 * @param {string} folder
 * @returns {string[]}
 */
function filesIn(folder) {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .filter((path) => !FOR_DEVELOPERS.test(path));
}
