// The layers of Weir and what each may import. This table is the only place where that is written down.
// `node scripts/layers.mjs` checks every import; `--write` also fills in the list in ARCHITECTURE.md.
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('../', import.meta.url));
const TABLE = 'scripts/layers.mjs';

/**
 * From the top down. `imports` names every layer that a layer may import from, `packages` what it may use from npm.
 * A layer that runs in `any` is pure: no file system, no process, no FFI and no DOM, so that the page can use it too.
 * `nodeFiles` are the exceptions in a pure layer; no other pure file may import them.
 */
export const LAYERS = [
  {
    name: 'cli',
    runs: 'Node',
    about: 'one file per command; files, terminal, worker threads, exit codes',
    imports: ['abi', 'base', 'io', 'trace', 'backend', 'allocator', 'pool', 'replay', 'plan', 'fit', 'report', 'view', 'server', 'run'],
    packages: ['commander', '@hono/node-server'],
  },
  {
    name: 'run',
    runs: 'Node',
    about: 'supervises a job: environment, rings, recordings, plans, summary, metrics',
    imports: ['abi', 'base', 'io', 'trace', 'backend', 'allocator', 'replay', 'plan', 'fit', 'report', 'view', 'server'],
    packages: [],
  },
  {
    name: 'server',
    runs: 'Node',
    about: 'serves the page and its data on 127.0.0.1',
    imports: ['abi', 'base', 'io', 'trace', 'backend', 'allocator', 'replay', 'plan', 'fit', 'report', 'view'],
    packages: ['hono'],
  },
  {
    name: 'index',
    runs: 'Node',
    about: 'the library: everything another program may import from `weir`',
    imports: ['abi', 'base', 'io', 'trace', 'backend', 'allocator', 'pool', 'replay', 'plan', 'fit', 'report', 'view'],
    packages: [],
  },
  {
    name: 'web',
    runs: 'browser',
    about: 'the page: Preact, canvas, a worker',
    imports: ['abi', 'base', 'io', 'trace', 'backend', 'allocator', 'replay', 'plan', 'fit', 'report', 'view'],
    packages: ['preact', '@preact/signals'],
  },
  {
    name: 'view',
    runs: 'any',
    about: 'what the page shows, without a DOM: levels of detail, map, flame graph',
    imports: ['abi', 'base', 'io', 'trace', 'backend', 'allocator', 'replay', 'plan', 'fit', 'report'],
    packages: [],
  },
  {
    name: 'report',
    runs: 'any',
    about: 'verdict, what-if table, advice, rules; text and JSON',
    imports: ['abi', 'base', 'trace', 'backend', 'allocator', 'replay', 'plan', 'fit'],
    packages: [],
  },
  {
    name: 'fit',
    runs: 'any',
    about: 'runs of other values: alignment, size functions, synthesis, the largest value',
    imports: ['abi', 'base', 'trace', 'backend', 'allocator', 'replay', 'plan'],
    packages: [],
  },
  {
    name: 'plan',
    runs: 'any',
    about: 'steps, offsets, swaps, their simulator and their verifier',
    imports: ['abi', 'base', 'trace', 'backend', 'allocator', 'replay'],
    packages: [],
  },
  {
    name: 'replay',
    runs: 'any',
    about: 'a trace through an allocator on a backend; reconstruction of the recorded run',
    imports: ['abi', 'base', 'trace', 'backend', 'allocator'],
    packages: [],
  },
  {
    name: 'pool',
    runs: 'Node',
    about: 'an allocator on a backend for other programs',
    imports: ['abi', 'base', 'backend', 'allocator'],
    packages: [],
  },
  {
    name: 'allocator',
    runs: 'any',
    about: "who places memory: pytorch (+ expandable), cnmem, the engine's presets",
    imports: ['abi', 'base', 'trace', 'backend'],
    packages: [],
  },
  {
    name: 'backend',
    runs: 'any',
    about: 'where memory comes from: simulated; host and cuda by FFI, for Node only',
    imports: ['abi', 'base'],
    packages: ['koffi'],
    nodeFiles: ['cuda.ts', 'cuda-streams.ts', 'ffi.ts', 'host.ts', 'nvml.ts'],
  },
  {
    name: 'trace',
    runs: 'any',
    about: 'what happened: columns, readers (pickle, JSON, .weir), the .weir writer',
    imports: ['abi', 'base'],
    packages: [],
  },
  {
    name: 'io',
    runs: 'any',
    about: 'unpacking gzip and zstd, for the command and the page',
    imports: ['abi', 'base'],
    packages: [],
  },
  { name: 'base', runs: 'any', about: 'bytes, errors, hash map, CRC', imports: ['abi'], packages: [] },
  { name: 'abi', runs: 'any', about: 'facts shared with C and Python, generated from abi/', imports: [], packages: [] },
];

/** The folders inside a layer and which of them each may import from; `.` is the layer's own folder. */
export const ROOMS = {
  plan: {
    offsets: [],
    steps: ['offsets'],
    swaps: ['offsets'],
    'swaps/live': ['swaps', 'offsets'],
    'swaps/published': ['swaps', 'offsets'],
    files: ['offsets', 'steps', 'swaps', 'swaps/live'],
  },
  run: {
    child: [],
    rings: ['child'],
    planning: ['rings'],
    swapping: ['rings'],
    failures: ['rings'],
    summary: ['child', 'rings', 'planning', 'swapping', 'failures'],
    '.': ['child', 'rings', 'planning', 'swapping', 'failures', 'summary'],
    check: ['child', '.'],
    trying: ['child', '.'],
  },
};

/**
 * Native code is loaded on demand, by one file, so that everything else runs where there is none: koffi is no import of any file.
 * Only these may ask for it: real memory, the management library of GPUs, the processes of a job, and the end of a command.
 */
const NATIVE_PACKAGE = 'koffi';
export const NATIVE_LOADER = 'src/backend/ffi.ts';
export const NATIVE_USERS = [
  'src/backend/cuda.ts',
  'src/backend/cuda-streams.ts',
  'src/backend/host.ts',
  'src/backend/nvml.ts',
  'src/cli/leave.ts',
  'src/run/child/posix-process.ts',
];

const byName = new Map(LAYERS.map((layer) => [layer.name, layer]));

/** The layer of a path like `src/plan/steps/step.ts`, or undefined if it belongs to none. */
export function layerOf(path) {
  if (path === 'src/index.ts') return byName.get('index');
  const [top, folder, ...rest] = path.split('/');
  if (top === 'web') return byName.get('web');
  return top === 'src' && rest.length > 0 ? byName.get(folder) : undefined;
}

function roomOf(path) {
  return path.split('/').slice(2, -1).join('/') || '.';
}

function isPure(path) {
  const layer = layerOf(path);
  return layer !== undefined && layer.runs !== 'Node' && !layer.nodeFiles?.includes(path.split('/').slice(2).join('/'));
}

/** Everything a source file imports, including types and the files that its worker threads run. */
export function importsOf(source) {
  const statements = source.matchAll(/^(?:import|export)\s(?:[^;'"]*?\sfrom\s+)?['"]([^'"]+)['"]/gm);
  const calls = source.matchAll(/\bimport\(\s*['"]([^'"]+)['"]/g);
  const workers = source.matchAll(/new URL\(\s*['"](\.[^'"]+\.[jt]sx?)['"],\s*import\.meta\.url/g);
  return [...statements, ...calls, ...workers].map((match) => match[1]);
}

/** One line for each import of a file that the table does not allow. */
export function violationsIn(path, source) {
  if (path.startsWith('abi/')) return violationsInTables(path, source);
  const layer = layerOf(path);
  if (!layer) return [`${path} belongs to no layer of ${TABLE}`];
  return [
    ...violationsOfNative(path, source),
    ...importsOf(source).flatMap((name) => {
      const problem = name.startsWith('.') ? refuseFile(path, layer, name) : refusePackage(path, layer, name);
      return problem ? [`${path} imports ${name}: ${problem} (${TABLE})`] : [];
    }),
  ];
}

/** What would load native code where a file is only loaded. Types are erased, so they are allowed. */
function violationsOfNative(path, source) {
  const named = `['"]${NATIVE_PACKAGE}['"]`;
  const isImported = new RegExp(`^(?:import|export)\\s(?!type\\s)(?:[^;'"]*?\\sfrom\\s+)?${named}|\\bimport\\(\\s*${named}`, 'm').test(
    source,
  );
  const isRequired = path !== NATIVE_LOADER && new RegExp(`\\(\\s*${named}\\s*\\)`).test(source);
  const usesLoader = importsOf(source).some((name) => name.startsWith('.') && normalize(join(dirname(path), name)) === NATIVE_LOADER);
  return [
    ...(isImported ? [`${path} imports ${NATIVE_PACKAGE}: ${NATIVE_LOADER} loads it on demand, and only its types are imported`] : []),
    ...(isRequired ? [`${path} loads ${NATIVE_PACKAGE}: only ${NATIVE_LOADER} does`] : []),
    ...(usesLoader && !NATIVE_USERS.includes(path)
      ? [`${path} imports ${NATIVE_LOADER}: only ${NATIVE_USERS.join(', ')} need native code`]
      : []),
  ].map((problem) => `${problem} (${TABLE})`);
}

function refusePackage(path, layer, name) {
  if (isPure(path) && name.startsWith('node:')) return `${place(layer)} is pure: it also runs in the browser, so nothing of Node's`;
  if (name.startsWith('node:')) return undefined;
  const known = layer.packages.some((entry) => name === entry || name.startsWith(`${entry}/`));
  if (!known) return `${place(layer)} may use only these packages: ${layer.packages.join(', ') || 'none'}`;
  return layer.nodeFiles && isPure(path) ? `${place(layer)} is pure but for ${layer.nodeFiles.join(', ')}` : undefined;
}

function refuseFile(path, layer, name) {
  const target = normalize(join(dirname(path), name)).replace(/\.js(x?)$/, '.ts$1');
  const other = layerOf(target);
  // package.json and style sheets are no part of any layer; the tables of abi/ are for the generator alone.
  if (!other) return /\.[jt]sx?$/.test(target) ? `${place(layer)} may import only from layers` : undefined;
  if (other !== layer && !layer.imports.includes(other.name)) {
    return `${place(layer)} may import only from: ${layer.imports.join(', ') || 'nothing'}`;
  }
  if (isPure(path) && !isPure(target)) return `${place(layer)} is pure: it also runs in the browser, and ${target} does not`;
  return other === layer ? refuseRoom(path, layer, target) : undefined;
}

function refuseRoom(path, layer, target) {
  const rooms = ROOMS[layer.name];
  const [from, to] = [roomOf(path), roomOf(target)];
  if (!rooms || from === to) return undefined;
  if (!(from in rooms)) return `${place(layer)}/${from} is no room of ${place(layer)}`;
  return rooms[from].includes(to) ? undefined : `${place(layer)}/${from} may import only from: ${rooms[from].join(', ') || 'nothing'}`;
}

/** The tables stand alone: they are read at build time, before anything is built. */
function violationsInTables(path, source) {
  const outside = importsOf(source).filter((name) =>
    name.startsWith('.') ? !normalize(join(dirname(path), name)).startsWith('abi/') : !name.startsWith('node:'),
  );
  return outside.map((name) => `${path} imports ${name}: abi may import only from itself and Node (${TABLE})`);
}

function place(layer) {
  if (layer.name === 'web') return 'web';
  return layer.name === 'index' ? 'src/index.ts' : `src/${layer.name}`;
}

/** Every source file that the table speaks of, with its content. */
export function sourceFiles(root = ROOT) {
  const found = [];
  const walk = (folder) => {
    for (const entry of readdirSync(join(root, folder), { withFileTypes: true })) {
      const path = `${folder}/${entry.name}`;
      if (entry.isDirectory()) walk(path);
      else if (/\.tsx?$/.test(entry.name)) found.push([path, readFileSync(join(root, path), 'utf8')]);
    }
  };
  for (const folder of readdirSync(root).filter((name) => ['abi', 'src', 'web'].includes(name))) walk(folder);
  return found;
}

/** All that is wrong in the tree. */
export function violations(files = sourceFiles()) {
  return files.flatMap(([path, source]) => violationsIn(path, source));
}

const BLOCK = /(<!-- layers -->\n)[\s\S]*?(<!-- \/layers -->)/;

/** A document with the list of layers between its markers. */
export function withLayers(text) {
  const width = Math.max(...LAYERS.map(({ name }) => name.length)) + 2;
  const lines = LAYERS.map(({ name, about, runs }) => `${name.padEnd(width)}${about.padEnd(84)}(${runs === 'any' ? 'pure' : runs})`);
  return text.replace(BLOCK, (_, begin, end) => `${begin}\`\`\`\n${lines.join('\n')}\n\`\`\`\n${end}`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  if (process.argv.includes('--write')) {
    const path = join(ROOT, 'ARCHITECTURE.md');
    writeFileSync(path, withLayers(readFileSync(path, 'utf8')));
  }
  const found = violations();
  for (const line of found) process.stderr.write(`${line}\n`);
  process.exitCode = found.length > 0 ? 1 : 0;
}
