// native/build.json as compiler calls: for the build, the tests and the benchmarks. Call it from the repository's root.
// python/weir_gpu/build.py reads the same file on the user's machine.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename, dirname, extname, join } from 'node:path';

const NATIVE = 'native';
/** Holds the generated engine.c and headers, and what is compiled. */
export const GENERATED = 'build/native';

/** @returns {any} */
const rules = () => JSON.parse(readFileSync(join(NATIVE, 'build.json'), 'utf8'));

/**
 * Folders of the sources and of the generated ones.
 * @typedef {{ native: string, generated: string }} Tree
 */
const REPOSITORY = { native: NATIVE, generated: GENERATED };

/**
 * @param {string} path
 * @param {Tree} tree
 */
const located = (path, tree) => join(path.startsWith('@') ? tree.generated : tree.native, path.replace(/^@\/?/, ''));

/**
 * Files that a pattern of build.json names; * stands for any file name.
 * @param {string} pattern
 * @param {Tree} tree
 * @returns {string[]}
 */
function matching(pattern, tree) {
  const path = located(pattern, tree);
  if (!basename(path).startsWith('*')) return [path];
  const folder = dirname(path);
  const names = existsSync(folder) ? readdirSync(folder).sort() : [];
  return names.filter((name) => name.endsWith(extname(path))).map((name) => join(folder, name));
}

/** @param {string} source */
const languageOf = (source) => (source.endsWith('.cpp') ? 'cpp' : 'c');

/**
 * The compiler for a language; users may name theirs.
 * @param {'c' | 'cpp'} language
 */
export function compilerOf(language) {
  return language === 'cpp' ? (process.env['CXX'] ?? 'c++') : (process.env['CC'] ?? 'cc');
}

/** @param {'c' | 'cpp'} language */
export function hasCompiler(language) {
  return spawnSync(compilerOf(language), ['--version'], { stdio: 'ignore' }).status === 0;
}

/**
 * Flags of a sanitizer; none for 'none'.
 * @param {string} sanitizer
 * @returns {string[]}
 */
export function sanitizerFlags(sanitizer) {
  return sanitizer === 'none' ? [] : [`-fsanitize=${sanitizer}`, ...rules().sanitizer];
}

/**
 * Flags to compile a source that includes native headers.
 * @param {string} source
 * @param {'release' | 'user' | 'test' | 'bench'} build
 * @param {Tree} tree
 * @returns {string[]}
 */
function flagsFor(source, build, tree = REPOSITORY) {
  const { standards, flags, builds, includes } = rules();
  const folders = includes.map((/** @type {string} */ path) => `-I${located(path, tree)}`);
  return [standards[languageOf(source)], ...flags, ...builds[build], ...folders];
}

/**
 * Runs a compiler; throws what it said if it fails.
 * @param {string} command
 * @param {readonly string[]} parameters
 */
export function run(command, parameters) {
  const result = spawnSync(command, parameters, { encoding: 'utf8' });
  if (result.error) throw result.error;
  if (result.status !== 0) throw new Error(`${command} ${parameters.join(' ')}\n${result.stderr}`);
}

/**
 * Flags for the sources of one part, beside those for all.
 * @param {string} name
 * @param {Tree} tree
 * @returns {string[]}
 */
export function partFlags(name, tree = REPOSITORY) {
  const { flags = [], lastIncludes = [] } = rules().parts[name];
  return [...flags, ...lastIncludes.flatMap((/** @type {string} */ path) => ['-idirafter', located(path, tree)])];
}

/**
 * The C++ of what includes the headers of a PyTorch; its version is read from them.
 * @param {string} headers
 * @returns {string}
 */
export function pytorchStandard(headers) {
  const wanted = pytorchMinor(headers);
  const known = Object.entries(rules().pytorchStandards).filter(([first]) => Number(first.split('.')[1]) <= wanted);
  return /** @type {[string, string]} */ (known.at(-1))[1];
}

/**
 * The n of PyTorch 2.n, as its headers say.
 * @param {string} headers
 * @returns {number}
 */
export function pytorchMinor(headers) {
  const places = ['torch/headeronly/version.h', 'torch/csrc/api/include/torch/version.h'].map((path) => join(headers, path));
  const text = places.filter((path) => existsSync(path)).map((path) => readFileSync(path, 'utf8'));
  const found = /TORCH_VERSION_MINOR (\d+)/.exec(text.join('\n'));
  if (!found) throw new Error(`${headers} holds no PyTorch headers with a version.h`);
  return Number(found[1]);
}

/**
 * Compiles parts into a folder; gives the object files. Flags in `extra` are for all sources.
 * @param {readonly string[]} parts
 * @param {'release' | 'user' | 'test' | 'bench'} build
 * @param {string} folder
 * @param {readonly string[]} extra
 * @param {Tree} tree
 * @returns {string[]}
 */
export function compileParts(parts, build, folder, extra = [], tree = REPOSITORY) {
  mkdirSync(folder, { recursive: true });
  const known = rules().parts;
  return parts.flatMap((name) => {
    const sources = known[name].sources.flatMap((/** @type {string} */ pattern) => matching(pattern, tree));
    return sources.map((/** @type {string} */ source) => {
      const object = join(folder, `${name}-${basename(source, extname(source))}.o`);
      const compiler = compilerOf(languageOf(source));
      run(compiler, [...flagsFor(source, build, tree), ...partFlags(name, tree), ...extra, '-c', source, '-o', object]);
      return object;
    });
  });
}

/**
 * Makes a program of sources and object files.
 * @param {readonly string[]} sources
 * @param {'release' | 'test' | 'bench'} build
 * @param {string} output
 * @param {readonly string[]} more object files, folders of headers, libraries
 */
export function compileProgram(sources, build, output, more = []) {
  mkdirSync(dirname(output), { recursive: true });
  const first = /** @type {string} */ (sources[0]);
  run(compilerOf(languageOf(first)), [...flagsFor(first, build), ...sources, ...more, '-o', output, ...rules().link]);
}

/**
 * Words that link a program with one of our libraries, found at run time by its path from the program's folder.
 * @param {string} library
 * @param {string} fromProgram
 */
export function linkedWith(library, fromProgram) {
  return [`-L${GENERATED}`, `-l${library.replace(/^lib|\.so$/g, '')}`, `-Wl,-rpath,$ORIGIN/${fromProgram}`];
}

/**
 * Libraries that one of ours needs.
 * @param {string} library
 * @returns {string[]}
 */
export function linksOf(library) {
  return rules().libraries[library].links;
}

/**
 * Parts that one of our libraries is made of.
 * @param {string} library
 * @returns {string[]}
 */
export function libraryParts(library) {
  return rules().libraries[library].parts;
}

/** Makes the libraries that need no PyTorch: libweir_engine.so and libweir_runtime.so. */
export function buildLibraries() {
  const { libraries, flags, link } = rules();
  rmSync(join(GENERATED, 'objects'), { recursive: true, force: true });
  const objects = new Map();
  for (const [name, { parts, exports }] of Object.entries(libraries)) {
    if (!exports) continue;
    for (const part of parts) if (!objects.has(part)) objects.set(part, compileParts([part], 'release', join(GENERATED, 'objects')));
    const map = join(GENERATED, 'objects', `${name}.map`);
    writeFileSync(map, `{ global: ${exports.join('; ')}; local: *; };\n`);
    const all = parts.flatMap((/** @type {string} */ part) => objects.get(part));
    run(compilerOf('c'), ['-shared', ...flags, ...all, `-Wl,--version-script=${map}`, '-o', join(GENERATED, name), ...link]);
  }
}

/** All native sources, headers and rules: whoever keeps what was compiled compares them. */
export function nativeFiles() {
  const sources = readdirSync(NATIVE, { encoding: 'utf8', recursive: true }).filter((name) => /\.(c|cpp|h|hpp|json)$/.test(name));
  const generated = readdirSync(GENERATED).filter((name) => /\.[ch]$/.test(name));
  return [...sources.map((name) => join(NATIVE, name)), ...generated.map((name) => join(GENERATED, name))].sort();
}
